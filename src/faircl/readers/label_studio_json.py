"""Tasks of Label Studio's export "JSON": brush regions, and the images that they belong to."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from faircl.data.raster_files import file_bytes
from faircl.errors import UserError

_UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")  # Label Studio writes a number before the name of an uploaded file


class Region(NamedTuple):
    """A brush region: its label and its run-length code."""

    label: str
    code: bytes


class LabelledTask(NamedTuple):
    """An annotated task: its number, the reference of its image, height and width if it has regions, the regions."""

    number: Any
    image: str
    size: tuple[int, int] | None
    regions: tuple[Region, ...]


def read_tasks(path: Path) -> list[LabelledTask]:
    """Read the annotated tasks of an export; tasks without an annotation that was submitted are left out."""
    expected = "expected the export 'JSON' of Label Studio (not 'JSON-MIN')"
    try:
        tree = json.loads(file_bytes(path, "export"))
    except ValueError:  # bad JSON, or not UTF-8
        raise UserError(f"Cannot read {path}: it is not JSON; {expected}.") from None
    if not isinstance(tree, list) or not all(_is_task(task) for task in tree):
        raise UserError(f"{path} is not a list of tasks with data and annotations; {expected}.")
    found = []
    for task in tree:
        if (annotation := _chosen(task["annotations"])) is not None:
            try:
                found.append(_labelled(task, annotation))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UserError(f"Cannot read task {task.get('id')} of {path}: {error!r}; {expected}.") from None
            except UserError as error:
                raise UserError(f"Task {task.get('id')} of {path} {error}") from None
    return found


def find_image(root: Path, task: LabelledTask) -> Path:
    """Return the file of a task's image: the longest end of its reference that is a file below images/ or the root.

    References are local files (``/data/local-files/?d=dir/images/a.jpg``), uploaded files
    (``/data/upload/3/1a2b3c4d-a.jpg``, whose name is also tried without the number), addresses and plain paths.
    """
    parts = urlsplit(task.image)
    inside = parse_qs(parts.query).get("d", [""])[0]
    names = [name for name in (inside or unquote(parts.path)).split("/") if name not in ("", ".")]
    uploaded = _UPLOADED.fullmatch(names[-1]) if names else None
    ends = [names[start:] for start in range(len(names))] + ([[uploaded[1]]] if uploaded else [])
    for end in ends:
        for place in (root, root / "images"):
            path = place.joinpath(*end)
            if ".." not in end and os.path.isfile(path):
                return path
    name = uploaded[1] if uploaded else names[-1] if names else "…"
    raise UserError(
        f"Task {task.number} is of image {task.image}, which is not below {root}; expected {root / 'images' / name}: "
        "put the image there."
    )


def _is_task(task: Any) -> bool:
    return isinstance(task, dict) and isinstance(task.get("data"), dict) and isinstance(task.get("annotations"), list)


def _chosen(annotations: list[Any]) -> dict[str, Any] | None:
    """Return the annotation that counts: the ground truth, or else the newest; none that was skipped."""
    valid = [one for one in annotations if isinstance(one, dict) and not one.get("was_cancelled")]
    order = [(bool(one.get("ground_truth")), str(one.get("updated_at") or ""), at) for at, one in enumerate(valid)]
    return valid[max(order)[-1]] if valid else None


def _labelled(task: dict[str, Any], annotation: dict[str, Any]) -> LabelledTask:
    given = (task["data"].get("image"), *task["data"].values())
    if (image := next((value for value in given if isinstance(value, str)), None)) is None:
        raise UserError("names no image; export the project again.")
    size: tuple[int, int] | None = None
    regions = []
    for result in annotation["result"]:
        if (kind := result["type"]) != "brushlabels":
            if kind.endswith("labels"):
                raise UserError(f"has a region of the type '{kind}'; expected brush regions: draw it with BrushLabels.")
            continue  # a choice, a text, a relation: no pixels
        value = result["value"]
        if result.get("image_rotation"):
            raise UserError("has an image that was rotated in Label Studio; rotate it back.")
        if len(value["brushlabels"]) != 1:
            raise UserError(f"has a region with {len(value['brushlabels'])} labels; give it one.")
        found = int(result["original_height"]), int(result["original_width"])
        if size not in (None, found):
            raise UserError(
                f"has regions of {found[1]}x{found[0]} and of {size[1]}x{size[0]} pixels; expected one size."
            )
        size = found
        regions.append(Region(str(value["brushlabels"][0]), bytes(value["rle"])))
    return LabelledTask(task.get("id"), image, size, tuple(regions))
