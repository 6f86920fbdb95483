"""The user's cache folder, for results that can be computed again."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

CACHE_VARIABLE = "FAIRCL_CACHE"


def cache_folder() -> Path:
    """Return faircl's cache folder: $FAIRCL_CACHE, or a folder in the operating system's cache."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "faircl"


def write_cache_file(path: Path, write: Callable[[BinaryIO], object]) -> bool:
    """Write a file of the cache atomically; return whether that succeeded."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")  # random: several machines may share the folder
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            write(file)
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        return False
    return True
