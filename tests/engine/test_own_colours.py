"""Colours of classes.txt in everything that a run paints, without the data being there."""

import base64
import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

import faircl
from faircl.data.masks import colour_names, palette_of, voc_palette
from faircl.errors import UserError
from faircl.readers.folder import FolderData
from faircl.report.page import write_comparison_page, write_run_page
from faircl.report.sheet import write_comparison_picture
from faircl.runs.run import load_run

COLOURS = [(10 * k + 7, 200 - 10 * k, 99) for k in range(11)]


def give_colours(street, colours):
    names = (street / "classes.txt").read_text().split()
    lines = [" ".join([name, *map(str, colours.get(id, ()))]) for id, name in enumerate(names)]
    (street / "classes.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def run(_street, tiny_train, tmp_path_factory):
    street = tmp_path_factory.mktemp("coloured") / "data"
    shutil.copytree(_street, street)
    give_colours(street, dict(enumerate(COLOURS)))
    folder = tiny_train(
        street.parent / "run", "method=finetune", "train.epochs=0.4", "train.later_epochs=0.4", root=street
    )
    shutil.rmtree(street)
    return folder


def allowed():
    return {*COLOURS, (224, 224, 192)}


def colours_of(picture):
    return set(map(tuple, np.array(picture.convert("RGB")).reshape(-1, 3).tolist()))


def test_examples_and_predicted_masks_have_the_palette(run):
    for name in ("examples/0.truth.png", "steps/00/examples/0.png", "steps/01/examples/1.png"):
        picture = Image.open(run.path / name)
        ids = np.array(picture)
        assert ids.max() <= 10
        expected = np.array(COLOURS)[ids]
        np.testing.assert_array_equal(np.array(picture.convert("RGB")), expected)


def test_comparison_page(run, tmp_path):
    html = write_comparison_page(tmp_path, [("a", run.path), ("b", run.path)]).read_text()
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="(?:Truth|[^"]*prediction)', html)
    assert pictures
    for picture in pictures:
        assert colours_of(Image.open(io.BytesIO(base64.b64decode(picture)))) <= allowed()
    legend = set(re.findall(r'style="background:\s*(#[0-9a-f]{6})', html))
    truth = colours_of(Image.open(run.path / "examples/0.truth.png"))
    assert {f"#{bytes(colour).hex()}" for colour in truth} <= legend


def test_run_page(run):
    html = write_run_page(run.path).read_text()
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', html)[1])
    assert [paint["colour"] for paint in data["gallery"]["paints"][:-1]] == [f"#{bytes(c).hex()}" for c in COLOURS]
    swatches = set(re.findall(r'style="background-color:(#[0-9a-f]{6})', html))
    assert swatches == {f"#{bytes(c).hex()}" for c in COLOURS}


def test_comparison_picture(run, tmp_path):
    picture = Image.open(write_comparison_picture(tmp_path / "both.png", [("a", run.path)]))
    truth = colours_of(Image.open(run.path / "examples/0.truth.png"))
    assert truth <= colours_of(picture)


def test_predictions_and_overlays(run):
    predictor = faircl.load(run.path)
    assert predictor.colours == dict(enumerate(COLOURS))
    prediction = predictor.predict(run.path / "examples/0.image.png")
    assert colours_of(prediction.colour_image()) <= set(COLOURS)
    painted = np.rint(0.5 * prediction.image + 0.5 * np.array(COLOURS)[prediction.mask]).astype(np.uint8)
    shown = np.where((prediction.mask == 0)[..., None], prediction.image, painted)
    np.testing.assert_array_equal(np.array(prediction.overlay(0.5)), shown)


def test_a_class_without_a_colour_keeps_the_default_one(street):
    give_colours(street, {3: (1, 2, 3)})
    palette = FolderData(street).palette
    assert palette[3].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(np.delete(palette, 3, 0), np.delete(voc_palette(11), 3, 0))
    assert voc_palette(11)[3].tolist() == [128, 128, 0]  # the shared palette is as it was


def test_colours_change_no_digest(street):
    plain = faircl.open_scenario("folder", street, task="6-4")
    give_colours(street, dict(enumerate(map(tuple, voc_palette(11).tolist()))))
    coloured = faircl.open_scenario("folder", street, task="6-4")
    assert (plain.colours, coloured.colours[1]) == ((), "#800000")
    assert plain.sha256 == coloured.sha256


def test_a_run_without_colours_is_painted_as_before(tiny_run):
    assert load_run(tiny_run.path).palette is None
    saved = json.loads((tiny_run.path / "scenario.json").read_text())
    assert saved["colours"] == []
    assert faircl.load(tiny_run.path).colours[1] == (128, 0, 0)


def test_names_of_colours():
    palette = np.array([[0, 0, 0], [255, 16, 1]], np.uint8)
    assert colour_names(palette) == ["#000000", "#ff1001"]
    np.testing.assert_array_equal(palette_of(colour_names(palette)), palette)
    assert (colour_names(None), palette_of([])) == ([], None)
    for wrong in ("red", "#ff", "#gg0000", 3):
        with pytest.raises(UserError, match="not of the form '#rrggbb'"):
            palette_of([wrong])
