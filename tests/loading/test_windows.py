"""Windows resampled on the device are those that workers resample."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_loader import IDENTITY, Painted, as_assigned, counted, dataset

from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.device_cache import DeviceCache
from faircl.loading.loader import train_loader
from faircl.loading.prefetch import prefetch_to_device
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.loading.transforms import Crop
from faircl.loading.windows import PackedWindows

CPU = torch.device("cpu")


class Marked:
    """Saliency maps that mark one class."""

    def read(self, id, size):
        return (Painted().read_mask("train", id) == 3).astype(np.uint16)


def rich(crop=24) -> StepDataset:
    """Return a dataset with everything that an item can have; one image has labels of two bytes."""
    data = dataset(assigned=as_assigned(Painted()), jitter=0.3)
    wide = np.where(IDENTITY == IGNORE, IGNORE, IDENTITY + 300).astype(np.uint16)
    tables = {data.images[3]: wide}
    augmentation = Augmentation(crop, (0.3, 2.5), True, 0.3)
    return replace(data, auxiliary=Marked(), tables=tables, augmentation=augmentation)


def batches(data, workers=0, count=6):
    return list(prefetch_to_device(train_loader(data, counted(7, 4, count), workers), CPU))


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                assert a.stride() == b.stride()
                assert torch.equal(a, b)


@pytest.mark.parametrize("make", [dataset, rich])
@pytest.mark.parametrize("workers", [0, 2])
def test_cut_by_workers_and_resampled_here_bit_for_bit(make, workers):
    assert_same(batches(replace(make(), resample_on_device=True), workers), batches(make()))


@pytest.mark.parametrize("make", [dataset, rich])
def test_cut_out_of_resident_images_bit_for_bit(make):
    done = []
    resident = DeviceCache(make(), CPU, lambda: done.append(1))
    assert len(done) == 7
    assert_same(list(prefetch_to_device(resident.batches(resident.dataset, counted(7, 4, 6)), CPU)), batches(make()))


def test_the_cases_are_there():
    found = batches(rich(), count=20)
    assert any((batch.labels == IGNORE).any() for batch in found)
    assert any((batch.labels > 300).logical_and(batch.labels < 400).any() for batch in found)
    assert any(batch.auxiliary.any() for batch in found)


def test_nothing_outside_the_image_is_sent_and_small_windows_are_small():
    data = replace(
        dataset(scale=(0.25, 0.25)), resample_on_device=True
    )  # windows of 96 pixels around images of at most 40
    window = data[0, 6]
    assert window.image.shape == (9, 9, 3)
    assert PackedWindows.collate([window]).packed.buffer.numel() < 9 * 9 * 4 + 128
    data = replace(dataset(scale=(2.0, 2.0)), resample_on_device=True)
    assert data[0, 3].image.shape == (12, 12, 3)


def test_windows_survive_a_pipe():
    data = replace(rich(), resample_on_device=True)
    sent = PackedWindows.collate([data[k, k] for k in range(7)])
    again = pickle.loads(pickle.dumps(sent))
    assert_same([again.to_batch()], [sent.to_batch()])


def test_windows_that_do_not_fit_the_ring_are_sent_all_the_same(monkeypatch):
    monkeypatch.setattr(StepDataset, "item_bytes", 100)
    assert_same(batches(replace(rich(), resample_on_device=True), 2), batches(rich()))
    assert_same(batches(rich(), 2), batches(rich()))


@pytest.mark.parametrize(
    "crop", [Crop(-3, 2, 40, 40, 16, False), Crop(0, 0, 9, 9, 24, True), Crop(1, 1, 8, 8, 8, True)]
)
def test_floats_as_on_a_gpu_differ_by_a_level_at_most(crop, monkeypatch):
    image = np.random.default_rng(0).integers(0, 256, (30, 30, 3), dtype=np.uint8)
    whole = crop.image(image)

    def in_floats(window, size):
        pixels = window[None].permute(0, 3, 1, 2).float()
        resized = torch.nn.functional.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
        return resized.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)[0]

    monkeypatch.setattr("faircl.loading.transforms._resize", in_floats)
    assert (crop.image(image).int() - whole.int()).abs().max() <= 1


def test_a_gpu_without_room_is_a_sentence(monkeypatch):
    from faircl.loading import device_cache as resident

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * 10**9)
    resident._check_device_memory(1.9e9, torch.device("cuda"))
    with pytest.raises(UserError, match=r"about 2\.1 GB and 2\.0 GB of 8\.0 GB are free on the GPU"):
        resident._check_device_memory(2.1e9, torch.device("cuda"))
    with pytest.raises(UserError, match=r"train\.cache is gpu, .* are free on this machine"):
        resident._check_device_memory(1e18, CPU)


def test_a_gpu_that_runs_full_is_a_sentence(monkeypatch):
    count = iter(range(100))

    def full(labels):
        if next(count) == 5:
            raise torch.OutOfMemoryError
        return torch.from_numpy(labels)

    monkeypatch.setattr("faircl.loading.device_cache.as_tensor", full)
    with pytest.raises(UserError, match=r"after 5 of 7 images \(0\.0 GB\) the GPU's memory is full"):
        DeviceCache(dataset(), CPU, lambda: None)


def test_resident_images_are_packed_whatever_order_a_reader_leaves_them_in(monkeypatch):
    pytest.importorskip("triton", reason="Triton comes with torch for Linux alone")

    class Planar(Painted):
        def read(self, split, id):
            sample = super().read(split, id)
            planes = np.ascontiguousarray(sample.image.transpose(2, 0, 1)).transpose(1, 2, 0)
            return sample._replace(image=planes, mask=np.asfortranarray(sample.mask))

    data = replace(rich(), data=Planar(), augmentation=Augmentation(24, (0.3, 2.5), True, 0.0))
    expected = batches(data, count=2)  # each image once
    monkeypatch.setattr("faircl.loading.windows.kernels.usable", lambda tensor: True)
    resident = DeviceCache(data, CPU, lambda: None).batches(data, counted(7, 4, 2))
    for one, other in zip(prefetch_to_device(resident, CPU), expected, strict=True):
        assert (one.image - other.image).abs().max() <= 1.01 / 255
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.assigned, other.assigned)
        assert torch.equal(one.auxiliary, other.auxiliary)
