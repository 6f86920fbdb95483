"""``faircl suggest`` on the command line: right and wrong input."""

import json
import shutil
from dataclasses import replace

import pytest

from faircl.methods.faircl import FairCL

pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture
def inside(tiny_run, street, tmp_path, monkeypatch):
    """A current folder with a run, a data set and an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(tiny_run.path)
    (tmp_path / "empty").mkdir()
    return tmp_path


PHOTOS = "street/images/train"


def test_what_is_said(cli):
    done = cli("suggest", "run", PHOTOS, "--out", "review")
    assert done.code == 0
    first, second, third = done.out.splitlines()
    assert first.startswith("labelled 24 images: ")
    assert second == "100.0% of the pixels by the model, 0.0% left out as doubtful"
    assert third.endswith("when they are corrected: faircl add-classes run --data review")


def test_json(cli):
    done = cli(
        "suggest", "run", "--data", "street", "--out", "empty", "--to", "cvat", "--min-confidence", "1", "--json"
    )
    assert done.code == 0
    found = json.loads(done.out)
    assert (found["to"], found["images"]) == ("cvat", 24)
    assert 0 < found["suggested"] < 1
    assert found["doubtful"] == pytest.approx(found["suggested"], abs=0.05)
    assert sum(found["areas"].values()) == pytest.approx(1 - found["doubtful"])


def test_an_export_of_one_split_is_taken_whatever_its_name(cli):
    shutil.move("street/masks/train", "street/masks/default")
    shutil.move("street/images/train", "street/images/default")
    shutil.rmtree("street/masks/test")
    assert json.loads(cli("suggest", "run", "-d", "street", "-o", "review", "--json").out)["images"] == 24


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "--out", "review"), "none is given"),
        (("run", PHOTOS, "--data", "street", "--out", "review"), "both are given"),
        (("run", "nowhere", "--out", "review"), "There is no image or folder nowhere"),
        (("run", "street/classes.txt", "--out", "review"), "street/classes.txt"),
        (("run", "empty", "--out", "review"), "The folder empty holds no image"),
        (("run", PHOTOS, "--out", "street"), "Output street is there already"),
        (("run", PHOTOS, "--out", "street/classes.txt"), "Output street/classes.txt is there already"),
        (("run", PHOTOS, "--out", "street/classes.txt/x"), "Cannot write street/classes.txt/x: Not a directory"),
        (
            ("run", PHOTOS, "--out", "review", "--to", "cvatt"),
            "Unknown format for review 'cvatt'. Did you",
        ),
        (
            ("run", PHOTOS, "--out", "review", "--min-confidence", "1.2"),
            "min_confidence is 1.2; expected a",
        ),
        (("run", PHOTOS, "--out", "review", "--min-confidence", "nan"), "min_confidence is nan"),
        (("run", PHOTOS, "--out", "review", "--version", "4"), "has no version 4; it has: 0"),
        (("run", PHOTOS, "--out", "review", "--device", "tpu9"), "Unknown device 'tpu9'"),
        (("run", "--data", "street", "--root", "x", "--out", "review"), "There is no reader 'street'"),
        (("run", "--data", "label-studio", "--root", "street", "--out", "review"), "has no JSON file"),
        (("street", PHOTOS, "--out", "review"), "street is not a run folder"),
        (("nowhere", PHOTOS, "--out", "review"), "nowhere"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_is_written(cli, inside, args, message):
    before = sorted(inside.rglob("*"))
    done = cli("suggest", *args)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1, done.err
    assert done.out == ""
    assert sorted(inside.rglob("*")) == before


def test_a_broken_image_leaves_nothing_behind(cli, inside):
    (inside / PHOTOS / "zz.png").write_bytes(b"no picture")
    before = sorted(inside.rglob("*"))
    done = cli("suggest", "run", PHOTOS, "--out", "review", "--to", "label-studio")
    assert done.code == 2
    assert "zz.png cannot be decoded" in done.err
    assert sorted(inside.rglob("*")) == before


def test_a_run_without_a_finished_step(cli, inside, tiny_run):
    (inside / "begun").mkdir()
    for name in ("config.yaml", "scenario.json"):
        shutil.copy(tiny_run.path / name, inside / "begun" / name)
    done = cli("suggest", "begun", PHOTOS, "--out", "review")
    assert done.code == 2
    assert "no finished step" in done.err
    assert done.err.count("\n") == 1
    assert not (inside / "review").exists()


def test_a_network_without_a_softmax_has_no_confidence(cli, inside, monkeypatch):
    monkeypatch.setattr(FairCL, "needs", replace(FairCL.needs, sigmoid=True))
    done = cli("suggest", "run", PHOTOS, "--out", "review", "--min-confidence", "0.5")
    assert done.code == 2
    assert "with one sigmoid per class, and has no softmax probabilities" in done.err
    assert not (inside / "review").exists()


def test_nothing_but_doubt(cli):
    assert "24 images: no label is left" in cli("suggest", "run", PHOTOS, "--out", "r", "--min-confidence", "1").out
