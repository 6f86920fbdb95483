"""Colour of a projected street: patterns, paint, lighting and sensor noise.

Colours are drawn per object from one pool for all classes, so that colour tells little about the class; patterns
(windows, tiles, pickets, leaves, bands) and outlines do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from faircl.data.sample import Image
from faircl.readers.street.canvas import SKY, Canvas, smooth
from faircl.readers.street.layout import ID, between
from faircl.readers.street.silhouettes import BODY, DARK, LAMP, TRIM, Floats

POOL = np.array(
    [
        (0.80, 0.34, 0.28),  # 0 brick
        (0.88, 0.60, 0.30),  # 1 ochre
        (0.88, 0.78, 0.46),  # 2 straw
        (0.52, 0.66, 0.36),  # 3 leaf
        (0.34, 0.54, 0.42),  # 4 fir
        (0.40, 0.64, 0.72),  # 5 teal
        (0.42, 0.52, 0.78),  # 6 blue
        (0.64, 0.48, 0.70),  # 7 lilac
        (0.86, 0.62, 0.66),  # 8 rose
        (0.62, 0.62, 0.62),  # 9 grey
        (0.82, 0.80, 0.76),  # 10 plaster
        (0.44, 0.42, 0.44),  # 11 slate
    ],
    np.float32,
)
LEAVES = (0, 1, 1, 2, 3, 3, 3, 4, 4, 8)  # any season, mostly green
STONES = (0, 2, 6, 7, 9, 9, 10, 11)
SKIES = (1, 5, 5, 6, 6, 7, 8, 9, 10, 11)
CHOICES = {"tree": LEAVES, "ground": LEAVES, "road": STONES, "pavement": STONES, "sky": SKIES}
"""Colours (rows of POOL) of a kind; a kind that is not listed takes any."""

MATT = ("road", "pavement", "ground", "hill")
"""Kinds whose colours are mixed with gray."""

CLOUD = np.float32(0.95)
NOISE = np.float32(0.08)  # full width of the sensor noise


def shade(canvas: Canvas, rng: np.random.Generator) -> Image:
    """Return the image (size, size, 3) of a canvas."""
    size = len(canvas.label)
    grain = rng.random((size // 2 + 1, size // 2 + 1), dtype=np.float32) - np.float32(0.5)
    grain = grain.repeat(2, 0).repeat(2, 1)[:size, :size]  # grain of two pixels survives a network's first pooling
    crossing = between(rng, 4, 30)  # metres ahead; beyond about 15 it is too small to be seen
    part, tone = _patterns(canvas, grain, crossing)
    colour = _paint(canvas.things, rng)[canvas.owner, part]
    _sky(canvas, colour, rng)
    colour *= (tone * canvas.light)[..., None]
    return _expose(colour, rng)


def _expose(colour: Floats, rng: np.random.Generator) -> Image:
    """Apply the illumination of the scene (gain that varies across the image, tint, contrast), then noise."""
    contrast = between(rng, 0.75, 1.15)
    tilt = np.linspace(-0.5, 0.5, colour.shape[1], dtype=np.float32) * np.float32(between(rng, -0.3, 0.3)) + 1
    tint = between(rng, 0.7, 1.2) * (0.85 + 0.3 * rng.random(3))
    gain = 255 * tilt[:, None] * tint.astype(np.float32)
    colour -= np.float32(0.5 * (1 - 1 / contrast))  # contrast pivots around mid-grey
    colour *= np.float32(contrast) * gain
    colour += (rng.random(colour.shape, dtype=np.float32) - np.float32(0.5)) * (255 * NOISE)
    colour += np.float32(0.5)
    np.clip(colour, 0, 255, out=colour)
    return colour.astype(np.uint8)


def _paint(things: list[str], rng: np.random.Generator) -> Floats:
    """Draw the colours (objects, 4 parts, RGB) of every object."""
    rows = [CHOICES.get(kind, range(len(POOL))) for kind in things]
    draws = rng.random((2, len(things)))
    main = np.array([row[int(draw * len(row))] for row, draw in zip(rows, draws[0], strict=True)])
    trim = (main + 1 + (draws[1] * (len(POOL) - 1)).astype(np.int64)) % len(POOL)  # never the main colour itself
    table = np.empty((len(things), 4, 3), np.float32)
    table[:, BODY] = POOL[main]
    table[:, TRIM] = POOL[trim]
    matt = np.array([kind in MATT for kind in things])
    table[matt, BODY] = 0.5 * table[matt, BODY] + table[matt, BODY].sum(-1, keepdims=True) / 6
    table[:, DARK] = 0.21 * POOL[trim]
    table[:, LAMP] = 0.45 * POOL[main] + 0.55
    table *= (0.75 + 0.35 * rng.random((len(things), 1, 1))).astype(np.float32)
    table += (0.1 * rng.random((len(things), 1, 3)) - 0.05).astype(np.float32)
    return table


def _patterns(canvas: Canvas, grain: Floats, crossing: float) -> tuple[NDArray[np.uint8], Floats]:
    """Return the part of each pixel with windows, tiles and stripes drawn, and its brightness."""
    part, tone = canvas.part.ravel().copy(), np.ones(canvas.label.size, np.float32)
    label, us, vs, grain = canvas.label.ravel(), canvas.u.ravel(), canvas.v.ravel(), grain.ravel()

    def on(kind: str) -> tuple[NDArray[np.int64], Floats, Floats]:
        here = np.flatnonzero(label == ID[kind])
        return here, us[here], vs[here]

    here, u, v = on("road")
    tone[here] = 0.75 + np.clip(1.2 / v, 0.05, 0.3) * grain[here]
    dash = (np.abs(u) < 0.12) & (v % 3 < 1.6)
    zebra = (np.abs(v - crossing) < 1.2) & (u % 1 < 0.5)
    part[here] = np.where(dash | zebra, LAMP, BODY)

    here, u, v = on("pavement")
    tone[here] = np.where((np.floor(u / 0.7) + np.floor(v / 1.1)) % 2 < 1, 1.08, 0.84)

    here, u, v = on("building")
    column, row = np.floor(u / 1.5), np.floor(v / 1.7)
    x, y = u / 1.5 - column, v / 1.7 - row
    window = (x > 0.28) & (x < 0.78) & (y > 0.3) & (y < 0.82)
    lit = (column * 7 + row * 5) % 4 < 1
    part[here] = np.where(window, np.where(lit, LAMP, DARK), BODY)
    tone[here] = np.where(v % 0.5 < 0.25, 1.04, 0.96)  # courses of brick

    here, u, v = on("fence")
    part[here] = np.where((u % 0.5 < 0.28) | (np.abs(v - 0.8) < 0.12), BODY, DARK)

    here, _, v = on("tree")
    tone[here] = 0.75 + 0.35 * v + 0.7 * grain[here]

    here = np.flatnonzero(np.isin(label, [ID[kind] for kind in ("car", "van", "kiosk", "pedestrian", "cyclist")]))
    tone[here] = 0.8 + 0.3 * vs[here]
    return part.reshape(canvas.label.shape), tone.reshape(canvas.label.shape)


def _sky(canvas: Canvas, colour: Floats, rng: np.random.Generator) -> None:
    """Fade the sky towards the horizon and add clouds."""
    size = len(canvas.label)
    rows = int(canvas.horizon) + 1
    clouds = smooth(smooth(rng.random((4, 6), dtype=np.float32), rows).T, size).T
    sky = canvas.owner[:rows] == SKY
    white = np.clip(1.8 * (clouds[sky] - 0.45), 0, 0.6) + 0.4 * canvas.v[:rows][sky]
    seen = colour[:rows][sky]
    colour[:rows][sky] = seen + (CLOUD - seen) * white[:, None]
