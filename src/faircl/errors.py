"""Errors for users: one sentence without a traceback.

A `UserError` says what was found, what was expected and what to do next. The command line prints it and exits with
code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

MAX_NAMES = 20
"""Names that are listed; of a longer list the rest is counted."""


class UserError(Exception):
    """A mistake in data, configuration or environment that the user can correct."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; its text says how to continue."""

    def __init__(self, sentence: str, signal: int) -> None:
        super().__init__(sentence)
        self.signal = signal


class RenamedSetting(FutureWarning):
    """A setting was given by its old name."""


def listed(names: Sequence[str]) -> str:
    """Return names joined by commas; the first twenty of a longer list, and how many more there are."""
    more = len(names) - MAX_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MAX_NAMES])}, … and {more} more"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name, with the known names and the closest one."""
    known = sorted(known)
    return UserError(f"Unknown {kind} '{name}'.{did_you_mean(name, known)} Known: {listed(known)}.")
