"""What the server accepts: how many bytes and pixels an image may have, and how a refusal is answered."""

from __future__ import annotations

from dataclasses import dataclass

from faircl.errors import UserError

MAX_BYTES = 20_000_000
MAX_PIXELS = 25_000_000
PILLOW_PIXELS = 178_956_970
"""Pixels above which Pillow refuses to open an image."""


@dataclass(frozen=True)
class Limits:
    """The largest file, in bytes, and the largest image, in pixels."""

    max_bytes: int = MAX_BYTES
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        for name, value, most in (
            ("max_bytes", self.max_bytes, 2**31 - 1),
            ("max_pixels", self.max_pixels, PILLOW_PIXELS),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise UserError(f"{name} is {value!r}; expected a whole number from 1 to {most:,}.")


class Refused(UserError):
    """A request that is not followed: one sentence for the page, and the status of the HTTP answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def size_in_words(count: int) -> str:
    """Return a number of bytes as "20 MB", "1.5 kB" or "12 bytes"; 1 kB is 1,000 bytes."""
    for unit, size in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"
