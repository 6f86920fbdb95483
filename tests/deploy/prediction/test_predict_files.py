"""Files that a prediction writes: equal to what Python returns, whole at any time, and continued where they ended."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import faircl
from faircl.api import predicting_files
from faircl.data.masks import decode_mask
from faircl.deploy.input_files import InputImage
from faircl.deploy.prediction import image_outputs
from faircl.deploy.prediction.image_outputs import ImageOutputs, KnownClasses
from faircl.deploy.prediction.inference import Maps
from faircl.deploy.prediction.options import PredictOptions
from faircl.deploy.prediction.stripes import Stripe

QUIET = faircl.SilentReporter()


@pytest.fixture(scope="module")
def predictor(tiny_run) -> faircl.Predictor:
    return faircl.load(tiny_run.path)


@pytest.fixture
def predict(tiny_run, predictor, monkeypatch):
    """``faircl.predict`` on the tiny run, whose network is loaded once."""
    monkeypatch.setattr(predicting_files, "load", lambda run, step, device, **rest: predictor)
    return lambda images, out, **options: faircl.predict(tiny_run.path, images, out, reporter=QUIET, **options)


@pytest.fixture
def photos(tmp_path):
    """Five images of two sizes, two of them with the same name in different folders."""
    random = np.random.default_rng(0)
    for number, name in enumerate(("a/x.png", "a/y.png", "b/x.png", "b/z.bmp", "b/w.tif")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (40, 56) if number < 3 else (64, 32)
        Image.fromarray(random.integers(0, 256, (*size, 3), np.uint8)).save(path)
    return tmp_path / "photos"


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_files_hold_what_python_returns(predict, predictor, photos, tmp_path):
    out = tmp_path / "out"
    made = predict(photos, out, unknown=True, probabilities=True, batch=2)
    assert made == json.loads((out / "predictions.json").read_text())
    names = ["a/x", "a/y", "b/w", "b/x", "b/z"]
    assert [one["name"] for one in made["images"]] == names
    kinds = {"masks": "png", "overlays": "png", "unknown": "png", "probabilities": "npz"}
    assert files(out) == {f"{kind}/{name}.{end}" for kind, end in kinds.items() for name in names} | {
        "predictions.json"
    }
    assert made["step"] == 1
    assert [one["name"] for one in made["classes"]] == list(predictor.names.values())
    for one in made["images"]:
        expected = predictor.predict(one["image"], unknown=True, probabilities=True)
        assert (one["height"], one["width"]) == expected.mask.shape
        mask = decode_mask(out / one["mask"])
        assert mask.dtype == np.uint8
        assert np.array_equal(mask, expected.mask)
        assert np.array_equal(np.asarray(Image.open(out / one["mask"]).convert("RGB")), expected.colour_image())
        assert np.array_equal(np.asarray(Image.open(out / one["overlay"])), expected.overlay())
        assert {area["name"]: area["share"] for area in one["areas"]} == pytest.approx(expected.areas())
        assert sum(area["pixels"] for area in one["areas"]) == mask.size
        unknown = np.asarray(Image.open(out / one["unknown"]), np.float64) / 255
        assert np.abs(unknown - expected.unknown).max() < 0.5 / 255 + 1e-5
        assert one["mean_unknown"] == pytest.approx(expected.unknown.mean(), abs=1e-5)
        saved = np.load(out / one["probabilities"])
        assert saved["classes"].tolist() == list(expected.names)
        assert np.abs(saved["probabilities"] / 255 - expected.probabilities).max() < 0.6 / 255
        best = np.take_along_axis(saved["probabilities"], np.searchsorted(saved["classes"], mask)[..., None], 2)[..., 0]
        assert (best + 1 >= saved["probabilities"].max(2)).all()


def test_tiles_and_plain_files(predict, photos, tmp_path):
    whole = predict(photos / "a", tmp_path / "whole", overlay=False)
    tiles = predict(photos / "a", tmp_path / "tiles", overlay=False, tile=64, overlap=32)
    assert files(tmp_path / "whole") == {"masks/x.png", "masks/y.png", "predictions.json"}
    assert [one["areas"] for one in whole["images"]] == [one["areas"] for one in tiles["images"]]  # smaller than a tile
    assert (whole["options"]["tile"], tiles["options"]["tile"], tiles["options"]["overlap"]) == (None, 64, 32)


def test_masks_of_many_classes_have_16_bits(tmp_path):
    names = {0: "a", 300: "b"}
    classes = KnownClasses(names, {0: (1, 2, 3), 300: (4, 5, 6)}, None, small=False)
    mask = np.array([[0, 300, 300]], np.uint16)
    image = np.zeros((1, 3, 3), np.uint8)
    outputs = ImageOutputs(tmp_path, classes, PredictOptions(), overlay=True)
    entry = outputs.write(InputImage(tmp_path / "x.png", "x"), image, [Stripe(0, image, Maps(mask))])
    read = decode_mask(tmp_path / "masks/x.png")
    assert read.dtype == np.uint16
    assert np.array_equal(read, mask)
    assert np.asarray(Image.open(tmp_path / "overlays/x.png")).tolist() == [[[0, 1, 2], [2, 2, 3], [2, 2, 3]]]
    assert entry["areas"][0] == {"id": 300, "name": "b", "pixels": 2, "share": 2 / 3}


# ---- broken images


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "an empty file"), (b"no picture", r"cannot be decoded"), (None, "cannot be decoded")]
)
def test_broken_images_stop_it_or_are_left_out(predict, photos, tmp_path, content, words):
    broken = photos / "a/broken.png"
    if content is None:  # a header, and half of the pixels
        shutil.copy(photos / "a/y.png", broken)
        content = broken.read_bytes()[:-2000]
    broken.write_bytes(content)
    out = tmp_path / "out"
    with pytest.raises(faircl.UserError, match=rf"broken\.png.*{words}.*Nothing was written.*--skip-broken"):
        predict(broken, out)
    assert not out.exists()
    made = predict(photos, out, skip_broken=True)
    assert len(made["images"]) == 5
    assert [one["image"] for one in made["skipped"]] == [str(broken)]
    assert "broken.png" in made["skipped"][0]["reason"]


def test_images_before_a_broken_one_are_kept_and_continued(predict, photos, tmp_path):
    broken, out = photos / "b/x.png", tmp_path / "out"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-2000])
    with pytest.raises(faircl.UserError, match=r"b/x\.png cannot be decoded.* 3 images are finished.*--resume"):
        predict(photos, out)
    assert {"predictions.part.jsonl", "masks/a/x.png", "masks/b/w.png"} <= files(out)
    assert not any(".part" in name for name in files(out) if name.endswith("png"))
    with pytest.raises(faircl.UserError, match="holds an unfinished prediction; continue it with --resume"):
        predict(photos, out)
    with pytest.raises(faircl.UserError, match="was begun with options"):
        predict(photos, out, resume=True, flip=True)
    with pytest.raises(faircl.UserError, match=r"holds .*x\.png, which is not among the images"):
        predict(photos / "b", out, resume=True)
    broken.write_bytes(whole)
    before = (out / "masks/a/x.png").stat().st_mtime_ns
    made = predict(photos, out, resume=True)
    assert (out / "masks/a/x.png").stat().st_mtime_ns == before
    assert not (out / "predictions.part.jsonl").exists()
    again = predict(photos, tmp_path / "again")
    assert made["images"] == again["images"]
    for name in files(out):
        assert (out / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_stopped_in_the_middle_of_an_image(predict, photos, tmp_path, monkeypatch):
    out, calls = tmp_path / "out", []
    paint = image_outputs.paint_over

    def stop(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return paint(*args)

    monkeypatch.setattr(image_outputs, "paint_over", stop)
    with pytest.raises(KeyboardInterrupt):
        predict(photos, out)
    assert files(out) == {"predictions.part.jsonl", "masks/a/x.png", "overlays/a/x.png"}
    with open(out / "predictions.part.jsonl", "a") as journal:
        journal.write('{"name": "a/y", "im')  # killed while it was written
    assert len(predict(photos, out, resume=True)["images"]) == 5


def test_a_full_disk_is_said(predict, photos, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(image_outputs.PngStripes, "write", full)
    with pytest.raises(faircl.UserError, match="No space left on device"):
        predict(photos, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_that_are_not_free(predict, photos, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(faircl.UserError, match="is a file"):
        predict(photos, tmp_path / "file")
    with pytest.raises(faircl.UserError, match="holds other files"):
        predict(photos, photos)
    predict(photos / "a", tmp_path / "out")
    for resume in (False, True):
        with pytest.raises(faircl.UserError, match="already holds finished predictions"):
            predict(photos / "a", tmp_path / "out", resume=resume)


# ---- large images


def test_images_beyond_pillows_limit_need_tiles(predict, predictor, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(faircl.UserError, match=r"56 × 40 pixels, more than the 1,000 .*--tile 1024"):
        predict(photos / "a/x.png", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(predict(photos / "a/x.png", tmp_path / "out", tile=64)["images"]) == 1
    assert predictor.predict(photos / "a/x.png", tile=64).mask.shape == (40, 56)
    assert Image.MAX_IMAGE_PIXELS == 500
