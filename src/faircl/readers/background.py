"""The setting ``background`` of readers whose class list may or may not begin with a background class."""

from __future__ import annotations

from faircl.data.sample import Classes
from faircl.errors import unknown_name

_CHOICES = ("auto", "first", "none")


def check_background(background: str) -> None:
    """Raise an error for an unknown setting."""
    if background not in _CHOICES:
        raise unknown_name("background setting", background, _CHOICES)


def classes_with_background(names: tuple[str, ...], background: str) -> Classes:
    """Return the class list: id 0 is background if the setting is ``first``, or ``auto`` and its name "background"."""
    named = background == "auto" and names[0].lower() == "background"
    return Classes(names, background=named or background == "first")
