"""Layout of a street: the camera, walls and trees along the street, objects in it.

World: X to the right, Y up, Z ahead, in metres; the street runs along Z. A point is seen at column
``vx + f (X − cx) / Z`` and row ``hy + f (cy − Y) / Z``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NAMES = (
    "background",
    "road",
    "building",
    "tree",
    "car",
    "van",
    "pedestrian",
    "pavement",
    "fence",
    "kiosk",
    "cyclist",
)
ID = {name: index for index, name in enumerate(NAMES)}

SIZES = {  # width and height in metres
    "tree": (3.0, 4.4),
    "car": (2.0, 1.45),
    "van": (2.0, 2.15),
    "pedestrian": (0.75, 1.85),
    "cyclist": (1.9, 1.9),
    "kiosk": (2.1, 2.4),
}
DEPTHS = {  # nearest and farthest in metres; rare objects are about 8 to 20 pixels wide at these
    "tree": (5.5, 16.0),
    "car": (4.5, 14.0),
    "van": (7.0, 13.0),
    "pedestrian": (4.5, 7.5),
    "cyclist": (5.5, 9.0),
    "kiosk": (7.0, 13.0),
}
RARE = {"van": (9, 1), "cyclist": (7, 3), "kiosk": (9, 5), "pedestrian": (4, 0)}
"""Class: (period, phase). It is in image i exactly if i mod period = phase, so that it never depends on chance."""

FAR = 32.0  # metres; the houses end here
MOST_HIDDEN = 0.5  # share of a rare object's width that common objects may cover


@dataclass(frozen=True)
class Camera:
    """Pinhole camera: focal length ``f`` and vanishing point (vx, hy) in pixels, position (cx, cy) in metres."""

    size: int
    f: float
    vx: float
    hy: float
    cx: float
    cy: float


@dataclass(frozen=True)
class Standing:
    """A flat silhouette standing upright at (x, z); ``twist`` in [0, 1) varies its shape."""

    kind: str
    x: float
    z: float
    scale: float
    twist: float

    def columns(self, camera: Camera) -> tuple[float, float]:
        """Left and right edge in pixels."""
        centre = camera.vx + camera.f * (self.x - camera.cx) / self.z
        half = camera.f * SIZES[self.kind][0] * self.scale / self.z / 2
        return centre - half, centre + half

    def covers(self, other: Standing, camera: Camera) -> float:
        """Return the share of the other's width that this one occludes."""
        if self.z > other.z:
            return 0.0
        (a, b), (c, d) = self.columns(camera), other.columns(camera)
        return max(0.0, min(b, d) - max(a, c)) / (d - c)


@dataclass(frozen=True)
class Wall:
    """A wall along the street from ``z`` to ``end`` at X = x; a building also has a gable that faces the camera."""

    kind: str
    x: float
    z: float
    end: float
    height: float


@dataclass(frozen=True)
class Scene:
    """All objects in view, each list from far to near; ``standing`` is always in front of ``lining``.

    kerb, edge: half widths of the road, and of road and pavements together, in metres; hills: relative heights.
    """

    camera: Camera
    kerb: float
    edge: float
    hills: tuple[float, ...]
    lining: list[Wall | Standing]
    standing: list[Standing]


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw uniformly. `Generator.uniform` may use a fused multiply-add on some machines, which rounds differently."""
    return low + (high - low) * rng.random()


def lay_out(rng: np.random.Generator, index: int, size: int) -> Scene:
    """Draw the scene with this index, for an image of size × size pixels."""
    camera = Camera(
        size,
        f=size * between(rng, 0.7, 0.85),
        vx=size * between(rng, 0.36, 0.64),
        hy=size * between(rng, 0.32, 0.44),
        cx=between(rng, -1.2, 1.2),
        cy=between(rng, 2.0, 2.6),
    )
    kerb = between(rng, 2.1, 2.7)
    edge = kerb + between(rng, 2.2, 2.8)
    hills = tuple(rng.random(5).tolist())
    lining = _lining(rng, index, edge)
    standing = _standing(rng, index, camera, kerb, (kerb + edge) / 2)
    lining.sort(key=lambda thing: -thing.z)
    standing.sort(key=lambda thing: -thing.z)
    return Scene(camera, kerb, edge, hills, lining, standing)


def _lining(rng: np.random.Generator, index: int, edge: float) -> list[Wall | Standing]:
    """Draw houses on both sides and, between them, open lots behind a fence, some with a tree."""
    lining: list[Wall | Standing] = []
    certain = _side(rng) if index % 2 else 0.0  # every other image has a near open lot
    for side in (-1.0, 1.0):
        z = between(rng, 1.5, 3.5)
        while z < FAR:
            length = between(rng, 3.5, 8.0) * (1 + z / 20)
            lot = rng.random() < 0.3 or (side == certain and z < 7 < z + length)
            if lot:
                lining.append(Wall("fence", side * edge, z, z + length, between(rng, 1.3, 2.0)))
            else:
                lining.append(Wall("building", side * edge, z, z + length - 0.2, between(rng, 3.5, 9.0)))
            if lot and rng.random() < 0.6:
                x = side * (edge + between(rng, 1.2, 2.5))
                lining.append(Standing("tree", x, z + 0.6 * length, between(rng, 0.8, 1.2), rng.random()))
            z += length
    return lining


def _standing(rng: np.random.Generator, index: int, camera: Camera, kerb: float, walk: float) -> list[Standing]:
    """Draw rare objects by their period, then random cars and trees that do not hide a rare object."""
    rare: list[Standing] = []
    side = _side(rng)
    for kind, (period, phase) in RARE.items():
        if index % period == phase:
            rare.append(_place(rng, kind, side, camera, kerb, walk))
            side = -side  # rare objects of one image are on alternate sides, so that none hides another
    cars, trees = rng.integers(1 - index % 2, 5), rng.integers(index % 3 > 0, 4)
    common: list[Standing] = []
    hidden = [0.0] * len(rare)
    for kind in ["car"] * int(cars) + ["tree"] * int(trees):
        thing = _place(rng, kind, _side(rng), camera, kerb, walk)
        after = [share + thing.covers(other, camera) for share, other in zip(hidden, rare, strict=True)]
        if max(after, default=0.0) <= MOST_HIDDEN:
            common.append(thing)
            hidden = after
    return rare + common


def _place(rng: np.random.Generator, kind: str, side: float, camera: Camera, kerb: float, walk: float) -> Standing:
    """Place an object: vehicles on the road, others on the pavement."""
    z = between(rng, *DEPTHS[kind])
    if kind in ("car", "van"):
        x = side * kerb * between(rng, 0.4, 0.6)
    elif kind == "cyclist":
        x = side * kerb * between(rng, 0.2, 0.8)
    else:
        x = side * (walk + between(rng, -0.5, 0.5))
    # Moved towards the middle if the frame would cut off more than a margin.
    margin = 0.35 * SIZES[kind][0]
    left = camera.cx - camera.vx * z / camera.f + margin
    right = camera.cx + (camera.size - camera.vx) * z / camera.f - margin
    return Standing(kind, min(max(x, left), right), z, between(rng, 0.85, 1.15), rng.random())


def _side(rng: np.random.Generator) -> float:
    return 1.0 if rng.random() < 0.5 else -1.0
