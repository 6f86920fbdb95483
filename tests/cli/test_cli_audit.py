"""``faircl audit``: exit codes, JSON, tables, files, and every input tried wrongly."""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from mask_folders import random_masks, write_masks
from PIL import Image

CLASSES = ["road", "car", "<script>alert(1)</script>", '=cmd, "x" 🚲', "sign"]


@pytest.fixture
def masks(tmp_path):
    """Folders of ten labels and predictions, and their class list; the flags that name them."""
    labels, predictions = random_masks(5, 10, 5)
    write_masks(tmp_path / "labels", labels)
    write_masks(tmp_path / "predictions", predictions)
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    names = {"labels": "labels", "predictions": "predictions", "classes": "classes.txt"}
    return [part for key, name in names.items() for part in (f"--{key}", str(tmp_path / name))]


@pytest.fixture
def audit(cli, masks):
    return lambda *args: cli("audit", *masks, *args)


@pytest.fixture
def wrong(refused, masks):
    return lambda words, *args: refused(words, "audit", *masks, *args)


def worst_of(found):
    return min(found["classes"], key=lambda one: one["iou"])


def test_json_contract(audit):
    result = audit("--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert list(found)[:6] == ["miou", "std", "gap", "error_gap", "worst", "classes"]
    assert [one["name"] for one in found["classes"]] == CLASSES
    for one in found["classes"]:
        assert set(one) >= {"id", "name", "iou", "accuracy", "pixels"}
    ious = [one["iou"] for one in found["classes"]]
    assert found["miou"] == pytest.approx(np.mean(ious))
    assert found["std"] == pytest.approx(np.std(ious))
    assert found["gap"] == pytest.approx(max(ious) - min(ious))
    recalls = [one["accuracy"] for one in found["classes"]]
    assert found["error_gap"] == pytest.approx(max(recalls) - min(recalls))
    assert found["worst"] == {"name": worst_of(found)["name"], "iou": min(ious)}
    assert found["miou_interval"][0] < found["miou"] < found["miou_interval"][1]
    assert found["lineage"]["files"] == 20


def test_tables(audit):
    shown = audit().out
    assert shown.index("mean IoU") < shown.index("STD")  # a spread comes with its mean
    assert "Classes, the most frequent first" in shown
    first, *rows = csv.reader(audit("--format", "csv").out.split("\n\n")[1].splitlines())
    pixels = first.index("pixels")
    counts = [int(row[pixels]) for row in rows]
    shares = [float(row[first.index("% of pixels")]) for row in rows]
    assert shares == pytest.approx([100 * count / sum(counts) for count in counts])
    assert counts == sorted(counts, reverse=True)
    assert "&lt;script&gt;" in audit("--format", "html").out
    assert "<script>" not in audit("--format", "html").out
    assert "\\textless{}script" in audit("--format", "latex").out


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        (["--max-std", "0.1%"], 1),
        (["--max-gap", "0.1%", "--min-miou", "99"], 2),
        (["--min-class-iou", "99"], 5),
        (["--min-class-iou", '=cmd, "x" 🚲=99', "--min-class-iou", "1"], 1),
        (["--max-std", "90", "--min-miou", "1", "--min-class-iou", "1"], 0),
    ],
)
def test_limits(audit, tmp_path, limits, broken):
    result = audit(*limits, "--json", "--out", tmp_path / "audit")
    assert result.code == (1 if broken else 0)
    assert len([line for line in result.err.splitlines() if line.startswith("faircl: limit broken: ")]) == broken
    found = json.loads(result.out)["limits"]
    assert sum(not one["holds"] for one in found) == broken
    assert (tmp_path / "audit/report.html").is_file()  # files are written all the same


def test_a_drop_against_an_earlier_audit(audit, cli, masks, tmp_path):
    assert audit("--out", tmp_path / "earlier").code == 0
    for path in (tmp_path / "predictions").iterdir():  # no sign is predicted any more
        mask = np.array(Image.open(path))
        Image.fromarray(np.where(mask == 4, 0, mask)).save(path)
    result = audit("--before", tmp_path / "earlier", "--max-drop", 5)
    assert result.code == 1
    assert "'sign' lost" in result.err
    assert "95 % interval" in result.err
    assert "Against the earlier audit" in result.out
    assert audit("--before", tmp_path / "earlier/evaluation.npz", "--max-drop", 90).code == 0
    assert cli("audit", tmp_path / "earlier", "--before", tmp_path / "earlier", "--max-drop", 0).code == 0


def test_groups_and_notes(audit, tmp_path):
    lines = [f"image{k}.jpg,{'Ulm' if k < 4 else '<b>Bonn</b>'}" for k in range(9)]
    (tmp_path / "groups.csv").write_text("\n".join(["image,city", *lines, "image77,Rome"]))
    result = audit("--groups", tmp_path / "groups.csv", "--out", tmp_path / "audit")
    assert result.code == 0, result.err
    assert "Images by city" in result.out
    assert "1 image with no group: image9" in result.out
    assert "1 row with no such image: image77" in result.out
    page = (tmp_path / "audit/report.html").read_text()
    assert "&lt;b&gt;Bonn&lt;/b&gt;" in page
    assert "<b>Bonn" not in page
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_file_names_that_are_no_text(audit, tmp_path):
    odd = os.fsdecode(b"b\xff.png")
    try:
        shutil.copy(tmp_path / "labels/image0.png", tmp_path / "labels" / odd)
    except OSError:
        pytest.skip("the file system takes text alone")
    result = audit("--common", "--out", tmp_path / "audit")
    assert result.code == 0, result.err
    (note,) = json.loads((tmp_path / "audit/audit.json").read_text(encoding="utf-8"))["notes"]
    assert odd.removesuffix(".png") in note
    assert sorted(one.name for one in (tmp_path / "audit").iterdir()) == ["audit.json", "evaluation.npz", "report.html"]


def test_a_run(cli, tiny_run, tmp_path):
    result = cli("audit", tiny_run.path, "--json", "--out", tmp_path / "audit")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    (last,) = (record for record in tiny_run.records("eval") if record["step"] == 1)
    assert found["miou"] == pytest.approx(last["miou"]["all"])
    assert found["worst"]["name"] == last["worst"]["name"]
    first = json.loads(cli("audit", tiny_run.path, "--step", 0, "--json").out)
    assert len(first["classes"]) < len(found["classes"])
    assert f"Audit of {tiny_run.path}, after step 0\n" in cli("audit", tiny_run.path, "--step", 0).out
    assert f"Audit of {tiny_run.path}, after step 1\n" in cli("audit", tiny_run.path).out
    assert cli("audit", tiny_run.path, "--before", tmp_path / "audit", "--max-drop", 0).code == 0


def test_what_is_given(refused, masks, tiny_run):
    refused("nothing to audit; give --labels", "audit")
    refused("Without --predictions and --classes masks cannot be audited", "audit", *masks[:2])
    refused("Without --classes", "audit", *masks[:4])
    refused("both the run", "audit", tiny_run.path, *masks[:2])
    refused("which have no steps", "audit", *masks, "--step", 1)
    refused("Found --ignore and --resize for the run", "audit", tiny_run.path, "--ignore", 0, "--resize")
    refused("has no evaluation of step 9", "audit", tiny_run.path, "--step", 9)
    refused("does not exist; give the folder of a run", "audit", "nowhere")


def test_wrong_folders(refused, masks, wrong, tmp_path):
    labels, predictions = tmp_path / "labels", tmp_path / "predictions"
    refused("does not exist", "audit", *masks[:2], "--predictions", tmp_path / "no", *masks[4:])
    (tmp_path / "empty").mkdir()
    refused("holds no mask", "audit", "--labels", tmp_path / "empty", *masks[2:])
    (predictions / "image3.png").rename(predictions / "other.png")
    wrong("1 label with no prediction")
    (predictions / "other.png").rename(predictions / "image3.png")
    Image.new("L", (5, 4)).save(predictions / "image3.png")
    wrong("image3.png has 5 x 4 pixels, but label")
    Image.new("RGB", (32, 24)).save(predictions / "image3.png")
    wrong("is an RGB picture, but no class has a colour")
    (predictions / "image3.png").write_bytes((predictions / "image2.png").read_bytes()[:200])
    wrong("image3.png cannot be decoded")
    Image.new("L", (32, 24), 77).save(labels / "image3.png")
    wrong("cannot be decoded")
    Image.new("L", (32, 24)).save(predictions / "image3.png")
    wrong("holds the value 77 in 768 pixels")


def test_wrong_options(wrong, tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n")
    wrong('without "image"', "--groups", tmp_path / "bad.csv")
    wrong("no class 'bike' to hold a limit", "--min-class-iou", "bike=3")
    wrong("The limit min_miou is 0.6, but limits are in percent: did you mean 60?", "--min-miou", "0.6")
    wrong("min_class_iou of 'sky' is 0.2, but limits", "--min-class-iou", "sky=0.2")
    wrong("Found --max-std many; expected a number", "--max-std", "many")
    wrong("The limit max_std is nan", "--max-std", "nan")
    wrong("The limit max_gap is -1.0", "--max-gap", "-1")
    wrong("'x=y'; expected an IoU", "--min-class-iou", "x=y")
    wrong("min_class_iou is nan", "--min-class-iou", "nan")
    wrong("needs an earlier audit", "--max-drop", 1)
    wrong("does not exist", "--max-drop", 1, "--before", tmp_path / "never")
    wrong("no class 'sky' for the background", "--background", "sky")
    wrong("'-3' to be ignored", "--ignore", "-3")
    wrong("holds no audit", "--out", tmp_path / "labels")
    (tmp_path / "classes.txt").write_text("road\nroad\n")
    wrong("names 'road' twice")


def test_it_needs_no_torch(masks, tmp_path):
    code = (
        "import sys; sys.argv = ['faircl', *sys.argv[1:]]\nfrom faircl.cli import main\n"
        "try:\n    main()\nfinally:\n    print(sorted({'torch', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    args = ["audit", *masks, "--out", str(tmp_path / "audit"), "--json"]
    result = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    assert result.stderr.splitlines()[-1] == "[]"
    assert json.loads(result.stdout)["images"] == 10
