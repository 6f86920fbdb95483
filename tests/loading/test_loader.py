"""Items and batches of a step: order, labels, augmentation, workers."""

import multiprocessing
from collections import Counter

import numpy as np
import pytest
import torch

from faircl.data.sample import Classes, Sample
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch, PackedBatch
from faircl.loading.compact_labels import expand
from faircl.loading.loader import train_loader
from faircl.loading.samplers import ShuffledOrder, StepBatchSampler, Stream
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.loading.transforms import Crop, jitter
from faircl.loading.whole_images import WholeImages, same_size_batches
from faircl.readers.scenes import SceneData

AUGMENTATION = Augmentation(16, (1, 1), False, 0)
IDENTITY = np.append(np.arange(254), [IGNORE, IGNORE]).astype(np.uint16)


class Painted:
    """Images in the colours of their masks; sizes differ from image to image. A corner is ignored."""

    classes = Classes(tuple(f"c{i}" for i in range(9)), background=True)
    sizes = ((20, 30), (20, 30), (33, 17), (40, 40), (40, 40), (40, 40), (9, 9))

    def ids(self, split):
        return tuple(f"{split}{i}" for i in range(len(self.sizes)))

    def read_mask(self, split, id):
        number = int(id.removeprefix(split))
        rng = np.random.default_rng(number)
        blocks = rng.integers(0, 9, (10, 10)).astype(np.uint8)
        height, width = self.sizes[number]
        mask = blocks.repeat(4, 0).repeat(4, 1)[:height, :width].copy()
        mask[0, 0] = 255
        return mask

    def read(self, split, id):
        mask = self.read_mask(split, id)
        return Sample(id, np.repeat((mask * 20)[..., None], 3, 2).astype(np.uint8), mask)


def dataset(assigned=None, jitter=0.0, seed=0, step=0, scale=(0.5, 2.0), data=None, table=IDENTITY) -> StepDataset:
    data = data or Painted()
    images = tuple(data.ids("train"))
    return StepDataset(data, "train", images, table, assigned, Augmentation(24, scale, True, jitter), seed, step)


def as_assigned(data) -> AssignedLabels:
    kept = AssignedLabels()
    for id in data.ids("train"):
        kept[id] = IDENTITY[data.read_mask("train", id)]
    return kept


# ---- assigned labels


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (64, 3)])
def test_assigned_labels_come_back_as_they_went_in(shape):
    kept = AssignedLabels()
    mask = np.random.default_rng(0).integers(0, 65536, shape).astype(np.uint16)
    kept["one"] = mask
    kept["two"] = mask.T  # not contiguous
    np.testing.assert_array_equal(kept["one"], mask)
    np.testing.assert_array_equal(kept["two"], mask.T)
    assert kept["one"].dtype == np.uint16
    assert (len(kept), list(kept)) == (2, ["one", "two"])
    kept["one"] = mask[:1]
    assert kept["one"].shape == (1, shape[1])
    with pytest.raises(KeyError):
        kept["three"]


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_assigned_labels_go_through_crops_flips_and_padding_exactly_as_labels_do(jitter):
    data = dataset(assigned=as_assigned(Painted()), jitter=jitter)
    flipped = padded = 0
    for draw in range(200):
        item = data[draw, draw % 7]
        assert torch.equal(item.labels, item.assigned)
        assert item.draw == draw
        padded += bool((expand(item.labels) == IGNORE).any())
        flipped += draw_of(data, draw, draw % 7).flip
    assert padded > 20
    assert 60 < flipped < 140  # the test has seen all three


def draw_of(data: StepDataset, draw: int, index: int) -> Crop:
    from faircl.seeding import generator

    shape = data.data.read_mask("train", data.images[index]).shape
    a = data.augmentation
    return Crop.draw(generator(data.seed, "augment", data.step, draw), shape, a.crop, a.scale, a.flip)


def test_image_and_labels_of_an_item_are_aligned():
    data = dataset(scale=(1.0, 1.0))
    for draw in range(60):
        item = data[draw, draw % 7]
        assert item.assigned is item.auxiliary is item.gains is None
        labels = expand(item.labels)
        inside = labels != IGNORE
        assert inside.any()
        assert torch.equal(item.image[0][inside].long(), labels[inside] * 20)


def test_the_steps_table_is_applied_before_augmentation():
    table = np.where(IDENTITY == 3, 1, 0).astype(np.uint16)
    plain, mapped = dataset()[5, 3], dataset(table=table)[5, 3]
    inside = expand(plain.labels) != IGNORE  # the raw ignore value would be 0 under this table
    assert torch.equal(expand(mapped.labels)[inside], (expand(plain.labels)[inside] == 3).long())


def test_items_depend_on_seed_step_and_draw_alone():
    item = dataset(jitter=0.2)[3, 4]
    again = dataset(jitter=0.2)[3, 4]
    assert all(torch.equal(a, b) for a, b in zip(item[:2], again[:2], strict=True))
    assert torch.equal(item.gains, again.gains)
    for other in (dataset(jitter=0.2, seed=1)[3, 4], dataset(jitter=0.2, step=1)[3, 4], dataset(jitter=0.2)[4, 4]):
        assert not torch.equal(item.image, other.image)
        assert not torch.equal(item.gains, other.gains)


def test_an_image_with_a_table_of_its_own_and_without_assigned_labels():
    scenes = SceneData(4, 2, 32)
    ids = tuple(scenes.ids("train"))
    table = np.full_like(IDENTITY, 3)
    given = AssignedLabels()
    given[ids[0]] = scenes.read("train", ids[0]).mask.astype(np.uint16)
    data = StepDataset(
        scenes, "train", ids, IDENTITY, given, Augmentation(16, (1, 1), False, 0), 0, 1, tables={ids[1]: table}
    )
    plain, own = data[0, 0], data[1, 1]
    assert torch.equal(plain.labels, plain.assigned)
    assert expand(own.labels).unique().tolist() == [3]
    assert expand(own.assigned).unique().tolist() == [IGNORE]
    whole = WholeImages(scenes, "train", ids, IDENTITY, tables={ids[1]: table})
    assert whole[1].labels.unique().tolist() == [3]
    assert len(whole[0].labels.unique()) > 1


# ---- order


def counted(images=10, batch=4, count=30, seed=0, step=0):
    return StepBatchSampler([Stream(ShuffledOrder(images, seed, ("shuffle", step)), batch)], count)


def batches(**options):
    return list(counted(**options))


def test_every_image_exactly_once_per_epoch_and_draws_count_up():
    flat = [pair for group in batches(images=10, batch=4, count=30) for pair in group]
    assert [draw for draw, _ in flat] == list(range(120))
    epochs = [tuple(index for _, index in flat[k : k + 10]) for k in range(0, 120, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(epochs)) == 12  # a new order every time


def test_a_batch_straddles_epochs_and_none_is_short():
    groups = batches(images=10, batch=4, count=5)
    assert all(len(group) == 4 for group in groups)
    third = [index for _, index in groups[2]]
    first_epoch = [index for group in groups for _, index in group][:10]
    assert third[:2] == first_epoch[8:]


def test_fewer_images_than_a_batch():
    for group in batches(images=3, batch=8, count=4):
        assert len(group) == 8
        assert set(Counter(index for _, index in group)) == {0, 1, 2}
    assert [index for _, index in batches(images=1, batch=2, count=1)[0]] == [0, 0]


def test_order_is_repeatable_and_depends_on_seed_and_step():
    assert batches() == batches()
    assert batches(seed=1) != batches()
    assert batches(step=1) != batches()
    assert batches(count=5) == batches(count=30)[:5]  # a longer run begins like a shorter one
    assert len(counted(count=30)) == 30


def test_batches_do_not_depend_on_workers():
    scenes = SceneData(6, 2, 32)
    data = StepDataset(
        scenes, "train", tuple(scenes.ids("train")), IDENTITY, None, Augmentation(16, (0.5, 2.0), True, 0.3), 3, 1
    )
    data = StepDataset(**{**data.__dict__, "assigned": as_assigned(scenes)})
    one, two = (list(train_loader(data, counted(6, 4, 5, 3, 1), workers=workers)) for workers in (0, 2))
    assert len(one) == len(two) == 5
    for a, b in zip(one, two, strict=True):
        a, b = a.to_batch(), b.to_batch()
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
        assert torch.equal(a.labels, a.assigned)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_mistake_in_a_worker_is_one_sentence(workers):
    class Broken(SceneData):
        def read(self, split, id):
            raise UserError(f"The image {id} is gone; put it back.")

    before = set(multiprocessing.active_children())
    scenes = Broken(6, 2, 32)
    data = StepDataset(scenes, "train", tuple(scenes.ids("train")), IDENTITY, None, AUGMENTATION, 0, 0)
    with pytest.raises(UserError) as found:
        list(train_loader(data, counted(6, 2, 2), workers=workers))
    assert str(found.value).startswith("The image ")
    assert str(found.value).endswith(" is gone; put it back.")
    assert "\n" not in str(found.value)
    whole = WholeImages(scenes, "train", tuple(scenes.ids("train")), IDENTITY)
    with pytest.raises(UserError, match=r"^The image \S+ is gone; put it back\.$"):
        list(same_size_batches(whole, 2, workers))
    assert set(multiprocessing.active_children()) <= before  # workers have ended, though the errors are still there


def test_prepared_batches_have_the_types_methods_want():
    (batch,) = train_loader(dataset(), counted(7, 3, 1), workers=0)
    image, labels, assigned, *_ = batch.packed.tensors()
    assert (image.dtype, labels.dtype, assigned) == (torch.uint8, torch.uint8, None)
    ready = batch.to_batch()
    assert isinstance(ready, Batch)
    assert ready.image.dtype == torch.float32
    assert ready.image.is_contiguous()
    assert 0 <= ready.image.min() <= ready.image.max() <= 1
    assert torch.equal(ready.image, image.permute(0, 3, 1, 2) / 255)
    assert ready.labels.dtype == ready.draws.dtype == torch.int64
    assert ready.labels.max() == IGNORE  # 65535 has survived every type
    assert ready.image.shape == (3, 3, 24, 24)
    assert ready.draws.tolist() == [0, 1, 2]


def test_draws_tell_every_item_of_a_step_from_every_other():
    # 7 images in batches of 5: an image comes twice within a batch, and its crops are still two draws.
    found = torch.cat([batch.to_batch().draws for batch in train_loader(dataset(), counted(7, 5, 6), workers=0)])
    assert found.tolist() == list(range(30))


def test_labels_beyond_a_byte_and_void_survive_the_way():
    # The fourth image's table names a channel that needs two bytes; the others' fit one, in the same batch.
    data = dataset()
    wide = np.where(IDENTITY == IGNORE, IGNORE, IDENTITY + 300).astype(np.uint16)
    data = StepDataset(**{**data.__dict__, "tables": {data.images[3]: wide}})
    for group in ([0, 3], [3, 4]):
        items = [data[k, k] for k in group]
        batch = PackedBatch.collate(items)
        assert batch.packed.tensors()[1].dtype == torch.int16
        ready = batch.to_batch().labels
        for place, k in enumerate(group):
            raw = expand(dataset()[k, k].labels)
            shift = 300 if k == 3 else 0
            assert torch.equal(ready[place], torch.where(raw == IGNORE, raw, raw + shift))
            assert (ready[place] < IGNORE).any()


def test_jitter_of_a_batch_is_drawn_by_its_items():
    (plain,), (coloured,) = (list(train_loader(dataset(jitter=s), counted(7, 3, 1), 0)) for s in (0.0, 0.4))
    image, _, _, _, _, gains = coloured.packed.tensors()
    assert torch.equal(image, plain.packed.tensors()[0])
    assert plain.packed.tensors()[-1] is None
    assert gains.shape == (3, 5)
    ready = coloured.to_batch()
    assert torch.equal(ready.image, jitter(image.permute(0, 3, 1, 2), gains) / 255)
    assert torch.equal(ready.labels, plain.to_batch().labels)


# ---- whole images


@pytest.mark.parametrize("workers", [0, 2])
def test_whole_images_are_grouped_by_size_in_order(workers):
    data = Painted()
    whole = WholeImages(data, "test", tuple(data.ids("test")), IDENTITY)
    groups = list(same_size_batches(whole, 2, workers))
    assert [[item.id for item in group] for group in groups] == [
        ["test0", "test1"],
        ["test2"],
        ["test3", "test4"],
        ["test5"],
        ["test6"],
    ]
    for group in groups:
        for item in group:
            sample = data.read("test", item.id)
            np.testing.assert_array_equal(item.image.permute(1, 2, 0).numpy(), sample.image)
            np.testing.assert_array_equal(item.labels.numpy(), IDENTITY[sample.mask].astype(np.int32))


def test_no_images_no_groups():
    assert list(same_size_batches(WholeImages(Painted(), "test", (), IDENTITY), 4, 0)) == []
