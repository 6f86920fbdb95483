import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from faircl.data.sample import Sample
from faircl.errors import UserError
from faircl.readers.scenes import CLASSES, SceneData
from faircl.readers.street.canvas import project
from faircl.readers.street.layout import RARE, lay_out

COUNT = len(CLASSES.names)


@pytest.fixture(scope="module")
def data() -> SceneData:
    return SceneData(images=300, test_images=60)


def masks(data: SceneData, split: str) -> np.ndarray:
    return np.stack([data.read_mask(split, id) for id in data.ids(split)])


def same(a: Sample, b: Sample) -> bool:
    return a.id == b.id and np.array_equal(a.image, b.image) and np.array_equal(a.mask, b.mask)


def test_shapes_types_and_ids():
    data = SceneData(images=12, test_images=3, size=64)
    assert data.classes is CLASSES
    assert CLASSES.foreground == tuple(range(1, 11))
    assert len(set(CLASSES.names)) == 11
    assert list(data.ids("test")) == ["test-00000", "test-00001", "test-00002"]
    assert list(data.ids("train")) == sorted(data.ids("train"))
    sample = data.read("train", "train-00007")
    assert sample.id == "train-00007"
    assert sample.image.shape == (64, 64, 3)
    assert sample.mask.shape == (64, 64)
    assert sample.image.dtype == sample.mask.dtype == np.uint8
    assert sample.mask.max() < COUNT


def test_a_scene_depends_on_seed_split_and_index_alone():
    one, two = SceneData(images=20, test_images=5, seed=3), SceneData(images=9, test_images=5, seed=3)
    forward = {id: one.read("train", id) for id in one.ids("train")}
    copy = pickle.loads(pickle.dumps(one))
    for id in reversed(two.ids("train")):
        assert same(two.read("train", id), forward[id])
        assert same(one.read("train", id), forward[id])  # from the cache
        assert same(copy.read("train", id), forward[id])


def test_seed_split_and_index_each_change_the_scene():
    data = SceneData(images=2, test_images=2)
    others = [data.read("train", "train-00001"), data.read("test", "test-00000")]
    others.append(SceneData(images=2, test_images=2, seed=1).read("train", "train-00000"))
    first = data.read("train", "train-00000")
    for other in others:
        assert not np.array_equal(first.image, other.image)
        assert not np.array_equal(first.mask, other.mask)


def test_global_random_state_is_neither_used_nor_changed():
    np.random.seed(0)  # noqa: NPY002  the legacy state is what this test is about
    before = SceneData(1, 1).read("train", "train-00000")
    drawn = np.random.random()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    assert drawn == np.random.random()  # noqa: NPY002
    assert same(before, SceneData(1, 1).read("train", "train-00000"))


def test_callers_own_what_they_read_and_pickles_stay_small():
    data = SceneData(images=4, test_images=1)
    sample = data.read("train", "train-00002")
    kept = Sample(sample.id, sample.image.copy(), sample.mask.copy())
    sample.image[:] = 0
    sample.mask[:] = 0
    data.read_mask("train", "train-00002")[:] = 0
    assert same(data.read("train", "train-00002"), kept)
    assert len(pickle.dumps(data)) < 1000


@pytest.mark.parametrize("size", [32, 61, 96])
def test_read_mask_equals_the_mask_of_read(size: int):
    data, fresh = SceneData(images=30, test_images=1, size=size), SceneData(images=30, test_images=1, size=size)
    for id in data.ids("train"):
        assert np.array_equal(data.read("train", id).mask, fresh.read_mask("train", id))


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("faircl.readers.scenes.CACHE_BYTES", 4 * 32 * 32)
    data, other = SceneData(images=3, size=32), SceneData(images=3, size=32, seed=0)
    once = [data.read("train", id) for id in data.ids("train")]
    assert all(same(sample, data.read("train", sample.id)) for sample in once)
    assert same(other.read("train", "train-00002"), once[2])


def test_long_tail_over_foreground_pixels(data: SceneData):
    pixels = np.bincount(masks(data, "train").ravel(), minlength=COUNT)[1:]
    assert 50 <= pixels.max() / pixels.min() <= 200
    rarest = {CLASSES.names[i + 1] for i in np.argsort(pixels)[:4]}
    assert rarest == set(RARE)


def test_rare_things_are_small_but_visible(data: SceneData):
    labels = masks(data, "train")
    for name in RARE:
        areas = (labels == CLASSES.names.index(name)).sum((1, 2))
        assert areas[areas > 0].min() >= 30
        assert 64 <= np.median(areas[areas > 0]) <= 400


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_class_is_in_enough_images(seed: int):
    data = SceneData(images=200, test_images=60, seed=seed)
    for split, least in (("train", 12), ("test", 4)):
        labels = masks(data, split)
        for index in range(COUNT):
            assert (labels == index).any((1, 2)).sum() >= least, (CLASSES.names[index], split)


def test_a_rare_class_is_where_its_period_says(data: SceneData):
    labels = masks(data, "train")
    for name, (period, phase) in RARE.items():
        found = (labels == CLASSES.names.index(name)).any((1, 2))
        assert np.array_equal(found, np.arange(len(labels)) % period == phase)


def test_near_things_cover_far_ones():
    partly = 0
    for index in range(20):
        scene = lay_out(np.random.default_rng(index), index, 96)
        canvas = project(scene)
        first = len(canvas.things) - len(scene.standing)
        assert canvas.things[first:] == [thing.kind for thing in scene.standing]
        for rank in range(len(scene.standing)):
            alone = project(replace(scene, standing=[scene.standing[rank]]))
            whole = (alone.owner == len(alone.things) - 1).sum()
            seen = (canvas.owner == first + rank).sum()
            assert seen <= whole
            partly += 0 < seen < whole
            if rank == len(scene.standing) - 1:
                assert seen == whole  # nothing is nearer
    assert partly >= 10


def test_colour_alone_does_not_give_the_class(data: SceneData):
    def pixels(split: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        samples = [data.read(split, id) for id in data.ids(split)[:count]]
        colours = np.concatenate([s.image[::8, ::8].reshape(-1, 3) for s in samples]) / 127.5 - 1
        colours = np.concatenate([colours, np.ones((len(colours), 1))], axis=1)
        labels = np.concatenate([s.mask[::8, ::8].ravel() for s in samples])
        return torch.tensor(colours, dtype=torch.float64), torch.tensor(labels).long()

    x, y = pixels("train", 200)
    weights = torch.zeros(4, COUNT, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=40)
    share = torch.bincount(y, minlength=COUNT) / len(y)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        # Square-root weighting gives colour a better chance at the rare classes than plain likelihood does.
        loss = torch.nn.functional.cross_entropy(x @ weights, y, weight=share.double() ** -0.5)
        loss.backward()
        return loss

    optimizer.step(closure)
    x, y = pixels("test", 60)
    confusion = torch.bincount(y * COUNT + (x @ weights).argmax(1), minlength=COUNT**2).view(COUNT, COUNT).double()
    iou = confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag())
    assert iou.max() > 0.2  # the classifier did learn something
    assert iou.nanmean() < 0.18


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"images": 0}, "images"), ({"test_images": 0}, "test_images"), ({"size": 31}, "size"), ({"seed": -1}, "seed")],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, int], word: str):
    with pytest.raises(UserError, match=rf"need {word} of at least \d+, got -?\d+\."):
        SceneData(**arguments)


def test_unknown_split_and_id_say_what_there_is():
    data = SceneData(images=5)
    with pytest.raises(UserError, match=r"Unknown split 'trian'. Did you mean 'train'\?"):
        data.ids("trian")
    for id in ("train-00005", "train-3", "test-00000", "cat", "train-x", "00003"):
        with pytest.raises(UserError, match="train-00000 to train-00004"):
            data.read("train", id)
