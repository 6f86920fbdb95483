"""Projection of a street: which object each pixel shows, and at which position on the object.

Far objects are drawn before near ones, so that no depth map is needed. Colours are computed later (`textures`), once
per pixel, and not at all if only the mask is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faircl.readers.street.layout import ID, SIZES, Camera, Scene, Standing, Wall
from faircl.readers.street.silhouettes import BODY, LAMP, SILHOUETTES, Floats

SKY, HILL, GROUND, ROAD, PAVEMENT = range(5)
"""Indices of the first entries of ``Canvas.things``."""

KERBSTONE = 0.2  # metres
GABLE_LIGHT, SHADOW_LIGHT = np.float32(0.8), np.float32(0.6)
HALF = np.float32(0.5)


@dataclass
class Canvas:
    """The projected scene; all arrays are (size, size).

    label: class id; owner: index into ``things``; part: see `silhouettes`; light: dimming by shadow or slope;
    u, v: position on the thing (metres on ground and walls, unit box on silhouettes, share of the height in the sky).
    """

    horizon: float
    things: list[str]
    label: NDArray[np.uint8]
    owner: NDArray[np.uint8]
    part: NDArray[np.uint8]
    u: Floats
    v: Floats
    light: Floats

    def write(
        self,
        box: tuple[slice, slice],
        inside: NDArray[np.bool_],
        kind: str,
        part: NDArray[np.uint8] | np.uint8,
        u: Floats,
        v: Floats,
        light: Floats | np.float32,
    ) -> None:
        """Draw one object over the canvas; all arguments but ``inside`` broadcast."""
        self.things.append(kind)
        np.copyto(self.label[box], np.uint8(ID[kind]), where=inside)
        np.copyto(self.owner[box], np.uint8(len(self.things) - 1), where=inside)
        np.copyto(self.part[box], part, where=inside)
        np.copyto(self.u[box], u, where=inside)
        np.copyto(self.v[box], v, where=inside)
        np.copyto(self.light[box], light, where=inside)


def project(scene: Scene) -> Canvas:
    """Draw the labels and surface coordinates of a scene."""
    canvas = _ground(scene)
    for thing in (*scene.lining, *scene.standing):
        if isinstance(thing, Wall):
            _wall(canvas, scene.camera, thing)
        else:
            _stand(canvas, scene.camera, thing)
    return canvas


def smooth(knots: Floats, size: int) -> Floats:
    """Interpolate evenly spaced knots (n, …) at ``size`` points along the first axis by smoothstep."""
    at = np.arange(size, dtype=np.float32) * np.float32((len(knots) - 1) / size)
    left = at.astype(np.int64)
    w = (at - left).astype(np.float32).reshape(-1, *[1] * (knots.ndim - 1))
    w = w * w * (3 - 2 * w)
    spread: Floats = knots[left] * (1 - w) + knots[left + 1] * w
    return spread


def _ground(scene: Scene) -> Canvas:
    """Sky and hills above the horizon; road, pavements and open ground below it."""
    camera, size = scene.camera, scene.camera.size
    x, y = _centres(0, size), _centres(0, size)[:, None]
    z = camera.f * camera.cy / np.maximum(y - camera.hy, np.float32(0.25))
    u = (x - camera.vx) * z / camera.f + camera.cx
    away = np.abs(u)
    owner = np.full((size, size), GROUND, np.uint8)
    owner[away < scene.edge] = PAVEMENT
    owner[away < scene.kerb] = ROAD
    part = np.full((size, size), BODY, np.uint8)
    part[(away > scene.kerb) & (away < scene.kerb + KERBSTONE)] = LAMP
    v = np.repeat(z, size, axis=1)

    sky = round(camera.hy)  # rows whose centre is above the horizon
    ridge = camera.hy - 0.14 * size * smooth(np.array(scene.hills, np.float32), size)
    owner[:sky] = np.where(y[:sky] > ridge, HILL, SKY)
    part[:sky] = BODY
    v[:sky] = y[:sky] / camera.hy
    label = np.array([0, 0, 0, ID["road"], ID["pavement"]], np.uint8)[owner]
    things = ["sky", "hill", "ground", "road", "pavement"]
    return Canvas(camera.hy, things, label, owner, part, u, v, np.ones((size, size), np.float32))


def _wall(canvas: Canvas, camera: Camera, wall: Wall) -> None:
    """Draw a wall that recedes towards the vanishing point and, for a building, the gable that faces the camera."""
    offset = camera.f * (wall.x - camera.cx)
    near, far = camera.vx + offset / wall.z, camera.vx + offset / wall.end
    frame = camera.size if offset > 0 else 0
    outer = frame if wall.kind == "building" else round(near)
    first, last = max(0, min(outer, round(far))), min(camera.size, max(outer, round(far)))
    if first >= last:
        return
    x = _centres(first, last)
    gable = x > near if offset > 0 else x < near
    z = np.where(gable, np.float32(wall.z), np.float32(offset) / (x - np.float32(camera.vx)))
    u = np.where(gable, np.abs((x - camera.vx) * wall.z / camera.f + camera.cx), z)
    rows, y = _rows(camera, wall.z, wall.height)
    v = camera.cy - (y - camera.hy) * z / camera.f
    light = np.where(gable, GABLE_LIGHT, np.float32(1))
    canvas.write((rows, slice(first, last)), (v > 0) & (v < wall.height), wall.kind, np.uint8(BODY), u, v, light)


def _stand(canvas: Canvas, camera: Camera, thing: Standing) -> None:
    """Draw a silhouette and the shadow at its foot."""
    left, right = thing.columns(camera)
    first, last = max(0, int(left)), min(camera.size, int(right) + 1)
    height = SIZES[thing.kind][1] * thing.scale
    rows, y = _rows(camera, thing.z, height)
    if first >= last or not len(y):
        return
    canvas.light[max(0, rows.stop - 2) : rows.stop + 1, first:last] *= SHADOW_LIGHT
    u = (2 * _centres(first, last)[None] - left - right) / (right - left)
    v = (camera.cy - (y - camera.hy) * thing.z / camera.f) / height
    inside, part = SILHOUETTES[thing.kind](u, v, thing.twist)
    inside &= (v >= 0) & (v <= 1) & (np.abs(u) <= 1)
    canvas.write((rows, slice(first, last)), inside, thing.kind, part, u, v, np.float32(1))


def _rows(camera: Camera, z: float, height: float) -> tuple[slice, Floats]:
    """Return the rows that an object of this height on the ground at z can cover, and their centres (h, 1)."""
    top = max(0, int(camera.hy + camera.f * (camera.cy - height) / z))
    foot = max(top, min(camera.size, int(camera.hy + camera.f * camera.cy / z) + 1))
    return slice(top, foot), _centres(top, foot)[:, None]


def _centres(first: int, last: int) -> Floats:
    return np.arange(first, last, dtype=np.float32) + HALF
