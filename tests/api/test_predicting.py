"""Segmenting images with a saved network: what training saved comes out again, whatever form the image has."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import faircl
from faircl.api.colours import class_colours
from faircl.data.images import RGB
from faircl.data.masks import decode_mask, voc_palette
from faircl.readers.catalog import CAMVID_11, CITYSCAPES, CITYSCAPES_PALETTE, VOC


@pytest.fixture(scope="module")
def predictor(tiny_run) -> faircl.Predictor:
    return faircl.load(tiny_run.path)


@pytest.fixture
def photo() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)


# ---- agreement with what training saved


@pytest.mark.parametrize("step", [0, 1])
def test_predictions_are_the_masks_that_training_saved(tiny_run, step):
    predictor = faircl.load(tiny_run.path, step)
    assert predictor.step == step
    for k in range(2):
        path = tiny_run.path / f"examples/{k}.image.png"
        saved = decode_mask(tiny_run.path / f"steps/{step:02d}/examples/{k}.png")
        pixels = np.asarray(Image.open(path))
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        for image in (path, str(path), Image.open(path), pixels, tensor, tensor / 255, (tensor / 255).double()):
            prediction = predictor.predict(image)
            assert prediction.mask.dtype == saved.dtype
            assert np.array_equal(prediction.mask, saved)
            assert np.array_equal(prediction.image, pixels)


def test_every_step_knows_its_classes(tiny_run):
    first, last = (faircl.load(tiny_run.path, step) for step in (0, -1))
    classes = tiny_run.load_scenario().classes
    assert last.names == dict(enumerate(classes.names))
    assert len(first.names) == 7  # background and six classes
    assert first.names.items() < last.names.items()
    assert faircl.load(tiny_run.path, -2).names == first.names


def test_a_run_is_as_good_as_its_folder(tiny_run, photo):
    run = faircl.open_run(tiny_run.path)
    assert np.array_equal(faircl.load(run).predict(photo).mask, faircl.load(str(run.folder)).predict(photo).mask)


def test_joint_training_is_found_under_its_number(tiny_train, tmp_path):
    tiny_train(tmp_path / "joint", "train.epochs=0.3", recipe="demo-joint")
    assert faircl.open_run(tmp_path / "joint").final.step == 1
    for step in (-1, 0, 1):
        assert len(faircl.load(tmp_path / "joint", step).names) == 11


def test_data_and_class_ids_of_a_folder_are_not_needed(tiny_train, street, tmp_path):
    """Ids of the data set, in any order of learning, without the data being there."""
    order = "scenario.order=[4, 9, 1, 2, 10, 3, 5, 6, 7, 8]"
    folder = tiny_train(tmp_path / "run", order, "train.epochs=1", root=street)
    shutil.rmtree(street)
    predictor = faircl.load(folder.path, 0)
    assert set(predictor.names) == {0, 4, 9, 1, 2, 10, 3}
    prediction = predictor.predict(tmp_path / "run/examples/0.image.png")
    assert np.array_equal(prediction.mask, decode_mask(tmp_path / "run/steps/00/examples/0.png"))
    assert set(np.unique(prediction.mask)) <= set(predictor.names)


def test_double_precision(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", "train.precision=fp64", "train.epochs=0.3", "train.later_epochs=0.3")
    prediction = faircl.load(folder.path).predict(folder.path / "examples/1.image.png")
    assert np.array_equal(prediction.mask, decode_mask(folder.path / "steps/01/examples/1.png"))


# ---- forms of an image


@pytest.mark.parametrize("mode", ["RGBA", "L", "LA", "P", "1", "CMYK", "YCbCr", "I;16", "I"])
def test_pillow_images_of_any_mode_are_read_as_files_are(predictor, photo, mode, tmp_path):
    rgb = Image.fromarray(photo)
    if mode.startswith("I"):
        image = Image.fromarray(photo[..., 0].astype(np.uint16 if mode == "I;16" else np.int32) << 8)
        assert image.mode == mode
    else:
        image = rgb.convert(mode)
    prediction = predictor.predict(image)
    assert prediction.mask.shape == (24, 40)
    path = tmp_path / ("image.tif" if mode in ("CMYK", "YCbCr", "I") else "image.png")
    image.save(path)
    assert np.array_equal(prediction.image, RGB.read(path))


def test_bands_of_the_run_hold_for_files_and_pictures(tiny_train, street, tmp_path, photo):
    data = f"{{name: folder, root: '{street}', bands: [2, 1, 0]}}"
    folder = tiny_train(tmp_path / "run", "train.epochs=0.3", "train.later_epochs=0.3", data=f"data={data}")
    predictor = faircl.load(folder.path)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    for image in (tmp_path / "photo.png", Image.fromarray(photo)):
        assert np.array_equal(predictor.predict(image).image, photo[..., ::-1])


def test_a_prediction_keeps_its_image(predictor, photo):
    kept = photo.copy()
    predictions = [predictor.predict(photo), predictor.predict(torch.from_numpy(photo).permute(2, 0, 1))]
    photo[:] = 0
    assert all(np.array_equal(prediction.image, kept) for prediction in predictions)


def test_views_and_small_images(predictor, photo):
    assert np.array_equal(predictor.predict(photo[::-1, ::-1]).mask, predictor.predict(photo[::-1, ::-1].copy()).mask)
    turned = torch.from_numpy(photo).permute(2, 1, 0)
    assert predictor.predict(turned).mask.shape == (40, 24)
    assert predictor.predict(photo[:1, :1]).mask.shape == (1, 1)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((8, 8), np.uint8), r"shape \(H, W, 3\).*found \(8, 8\)"),
        (np.zeros((3, 8, 8), np.uint8), r"shape \(H, W, 3\).*found \(3, 8, 8\)"),
        (np.zeros((8, 8, 4), np.uint8), r"found \(8, 8, 4\)"),
        (np.zeros((1, 8, 8, 3), np.uint8), r"found \(1, 8, 8, 3\)"),
        (np.zeros((8, 8, 3), np.float32), "uint8, values 0 to 255; found float32"),
        (np.zeros((0, 8, 3), np.uint8), r"without pixels; found the shape \(0, 8, 3\)"),
        (torch.zeros(8, 8, 3), r"shape \(3, H, W\); found \(8, 8, 3\)"),
        (torch.zeros(1, 3, 8, 8), r"shape \(3, H, W\); found \(1, 3, 8, 8\)"),
        (torch.zeros(3, 8, 8, dtype=torch.int64), r"found torch\.int64"),
        (torch.zeros(3, 8, 8, dtype=torch.bool), r"found torch\.bool"),
        (torch.full((3, 8, 8), 128.0), r"values in \[0, 1\]; found 128 to 128"),
        (torch.full((3, 8, 8), -0.5), r"values in \[0, 1\]; found -0.5"),
        (torch.full((3, 8, 8), torch.nan), r"values in \[0, 1\]; found nan"),
        (torch.zeros(3, 0, 8), "without pixels"),
        (Image.fromarray(np.zeros((8, 8), np.float32)), "of mode F holds floating point numbers"),
        ([[1, 2], [3, 4]], "Cannot segment a list; expected a path, a Pillow image"),
        (None, "Cannot segment a NoneType"),
        ("no/such/photo.jpg", r"Cannot read image no/such/photo\.jpg"),
    ],
)
def test_what_cannot_be_segmented_is_said(predictor, image, words):
    with pytest.raises(faircl.UserError, match=words):
        predictor.predict(image)


def test_broken_files_are_said(predictor, photo, tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(faircl.UserError, match="cannot be decoded"):
        predictor.predict(tmp_path / "text.png")
    with pytest.raises(faircl.UserError, match="not a regular file"):
        predictor.predict(tmp_path)
    Image.fromarray(photo).save(tmp_path / "half.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "half.png").read_bytes()[:-400])
    with (
        Image.open(tmp_path / "half.png") as lazy,
        pytest.raises(faircl.UserError, match=r"half\.png cannot be"),
    ):
        predictor.predict(lazy)


# ---- options


def test_many_images_are_predicted_as_one_by_one(predictor, photo):
    turned = photo.transpose(1, 0, 2)
    images = [photo, photo[::-1], photo // 2, turned, photo[:, ::-1], turned[::-1]]
    single = [predictor.predict(image, probabilities=True, unknown="entropy") for image in images]
    for batch in (None, 1, 2, 8):
        many = list(predictor.predict_many(iter(images), batch=batch, probabilities=True, unknown="entropy"))
        assert len(many) == len(images)
        for one, other in zip(single, many, strict=True):
            assert np.array_equal(one.mask, other.mask)
            assert np.array_equal(one.image, other.image)
            assert np.allclose(one.unknown, other.unknown, atol=1e-5)
            assert np.allclose(one.probabilities, other.probabilities, atol=1e-3)
    assert list(predictor.predict_many([])) == []


def test_a_wrong_image_among_many_is_said(predictor, photo):
    with pytest.raises(faircl.UserError, match="Cannot segment a list"):
        list(predictor.predict_many([photo, [1]]))


@pytest.mark.parametrize("flip", [False, True])
def test_maps_are_those_of_the_networks_own_output(predictor, photo, flip):
    """Mean of the logits of both directions, resized and normalised by torch itself."""
    batch = torch.from_numpy(photo).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        logits = predictor.network(batch).logits
        mirrored = predictor.network(batch.flip(-1)).logits.flip(-1)
    unknown = 1 - logits.softmax(1).max(1).values
    if flip:
        unknown = (unknown + 1 - mirrored.softmax(1).max(1).values) / 2
        logits = (logits + mirrored) / 2
    full = torch.nn.functional.interpolate(logits, photo.shape[:2], mode="bilinear")[0]
    found = predictor.predict(photo, flip=flip, probabilities=True, unknown="max-softmax")
    assert (found.mask == full.argmax(0).numpy()).mean() > 0.999
    expected = full.softmax(0).permute(1, 2, 0).numpy()
    assert found.probabilities.dtype == np.float16
    assert np.allclose(found.probabilities, expected, atol=1e-3)
    resized = torch.nn.functional.interpolate(unknown[None], photo.shape[:2], mode="bilinear")[0, 0]
    assert np.allclose(found.unknown, resized.numpy(), atol=1e-5)


def test_probabilities_are_in_the_order_of_ids(tiny_train, street, tmp_path, photo):
    order = "scenario.order=[4, 9, 1, 2, 10, 3, 5, 6, 7, 8]"
    folder = tiny_train(tmp_path / "run", order, "train.epochs=0.5", "train.later_epochs=0.3", root=street)
    found = faircl.load(folder.path, 0).predict(photo, probabilities=True)
    ids = np.array(list(found.names))
    assert ids.tolist() == sorted(ids)
    chosen = np.take_along_axis(found.probabilities, np.searchsorted(ids, found.mask)[..., None], 2)[..., 0]
    assert (chosen == found.probabilities.max(2)).all()  # several may be the largest in float16
    assert np.allclose(found.probabilities.sum(2, dtype=np.float32), 1, atol=0.01)


def test_half_precision(tiny_run, photo, monkeypatch):
    predictor = faircl.load(tiny_run.path, device="cpu")
    with pytest.raises(faircl.UserError, match="Half precision needs a GPU, and the network is on cpu"):
        predictor.predict(photo, half=True)
    monkeypatch.setattr(predictor.inference, "check", lambda options: None)
    exact, rounded = (predictor.predict(photo, half=half, probabilities=True) for half in (False, True))
    assert np.abs(exact.probabilities - rounded.probabilities).max() < 0.05
    predictor.network.classifier.heads[0].bias.fill_(torch.inf)
    with pytest.raises(faircl.UserError, match="exceed the range of float16"):
        predictor.predict(photo, half=True)


# ---- loading


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (2, "has no step 2; finished steps run from 0 to 1"),
        (-3, "has no step -3; counted from its last, steps go back to -2"),
        ("last", "whole number"),
        (True, "whole"),
    ],
)
def test_a_step_that_is_not_there(tiny_run, step, words):
    with pytest.raises(faircl.UserError, match=words):
        faircl.load(tiny_run.path, step)


def test_a_run_that_is_not_there_or_not_finished(tiny_train, silent, tmp_path):
    with pytest.raises(faircl.UserError, match="is not a run folder"):
        faircl.load(tmp_path)
    with pytest.raises(faircl.UserError, match="is not a run folder"):
        faircl.open_run(tmp_path / "nowhere")
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "begun", reporter=silent("step 0 train"))
    for use in (faircl.load, faircl.open_run, faircl.evaluate):
        with pytest.raises(faircl.UserError, match="has no finished step yet"):
            use(tmp_path / "begun")


def test_devices(tiny_run):
    assert faircl.load(tiny_run.path, device="cpu").device == torch.device("cpu")
    assert faircl.load(tiny_run.path, device=torch.device("cpu")).device.type == "cpu"
    with pytest.raises(faircl.UserError, match="Unknown device 'gpu'"):
        faircl.load(tiny_run.path, device="gpu")
    with pytest.raises(faircl.UserError, match=r"torch sees \d+ GPUs"):
        faircl.load(tiny_run.path, device="cuda:99")


# ---- predictions


def test_pictures_and_areas_of_a_prediction():
    mask = np.array([[0, 2, 2], [0, 0, 2]], np.uint8)
    image = np.full((2, 3, 3), 100, np.uint8)
    names, colours = {0: "background", 1: "cat", 2: "dog"}, {0: (0, 0, 0), 1: (1, 1, 1), 2: (200, 0, 50)}
    prediction = faircl.Prediction(mask, names, colours, image, 0)
    assert prediction.areas() == {"background": 0.5, "dog": 0.5}
    painted = np.asarray(prediction.colour_image())
    assert painted[0].tolist() == [[0, 0, 0], [200, 0, 50], [200, 0, 50]]
    assert np.asarray(prediction.overlay(0.25))[0].tolist() == [[100, 100, 100], [125, 75, 88], [125, 75, 88]]
    assert np.array_equal(np.asarray(prediction.overlay(0)), image)
    without = faircl.Prediction(mask, names, colours, image)
    assert np.array_equal(np.asarray(without.overlay(1)), painted)
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(faircl.UserError, match="between 0 and 1"):
            prediction.overlay(wrong)


def test_masks_of_many_classes_are_painted():
    mask = np.array([[0, 300]], np.uint16)
    prediction = faircl.Prediction(
        mask, {0: "a", 300: "b"}, {0: (1, 2, 3), 300: (4, 5, 6)}, np.zeros((1, 2, 3), np.uint8)
    )
    assert np.asarray(prediction.colour_image()).tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_colours_are_the_data_sets_own_where_they_are_known():
    def colours(names, background):
        return class_colours(faircl.Classes(names, background))

    assert colours(CITYSCAPES, False) == [tuple(c) for c in CITYSCAPES_PALETTE.tolist()]
    assert colours(("background", *CITYSCAPES), True) == [(0, 0, 0), *(tuple(c) for c in CITYSCAPES_PALETTE.tolist())]
    assert colours(CAMVID_11, False)[3] == (128, 64, 128)
    assert colours(VOC, True) == colours(("background", *map(str, range(20))), True)
    assert colours(("a", "b"), False) == [tuple(c) for c in voc_palette(2).tolist()]


def test_reading_a_prediction_costs_nothing_to_print(predictor, photo):
    assert len(repr(predictor.predict(photo))) < 400
    assert "step=1" in repr(predictor)
