"""Evaluation conventions on hand-made images: ignored pixels, future classes, absent classes, background, crops."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as tv

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.labels import apply_table
from faircl.loading.transforms import CentreCrop
from faircl.metrics import ConfusionMatrix, summarise
from faircl.scenario import CONVENTIONS, build_scenario

VOC_LIKE = Classes(("background", "cat", "dog", "car", "bus"), background=True)
ADE_LIKE = Classes(("background", "wall", "sky", "tree", "lamp"), background=True, background_is_named=False)
CITY_LIKE = Classes(("road", "wall", "sky", "tree", "lamp"), background=False)

# Two ignored pixels, three of 0, two of 1, one of 2; 3 is learned at step 1, 4 never occurs in the test images.
TRUTH = np.array([[255, 255, 0, 0, 0], [1, 1, 2, 3, 3]], np.uint8)


def scenario(classes, convention="full"):
    count = len(classes.names)
    train = LabelIndex(tuple("abcdefg"[:count]), np.eye(count, dtype=np.int64) * 9)
    shown = np.array([[3, 2, 1, 2, 0], [5, 0, 0, 0, 0], [5, 0, 0, 1, 0]])
    test = LabelIndex(("x", "y", "z"), shown)
    first = int(classes.background)
    split = tuple(range(first, 3)), (3, 4)
    return build_scenario(classes, split, train, test, task="t", convention=CONVENTIONS[convention])


def score(classes, convention, step, prediction):
    """Metrics of one image whose predicted channels are given."""
    made = scenario(classes, convention)
    labels = apply_table(made.test_table(step, CONVENTIONS[convention]), TRUTH).astype(np.int64)
    channels = made.channels(step)
    confusion = ConfusionMatrix(channels)
    confusion.update(torch.tensor(prediction), torch.from_numpy(labels))
    return summarise(
        confusion.counts,
        ids=made.channel_ids[:channels],
        names=made.names[:channels],
        learned_at=made.learned_at[:channels],
        step=step,
        background=made.background,
        convention=convention,
    )


def ious(metrics):
    return {c.name: c.iou for c in metrics.classes}


# After step 0 the channels are background 0, cat 1, dog 2. Predicted: ignored pixels as dog, one background pixel as
# cat, the future class as cat and background.
FIRST = [[2, 2, 0, 0, 1], [1, 1, 2, 1, 0]]


@pytest.mark.parametrize("convention", ["full", "plop"])
def test_future_classes_are_background(convention):
    m = score(VOC_LIKE, convention, 0, FIRST)
    # Background's truth: 3 + 2 future pixels; hit 3 of them; nothing else is called background.
    assert ious(m) == pytest.approx({"background": 100 * 3 / 5, "cat": 100 * 2 / 4, "dog": 100.0})
    assert m.groups["all"].miou == pytest.approx((60 + 50 + 100) / 3)
    assert m.convention == convention
    assert m.to_json()["convention"] == convention


def test_future_classes_are_not_counted_by_mib():
    m = score(VOC_LIKE, "mib", 0, FIRST)
    assert ious(m) == pytest.approx({"background": 100 * 2 / 3, "cat": 100 * 2 / 3, "dog": 100.0})
    assert sum(c.pixels for c in m.classes) == 6  # neither ignored nor future classes


@pytest.mark.parametrize(("convention", "counted"), [("full", 8), ("plop", 8), ("mib", 3)])
def test_background_that_nobody_named(convention, counted):
    m = score(ADE_LIKE, convention, 0, FIRST)
    assert sum(c.pixels for c in m.classes) == counted
    if convention == "mib":
        # No pixel of truth is left to background: it is out of every mean, whatever was predicted as it.
        assert math.isnan(ious(m)["background"])
        assert ious(m)["wall"] == 100
        assert m.groups["all"].miou == pytest.approx(100)
    else:
        assert ious(m)["background"] == pytest.approx(60)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_without_a_background_class_the_future_is_not_counted(convention):
    # Channels: road 0, wall 1, sky 2; the truth's 0 is a class here.
    m = score(CITY_LIKE, convention, 0, [[2, 2, 0, 0, 1], [1, 1, 2, 1, 0]])
    assert ious(m) == pytest.approx({"road": 100 * 2 / 3, "wall": 100 * 2 / 3, "sky": 100.0})
    assert sum(c.pixels for c in m.classes) == 6


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_an_absent_class_is_in_no_mean_even_if_it_was_predicted(convention):
    # After step 1 car is channel 3 and bus, absent, channel 4; one car pixel is called bus.
    m = score(VOC_LIKE, convention, 1, [[4, 4, 0, 0, 0], [1, 1, 2, 3, 4]])
    assert math.isnan(ious(m)["bus"])
    assert ious(m) == pytest.approx(
        {"background": 100, "cat": 100, "dog": 100, "car": 50, "bus": math.nan}, nan_ok=True
    )
    assert m.groups["all"].miou == pytest.approx(350 / 4)
    assert m.groups["new"].miou == pytest.approx(50)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_void_counts_nowhere(convention):
    right, wrong = ([[v, v, 0, 0, 0], [1, 1, 2, 3, 3]] for v in (0, 2))
    assert score(VOC_LIKE, convention, 1, right).to_json() == score(VOC_LIKE, convention, 1, wrong).to_json()


def test_images_of_each_convention():
    assert [s.test_images for s in scenario(VOC_LIKE).steps] == [("x", "y", "z")] * 2
    for convention in ("plop", "mib"):  # y shows nothing but background, z a class of step 1
        assert [s.test_images for s in scenario(VOC_LIKE, convention).steps] == [("x",), ("x", "z")]


@pytest.mark.parametrize("convention", ["plop", "mib"])
def test_a_step_without_test_images_is_refused(convention):
    pixels = np.array([[1, 5, 0], [1, 0, 5]])
    train, test = (LabelIndex(("a", "b"), pixels), LabelIndex(("x",), pixels[1:]))
    classes = Classes(("background", "cat", "dog"), background=True)
    with pytest.raises(UserError, match="After step 0 no test image shows a class learned so far"):
        build_scenario(classes, ((1,), (2,)), train, test, task="1-1", convention=CONVENTIONS[convention])
    assert build_scenario(classes, ((1,), (2,)), train, test, task="1-1").steps[0].test_images == ("x",)


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (33, 33), (97, 31), (10, 17), (16, 16), (8, 100)])
def test_the_centre_crop_is_torchvisions(shape):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    mask = rng.integers(0, 7, shape, dtype=np.uint8)
    crop = CentreCrop(16)

    def reference(array, mode):
        resized = tv.resize(Image.fromarray(array), 16, mode)
        return np.asarray(tv.center_crop(resized, 16))

    assert np.array_equal(crop.image(image), reference(image, tv.InterpolationMode.BILINEAR))
    assert np.array_equal(crop.mask(mask), reference(mask, tv.InterpolationMode.NEAREST))
    deep = mask.astype(np.uint16) * 1000
    assert np.array_equal(crop.mask(deep), crop.mask(mask).astype(np.uint16) * 1000)


def test_only_the_crop_is_scored(street, tiny_train, cli, tmp_path):
    """A run by plop scores 8 centre crops of 16x16; evaluated again by full, every pixel of the 32x32 images."""
    import json

    folder = tiny_train(
        tmp_path / "run",
        "eval.convention=plop",
        "eval.size=16",
        "train.epochs=0.3",
        "train.later_epochs=0.3",
        root=street,
    )
    record = folder.records("eval")[-1]
    assert record["convention"] == "plop"
    assert sum(c["pixels"] for c in record["classes"]) == 8 * 16 * 16
    again = json.loads(cli("eval", folder.path, "--json").out)["runs"][0]["steps"]
    assert again[-1]["classes"] == record["classes"]
    full = json.loads(cli("eval", folder.path, "--convention", "full", "--json").out)["runs"][0]["steps"]
    assert [s["convention"] for s in full] == ["full", "full"]
    assert sum(c["pixels"] for c in full[-1]["classes"]) == 8 * 32 * 32
    assert "convention plop" in cli("eval", folder.path).out
    assert cli("eval", folder.path, "--convention", "pop").code == 2
