"""Suggested, corrected, learned: the whole loop, with each kind of files."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import faircl
from faircl.data.brush_rle import encode_region
from faircl.progress import SilentReporter
from faircl.readers.folder import FolderData

NEW = "phone box"
QUICK = {"train.later_epochs": 1, "train.batch": 8, "train.workers": 0}


def corrected(mask: np.ndarray) -> np.ndarray:
    """Return where a person has drawn the new class."""
    drawn = np.zeros(mask.shape, bool)
    drawn[4:16, 4:16] = True
    return drawn


def correct_folder(out: Path) -> dict:
    with open(out / "classes.txt", "a", encoding="utf-8") as file:
        file.write(f"{NEW}\n")
    for path in (out / "masks/train").glob("*.png"):
        with Image.open(path) as picture:
            mask = np.array(picture)
            picture.putdata(np.where(corrected(mask), 11, mask).ravel().tolist())
            picture.save(path)
    return {"data": out}


def correct_cvat(out: Path) -> dict:
    export = out.with_name("export")
    with zipfile.ZipFile(out / "annotations.zip") as archive:
        archive.extractall(export)
    shutil.copytree(out / "images", export / "JPEGImages")
    with open(export / "labelmap.txt", "a", encoding="utf-8") as file:
        file.write(f"{NEW}:250,250,1::\n")
    for path in (export / "SegmentationClass").glob("*.png"):
        painted = np.array(Image.open(path))
        painted[corrected(painted[..., 0])] = (250, 250, 1)
        Image.fromarray(painted).save(path)
    return {"data": "cvat", "root": export}


def correct_label_studio(out: Path) -> dict:
    tasks = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    code = list(encode_region(corrected(np.zeros((32, 32)))))
    for number, task in enumerate(tasks):
        (prediction,) = task["predictions"]
        drawn = prediction["result"][0] | {"value": {"format": "rle", "rle": code, "brushlabels": [NEW]}}
        task |= {"id": number, "annotations": [{"id": number, "result": [*prediction["result"], drawn]}]}
    (out / "project-1.json").write_text(json.dumps(tasks), encoding="utf-8")
    return {"data": "label-studio", "root": out}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "correct"), [("folder", correct_folder), ("cvat", correct_cvat), ("label-studio", correct_label_studio)]
)
def test_a_corrected_suggestion_teaches_a_new_class(tiny_run, street, tmp_path, to, correct):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    photos, out = street / "images/train", tmp_path / "review"
    faircl.suggest_labels(run, photos, out, to=to, reporter=SilentReporter())
    version = faircl.add_classes(run, **correct(out), settings=QUICK, reporter=SilentReporter())
    assert version.what == f"added {NEW}"
    assert version.data["images"] == len(list(photos.glob("*.png")))
    assert faircl.load(run).names[11] == NEW
    again = tmp_path / "again"  # the next suggestion comes from the new version
    faircl.suggest_labels(run, photos, again, reporter=SilentReporter())
    assert FolderData(again).classes.names[11] == NEW
    assert faircl.undo(run) == 1
    assert NEW not in faircl.load(run).names.values()
