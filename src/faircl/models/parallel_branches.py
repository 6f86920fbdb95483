"""Two branches in place of every 3×3 convolution while a step trains, and one again afterwards (RCIL).

Between steps a network is plain: the modules and names it was built with, which checkpoints, evaluation and export
know. ``TwoBranches`` puts branches in, ``fold`` takes them out; the folded network computes what the mean of both
branches did.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from faircl.models.segmenter import Segmenter
from faircl.seeding import generator

NORMS = (nn.BatchNorm2d, nn.SyncBatchNorm)
"""Norms that a branch can have of its own. Their subclasses do more (timm's has an activation inside)."""


class Unit(NamedTuple):
    """What is doubled together, by names in the network: convolutions, and the BatchNorm that reads nothing else.

    A norm over several convolutions' concatenated outputs (MiB's head) is theirs in common.
    """

    convs: tuple[str, ...]
    norm: str | None


# ---- finding


def find_units(model: Segmenter) -> list[Unit]:
    """Return the 3×3 convolutions of backbone and decoder with their norms; tried on the meta device, at no cost.

    A convolution without a BatchNorm after it (GroupNorm, LayerNorm, nothing) is doubled alone. One that does more
    than ``nn.Conv2d`` is left as it is.
    """
    trial = copy.deepcopy(model).to("meta").eval()
    with torch.no_grad(), _Watch(trial) as watch:
        image = torch.empty(1, 3, 64, 96, dtype=trial.mean.dtype, device="meta")
        stages, _ = trial.features(image, False)
        seen = (*stages, trial.decoder(stages))
    watch.readers.update(id(x) for x in seen)  # whoever gets the network's output reads it too
    units = [Unit(convs, norm) for norm, convs in watch.normalised() if any(map(watch.is_square, convs))]
    taken = {name for unit in units for name in unit.convs}
    units += [Unit((name,), None) for name in watch.convs if name not in taken and watch.is_square(name)]
    order = list(watch.convs)
    return sorted(units, key=lambda unit: order.index(unit.convs[0]))


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Notes which tensors convolutions return, which norms take and how often anything reads them."""

    def __init__(self, model: Segmenter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.readers: Counter[int] = Counter()
        self.joined: dict[int, list[int]] = {}
        self.convs: dict[str, nn.Conv2d] = {}
        self.made: dict[int, str] = {}
        self.calls: Counter[str] = Counter()
        self.taken: dict[str, int] = {}
        self._alive: list[Any] = []  # the id of a tensor is its own only as long as it lives
        parts = [("backbone", model.backbone), ("decoder", model.decoder)]
        for name, module in ((f"{p}.{n}", m) for p, part in parts for n, m in part.named_modules()):
            # Whoever has hung a hook on a layer wants that very layer.
            if module._forward_hooks or module._forward_pre_hooks:
                continue
            if type(module) is nn.Conv2d or (type(module) in NORMS and module.running_mean is not None):
                module.register_forward_hook(partial(self._called, name))

    def _called(self, name: str, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        self.calls[name] += 1
        if isinstance(module, nn.Conv2d):
            self.convs[name] = module
            self.made[id(output)] = name
        else:
            self.taken[name] = id(inputs[0])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._alive.append((args, kwargs, out))
        self.readers.update(id(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        if func is torch.ops.aten.cat.default and out.dim() == 4 and args[1:] in ((1,), (-3,)):
            self.joined[id(out)] = [id(x) for x in args[0]]
        return out

    def normalised(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every norm whose input is the output of convolutions that nothing else reads, and these."""
        for norm, tensor in self.taken.items():
            sources = self.joined.get(tensor, [tensor])
            names = tuple(self.made[source] for source in sources if source in self.made)
            alone = all(self.readers[x] == 1 for x in {tensor, *sources})
            once = all(self.calls[name] == 1 for name in (norm, *names))
            if alone and once and len(names) == len(sources):
                yield norm, names

    def is_square(self, name: str) -> bool:
        """Whether a convolution is 3×3."""
        return self.convs[name].kernel_size == (3, 3)


# ---- branches


class Branch(nn.Module):
    """A convolution and, where there is one, its BatchNorm: (B, C, h, w) to (B, D, h', w')."""

    def __init__(self, conv: nn.Conv2d, norm: _BatchNorm | None) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: Tensor) -> Tensor:
        """Return the branch's output."""
        y: Tensor = self.conv(x)
        return y if self.norm is None else self.norm(y)


class Branches(nn.Module):
    """Two branches, of which the first may be frozen: its weights and its statistics then stay.

    In training every channel is that of the first branch, that of the second or their mean, by ``share``, the
    second's part (D, 1, 1) in {0, ½, 1}; in evaluation it is the mean.
    """

    share: Tensor

    def __init__(self, first: Branch, second: Branch, frozen: bool) -> None:
        super().__init__()
        self.first, self.second, self.frozen = first, second, frozen
        self.share = torch.full((second.conv.out_channels, 1, 1), 0.5)
        first.requires_grad_(not frozen)
        second.requires_grad_(True)

    @property
    def weight(self) -> Tensor:
        """Weights of the branch that always trains: some networks ask a layer's for their type or device."""
        return self.second.conv.weight

    def train(self, mode: bool = True) -> Branches:
        """Set training mode, all but a frozen branch."""
        super().train(mode)
        if self.frozen:
            self.first.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the mix (B, D, h', w')."""
        first, second = self.first(x), self.second(x)
        return torch.lerp(first, second, self.share.to(first) if self.training else 0.5)


class _Mixer:
    """Draws the shares of all branches before each pass of a network in training, every third the same likely.

    Drawn by a counter, they are the same on all processes and after resuming; drawn once a pass, they are the same
    where gradient checkpointing computes a block a second time.
    """

    def __init__(self, branches: Sequence[Branches], seed: int, step: int) -> None:
        self.branches, self.seed, self.step, self.passes = branches, seed, step, 0

    def __call__(self, model: nn.Module, inputs: object) -> None:
        if not model.training:
            return
        widths = [len(branches.share) for branches in self.branches]
        drawn = generator(self.seed, "branches", self.step, self.passes).integers(3, size=sum(widths))
        weight, halves = self.branches[0].weight, torch.from_numpy(drawn / 2)
        halves = halves.pin_memory() if weight.is_cuda else halves  # so that the copy keeps nobody waiting
        shares = halves.to(weight, non_blocking=True)[:, None, None]
        for branches, share in zip(self.branches, torch.split(shares, widths), strict=True):
            branches.share = share
        self.passes += 1


class TwoBranches:
    """A network with two branches in the place of its units; the second starts as a copy of the first."""

    def __init__(self, model: Segmenter, units: Sequence[Unit], *, frozen: bool, seed: int, step: int) -> None:
        self.model = model
        self.branches: dict[str, Branches] = {}
        self._norms: list[tuple[_BatchNorm, nn.Identity, list[Branches]]] = []
        for unit in units:
            self._split(unit, frozen)
        self._hook = model.register_forward_pre_hook(_Mixer(list(self.branches.values()), seed, step))

    def _split(self, unit: Unit, frozen: bool) -> None:
        norm: Any = None if unit.norm is None else self.model.get_submodule(unit.norm)
        made, start = [], 0
        for name in unit.convs:
            conv: Any = self.model.get_submodule(name)
            own = None if norm is None else _part_of(norm, start, start + conv.out_channels)
            first = Branch(conv, own)
            branches = Branches(first, copy.deepcopy(first), frozen).train(self.model.training)
            _replace(self.model, conv, branches)
            self.branches[name] = branches
            made.append(branches)
            start += conv.out_channels
        if norm is not None:
            gap = nn.Identity().train(norm.training)
            _replace(self.model, norm, gap)
            self._norms.append((norm, gap, made))

    def second(self) -> dict[str, Tensor]:
        """Return the state of all second branches, by the names of ``second_names``."""
        return {
            f"{name}.{key}": value
            for name, branches in self.branches.items()
            for key, value in branches.second.state_dict().items()
        }

    def load_second(self, state: Mapping[str, Tensor]) -> None:
        """Set all second branches."""
        for name, branches in self.branches.items():
            own = {key: state[f"{name}.{key}"] for key in branches.second.state_dict()}
            branches.second.load_state_dict(own)

    @torch.no_grad()
    def fold(self) -> None:
        """Make the network plain again: the modules that were there before, with the mean of both branches."""
        self._hook.remove()
        for norm, gap, made in self._norms:
            _fold_normalised(norm.to(made[0].weight.device), made)
            _replace(self.model, gap, norm.train(gap.training))
        for branches in self.branches.values():
            conv = branches.first.conv
            if branches.first.norm is None:
                _fold_alone(branches)
            _replace(self.model, branches, conv.requires_grad_(True))


def second_names(model: Segmenter, units: Sequence[Unit]) -> list[str]:
    """Return the names of what second branches would consist of."""
    names = []
    for unit in units:
        norm = {} if unit.norm is None else model.get_submodule(unit.norm).state_dict()
        for conv in unit.convs:
            names += [f"{conv}.conv.{key}" for key in model.get_submodule(conv).state_dict()]
            names += [f"{conv}.norm.{key}" for key in norm]
    return names


# ---- folding


def _fold_alone(branches: Branches) -> None:
    """W = ½·(W₁ + W₂), and so the bias."""
    first, second = branches.first.conv, branches.second.conv
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        mine.copy_((mine.double() + other.double()) / 2)


def _fold_normalised(norm: _BatchNorm, made: Sequence[Branches]) -> None:
    r"""Fold convolutions W_b, c_b with norms γ_b, β_b, μ_b, σ²_b of both branches b into one norm's input.

        ½·Σ_b [ s_b·(W_b∗x + c_b − μ_b) + β_b ] = (W∗x − μ) + β,   s_b = γ_b / √(σ²_b + ε)
        W = ½·Σ_b s_b·W_b,   μ = ½·Σ_b s_b·(μ_b − c_b),   β = ½·Σ_b β_b

    for any variance with γ = √(σ² + ε), of which √(σ² + ε) = ½·Σ_b |γ_b| is chosen. μ is the mean of W∗x where those
    of the branches are right, and σ² its variance where branches agree: the norm is one that could go on training.
    """
    moments: list[list[Tensor]] = []
    for branches in made:
        parts = [_scaled(branch) for branch in (branches.first, branches.second)]
        weight, *rest = (torch.stack(pair).mean(0) for pair in zip(*parts, strict=True))
        branches.first.conv.weight.copy_(weight)
        if branches.first.conv.bias is not None:
            branches.first.conv.bias.zero_()
        moments.append(rest)
    mean, bias, deviation = (torch.cat(values) for values in zip(*moments, strict=True))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_((deviation.square() - norm.eps).clamp_min(0))
    if norm.affine:
        norm.weight.copy_((norm.running_var.double() + norm.eps).sqrt())
        norm.bias.copy_(bias)
    trained: Any = made[0].second.norm
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.copy_(trained.num_batches_tracked)


def _scaled(branch: Branch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return s·W, s·(μ − c), β and |γ| in double precision."""
    conv, norm = branch.conv, branch.norm
    assert norm is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    gamma = norm.weight.double() if norm.affine else torch.ones_like(mean)
    beta = norm.bias.double() if norm.affine else torch.zeros_like(mean)
    scale = gamma / (variance + norm.eps).sqrt()
    offset = mean if conv.bias is None else mean - conv.bias.double()
    return scale[:, None, None, None] * conv.weight.double(), scale * offset, beta, gamma.abs()


def _part_of(norm: _BatchNorm, start: int, stop: int) -> _BatchNorm:
    """Return a norm of the same kind for some of the channels."""
    part = copy.deepcopy(norm)
    part.num_features = stop - start
    for name, value in (*norm.named_parameters(), *norm.named_buffers()):
        if value.dim() > 0:
            mine = value.detach()[start:stop].clone()
            setattr(part, name, nn.Parameter(mine) if isinstance(value, nn.Parameter) else mine)
    return part


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in the place of another, wherever that is registered."""
    places = [(parent, name) for parent in model.modules() for name, child in parent._modules.items() if child is old]
    for parent, name in places:
        parent._modules[name] = new
