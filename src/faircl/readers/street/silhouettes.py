"""Outlines of the objects of a street, as functions of a unit box.

Each takes ``u`` (1, w) in [-1, 1] from left to right, ``v`` (h, 1) in [0, 1] from the ground up and a random ``twist``
in [0, 1), and returns the outline (h, w) bool and the part of the object (h, w) at each pixel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Outline = tuple[NDArray[np.bool_], NDArray[np.uint8]]

BODY, TRIM, DARK, LAMP = range(4)
"""Parts: main colour, second colour, glass or tyre or shade, lamp or skin or light paint."""


def _parts(body: NDArray[np.bool_], *marks: tuple[NDArray[np.bool_], int]) -> NDArray[np.uint8]:
    part = np.zeros(body.shape, np.uint8)
    for where, value in marks:
        part[where] = value
    return part


def tree(u: Floats, v: Floats, twist: float) -> Outline:
    """Trunk under a lobed crown."""
    y = (v - 0.64) / 0.36
    radius = u * u + y * y
    lobes = np.abs((u * (2.5 + twist) - y * (1.5 + 2 * twist) + twist) % 1.0 - 0.5)  # a triangle wave along a slant
    crown = radius < 0.72 + 0.5 * lobes
    trunk = (np.abs(u) < 0.13) & (v < 0.5)
    return crown | trunk, _parts(crown, (trunk & ~crown, DARK))


def car(u: Floats, v: Floats, twist: float) -> Outline:
    """Low rounded body, a narrower cabin with one wide window, two tyres."""
    a = np.abs(u)
    body = (a < 0.98) & (v > 0.16) & (v < 0.62)
    cabin = (a < 1.25 - 0.62 * v) & (v >= 0.6)
    tyres = (a > 0.5) & (a < 0.88) & (v < 0.22)
    window = (a < 1.06 - 0.62 * v) & (v > 0.64) & (v < 0.9)
    lamps = (a > 0.62) & (a < 0.94) & (v > 0.38) & (v < 0.56)
    return body | cabin | tyres, _parts(body, (tyres, DARK), (window, DARK), (lamps, LAMP))


def van(u: Floats, v: Floats, twist: float) -> Outline:
    """Tall box with a high window, often with a band of the second colour around its waist."""
    a = np.abs(u)
    body = (a < 0.96) & (v > 0.1) & (a + 2.5 * (v - 1) < 0.85)
    tyres = (a > 0.5) & (a < 0.88) & (v < 0.16)
    window = (a < 0.74) & (v > 0.6) & (v < 0.86)
    band = (v > 0.3) & (v < 0.5) & body & (twist < 0.6)
    lamps = (a > 0.7) & (a < 0.92) & (v > 0.18) & (v < 0.3)
    return body | tyres, _parts(body, (band, TRIM), (tyres, DARK), (window, DARK), (lamps, LAMP))


def pedestrian(u: Floats, v: Floats, twist: float) -> Outline:
    """Head, upright trunk, two legs."""
    a = np.abs(u)
    head = u * u / 0.25 + (v - 0.89) * (v - 0.89) / 0.0121 < 1
    trunk = (a < 0.88) & (v > 0.42) & (v < 0.79)
    legs = (np.abs(a - 0.42) < 0.3) & (v < 0.45)
    return head | trunk | legs, _parts(trunk, (legs & ~trunk, TRIM), (head, LAMP))


def cyclist(u: Floats, v: Floats, twist: float) -> Outline:
    """Two wheels side by side, a trunk leaning over them, a head in front of it."""
    u = u if twist < 0.5 else -u
    a = np.abs(u) - 0.58
    y = v - 0.24
    ring = a * a + y * y * 3.0  # the box is about 1.7 times as wide as half its height
    wheels = ring < 0.17
    frame = (np.abs(u) < 0.62) & (np.abs(v - 0.3 - 0.1 * u) < 0.07)
    trunk = (np.abs(u - 0.9 * (v - 0.62)) < 0.24) & (v > 0.28) & (v < 0.8)
    arm = (np.abs(v - 0.6) < 0.06) & (u > 0) & (u < 0.55)
    head = (u - 0.3) * (u - 0.3) / 0.05 + (v - 0.88) * (v - 0.88) / 0.0144 < 1
    hub = (ring < 0.06) & wheels
    return wheels | frame | trunk | arm | head, _parts(
        wheels, (wheels, DARK), (hub, LAMP), (frame, TRIM), (trunk | arm, BODY), (head, LAMP)
    )


def kiosk(u: Floats, v: Floats, twist: float) -> Outline:
    """Hut with a counter under a striped awning."""
    a = np.abs(u)
    hut = (a < 0.86) & (v < 0.95)
    awning = (v > 0.66) & (v < 0.92) & (a < 1.35 - 0.4 * v)
    counter = (a < 0.66) & (v > 0.36) & (v < 0.66)
    stripes = awning & ((u * 3 + 12) % 2 < 1)
    return hut | awning, _parts(hut, (counter, DARK), (awning, TRIM), (stripes, LAMP))


SILHOUETTES: dict[str, Callable[[Floats, Floats, float], Outline]] = {
    f.__name__: f for f in (tree, car, van, pedestrian, cyclist, kiosk)
}
