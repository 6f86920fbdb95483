"""The page and its files, made once from the templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from faircl.serving.limits import Limits, size_in_words
from faircl.serving.networks import Choice
from faircl.serving.uploads import ACCEPTED, TYPES


class Page(NamedTuple):
    """Texts of the page, its style and its script."""

    html: str
    css: str
    script: str


def make_page(run: str, choices: Sequence[Choice], current: int, limits: Limits) -> Page:
    """Return the page of a run; ``current`` is the place of the network that it shows on the right at first.

    The left side shows the network before it, or the image alone if there is none.
    """
    # autoescape: names of runs and classes are user input. The reports' style is shared, their templates are not.
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("faircl.serving"), PackageLoader("faircl.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("serve.html.j2").render(
        run=run,
        choices=choices,
        left=choices[current - 1].key if current else "",
        right=choices[current].key,
        types=f"{', '.join(TYPES[:-1])} or {TYPES[-1]}",
        accepted=ACCEPTED,
        max_bytes=limits.max_bytes,
        max_bytes_words=size_in_words(limits.max_bytes),
        max_pixels=limits.max_pixels,
    )
    css = environment.get_template("serve.css.j2").render()
    return Page(html, css, environment.get_template("serve.js").render())
