"""Label Studio's run-length code of brush regions.

A region of an image (H, W) is a sequence of H·W·4 words, red, green, blue and alpha of every pixel, row by row; a pixel
belongs to it where alpha is not 0. The code is a sequence of bits, the highest bit of a byte first:

    32 bits          number of words
    5 bits           bits of a word, less 1
    4 × 4 bits       four sizes s_0 … s_3, each less 1
    then groups      1 bit x, 2 bits k, s_k bits n - 1, and
                     one word that is repeated n times, if x is 1, or n words, if x is 0
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Region = NDArray[np.bool_]  # (H, W)

CHANNELS = 4
_WORD = 8
_SIZES = np.array([3, 4, 8, 16])
_HEADER_BITS = 32 + 5 + 4 * len(_SIZES)
_LONGEST = 1 << 16


def encode_region(region: Region) -> bytes:
    """Return the code of a region (H, W): words of 8 bits, 255 inside and 0 outside, in runs of up to 65536 words."""
    flat = region.ravel()
    ends = np.append(np.flatnonzero(flat[1:] != flat[:-1]), flat.size - 1)
    lengths = np.diff(ends, prepend=-1) * CHANNELS
    parts = -(-lengths // _LONGEST)  # a longer run is divided: full groups first, then the rest
    groups = np.full(parts.sum(), _LONGEST)
    groups[np.cumsum(parts) - 1] = lengths - (parts - 1) * _LONGEST
    values = np.repeat(np.where(flat[ends], 255, 0), parts)
    kinds = np.searchsorted(1 << _SIZES, groups)  # the first size that holds a group
    sizes = _SIZES[kinds]
    tokens = (((1 << 2 | kinds) << sizes | groups - 1) << _WORD) | values
    header = (
        flat.size * CHANNELS << 21 | (_WORD - 1) << 16 | sum(int(s) - 1 << 12 - 4 * k for k, s in enumerate(_SIZES))
    )
    bits = np.unpackbits(tokens.astype(">u4").view(np.uint8)).reshape(-1, 32)
    used = np.arange(32) >= 32 - (3 + sizes + _WORD)[:, None]
    start = np.unpackbits(np.frombuffer(header.to_bytes(8, "big"), np.uint8))[64 - _HEADER_BITS :]
    return np.packbits(np.concatenate([start, bits[used]])).tobytes()


def decode_region(code: bytes, height: int, width: int) -> Region:
    """Return the region (H, W) of a code; ValueError if it is damaged or of another size."""
    if len(code) * 8 < _HEADER_BITS:
        raise ValueError(f"it has {len(code)} bytes, which is too few")
    reader = _Bits(code)
    count, word = reader.take(32), reader.take(5) + 1
    sizes = [reader.take(4) + 1 for _ in range(4)]
    if count != height * width * CHANNELS:
        raise ValueError(f"it holds {count} numbers, not four for each of {width}x{height} pixels")
    words = np.zeros(count, np.uint8 if word <= _WORD else np.uint32)
    at = 0
    while at < count:
        repeated, kind = reader.take(1), reader.take(2)
        length = reader.take(sizes[kind]) + 1
        if at + length > count:
            raise ValueError("its runs are longer than the image")
        words[at : at + length] = reader.take(word) if repeated else reader.take_words(length, word)
        at += length
    region: Region = words.reshape(height, width, CHANNELS)[..., -1] != 0
    return region


class _Bits:
    """A sequence of bytes, read bit by bit."""

    def __init__(self, code: bytes) -> None:
        self.code, self.at = code, 0

    def take(self, bits: int) -> int:
        """Return the next bits, 32 at most, as a number."""
        start, self.at = self.at, self.at + bits
        if self.at > len(self.code) * 8:
            raise ValueError("it ends too early")
        first, last = start // 8, -(-self.at // 8)
        return int.from_bytes(self.code[first:last], "big") >> (last * 8 - self.at) & (1 << bits) - 1

    def take_words(self, count: int, bits: int) -> NDArray[np.uint32]:
        """Return the next words (count,)."""
        start, self.at = self.at, self.at + count * bits
        if self.at > len(self.code) * 8:
            raise ValueError("it ends too early")
        first, last = start // 8, -(-self.at // 8)
        flat = np.unpackbits(np.frombuffer(self.code[first:last], np.uint8))[start - first * 8 :][: count * bits]
        powers = (1 << np.arange(bits - 1, -1, -1, dtype=np.uint64)).astype(np.uint64)
        words: NDArray[np.uint32] = (flat.reshape(count, bits) @ powers).astype(np.uint32)
        return words
