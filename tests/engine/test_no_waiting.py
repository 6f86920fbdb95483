"""No update synchronises with the GPU, which would leave it without work until the host issues more."""

import pytest
import torch
from grids import grid
from torch.utils._python_dispatch import TorchDispatchMode

from faircl.bench.step import bench_step
from faircl.bench.updates import WARMUP_UPDATES, BenchSize
from faircl.config.run import resolve
from faircl.engine.update import Updater
from faircl.registry import METHODS

FEW = BenchSize(old_classes=4, classes=6, iterations=4, rounds=1)
FAIRCL = [
    "{name: faircl-paper, fairness: kl, histogram_momentum: 0.9}",
    "{name: faircl-paper, fairness: literal}",
    "{name: faircl-paper, fairness: adjust, consistency: literal}",
    "{name: faircl-paper, unlabelled: teacher, cap_assigned: true}",
    "{name: faircl-paper, unlabelled: unbiased, distance_order: 1}",
    "{name: faircl-paper, unlabelled: ignore, embedding: backbone}",
    "{name: faircl, fairness: adjust, unlabelled: paper}",
    "{name: faircl, fairness: kl, soft_classes: 9, lambda_cluster: 0}",
]
TIMED = [name for name in METHODS.builtin if not METHODS.get(name).needs.attentions]
VALUES = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "unique_", "bincount", "equal.", "allclose")
VALUES += ("repeat_interleave.Tensor",)
READING = ("tolist", "cpu", "numpy", "__array__")


class Waits(TorchDispatchMode):
    """Lists operations that synchronise with a GPU: reading values, and sizes that depend on values.

    Copies from the host cannot be detected on a CPU; the test on a GPU detects them.
    """

    def __init__(self, monkeypatch):
        super().__init__()
        self.found, self.on = [], False
        for name in READING:  # on a CPU these dispatch no operation
            monkeypatch.setattr(torch.Tensor, name, self._noted(name, getattr(torch.Tensor, name)))

    def _noted(self, name, original):
        def noted(tensor, *args, **kwargs):
            if self.on:
                self.found.append(name)
            return original(tensor, *args, **kwargs)

        return noted

    def __enter__(self):
        self.on = True
        return super().__enter__()

    def __exit__(self, *error):
        self.on = False
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).removeprefix("aten.")
        indices = args[1] if name.startswith("index") and isinstance(args[1], (list, tuple)) else []
        if name.startswith(VALUES) or any(
            one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices
        ):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def settled(monkeypatch, around):
    """Run the updates of a later step that follow the warm-up inside the context manager ``around``."""
    update, made = Updater.update, []

    def watched(self, batches, step, number, measure=False):
        if step == 0 or number <= WARMUP_UPDATES:
            return update(self, batches, step, number, measure)
        made.append(number)
        with around:
            return update(self, batches, step, number, measure)

    monkeypatch.setattr(Updater, "update", watched)
    return made


def time_a_step(method, silent, *settings):
    tree = {"data": "scenes", "model": {"name": "small", "width": 8, "embedding": 8}, "method": "finetune"}
    config = resolve(tree | {"train": {"batch": 2, "crop": 64}}, [f"method={method}", "optim.lr=0.001", *settings])
    bench_step([config], [(config.method.name, config.method.name)], FEW, silent())


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.numpy(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: x.unique_consecutive(),
        lambda x: x.unique(dim=0),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: torch.allclose(x, x),
        lambda x: torch.equal(x, x),
    ],
)
def test_what_waits_is_seen(read, monkeypatch):
    waits = Waits(monkeypatch)
    with waits:
        read(torch.ones(3))
    assert waits.found


@grid("method", [*TIMED, *FAIRCL], quick=lambda method: method in ("finetune", "faircl", "plop"))
def test_no_number_of_an_update_is_waited_for(method, monkeypatch, silent):
    waits = Waits(monkeypatch)
    made = settled(monkeypatch, waits)
    time_a_step(method, silent)
    assert made == [WARMUP_UPDATES + 1, WARMUP_UPDATES + 2, WARMUP_UPDATES + 3, WARMUP_UPDATES + 4]
    assert waits.found == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="asks CUDA whether the host has waited: needs a GPU")
@pytest.mark.parametrize("graphs", ["false", "true"])
@pytest.mark.parametrize("method", [*TIMED, *FAIRCL])
def test_a_gpu_is_not_waited_for(method, graphs, monkeypatch, silent):
    class Asked:
        def __enter__(self):
            torch.cuda.set_sync_debug_mode("error")

        def __exit__(self, *_):
            torch.cuda.set_sync_debug_mode("default")

    made = settled(monkeypatch, Asked())
    time_a_step(method, silent, f"train.graphs={graphs}")
    assert made == [WARMUP_UPDATES + 1, WARMUP_UPDATES + 2, WARMUP_UPDATES + 3, WARMUP_UPDATES + 4]
