"""Loading from the hubs of Hugging Face and torch: nothing but the error is printed where that fails, and at once.

The libraries print every attempt, and repeat it for a minute where there is no network.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

_LOGGERS = ("huggingface_hub", "transformers", "timm", "datasets", "torch.hub")
_SECONDS = 10.0
"""How long to wait for the first answer of the hub."""


@contextmanager
def quiet_download() -> Iterator[None]:
    """Hold back what libraries print, to standard error, until a progress bar appears or the work is done.

    After a failure it is dropped: the error says what happened.
    """
    held = _HeldBack(sys.stderr)
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(held), redirect_stderr(held):
            warnings.simplefilter("ignore")
            yield
        held.release()
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Where the Hugging Face hub cannot be reached, look into its cache alone, without attempts to download.

    What the cache does not hold is a ConnectionError.
    """
    from huggingface_hub import constants

    reason = None if constants.HF_HUB_OFFLINE else _unreachable()
    if reason is None:
        yield
        return
    # The libraries ask these names whenever they are about to connect.
    switches = [constants, *([sys.modules["datasets"].config] if "datasets" in sys.modules else [])]
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    try:
        for switch in switches:
            switch.HF_HUB_OFFLINE = True
        yield
    except Exception:
        raise ConnectionError(
            f"{constants.ENDPOINT} cannot be reached ({reason}) and its cache holds no usable copy"
        ) from None
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value


def _unreachable() -> str | None:
    """Return why the hub cannot be reached; None if it answers, whatever it says."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS)
    except Exception as error:  # those of the HTTP library, which changes
        return " ".join(str(error).split()) or type(error).__name__
    return None


class _HeldBack:
    """A text stream that keeps what is written until it is released; a progress bar releases it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.kept, self.released = stream, "", False

    def write(self, text: str) -> int:
        if self.released:
            return self.stream.write(text)
        self.kept += text
        if "\r" in text:
            self.release()
        return len(text)

    def flush(self) -> None:
        if self.released:
            self.stream.flush()

    def release(self) -> None:
        """Write what was kept, and from now on everything at once."""
        self.stream.write(self.kept)
        self.kept, self.released = "", True

    def __getattr__(self, name: str) -> Any:  # encoding, isatty and others, by which a progress bar finds its width
        return getattr(self.stream, name)
