"""The state of FairCL after classes were merged or dropped, without any image."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.class_groups import Groups, padded_groups
from faircl.methods.balance import Balance
from faircl.methods.faircl.class_distribution import ClassDistribution
from faircl.methods.faircl.feature_memory import FeatureMemory
from faircl.methods.faircl.method import FairCL
from faircl.prototypes import PrototypeBank


@torch.no_grad()
def regroup(method: FairCL, groups: Groups) -> None:
    """Make the state that follows a finished step one of new classes, each made of one or several of the old ones.

    All of them count as learned at a single first step. The unknown cluster belongs to no class and stays.
    """
    regroup_prototypes(method.bank, groups, method.distribution.share)
    regroup_features(method.memory, groups)
    regroup_shares(method.distribution, groups)
    if method.balance is not None:
        regroup_counts(method.balance, groups)
    method.old_classes, method.domain, method.hides_classes = 0, False, False
    method.protection = method.protection.new_zeros(0)


def regroup_prototypes(bank: PrototypeBank, groups: Groups, share: Tensor) -> None:
    """Set the prototype of a new class to Σ w_i·p_i / Σ w_i over its members i that have one, w the pixel share (K,).

    Members of share 0 count only where all of them are; then they count alike. Queues are empty between steps.
    """
    members, real = padded_groups(groups, bank.ready.device)
    ready = bank.ready[members] & real
    weight = share.to(bank.prototypes)[members] * ready
    weight = weight.where(weight.sum(1, keepdim=True) > 0, ready.to(weight))
    weight = weight / weight.sum(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    moved = torch.zeros_like(bank.ready).index_fill_(0, bank.moving, True)
    bank.prototypes = (weight[..., None] * bank.prototypes[members]).sum(1)
    bank.ready = ready.any(1)
    bank.moving = (moved[members] & real).any(1).nonzero()[:, 0]
    bank.queue = bank.queue.new_zeros((len(groups), *bank.queue.shape[1:]))
    bank.filled, bank.head = bank.filled.new_zeros(len(groups)), bank.head.new_zeros(len(groups))


def regroup_features(memory: FeatureMemory, groups: Groups) -> None:
    """Let every member of a new class give its features in turn, until the class has as many as are kept.

    In turn, not by their pixels: a rare member is remembered as well as a frequent one.
    """
    if not len(memory.filled):  # without replay nothing is kept
        return
    members, real = padded_groups(groups, memory.filled.device)
    filled = memory.filled[members] * real
    size = memory.features.shape[1]
    # Places (C, n, M), the members' first features before their second ones; a stable sort puts those in use first.
    unused = torch.arange(size, device=filled.device)[:, None] >= filled[:, None, :]
    order = unused.flatten(1).to(torch.uint8).argsort(dim=1, stable=True)[:, :size]
    place, member = order // members.shape[1], order % members.shape[1]
    memory.features = memory.features[members.gather(1, member), place]
    memory.filled = filled.sum(1).clamp_max(size)


def regroup_shares(distribution: ClassDistribution, groups: Groups) -> None:
    """Add the shares of the members; those of dropped classes are left out."""
    distribution.share = _sum(distribution.share, groups)
    distribution.predicted = _sum(distribution.predicted, groups)


def regroup_counts(balance: Balance, groups: Groups) -> None:
    """Add the shares of the members. Of their images the most are taken: how many show several of them is not known."""
    members, real = padded_groups(groups, balance.images.device)
    balance.share = _sum(balance.share, groups)
    balance.images = (balance.images[members] * real).amax(1)


def _sum(values: Tensor, groups: Groups) -> Tensor:
    members, real = padded_groups(groups, values.device)
    return (values[members] * real).sum(1)
