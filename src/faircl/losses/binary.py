"""Binary cross-entropy of upsampled logits: every class for itself, as iCaRL, LwF-MC and SSUL train."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.data.sample import IGNORE
from faircl.distributed import global_mean


def upsampled_binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    r"""Sum over classes of the binary cross-entropy of bilinearly upsampled logits z, mean over the N valid pixels.

        L = 1/N · Σ_i ( Σ_c log(1 + exp z_{i,c}) − z_{i,y_i} ),

    which is Σ_c BCE(σ(z_{i,c}), [c = y_i]) with its two cases put together.
    Shapes: logits (B, C, h, w); target (B, H, W) int64 with IGNORE.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.shape[-2:] != target.shape[-2:]:
        logits = F.interpolate(logits, target.shape[-2:], mode="bilinear", align_corners=False)
    valid = target != IGNORE
    own = logits.gather(1, target.where(valid, 0)[:, None])[:, 0]
    loss = (F.softplus(logits).sum(1) - own).where(valid, 0.0)
    return global_mean(loss.sum(), valid.sum())
