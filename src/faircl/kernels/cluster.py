"""Sums of L_cluster without storing the distances of every pixel to every prototype.

A program computes the distances of a tile of pixels to all prototypes in registers and stores their sums only. Up to
``MAX_TWO_BLOCKS`` prototypes are held in two blocks, so that features are read once; more are processed block by block.
The backward kernel recomputes the distances and turns them into coefficients r; the gradient of a feature f is
Σ_k r_k·(f − p_k) = f·Σ_k r_k − r·P, which needs all coefficients of a pixel before the first channel is written. Two
blocks hold them all; with more prototypes a program writes some channels only and processes all blocks for these.

Prototypes are rounded to the dtype of the features, as in mixed precision. Distances are then exact for the rounded
prototypes, whose error is not larger than that of the features. In float32 the distance to the own prototype, which is
often small, is computed from f − p.

No two programs write to the same address, so results are deterministic.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from faircl.kernels.cluster_distances import distances, own_distance
from faircl.kernels.cluster_tiles import backward_tiles, forward_tiles

# Names: b image, p pixel, c channel, k prototype. num_x is the number of x in total, tile_x that of a tile, stride_x
# the stride of the features, out_stride_x that of the gradient; _1 and _2 are the two blocks of prototypes; coef is r.
# ``label`` is −1 for pixels that are left out.


@triton.jit
def _coefficients(distance, label, loss_weights, margin, first, dtype: tl.constexpr, is_16bit: tl.constexpr):
    """Return r of a tile of pixels and a block of prototypes, in the dtype of the features; r_y is 0 in float32."""
    own = (first + tl.arange(0, distance.shape[1]))[None, :] == label[:, None]
    # The margin of pixels that are left out is 0.
    within_margin = distance < tl.where(label >= 0, margin, 0.0)[:, None]
    pull = tl.load(loss_weights) if is_16bit else 0.0
    coef = tl.where(own, pull, tl.where(within_margin, -tl.load(loss_weights + 1), 0.0)) / distance
    if dtype == tl.float16:
        # The largest float16: at distance 0 the difference f − p is 0 too, and 0·∞ would be NaN.
        coef = tl.minimum(tl.maximum(coef, -65504.0), 65504.0)
    # Rounded before both uses, so that f·Σr and r·P have the same coefficients and cancel correctly.
    return coef.to(dtype)


@triton.jit
def _add_weighted(coef, weighted, prototypes, first, num_k, channel, num_c, block: tl.constexpr):
    """Add r·P over a block of prototypes: (pixels, block), (block, channels) to (pixels, channels)."""
    prototype = first + tl.arange(0, block)
    k_offsets = prototype[:, None] * num_c + channel[None, :]
    mask = (prototype < num_k)[:, None] & (channel < num_c)[None, :]
    weighted = tl.dot(coef, tl.load(prototypes + k_offsets, mask=mask, other=0.0), weighted, input_precision="ieee")
    return weighted


@triton.jit
def _write(
    features, gradient, offsets, out_offsets, p_mask, prototypes, label, channel, num_c, coef_sum, weighted, own_coef,
    scale, is_16bit: tl.constexpr,
):  # fmt: skip
    """Store (f·Σr − r·P)·scale of a tile of pixels and channels."""
    mask = p_mask[:, None] & (channel < num_c)[None, :]
    f = tl.load(features + offsets, mask=mask, other=0.0).to(tl.float32)
    gradient_f = f * coef_sum[:, None] - weighted
    if not is_16bit:
        p = tl.load(
            prototypes + label[:, None] * num_c + channel[None, :], mask=mask & (label >= 0)[:, None], other=0.0
        )
        gradient_f += (f - p) * own_coef[:, None]
    tl.store(gradient + out_offsets, (gradient_f * scale).to(gradient.dtype.element_ty), mask=mask)


@triton.jit
def _pull_and_push(distance, label, margins, first, is_16bit: tl.constexpr):
    """Return pull and push of every pixel by a block of prototypes; pull is 0 in float32."""
    own = (first + tl.arange(0, distance.shape[1]))[None, :] == label[:, None]
    push = tl.sum(tl.where(own, 0.0, tl.maximum(margins[:, None] - distance, 0.0)), 1)
    if is_16bit:
        return tl.sum(tl.where(own, distance, 0.0), 1), push
    else:
        return push * 0, push


@triton.jit
def _forward(
    features, labels, prototypes, norms2, max_norm2, sums, num_p, num_k, num_c, margin, stride_b, stride_c, stride_p,
    is_16bit: tl.constexpr, tile_p: tl.constexpr, block_1: tl.constexpr, block_2: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """Sum pull and push over a tile of pixels of one image."""
    tile, image = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    p_range = tl.arange(0, tile_p)
    p_mask = tile * tile_p + p_range < num_p
    label = tl.load(labels + image * num_p + tile * tile_p + p_range, mask=p_mask, other=-1)
    f_base = features + image * stride_b + tile * tile_p * stride_p
    offsets = p_range[:, None] * stride_p + tl.arange(0, depth)[None, :] * stride_c
    margins = tl.where(label >= 0, margin, 0.0)
    pull = tl.zeros((tile_p,), tl.float32)
    push = tl.zeros((tile_p,), tl.float32)
    for first in range(0, num_k, block_1 + block_2):
        distance_1, distance_2 = distances(
            f_base, offsets, p_mask, prototypes, norms2, max_norm2, first, num_k, num_c, stride_c, tile_p, block_1,
            block_2, depth,
        )  # fmt: skip
        block_pull, block_push = _pull_and_push(distance_1, label, margins, first, is_16bit)
        pull += block_pull
        push += block_push
        if block_2 > 0:
            block_pull, block_push = _pull_and_push(distance_2, label, margins, first + block_1, is_16bit)
            pull += block_pull
            push += block_push
    if not is_16bit:
        pull = own_distance(f_base, offsets, p_mask, prototypes, label, num_c, stride_c, tile_p, depth)
        pull = tl.where(label >= 0, pull, 0.0)
    result = sums + 2 * (image * tl.num_programs(0) + tile)
    tl.store(result, tl.sum(pull, 0))
    tl.store(result + 1, tl.sum(push, 0))


@triton.jit
def _backward(
    features, labels, prototypes, norms2, max_norm2, loss_weights, gradient, num_p, num_k, num_c, margin, stride_b,
    stride_c, stride_p, out_stride_b, out_stride_c, out_stride_p, is_16bit: tl.constexpr, two_blocks: tl.constexpr,
    tile_p: tl.constexpr, block_1: tl.constexpr, block_2: tl.constexpr, depth: tl.constexpr, tile_c: tl.constexpr,
):  # fmt: skip
    """Store the gradient of a tile of pixels of one image: all channels if ``two_blocks``, else some."""
    tile, image = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    p_range, c_range = tl.arange(0, tile_p), tl.arange(0, tile_c)
    p_mask = tile * tile_p + p_range < num_p
    label = tl.load(labels + image * num_p + tile * tile_p + p_range, mask=p_mask, other=-1)
    f_base = features + image * stride_b + tile * tile_p * stride_p
    g_base = gradient + image * out_stride_b + tile * tile_p * out_stride_p
    offsets = p_range[:, None] * stride_p + tl.arange(0, depth)[None, :] * stride_c
    f_offsets = p_range[:, None] * stride_p + c_range[None, :] * stride_c
    g_offsets = p_range[:, None] * out_stride_p + c_range[None, :] * out_stride_c
    dtype: tl.constexpr = features.dtype.element_ty
    scale = tl.load(loss_weights + 2)
    own_coef = tl.zeros((tile_p,), tl.float32)
    if not is_16bit:
        own = own_distance(f_base, offsets, p_mask, prototypes, label, num_c, stride_c, tile_p, depth)
        own_coef = tl.where(label >= 0, tl.load(loss_weights), 0.0) / tl.maximum(own, 1.1754944e-38)
    if two_blocks:
        distance_1, distance_2 = distances(
            f_base, offsets, p_mask, prototypes, norms2, max_norm2, 0, num_k, num_c, stride_c, tile_p, block_1, block_2,
            depth,
        )  # fmt: skip
        coef = _coefficients(distance_1, label, loss_weights, margin, 0, dtype, is_16bit)
        coef_sum = tl.sum(coef.to(tl.float32), 1)
        if block_2 > 0:
            coef_2 = _coefficients(distance_2, label, loss_weights, margin, block_1, dtype, is_16bit)
            coef_sum += tl.sum(coef_2.to(tl.float32), 1)
        for start in range(0, num_c, tile_c):
            channel = start + c_range
            weighted = tl.zeros((tile_p, tile_c), tl.float32)
            weighted = _add_weighted(coef, weighted, prototypes, 0, num_k, channel, num_c, block_1)
            if block_2 > 0:
                weighted = _add_weighted(coef_2, weighted, prototypes, block_1, num_k, channel, num_c, block_2)
            _write(
                f_base, g_base, f_offsets, g_offsets, p_mask, prototypes, label, channel, num_c, coef_sum, weighted,
                own_coef, scale, is_16bit,
            )  # fmt: skip
            f_base += tile_c * stride_c
            g_base += tile_c * out_stride_c
    else:
        channel = tl.program_id(2) * tile_c + c_range
        weighted = tl.zeros((tile_p, tile_c), tl.float32)
        coef_sum = tl.zeros((tile_p,), tl.float32)
        for first in range(0, num_k, block_1):
            distance_1, _ = distances(
                f_base, offsets, p_mask, prototypes, norms2, max_norm2, first, num_k, num_c, stride_c, tile_p, block_1,
                0, depth,
            )  # fmt: skip
            coef = _coefficients(distance_1, label, loss_weights, margin, first, dtype, is_16bit)
            coef_sum += tl.sum(coef.to(tl.float32), 1)
            weighted = _add_weighted(coef, weighted, prototypes, first, num_k, channel, num_c, block_1)
        first_channel = tl.program_id(2).to(tl.int64) * tile_c
        f_base += first_channel * stride_c
        g_base += first_channel * out_stride_c
        _write(
            f_base, g_base, f_offsets, g_offsets, p_mask, prototypes, label, channel, num_c, coef_sum, weighted,
            own_coef, scale, is_16bit,
        )  # fmt: skip


class _ClusterSums(torch.autograd.Function):
    """Sums of pull and push over pixels; gradients flow to the features."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        labels: Tensor,
        prototypes: Tensor,
        active: Tensor,
        margin: float,
    ) -> tuple[Tensor, Tensor]:
        prototypes = prototypes.to(features.dtype)
        norms2 = prototypes.float().square().sum(1)  # of the rounded prototypes, so that the terms of a distance cancel
        max_norm2 = norms2.where(active, 0).max()
        norms2 = norms2.where(active, torch.inf)
        ctx.save_for_backward(features, labels, prototypes, norms2, max_norm2)
        ctx.margin = margin
        images, num_c, num_p = features.shape
        tiles = forward_tiles(features.dtype, len(prototypes))
        num_tiles = triton.cdiv(num_p, tiles["tile_p"])
        sums = features.new_empty((images * num_tiles, 2), dtype=torch.float32)
        _forward[(num_tiles, images)](
            features, labels, prototypes, norms2, max_norm2, sums, num_p, len(prototypes), num_c, margin,
            *features.stride(), **tiles,
        )  # fmt: skip
        pull, push = sums.sum(0)
        return pull, push

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, alpha: Tensor, beta: Tensor) -> tuple[Tensor | None, ...]:
        features, labels, prototypes, norms2, max_norm2 = ctx.saved_tensors
        # α and β contain 1/N and would underflow in 16 bits; they are divided by their scale, which is multiplied back.
        scale = torch.maximum(alpha.abs(), beta.abs()).clamp_min(torch.finfo(torch.float32).tiny)
        loss_weights = torch.stack([alpha / scale, beta / scale, scale])
        gradient = torch.empty_like(features)
        images, num_c, num_p = features.shape
        tiles = backward_tiles(features.dtype, len(prototypes))
        channel_blocks = 1 if tiles["two_blocks"] else triton.cdiv(num_c, tiles["tile_c"])
        _backward[(triton.cdiv(num_p, tiles["tile_p"]), images, channel_blocks)](
            features, labels, prototypes, norms2, max_norm2, loss_weights, gradient, num_p, len(prototypes), num_c,
            ctx.margin, *features.stride(), *gradient.stride(), **tiles,
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

    The sums are over valid pixels i, whose own prototypes must be active, and over active prototypes c. Gradients flow
    to the features only, in their dtype and memory layout.

    Shapes: features (B, D, s) of at most 32 bits, with any strides; labels (B, s) int64, in range for invalid pixels
    too; valid (B, s) bool; prototypes (K, D); active (K,) bool.
    """
    own = labels.where(valid, -1).int().contiguous()
    pull, push = _ClusterSums.apply(features, own, prototypes.detach().float().contiguous(), active, float(margin))
    return pull, push
