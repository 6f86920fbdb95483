"""The input side on a GPU: the same labels, images to one level, no batch overtaken by the next."""

from dataclasses import replace

import pytest
import torch
from test_loader import counted, dataset
from test_windows import CPU, rich

from faircl.loading.device_cache import DeviceCache
from faircl.loading.loader import train_loader
from faircl.loading.prefetch import prefetch_to_device

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
BATCHES = 24


def batches(data, device, workers=0):
    return prefetch_to_device(train_loader(data, counted(7, 4, BATCHES), workers, pin=device.type == "cuda"), device)


def resident(data, device):
    return prefetch_to_device(DeviceCache(data, device, lambda: None).batches(data, counted(7, 4, BATCHES)), device)


def assert_close(found, expected, levels):
    number = 0
    for one, other in zip(found, expected, strict=True):
        number += 1
        assert one.image.device.type == "cuda"
        torch.cuda._sleep(3_000_000)  # the stream of the network is behind the one of the copies
        brighter = one.image.double() * 255
        assert (brighter.cpu() - other.image.double() * 255).abs().max() <= levels + 1e-3
        for a, b in zip(one[1:], other[1:], strict=True):
            assert a is b is None or (a.dtype == b.dtype and torch.equal(a.cpu(), b))
    assert number == BATCHES


@pytest.mark.parametrize("make", [dataset, rich])
@pytest.mark.parametrize("workers", [0, 2])
def test_augmented_by_workers(make, workers):
    # Jitter multiplies in another order of roundings at worst.
    assert_close(batches(make(), torch.device("cuda"), workers), batches(make(), CPU), 1)


@pytest.mark.parametrize("make", [dataset, rich])
@pytest.mark.parametrize("workers", [0, 2])
def test_resampled_on_the_gpu(make, workers):
    cut = replace(make(), resample_on_device=True)
    levels = 1 if make is dataset else 4  # jitter of up to 1.3³ makes more of a level
    assert_close(batches(cut, torch.device("cuda"), workers), batches(make(), CPU), levels)


@pytest.mark.parametrize("make", [dataset, rich])
def test_cut_out_of_resident_images(make):
    levels = 1 if make is dataset else 4
    assert_close(resident(make(), torch.device("cuda")), batches(make(), CPU), levels)
