"""Groups of classes: how new classes are made of those that were there, by merging some and dropping others.

``groups[c]`` lists the old classes that new class c consists of, one or several; an old class of no group is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Groups = Sequence[Sequence[int]]


def padded_groups(groups: Groups, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Return the members of C groups (C, M) int64, M those of the largest, and which of them are real (C, M) bool.

    Places beyond a group's members hold its first member.

    >>> padded_groups([[0], [1, 3]])
    (tensor([[0, 0],
            [1, 3]]), tensor([[ True, False],
            [ True,  True]]))
    """
    most = max(len(group) for group in groups)
    members = [[*group, *[group[0]] * (most - len(group))] for group in groups]
    counts = torch.tensor([len(group) for group in groups], device=device)
    return torch.tensor(members, device=device), torch.arange(most, device=device) < counts[:, None]


def joined(groups: Groups, parts: Groups) -> list[list[int]]:
    """Return what groups of groups consist of: the members of every listed part, one after the other.

    >>> joined([[0], [2, 1]], parts=[[0], [1], [2, 3]])
    [[0], [2, 3, 1]]
    """
    return [[member for part in group for member in parts[part]] for group in groups]
