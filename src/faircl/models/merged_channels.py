"""Classes that several channels of a classifier stand for: the probability of such a class is the sum of theirs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl.class_groups import Groups, padded_groups
from faircl.precision import at_least_float32


class MergedChannels(nn.Module):
    r"""Turns the logits of R channels into those of C classes, class c the group G_c of channels.

        z_c = log Σ_{r ∈ G_c} exp z_r,   hence   p_c = exp z_c / Σ_{all channels s} exp z_s = Σ_{r ∈ G_c} p_r

    A class of one channel has its logit unchanged. Buffers are not part of the state: the groups are saved as they are.

    Shapes: ``members`` (G, M) and ``real`` (G, M), the channels of the G classes that have several; ``order`` (C,), the
    place of every class among the R channels followed by those G.
    """

    members: Tensor
    real: Tensor
    order: Tensor

    def __init__(self, groups: Groups, device: torch.device | None = None) -> None:
        super().__init__()
        self.groups = tuple(tuple(group) for group in groups)
        several = [group for group in self.groups if len(group) > 1]
        members, real = padded_groups(several, device)
        place = {group: self.channels + number for number, group in enumerate(several)}
        order = torch.tensor([place.get(group, group[0]) for group in self.groups], device=device)
        for name, value in (("members", members), ("real", real), ("order", order)):
            self.register_buffer(name, value, persistent=False)

    @property
    def channels(self) -> int:
        """Number of channels R."""
        return sum(map(len, self.groups))

    def forward(self, logits: Tensor, dim: int) -> Tensor:
        """Return the logits of the classes; ``dim`` is that of the R channels, and becomes that of the C classes."""
        dim %= logits.ndim
        before, after = logits.shape[:dim], logits.shape[dim + 1 :]
        found = logits.index_select(dim, self.members.flatten()).reshape(*before, *self.members.shape, *after)
        real = self.real.view(*self.real.shape, *[1] * len(after))
        merged = at_least_float32(found).masked_fill(~real, -torch.inf).logsumexp(dim + 1)
        return torch.cat([logits, merged.to(logits.dtype)], dim).index_select(dim, self.order)
