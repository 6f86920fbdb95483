"""Sums and means over two processes equal those of one; gradients, averaged as DDP does, too."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from faircl.distributed import global_mean, global_sum, world_size
from faircl.losses import class_histogram, kl_from_uniform

ROWS = (3, 1)  # unequal shares of four images


def data():
    gen = torch.Generator().manual_seed(0)
    logits = torch.randn((4, 3, 2, 2), generator=gen, dtype=torch.float64)
    return logits, torch.rand((4, 2, 2), generator=gen) > 0.3


def loss(scale, logits, valid):
    scaled = scale * logits
    mean = global_mean((scaled.square().sum(1) * valid).sum(), valid.sum())
    return mean + kl_from_uniform(class_histogram(scaled, valid))


def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    logits, valid = (part.split(ROWS)[rank] for part in data())
    scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    value = loss(scale, logits, valid)
    value.backward()
    dist.all_reduce(scale.grad)
    assert world_size() == 2
    assert global_sum(torch.tensor(rank + 1)).item() == 3
    torch.save((value.detach(), scale.grad / 2), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
def test_two_processes_equal_one(tmp_path):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.start_processes(work, (str(tmp_path),), nprocs=2, start_method="spawn")
    scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    whole = loss(scale, *data())
    whole.backward()
    shares = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    values, gradients = zip(*shares, strict=True)
    assert sum(values).item() / 2 == pytest.approx(whole.item(), abs=1e-12)
    assert [g.item() for g in gradients] == pytest.approx([scale.grad.item()] * 2, abs=1e-12)


def test_nothing_counted_gives_zero():
    total = torch.zeros((), requires_grad=True)
    mean = global_mean(total * 1, torch.tensor(0))
    mean.backward()
    assert (mean.item(), total.grad.item()) == (0, 1)
