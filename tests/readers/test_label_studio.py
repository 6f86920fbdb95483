"""Reading Label Studio's export "JSON"."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faircl.data.brush_rle import encode_region
from faircl.data.label_index import index_labels
from faircl.errors import UserError
from faircl.readers.label_studio import LabelStudioConfig, LabelStudioData

PICTURE = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10
CAR = np.array([[1, 1, 0], [0, 0, 0]], bool)
LIGHT = np.array([[0, 1, 1], [0, 0, 0]], bool)
CONFIG = """<View><Image name="i" value="$image"/><BrushLabels name="t" toName="i">
<Label value="traffic light &amp; co"/><Label value="car"/></BrushLabels></View>"""
NAME = "traffic light & co"


def region(label: str, mask: np.ndarray, **changed: Any) -> dict[str, Any]:
    value = {"format": "rle", "rle": list(encode_region(mask)), "brushlabels": [label]}
    size = {"original_height": mask.shape[0], "original_width": mask.shape[1], "image_rotation": 0}
    return {"id": "a", "type": "brushlabels", "from_name": "t", "to_name": "i", **size, "value": value} | changed


def task(image: str, *regions: dict[str, Any], number: int = 1, **changed: Any) -> dict[str, Any]:
    made = {"id": 7, "was_cancelled": False, "ground_truth": False, "updated_at": "2026-01-02T00:00:00Z"}
    return {"id": number, "data": {"image": image}, "annotations": [made | {"result": list(regions)} | changed]}


def write(root: Path, *tasks: Any, name: str = "project-1.json") -> None:
    (root / name).write_text(json.dumps(list(tasks)), encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "images/site ü").mkdir(parents=True)
    for name in ("a.png", "site ü/b.png"):
        Image.fromarray(PICTURE).save(tmp_path / "images" / name)
    (tmp_path / "label-config.xml").write_text(CONFIG)
    (tmp_path / "tasks.json").write_text("[]")
    write(
        tmp_path,
        task("/data/local-files/?d=review/images/site%20%C3%BC/b.png", region("car", CAR), region(NAME, LIGHT)),
        task("/data/upload/3/1a2b3c4d-a.png", region("Zebra", LIGHT), region("background", CAR)),
    )
    return tmp_path


def read_all(root: Path) -> None:
    data = LabelStudioData(root)
    for id in data.ids("project-1"):
        data.read("project-1", id)


def refused(root: Path, message: str, *tasks: Any) -> None:
    if tasks:
        write(root, *tasks)
    with pytest.raises(UserError, match=message):
        read_all(root)


def test_reading(root):
    data = LabelStudioConfig(root=root).open()
    assert data.classes.names == ("background", NAME, "car", "Zebra")  # those of the interface first
    assert data.classes.background
    assert data.splits() == ("project-1",)  # tasks.json is what was imported
    assert data.ids("project-1") == ("site ü/b", "a")
    sample = data.read("project-1", "site ü/b")
    np.testing.assert_array_equal(sample.image, PICTURE)
    assert sample.mask.tolist() == [[2, 1, 1], [0, 0, 0]]  # of two regions the later one counts
    assert sample.mask.dtype == np.uint8
    assert data.read_mask("project-1", "a").tolist() == [[0, 0, 3], [0, 0, 0]]
    assert index_labels(data, "project-1").pixels.tolist() == [[3, 2, 1, 0], [5, 0, 0, 1]]


def test_without_a_labeling_interface(root):
    (root / "label-config.xml").unlink()
    assert LabelStudioData(root).classes.names == ("background", "Zebra", "car", NAME)


def test_more_than_254_classes_are_uint16(root):
    labels = "".join(f'<Label value="c{id}"/>' for id in range(300))
    (root / "label-config.xml").write_text(f"<View><BrushLabels>{labels}</BrushLabels></View>")
    write(root, task("a.png", region("c299", CAR)))
    mask = LabelStudioData(root).read_mask("project-1", "a")
    assert mask.dtype == np.uint16
    assert mask.tolist() == [[300, 300, 0], [0, 0, 0]]


def test_which_annotation_counts(root):
    one = task("a.png", region("car", CAR))
    newer = task("a.png", region("car", LIGHT), updated_at="2026-01-03T00:00:00Z")["annotations"]
    skipped = task("a.png", updated_at="2026-01-09T00:00:00Z", was_cancelled=True)["annotations"]
    write(root, one | {"annotations": [*newer, *one["annotations"], *skipped]}, task("b.png", was_cancelled=True))
    data = LabelStudioData(root)
    assert data.ids("project-1") == ("a",)
    assert (data.read_mask("project-1", "a") > 0).tolist() == LIGHT.tolist()
    truth = task("a.png", region("car", CAR), ground_truth=True, updated_at="2025-01-01T00:00:00Z")["annotations"]
    write(root, one | {"annotations": [*truth, *newer]})
    assert (LabelStudioData(root).read_mask("project-1", "a") > 0).tolist() == CAR.tolist()


def test_an_image_without_regions_is_background(root):
    write(root, task("a.png", {"type": "choices", "value": {"choices": ["empty"]}}, {"type": "relation"}))
    assert LabelStudioData(root).read_mask("project-1", "a").tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    "reference",
    ["a.png", "https://example.org/x/images/a.png?v=1", "s3://bucket/deep/a.png", "/data/upload/1a2b3c4d-a.png"],
)
def test_references_of_images(root, reference):
    write(root, task(reference, region("car", CAR)))
    assert LabelStudioData(root).ids("project-1") == ("a",)


def test_wrong_files(root):
    refused(root, "Task 4 is of image /data/upload/1/c.png, which is not below", task("/data/upload/1/c.png", number=4))
    refused(root, "not below", task("../images/a.png/../../../secret.png"))
    refused(root, "Two annotated tasks", task("a.png"), task("b/a.png"))
    refused(root, "no annotated task", task("a.png") | {"annotations": []})
    refused(root, "is not a list of tasks .*not 'JSON-MIN'", {"id": 1, "image": "a.png", "tag": []})
    refused(
        root, "type 'polygonlabels'; expected brush regions", task("a.png", region("car", CAR, type="polygonlabels"))
    )
    refused(root, "was rotated", task("a.png", region("car", CAR, image_rotation=90)))
    two = region("car", CAR)["value"] | {"brushlabels": ["car", "bus"]}
    refused(root, "region with 2 labels", task("a.png", region("car", CAR, value=two)))
    refused(root, "of 3x2 and of 2x2|of 2x2 and of 3x2", task("a.png", region("car", CAR), region("car", CAR[:, :2])))
    refused(root, "is of 2x2 pixels, but the image is 3x2", task("a.png", region("car", CAR[:, :2])))
    refused(root, "names no image", task("a.png") | {"data": {"image": None}})
    broken = region("car", CAR)["value"] | {"rle": [0, 0, 0, 24]}
    refused(root, "cannot be decoded: it has 4 bytes", task("a.png", region("car", CAR, value=broken)))
    refused(root, "Cannot read task 1", task("a.png", {"type": "brushlabels"}))
    refused(root, "Cannot read task 1", task("a.png", region("car", CAR, value=broken | {"rle": [999]})))
    (root / "project-1.json").write_text("{not json")
    refused(root, "it is not JSON")
    (root / "project-1.json").unlink()
    refused(root, "no JSON file beside tasks.json")
    with pytest.raises(UserError, match="does not exist"):
        LabelStudioData(root / "nowhere")


def test_a_wrong_labeling_interface_and_split(root):
    with pytest.raises(UserError, match=r"has no train\.json\. It has: project-1\.json"):
        LabelStudioData(root).ids("train")
    with pytest.raises(UserError, match="No annotated image 'c'"):
        LabelStudioData(root).read("project-1", "c")
    (root / "label-config.xml").write_text("<View>")
    refused(root, "copy the labeling interface again")
