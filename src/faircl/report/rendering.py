"""From a template to a file: pages escape everything, load nothing, and run no script but their own."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from faircl.files import RESUME, write_text
from faircl.tables import show

_INERT = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def write_page(path: Path, template: str, advice: str = RESUME, **values: Any) -> Path:
    """Render a template into a file, which is written whole or not at all; ``advice`` is what to do if it cannot be."""
    write_text(path, _environment().get_template(template).render(**values), advice)
    return path


def inert_json(value: Any) -> Markup:
    """Return JSON that may stand inside a ``script`` element: no character in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_INERT))


class Script:
    """JavaScript of the templates folder, and the hash by which a Content-Security-Policy allows it and no other."""

    def __init__(self, *names: str) -> None:
        folder = files("faircl.report") / "templates"
        self.text = Markup("\n".join((folder / name).read_text(encoding="utf-8") for name in names))
        digest = hashlib.sha256(self.text.encode()).digest()
        self.hash = f"sha256-{base64.b64encode(digest).decode('ascii')}"


@cache
def _environment() -> Environment:
    # autoescape for every template: class names, labels and configurations are user input.
    environment = Environment(
        loader=PackageLoader("faircl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = show
    return environment
