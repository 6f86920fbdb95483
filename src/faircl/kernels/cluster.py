"""Sums of L_cluster without the distances of every pixel to every prototype.

A program takes a tile of pixels and all prototypes, in two blocks up to ``WHOLE`` of them, so that features are read
once; beyond, block by block. It adds up f·p over the width in registers, turns it into distances there and keeps the
sums alone. The backward kernels compute the distances again and turn them into rates r, whose gradient is
Σ_k r_k·(f − p_k) = f·Σ_k r_k − r·P. That needs all rates of a pixel before the first channel is written: two blocks
hold them all; beyond, a program writes some channels and goes through all blocks for these.

Prototypes are rounded to the features' type, as mixed precision rounds whatever is multiplied: distances are then exact
ones to points beside the prototypes, no further away than the features' own rounding takes these. In 32 bits the own
distance, often small, is taken from f − p.

No two programs write to one place: results are the same bit for bit whenever they are computed again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.distances import distances, own_distance

WHOLE = 256
"""Most prototypes whose distances are held at once."""
BLOCK = 128
"""Most of them in one block; the others are in a second one, as small as it can be."""


class Sizes(NamedTuple):
    """What a program works on at a time: powers of two, at least 16."""

    pixels: int
    prototypes: int
    depth: int
    """Channels multiplied at a time for the distances."""
    channels: int
    """Channels of the gradient that are written at a time."""
    warps: int
    stages: int


# No kernel needs more than 99 KiB of shared memory, which is what small GPUs have; registers just suffice on an H200.
FORWARD = Sizes(pixels=64, prototypes=BLOCK, depth=64, channels=0, warps=4, stages=3)
FORWARD_WIDE = Sizes(pixels=64, prototypes=BLOCK, depth=32, channels=0, warps=8, stages=3)
"""Where the second block is large."""
FORWARD_BEYOND = Sizes(pixels=128, prototypes=64, depth=64, channels=0, warps=4, stages=3)
FORWARD_SINGLE = Sizes(pixels=64, prototypes=64, depth=32, channels=0, warps=8, stages=2)
"""For features of 32 bits: exact products know no tensor cores."""
BACKWARD = Sizes(pixels=64, prototypes=BLOCK, depth=32, channels=64, warps=4, stages=3)
BACKWARD_WIDE = Sizes(pixels=64, prototypes=BLOCK, depth=32, channels=32, warps=8, stages=2)
BACKWARD_SINGLE = Sizes(pixels=64, prototypes=BLOCK, depth=32, channels=16, warps=8, stages=2)
BEYOND = Sizes(pixels=128, prototypes=64, depth=32, channels=128, warps=8, stages=2)
"""Beyond WHOLE prototypes; channels are the width of an accumulator."""
BEYOND_SINGLE = Sizes(pixels=64, prototypes=64, depth=32, channels=64, warps=8, stages=2)


@triton.jit
def _rates(distance, label, weights, margin, first, kind: tl.constexpr, short: tl.constexpr):
    """Return r of a tile of pixels and a block of prototypes, in the features' type; the own one only in 16 bits."""
    own = (first + tl.arange(0, distance.shape[1]))[None, :] == label[:, None]
    # Pixels that do not count have no margin.
    near = distance < tl.where(label >= 0, margin, 0.0)[:, None]
    pull = tl.load(weights) if short else 0.0
    rate = tl.where(own, pull, tl.where(near, -tl.load(weights + 1), 0.0)) / distance
    if kind == tl.float16:
        # Its largest number: at distance zero the difference is zero too, and infinity would leave none.
        rate = tl.minimum(tl.maximum(rate, -65504.0), 65504.0)
    # Rounded before both uses, rates of 16 bits are other rates by a part in 256, and nothing cancels wrongly.
    return rate.to(kind)


@triton.jit
def _drawn(rate, drawn, points, first, count, channel, width, block: tl.constexpr):
    """Add r·P for some channels: (pixels, block), (block, channels) to (pixels, channels)."""
    prototype = first + tl.arange(0, block)
    place = prototype[:, None] * width + channel[None, :]
    known = (prototype < count)[:, None] & (channel < width)[None, :]
    drawn = tl.dot(rate, tl.load(points + place, mask=known, other=0.0), drawn, input_precision="ieee")
    return drawn


@triton.jit
def _write(
    features, gradient, at, out, there, points, label, channel, width, total, drawn, own_rate, scale,
    short: tl.constexpr,
):  # fmt: skip
    """Write (f·Σr − r·P)·scale for a tile of pixels and some channels."""
    inside = there[:, None] & (channel < width)[None, :]
    f = tl.load(features + at, mask=inside, other=0.0).to(tl.float32)
    sum_ = f * total[:, None] - drawn
    if not short:
        p = tl.load(points + label[:, None] * width + channel[None, :], mask=inside & (label >= 0)[:, None], other=0.0)
        sum_ += (f - p) * own_rate[:, None]
    tl.store(gradient + out, (sum_ * scale).to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def _pulled_and_pushed(distance, label, reach, first, short: tl.constexpr):
    """Return what pulls every pixel, in 16 bits alone, and what pushes it, of a block of prototypes."""
    own = (first + tl.arange(0, distance.shape[1]))[None, :] == label[:, None]
    push = tl.sum(tl.where(own, 0.0, tl.maximum(reach[:, None] - distance, 0.0)), 1)
    if short:
        return tl.sum(tl.where(own, distance, 0.0), 1), push
    else:
        return push * 0, push


@triton.jit
def _forward(
    features, labels, points, squares, largest, sums, pixels_of_image, count, width, margin, per_image,
    per_channel, per_pixel, short: tl.constexpr, pixels: tl.constexpr, block: tl.constexpr, rest: tl.constexpr,
    depth: tl.constexpr,
):  # fmt: skip
    """Sum the pulls and the pushes of a tile of one image."""
    tile, image = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    local = tl.arange(0, pixels)
    there = tile * pixels + local < pixels_of_image
    label = tl.load(labels + image * pixels_of_image + tile * pixels + local, mask=there, other=-1)
    base = features + image * per_image + tile * pixels * per_pixel
    at = local[:, None] * per_pixel + tl.arange(0, depth)[None, :] * per_channel
    reach = tl.where(label >= 0, margin, 0.0)
    pull = tl.zeros((pixels,), tl.float32)
    push = tl.zeros((pixels,), tl.float32)
    for first in range(0, count, block + rest):
        near, others = distances(
            base, at, there, points, squares, largest, first, count, width, per_channel, pixels, block, rest, depth
        )
        pulled, pushed = _pulled_and_pushed(near, label, reach, first, short)
        pull += pulled
        push += pushed
        if rest > 0:
            pulled, pushed = _pulled_and_pushed(others, label, reach, first + block, short)
            pull += pulled
            push += pushed
    if not short:
        pull = own_distance(base, at, there, points, label, width, per_channel, pixels, depth)
        pull = tl.where(label >= 0, pull, 0.0)
    slot = sums + 2 * (image * tl.num_programs(0) + tile)
    tl.store(slot, tl.sum(pull, 0))
    tl.store(slot + 1, tl.sum(push, 0))


@triton.jit
def _backward(
    features, labels, points, squares, largest, weights, gradient, pixels_of_image, count, width, margin,
    per_image, per_channel, per_pixel, out_per_image, out_per_channel, out_per_pixel, short: tl.constexpr,
    whole: tl.constexpr, pixels: tl.constexpr, block: tl.constexpr, rest: tl.constexpr, depth: tl.constexpr,
    channels: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile of one image: all channels if two blocks hold the ``whole``, else some."""
    tile, image = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    local, inner = tl.arange(0, pixels), tl.arange(0, channels)
    there = tile * pixels + local < pixels_of_image
    label = tl.load(labels + image * pixels_of_image + tile * pixels + local, mask=there, other=-1)
    base = features + image * per_image + tile * pixels * per_pixel
    target = gradient + image * out_per_image + tile * pixels * out_per_pixel
    at = local[:, None] * per_pixel + tl.arange(0, depth)[None, :] * per_channel
    from_ = local[:, None] * per_pixel + inner[None, :] * per_channel
    to = local[:, None] * out_per_pixel + inner[None, :] * out_per_channel
    kind: tl.constexpr = features.dtype.element_ty
    scale = tl.load(weights + 2)
    own_rate = tl.zeros((pixels,), tl.float32)
    if not short:
        own = own_distance(base, at, there, points, label, width, per_channel, pixels, depth)
        own_rate = tl.where(label >= 0, tl.load(weights), 0.0) / tl.maximum(own, 1.1754944e-38)
    if whole:
        near, others = distances(
            base, at, there, points, squares, largest, 0, count, width, per_channel, pixels, block, rest, depth
        )
        rate = _rates(near, label, weights, margin, 0, kind, short)
        total = tl.sum(rate.to(tl.float32), 1)
        if rest > 0:
            further = _rates(others, label, weights, margin, block, kind, short)
            total += tl.sum(further.to(tl.float32), 1)
        for start in range(0, width, channels):
            channel = start + inner
            drawn = tl.zeros((pixels, channels), tl.float32)
            drawn = _drawn(rate, drawn, points, 0, count, channel, width, block)
            if rest > 0:
                drawn = _drawn(further, drawn, points, block, count, channel, width, rest)
            _write(
                base, target, from_, to, there, points, label, channel, width, total, drawn, own_rate, scale, short,
            )  # fmt: skip
            base += channels * per_channel
            target += channels * out_per_channel
    else:
        channel = tl.program_id(2) * channels + inner
        drawn = tl.zeros((pixels, channels), tl.float32)
        total = tl.zeros((pixels,), tl.float32)
        for first in range(0, count, block):
            near, _ = distances(
                base, at, there, points, squares, largest, first, count, width, per_channel, pixels, block, 0, depth
            )
            rate = _rates(near, label, weights, margin, first, kind, short)
            total += tl.sum(rate.to(tl.float32), 1)
            drawn = _drawn(rate, drawn, points, first, count, channel, width, block)
        skipped = tl.program_id(2).to(tl.int64) * channels
        base += skipped * per_channel
        target += skipped * out_per_channel
        _write(
            base, target, from_, to, there, points, label, channel, width, total, drawn, own_rate, scale, short,
        )  # fmt: skip


class _Sums(torch.autograd.Function):
    """Sums of pulls and of pushes over pixels, with the gradient of the features."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        labels: Tensor,
        prototypes: Tensor,
        active: Tensor,
        margin: float,
    ) -> tuple[Tensor, Tensor]:
        points = prototypes.to(features.dtype)
        squares = points.float().square().sum(1)  # of what is multiplied, or the parts of a distance would not cancel
        largest = squares.where(active, 0).max()
        squares = squares.where(active, torch.inf)
        ctx.save_for_backward(features, labels, points, squares, largest)
        ctx.margin = margin
        images, width, pixels = features.shape
        sizes = _forward_sizes(features.dtype, len(points))
        tiles = triton.cdiv(pixels, sizes["pixels"])
        sums = features.new_empty((images * tiles, 2), dtype=torch.float32)
        _forward[(tiles, images)](
            features, labels, points, squares, largest, sums, pixels, len(points), width, margin,
            *features.stride(), **sizes,
        )  # fmt: skip
        pull, push = sums.sum(0)
        return pull, push

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, alpha: Tensor, beta: Tensor) -> tuple[Tensor | None, ...]:
        features, labels, points, squares, largest = ctx.saved_tensors
        # Means over all pixels make rates too small for 16 bits: the scale comes back at the end.
        scale = torch.maximum(alpha.abs(), beta.abs()).clamp_min(torch.finfo(torch.float32).tiny)
        weights = torch.stack([alpha / scale, beta / scale, scale])
        gradient = torch.empty_like(features)
        images, width, pixels = features.shape
        sizes = _backward_sizes(features.dtype, len(points))
        parts = 1 if sizes["whole"] else triton.cdiv(width, sizes["channels"])
        _backward[(triton.cdiv(pixels, sizes["pixels"]), images, parts)](
            features, labels, points, squares, largest, weights, gradient, pixels, len(points), width, ctx.margin,
            *features.stride(), *gradient.stride(), **sizes,
        )  # fmt: skip
        return gradient, None, None, None, None


def cluster_sums(
    features: Tensor,
    labels: Tensor,
    valid: Tensor,
    prototypes: Tensor,
    active: Tensor,
    margin: float,
) -> tuple[Tensor, Tensor]:
    r"""Return Σ_i ‖f_i − p_{y_i}‖ and Σ_i Σ_{c ≠ y_i} max(0, Δ − ‖f_i − p_c‖), two float32 scalars.

    i goes over the valid pixels, whose prototypes have to be active, and c over the active prototypes. Gradients flow
    to the features alone, in their type and memory layout.
    Shapes: features (B, D, s) of at most 32 bits, with any strides; labels (B, s) int64, in range even where they are
    not valid; valid (B, s) bool; prototypes (K, D); active (K,) bool.
    """
    own = labels.where(valid, -1).int().contiguous()
    pull, push = _Sums.apply(features, own, prototypes.detach().float().contiguous(), active, float(margin))
    return pull, push


def _forward_sizes(kind: torch.dtype, prototypes: int) -> dict[str, int]:
    short, whole = _is_short(kind), prototypes <= WHOLE
    rest = _rest(prototypes) if short and whole else 0
    if short and whole:
        sizes = FORWARD if rest <= 32 else FORWARD_WIDE
    else:
        sizes = FORWARD_BEYOND if short else FORWARD_SINGLE
    return {
        "short": short,
        "pixels": sizes.pixels,
        "block": min(_block(prototypes), sizes.prototypes),
        "rest": rest,
        "depth": sizes.depth,
        "num_warps": sizes.warps,
        "num_stages": sizes.stages,
    }


def _backward_sizes(kind: torch.dtype, prototypes: int) -> dict[str, int]:
    """Sizes of blocks; ``whole`` where two of them hold every prototype."""
    whole, short = prototypes <= WHOLE, _is_short(kind)
    rest = _rest(prototypes) if whole else 0
    if whole:
        sizes = BACKWARD_SINGLE if not short else BACKWARD if rest <= 32 else BACKWARD_WIDE
    else:
        sizes = BEYOND if short else BEYOND_SINGLE
    return {
        "short": short,
        "whole": whole,
        "pixels": sizes.pixels,
        "block": min(_block(prototypes), sizes.prototypes),
        "rest": rest,
        "depth": sizes.depth,
        "channels": sizes.channels,
        "num_warps": sizes.warps,
        "num_stages": sizes.stages,
    }


def _is_short(kind: torch.dtype) -> bool:
    """Whether features have 16 bits."""
    return kind != torch.float32


def _rest(prototypes: int) -> int:
    """Size of the block that holds what the first does not."""
    return _block(prototypes - BLOCK) if prototypes > BLOCK else 0


def _block(prototypes: int) -> int:
    """Smallest block that holds some prototypes."""
    return max(16, 1 << (prototypes - 1).bit_length())
