"""Two parallel branches in place of every 3×3 convolution during the training of a step (RCIL).

``TwoBranches`` inserts the branches at the start of a step and ``TwoBranches.fold`` merges them at its end
(re-parameterisation): the folded network equals the mean of both branches. Between steps a network has the modules and
state dict keys that it was built with, as checkpoints, evaluation and export expect.
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
"""Norms that can be part of a branch. Subclasses are excluded: timm's, for example, includes an activation."""


class ConvGroup(NamedTuple):
    """Module names of convolutions and of the BatchNorm that reads their output and nothing else.

    There are several convolutions if the norm reads their concatenated outputs, as in MiB's head.
    """

    convs: tuple[str, ...]
    norm: str | None


# ---- search


def find_conv_groups(model: Segmenter) -> list[ConvGroup]:
    """Return the 3×3 convolutions of backbone and decoder with their norms, in the order of the forward pass.

    The order and the dataflow are found by a forward pass on the meta device. A convolution that no BatchNorm follows
    is a group without a norm. Subclasses of ``nn.Conv2d`` are left out.
    """
    meta_model = copy.deepcopy(model).to("meta").eval()
    with torch.no_grad(), _DataflowRecorder(meta_model) as recorder:
        image = torch.empty(1, 3, 64, 96, dtype=meta_model.mean.dtype, device="meta")
        stages, _ = meta_model.features(image, False)
        seen = (*stages, meta_model.decoder(stages))
    recorder.read_counts.update(id(x) for x in seen)  # outputs of the network are read by its caller
    groups = [ConvGroup(convs, norm) for norm, convs in recorder.norms_of_convs() if any(map(recorder.is_3x3, convs))]
    grouped = {name for group in groups for name in group.convs}
    groups += [ConvGroup((name,), None) for name in recorder.convs if name not in grouped and recorder.is_3x3(name)]
    order = list(recorder.convs)
    return sorted(groups, key=lambda group: order.index(group.convs[0]))


class _DataflowRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Records outputs of convolutions, inputs of norms and how often every tensor is read; tensors are told by id."""

    def __init__(self, model: Segmenter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read_counts: Counter[int] = Counter()
        self.concat_inputs: dict[int, list[int]] = {}
        self.convs: dict[str, nn.Conv2d] = {}
        self.conv_outputs: dict[int, str] = {}
        self.call_counts: Counter[str] = Counter()
        self.norm_inputs: dict[str, int] = {}
        self._kept_alive: list[Any] = []  # an id is unique only while its tensor is alive
        parts = [("backbone", model.backbone), ("decoder", model.decoder)]
        for name, module in ((f"{p}.{n}", m) for p, part in parts for n, m in part.named_modules()):
            # Hooks are registered on a specific layer, which must not be replaced.
            if module._forward_hooks or module._forward_pre_hooks:
                continue
            if type(module) is nn.Conv2d or (type(module) in NORMS and module.running_mean is not None):
                module.register_forward_hook(partial(self._record_call, name))

    def _record_call(self, name: str, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        self.call_counts[name] += 1
        if isinstance(module, nn.Conv2d):
            self.convs[name] = module
            self.conv_outputs[id(output)] = name
        else:
            self.norm_inputs[name] = id(inputs[0])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._kept_alive.append((args, kwargs, out))
        self.read_counts.update(id(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        if func is torch.ops.aten.cat.default and out.dim() == 4 and args[1:] in ((1,), (-3,)):
            self.concat_inputs[id(out)] = [id(x) for x in args[0]]
        return out

    def norms_of_convs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name of every norm that alone reads the outputs of convolutions, and the names of these."""
        for norm, tensor in self.norm_inputs.items():
            sources = self.concat_inputs.get(tensor, [tensor])
            names = tuple(self.conv_outputs[source] for source in sources if source in self.conv_outputs)
            alone = all(self.read_counts[x] == 1 for x in {tensor, *sources})
            once = all(self.call_counts[name] == 1 for name in (norm, *names))
            if alone and once and len(names) == len(sources):
                yield norm, names

    def is_3x3(self, name: str) -> bool:
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
    """Two branches that are mixed per channel; the weights and statistics of the first may be frozen.

        y = (1 − m)·first(x) + m·second(x)

    In training m is ``mixing`` (D, 1, 1) with values 0, ½ and 1; in evaluation it is ½.
    """

    mixing: Tensor

    def __init__(self, first: Branch, second: Branch, frozen: bool) -> None:
        super().__init__()
        self.first, self.second, self.frozen = first, second, frozen
        self.mixing = torch.full((second.conv.out_channels, 1, 1), 0.5)
        first.requires_grad_(not frozen)
        second.requires_grad_(True)

    @property
    def weight(self) -> Tensor:
        """Weights of the second branch, which is always trained: some networks read the dtype or device of a layer."""
        return self.second.conv.weight

    def train(self, mode: bool = True) -> Branches:
        """Set training mode, except for a frozen branch, which stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.first.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the mixed output (B, D, h', w')."""
        first, second = self.first(x), self.second(x)
        return torch.lerp(first, second, self.mixing.to(first) if self.training else 0.5)


class _MixingHook:
    """A forward pre-hook that draws ``mixing`` of all branches in training, 0, ½ and 1 with equal probability.

    The generator is seeded with a counter of passes, so that all processes draw the same values and resuming repeats
    them. Drawing once per pass of the network keeps values when gradient checkpointing recomputes a block.
    """

    def __init__(self, branches: Sequence[Branches], seed: int, step: int) -> None:
        self.branches, self.seed, self.step, self.passes = branches, seed, step, 0

    def __call__(self, model: nn.Module, inputs: object) -> None:
        if not model.training:
            return
        widths = [len(branches.mixing) for branches in self.branches]
        choices = generator(self.seed, "branches", self.step, self.passes).integers(3, size=sum(widths))
        weight = self.branches[0].weight
        # Converted before it is pinned: a copy that converts goes through memory that is not, and may wait for the GPU.
        values = torch.from_numpy(choices / 2).to(weight.dtype)
        values = values.pin_memory() if weight.is_cuda else values
        mixings = values.to(weight.device, non_blocking=True)[:, None, None]
        for branches, mixing in zip(self.branches, torch.split(mixings, widths), strict=True):
            branches.mixing = mixing
        self.passes += 1


class TwoBranches:
    """A network with two branches in place of its convolution groups; the second starts as a copy of the first."""

    def __init__(self, model: Segmenter, groups: Sequence[ConvGroup], *, frozen: bool, seed: int, step: int) -> None:
        self.model = model
        self.branches: dict[str, Branches] = {}
        self._replaced_norms: list[tuple[_BatchNorm, nn.Identity, list[Branches]]] = []
        for group in groups:
            self._insert_branches(group, frozen)
        self._mixing = _MixingHook(list(self.branches.values()), seed, step)
        self._hook = model.register_forward_pre_hook(self._mixing)

    @property
    def passes(self) -> int:
        """Training passes so far, which seed the choice between the branches."""
        return self._mixing.passes

    @passes.setter
    def passes(self, count: int) -> None:
        self._mixing.passes = count

    def _insert_branches(self, group: ConvGroup, frozen: bool) -> None:
        norm: Any = None if group.norm is None else self.model.get_submodule(group.norm)
        pairs, start = [], 0
        for name in group.convs:
            conv: Any = self.model.get_submodule(name)
            own = None if norm is None else _slice_norm(norm, start, start + conv.out_channels)
            first = Branch(conv, own)
            branches = Branches(first, copy.deepcopy(first), frozen).train(self.model.training)
            _replace(self.model, conv, branches)
            self.branches[name] = branches
            pairs.append(branches)
            start += conv.out_channels
        if norm is not None:
            placeholder = nn.Identity().train(norm.training)
            _replace(self.model, norm, placeholder)
            self._replaced_norms.append((norm, placeholder, pairs))

    def second_state(self) -> dict[str, Tensor]:
        """Return the state of all second branches, with the keys of ``second_state_keys``."""
        return {
            f"{name}.{key}": value
            for name, branches in self.branches.items()
            for key, value in branches.second.state_dict().items()
        }

    def load_second_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the state of all second branches."""
        for name, branches in self.branches.items():
            own = {key: state[f"{name}.{key}"] for key in branches.second.state_dict()}
            branches.second.load_state_dict(own)

    @torch.no_grad()
    def fold(self) -> None:
        """Put the original modules back, with weights that compute the mean of both branches."""
        self._hook.remove()
        for norm, placeholder, pairs in self._replaced_norms:
            _fold_conv_norm(norm.to(pairs[0].weight.device), pairs)
            _replace(self.model, placeholder, norm.train(placeholder.training))
        for branches in self.branches.values():
            conv = branches.first.conv
            if branches.first.norm is None:
                _fold_conv(branches)
            _replace(self.model, branches, conv.requires_grad_(True))


def second_state_keys(model: Segmenter, groups: Sequence[ConvGroup]) -> list[str]:
    """Return the state dict keys that the second branches of these groups would have."""
    names = []
    for group in groups:
        norm = {} if group.norm is None else model.get_submodule(group.norm).state_dict()
        for conv in group.convs:
            names += [f"{conv}.conv.{key}" for key in model.get_submodule(conv).state_dict()]
            names += [f"{conv}.norm.{key}" for key in norm]
    return names


# ---- folding


def _fold_conv(branches: Branches) -> None:
    """Set the first convolution to W = ½·(W₁ + W₂), and its bias likewise."""
    first, second = branches.first.conv, branches.second.conv
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        mine.copy_((mine.double() + other.double()) / 2)


def _fold_conv_norm(norm: _BatchNorm, pairs: Sequence[Branches]) -> None:
    r"""Fold both branches b, with convolutions W_b, c_b and norms γ_b, β_b, μ_b, σ²_b, into one convolution and norm.

        ½·Σ_b [ s_b·(W_b∗x + c_b − μ_b) + β_b ] = (W∗x − μ) + β,   s_b = γ_b / √(σ²_b + ε)
        W = ½·Σ_b s_b·W_b,   μ = ½·Σ_b s_b·(μ_b − c_b),   β = ½·Σ_b β_b

    for any variance with γ = √(σ² + ε); √(σ² + ε) = ½·Σ_b |γ_b| is chosen. If the statistics of the branches are
    accurate, μ is the mean of W∗x and, if the branches are equal, σ² is its variance: training can continue.
    """
    moments: list[list[Tensor]] = []
    for branches in pairs:
        parts = [_folded_terms(branch) for branch in (branches.first, branches.second)]
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
    trained: Any = pairs[0].second.norm
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.copy_(trained.num_batches_tracked)


def _folded_terms(branch: Branch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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


def _slice_norm(norm: _BatchNorm, start: int, stop: int) -> _BatchNorm:
    """Return a copy of a norm for the channels from start to stop."""
    part = copy.deepcopy(norm)
    part.num_features = stop - start
    for name, value in (*norm.named_parameters(), *norm.named_buffers()):
        if value.dim() > 0:
            mine = value.detach()[start:stop].clone()
            setattr(part, name, nn.Parameter(mine) if isinstance(value, nn.Parameter) else mine)
    return part


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace a module wherever it is registered."""
    places = [(parent, name) for parent in model.modules() for name, child in parent._modules.items() if child is old]
    for parent, name in places:
        parent._modules[name] = new
