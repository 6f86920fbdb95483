"""Fixed windows: the same crops from epoch to epoch, numbered alike on every way to the device."""

from dataclasses import replace

import pytest
import torch
from test_loader import counted, dataset

from faircl.loading.device_cache import DeviceCache
from faircl.loading.loader import train_loader
from faircl.loading.prefetch import prefetch_to_device
from faircl.loading.samplers import ListedBatches, ShuffledOrder, StepBatchSampler, Stream

CPU = torch.device("cpu")
R, IMAGES = 3, 7


def fixed(windows=R, **options):
    return replace(dataset(**options), windows=windows)


def crop(data, epoch, index, place=0):
    """Crop and window of an image at a place of an epoch."""
    drawn = data.draw_augmentation(epoch * IMAGES + place, index, (40, 40))
    return replace(drawn.crop, flip=False), drawn.window


def test_a_window_returns_after_r_epochs_wherever_its_image_stands():
    data = fixed()
    for index in range(IMAGES):
        for epoch in range(R):
            place = (2 * index + epoch) % IMAGES
            first, later = crop(data, epoch, index, place), crop(data, epoch + R, index, (place + 3) % IMAGES)
            assert first[0] == later[0]
            assert first[1].number == later[1].number == index * R + epoch


def test_the_windows_of_an_image_differ():
    data = fixed()
    assert len({crop(data, epoch, index)[0] for epoch in range(R) for index in range(IMAGES)}) == R * IMAGES


def test_other_steps_and_seeds_have_other_windows():
    found = [crop(fixed(**other), 1, 2)[0] for other in ({}, {"seed": 1}, {"step": 1})]
    assert len(set(found)) == 3


def test_steps_that_a_model_learned_before_count_as_if_they_were_known():
    known, added = fixed(step=2), replace(fixed(step=1), earlier_steps=1)
    assert crop(added, 1, 2) == crop(known, 1, 2)
    assert added.draw_augmentation(9, 2, (40, 40)).crop == known.draw_augmentation(9, 2, (40, 40)).crop


def test_pixels_of_a_window_return_up_to_mirroring():
    data, flips = fixed(), set()
    for index in range(IMAGES):
        first, later = data[index, index], data[R * IMAGES + index, index]
        turned = first.window.flip != later.window.flip
        flips.add(turned)
        assert torch.equal(first.image, later.image.flip(2) if turned else later.image)
        assert torch.equal(first.labels, later.labels.flip(1) if turned else later.labels)
    assert flips == {True, False}


def test_mirroring_and_jitter_are_drawn_at_every_visit():
    data = fixed(jitter=0.3)
    visits = [data.draw_augmentation(times * R * IMAGES, 0, (40, 40)) for times in range(12)]
    assert {visit.window.number for visit in visits} == {0}
    assert {visit.crop.flip for visit in visits} == {True, False}
    assert all(visit.window.flip == visit.crop.flip for visit in visits)
    assert len({tuple(visit.gains.tolist()) for visit in visits}) == 12
    plain = replace(data, augmentation=replace(data.augmentation, flip=False, jitter=0.0))
    unchanged = plain.draw_augmentation(0, 0, (40, 40))
    assert unchanged.gains is None
    assert not unchanged.crop.flip
    assert unchanged.crop == replace(visits[0].crop, flip=False)


def visits(data, batches=40):
    return data.first_visits(counted(IMAGES, 4, batches).whole_batches())


def numbers_of(data, pairs):
    return [data.draw_augmentation(draw, index, (40, 40)).window.number for draw, index in pairs]


def test_every_window_is_visited_once():
    data = fixed()
    assert numbers_of(data, visits(data)) == [index * R + turn for turn in range(R) for index in range(IMAGES)]


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5, 6])
def test_windows_that_training_does_not_show_are_not_visited(batches):
    """Batches of 4 of 7 images: after 5 batches some images have been shown three times, and some twice."""
    data = fixed()
    shown = numbers_of(data, [pair for batch in counted(IMAGES, 4, batches) for pair in batch])
    found = numbers_of(data, visits(data, batches))
    assert sorted(found) == sorted(set(shown))
    assert len(found) == min(4 * batches, R * IMAGES)


def test_visits_do_not_depend_on_what_is_left_of_a_step():
    data, stream = fixed(), Stream(ShuffledOrder(IMAGES, 0, ("a",)), 4)
    whole, left = StepBatchSampler([stream], 6), StepBatchSampler([stream], 6, first=5)
    assert len(list(left)) == 1
    assert data.first_visits(left.whole_batches()) == data.first_visits(whole)


def test_a_listed_order_is_cut_into_batches():
    pairs = visits(fixed())
    order = ListedBatches(pairs, 4)
    assert [pair for batch in order for pair in batch] == pairs
    assert [len(batch) for batch in order] == [4, 4, 4, 4, 4, 1]
    assert len(order) == 6


def test_without_fixed_windows_there_is_none():
    assert fixed(windows=0)[0, 0].window is None
    (batch,) = train_loader(fixed(windows=0), counted(IMAGES, 3, 1), 0)
    assert batch.to_batch().windows is None


def ways(data, order):
    """The same batches by finished items, by windows cut on the device, and from images kept there."""
    on_device = replace(data, resample_on_device=True)
    return {
        "items": train_loader(data, order, 0),
        "workers": train_loader(data, order, 2),
        "device": train_loader(on_device, order, 0),
        "device, workers": train_loader(on_device, order, 2),
        "cache": DeviceCache(data, CPU, lambda: None).batches(data, order),
    }


@pytest.mark.parametrize("listed", [False, True], ids=["training", "scan"])
def test_windows_are_the_same_on_every_way(listed):
    data = fixed()
    order = ListedBatches(visits(data), 4) if listed else counted(IMAGES, 4, 6)
    expected = [tuple(data.draw_augmentation(draw, index, (40, 40)).window for draw, index in batch) for batch in order]
    for way, batches in ways(data, order).items():
        assert [batch.windows for batch in prefetch_to_device(batches, CPU)] == expected, way


def test_windows_of_step_and_memory_take_turns_each_by_its_own_epochs():
    # Seven images of the step, three of a batch; fourteen of a memory, one of a batch: the memory's epochs are longer.
    data = replace(fixed(), images=tuple(str(k) for k in range(21)), streams=((3, 7), (1, 14)))
    streams = [Stream(ShuffledOrder(7, 0, ("a",)), 3), Stream(ShuffledOrder(14, 0, ("b",)), 1, first=7)]
    shown: dict[int, list[int]] = {}
    for batch in StepBatchSampler(streams, 14 * 2 * R):
        for draw, index in batch:
            shown.setdefault(index, []).append(data.draw_augmentation(draw, index, (40, 40)).window.number)
    assert sorted(shown) == list(range(21))
    for index, numbers in shown.items():
        assert numbers == [index * R + visit % R for visit in range(len(numbers))]
