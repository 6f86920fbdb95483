"""COCO's panoptic JSON: categories, and the category of every segment of every mask."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from faircl.errors import UserError


def read_json(path: Path) -> Any:
    """Parse a JSON file."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not complete JSON"
        raise UserError(f"Cannot read {path}: {why}; unpack the annotations again.") from error


def read_categories(tree: Any, path: Path) -> dict[int, str]:
    """Return the names of the categories by id, sorted by id."""
    try:
        names = {int(category["id"]): str(category["name"]) for category in tree["categories"]}
        whole = len(tree["categories"]) == len(names) == len(set(names.values())) > 0
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _not_panoptic(path, "categories with id and name") from error
    if not whole:
        raise _not_panoptic(path, "categories, each with an id and a name of its own")
    return dict(sorted(names.items()))


def read_annotations(tree: Any, path: Path, places: dict[int, int]) -> dict[str, tuple[str, bytes]]:
    """Return image id and packed segments (`_pack_segments`) by mask id, in the file's order."""
    try:
        images = {image["id"]: os.path.splitext(image["file_name"])[0] for image in tree["images"]}
        found = {
            os.path.splitext(one["file_name"])[0]: (
                images[one["image_id"]],
                sorted((int(segment["id"]), int(segment["category_id"])) for segment in one["segments_info"]),
            )
            for one in tree["annotations"]
        }
        if len(found) < len(tree["annotations"]):
            raise _not_panoptic(path, "one annotation for each mask")
        return {id: (image, _pack_segments(segments, places, id, path)) for id, (image, segments) in found.items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        wanted = "images with id and file_name, and annotations with image_id, file_name and segments_info"
        raise _not_panoptic(path, wanted) from error


def _pack_segments(segments: list[tuple[int, int]], places: dict[int, int], id: str, path: Path) -> bytes:
    """Return pairs of segment id and class as little-endian uint32; `places` maps category ids to classes."""
    ids = [segment for segment, _ in segments]
    if len(set(ids)) < len(ids) or not all(0 < segment < 1 << 24 for segment in ids):
        raise UserError(
            f"{path} has segments {ids[:3]}, … for {id}; ids must differ and lie in 1 to {(1 << 24) - 1}, 0 being "
            "unlabelled: unpack the annotations again."
        )
    if strange := [category for _, category in segments if category not in places]:
        raise UserError(f"{path} gives {id} the category {strange[0]}, which it does not list; add it to categories.")
    return np.array([(segment, places[category]) for segment, category in segments], "<u4").tobytes()


def _not_panoptic(path: Path, wanted: str) -> UserError:
    return UserError(f"{path} is not a panoptic annotation file; expected {wanted}.")
