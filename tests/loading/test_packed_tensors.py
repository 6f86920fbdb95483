"""Tensors in one buffer, and the memory that workers share."""

import pickle

import pytest
import torch
from test_loader import counted, dataset

from faircl.loading import packed_tensors
from faircl.loading.loader import train_loader
from faircl.loading.packed_tensors import SLOTS_PER_WORKER, PackedTensors, SharedRing, TensorSpan

ENTRIES = [
    torch.arange(5, dtype=torch.uint8),
    None,
    [torch.full((2, 3), k, dtype=torch.int16) for k in range(4)],
    torch.tensor([[True, False, True]]),
    torch.tensor([1.5, 2.5], dtype=torch.float32),
    torch.arange(6)[::2],  # not contiguous
]


class Worker:
    """What torch tells a worker about itself."""

    def __init__(self, id):
        self.id = id


@pytest.fixture
def worker(monkeypatch):
    """Pretend to be a worker."""
    monkeypatch.setattr(packed_tensors, "get_worker_info", lambda: Worker(1))


def assert_entries(found):
    assert len(found) == len(ENTRIES)
    for one, entry in zip(found, ENTRIES, strict=True):
        expected = torch.stack(entry) if isinstance(entry, list) else entry
        assert (one is None) == (expected is None)
        if one is not None:
            assert one.dtype == expected.dtype
            assert torch.equal(one, expected)


def test_tensors_come_out_as_they_went_in():
    packed = PackedTensors.pack(ENTRIES, None)
    assert_entries(packed.tensors())
    assert_entries(pickle.loads(pickle.dumps(packed)).tensors())
    assert_entries(packed.to(torch.device("cpu")).tensors())
    assert packed.copy_from_ring() is packed
    starts = [part.start for part in packed.spans if part]
    assert all(start % 16 == 0 for start in starts)
    assert starts == sorted(set(starts))


def test_a_part_of_nothing():
    part = TensorSpan(16, (0, 3), torch.uint8)
    assert part.end == 16
    assert part.view(torch.zeros(16, dtype=torch.uint8)).shape == (0, 3)


@pytest.mark.usefixtures("worker")
def test_a_worker_writes_into_its_places_in_turn():
    ring = SharedRing(2, 1000)
    packed = [PackedTensors.pack(ENTRIES, ring) for _ in range(SLOTS_PER_WORKER + 1)]
    places = [one.slot.number for one in packed]
    assert len(set(places[:SLOTS_PER_WORKER])) == SLOTS_PER_WORKER
    assert places[SLOTS_PER_WORKER] == places[0]
    assert packed[0].buffer.data_ptr() == packed[SLOTS_PER_WORKER].buffer.data_ptr()
    assert not ring.memory[0].any()  # the other worker's
    assert ring.memory[1].any()


@pytest.mark.usefixtures("worker")
def test_only_the_place_is_told_and_what_is_kept_is_not_written_over():
    ring = SharedRing(2, 100_000)
    packed = PackedTensors.pack([torch.zeros(90_000, dtype=torch.uint8)], ring)
    told = pickle.dumps(packed)
    assert len(told) < 1000
    received = pickle.loads(told)
    assert received.buffer.data_ptr() == packed.buffer.data_ptr()
    kept = received.copy_from_ring()
    packed.buffer.fill_(7)
    assert (received.tensors()[0] == 7).all()
    assert (kept.tensors()[0] == 0).all()
    assert kept.slot is None


@pytest.mark.usefixtures("worker")
def test_what_does_not_fit_takes_memory_of_its_own():
    ring = SharedRing(2, 10)
    assert ring.size % 4096 == 0
    assert PackedTensors.pack([torch.zeros(ring.size + 1, dtype=torch.uint8)], ring).slot is None
    assert PackedTensors.pack([torch.zeros(ring.size, dtype=torch.uint8)], ring).slot is not None


def test_nobody_but_workers_uses_the_ring():
    assert PackedTensors.pack(ENTRIES, SharedRing(2, 1000)).slot is None


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_that_are_all_held_are_not_written_over(workers):
    # More batches than the ring has places, held until the last has come.
    held = list(train_loader(dataset(jitter=0.2), counted(7, 3, 20), workers))
    expected = list(train_loader(dataset(jitter=0.2), counted(7, 3, 20), 0))
    assert len(held) == 20
    for one, other in zip(held, expected, strict=True):
        for a, b in zip(one.packed.tensors(), other.packed.tensors(), strict=True):
            assert a is b is None or torch.equal(a, b)


def test_a_ring_is_gone_with_its_loader():
    before = len(packed_tensors._rings)
    batches = train_loader(dataset(), counted(7, 3, 20), 1)
    next(batches)
    assert len(packed_tensors._rings) == before + 1
    batches.close()
    del batches
    assert len(packed_tensors._rings) == before
