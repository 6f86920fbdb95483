"""The store of soft labels: what was added comes back for the windows of a batch, on every way to the device."""

from dataclasses import replace

import pytest
import torch
from test_loader import counted, dataset

from faircl.config.schema import TrainConfig
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch, FixedWindow, SoftTargets
from faircl.loading.inputs import StepInputs
from faircl.loading.samplers import ListedBatches
from faircl.loading.soft_labels import SoftBlock, SoftLabels

CPU = torch.device("cpu")
R, IMAGES, H, W, KEPT = 3, 7, 2, 5, 3


def store(dtype=torch.uint8):
    """Soft labels of all windows in blocks of uneven sizes, and the blocks' rows by window number."""
    gen, soft, rows = torch.Generator().manual_seed(0), SoftLabels(), {}
    for numbers in torch.randperm(R * IMAGES, generator=gen).split([1, 8, 5, 7]):
        classes = torch.randint(0, 200, (len(numbers), H, W, KEPT), generator=gen).to(dtype)
        shares = torch.randint(1, 256, (len(numbers), H, W, KEPT), generator=gen).to(torch.uint8)
        soft.add(SoftBlock(tuple(numbers.tolist()), classes, shares))
        rows |= {number: (classes[k], shares[k]) for k, number in enumerate(numbers.tolist())}
    return soft, rows


def assert_is(found, rows, windows):
    """Compare cell by cell."""
    assert found.classes.dtype == torch.int64
    assert found.shares.dtype == torch.float32
    for b, (number, flip) in enumerate(windows):
        classes, shares = rows[number]
        for i in range(H):
            for j in range(W):
                at = W - 1 - j if flip else j
                assert found.classes[b, i, j].tolist() == classes[i, at].tolist()
                levels = shares[i, at].tolist()
                assert found.shares[b, i, j].tolist() == pytest.approx([one / sum(levels) for one in levels])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_windows_of_any_block_come_back_in_the_order_of_the_batch(dtype):
    soft, rows = store(dtype)
    assert len(soft) == R * IMAGES
    assert soft.nbytes == R * IMAGES * H * W * KEPT * (1 + dtype.itemsize)
    windows = [FixedWindow(number, number % 3 == 0) for number in (20, 0, 7, 7, 13, 9)]
    assert_is(soft.of(windows, CPU), rows, windows)


def test_a_window_that_was_not_scanned_is_an_error():
    with pytest.raises(KeyError):
        store()[0].of([FixedWindow(R * IMAGES, False)], CPU)


def config(**options):
    return TrainConfig(batch=4, crop=24, workers=0, **options)


WAYS = [
    {},
    {"augment": "device"},
    {"cache": "memory"},
    {"cache": "gpu", "augment": "device"},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way) or "plain")
def test_every_batch_has_the_soft_labels_of_its_windows(way, silent):
    soft, rows = store()
    data = replace(dataset(), windows=R)
    flips = set()
    batches = list(StepInputs(config(**way), CPU, silent()).batches(data, counted(IMAGES, 4, 6), soft))
    assert len(batches) == 6
    for batch in batches:
        flips |= {window.flip for window in batch.windows}
        assert_is(batch.soft, rows, batch.windows)
    assert flips == {True, False}


def test_without_soft_labels_a_batch_has_none(silent):
    (batch,) = StepInputs(config(), CPU, silent()).batches(replace(dataset(), windows=R), counted(IMAGES, 4, 1))
    assert batch.soft is None


def test_a_moved_batch_has_all_its_tensors():
    """As on the meta device, which is not the one that they come from."""
    zero = torch.zeros(1)
    batch = Batch(zero, zero, None, zero, zero, (FixedWindow(3, True),), SoftTargets(zero, zero))
    moved = batch.to(torch.device("meta"))
    assert [one.device.type for one in moved.tensors()] == ["meta"] * 6
    assert (moved.assigned, moved.windows) == (None, batch.windows)
    assert len(list(batch.tensors())) == 6


# Decoded images


def scan_then_train(way, silent, assigned=None):
    """Batches of a scan and of training from one pipeline, and what was decoded for them."""
    reporter, data = silent(), replace(dataset(jitter=0.3), windows=R)
    inputs = StepInputs(config(**way), CPU, reporter)
    plain = replace(data, augmentation=replace(data.augmentation, flip=False, jitter=0.0))
    visits = ListedBatches(data.first_visits(counted(IMAGES, 4, 6).whole_batches()), 4)
    scanned = list(inputs.batches(plain, visits))
    trained = list(inputs.batches(replace(data, assigned=assigned), counted(IMAGES, 4, 6)))
    return scanned, trained, [task for task in reporter.tasks if "decode" in task]


@pytest.mark.parametrize("way", WAYS[2:], ids=lambda way: way["cache"])
def test_scan_and_training_share_decoded_images(way, silent):
    decoded = scan_then_train(way, silent)
    expected = scan_then_train({}, silent)
    assert [len(decoded[2]), len(expected[2])] == [1, 0]
    for kind in (0, 1):
        for one, other in zip(decoded[kind], expected[kind], strict=True):
            assert torch.equal(one.image, other.image)
            assert torch.equal(one.labels, other.labels)
            assert one.windows == other.windows
    assert not any(window.flip for batch in decoded[0] for window in batch.windows)


def test_labels_that_the_scan_has_assigned_come_to_the_device_too(silent):
    """They were not there when the scan filled the cache."""
    assigned = AssignedLabels()
    for id in dataset().images:
        assigned[id] = dataset().data.read_mask("train", id).astype("uint16") + 1
    _, trained, decoded = scan_then_train(WAYS[3], silent, assigned)
    assert len(decoded) == 2
    for one, other in zip(trained, scan_then_train({}, silent, assigned)[1], strict=True):
        assert torch.equal(one.assigned, other.assigned)


# A GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_not_waited_for():
    soft, rows = store()
    windows = [FixedWindow(number, number % 2 == 0) for number in (3, 4, 12, 20)]
    device = torch.device("cuda")
    soft.of(windows, device)  # the first use of a kernel synchronises
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [soft.of(windows, device) for _ in range(50)]  # pinned memory is used again
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one in found:
        assert_is(SoftTargets(*(part.cpu() for part in one)), rows, windows)
