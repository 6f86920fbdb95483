"""Groups of images by metadata: a table of cities, cameras or weather, one row per image."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from faircl.data.listing import IMAGE_SUFFIXES, describe_missing
from faircl.errors import UserError

IMAGE = "image"
FORMS = 'a CSV file with a column "image", or JSON {"image": {"city": "Ulm"}}'

Rows = Mapping[str, Mapping[str, Any]]
"""The metadata of every image by its id: ``{"a": {"city": "Ulm", "camera": "left"}}``."""


class GroupTable(NamedTuple):
    """Attribute to image id to value, where it is known; sentences on what did not match."""

    values: dict[str, dict[str, str]]
    notes: tuple[str, ...]


def read_groups(source: str | Path | Rows, images: Sequence[str]) -> GroupTable:
    """Read the metadata of images; an image is named by its id, its file name, or either with an extension."""
    name = "the groups" if isinstance(source, Mapping) else str(source)
    rows = _rows(source)
    found = _matched(rows, images)
    if not found:
        first = next(iter(rows), None)
        raise UserError(f"{name} names none of the images: found '{first}', expected names such as '{images[0]}'.")
    known = set(found.values())
    notes = []
    if len(found) < len(images):
        missing = [id for id in images if id not in found]
        notes.append(f"{name}: {describe_missing(missing, 'image', 'no group')}")
    if strangers := [row for row in rows if row not in known]:
        notes.append(f"{name}: {describe_missing(strangers, 'row', 'no such image')}")
    attributes = dict.fromkeys(attribute for row in known for attribute in rows[row])
    if not attributes:
        raise UserError(f"{name} has no column beside the image; expected {FORMS}.")
    values = {
        attribute: {id: text for id, row in found.items() if (text := _text(rows[row].get(attribute)))}
        for attribute in attributes
    }
    known_values = {attribute: column for attribute, column in values.items() if column}
    if not known_values:
        raise UserError(f"{name} has no value for any of the images: all are empty; expected {FORMS}.")
    return GroupTable(known_values, tuple(notes))


def _matched(rows: Rows, images: Sequence[str]) -> dict[str, str]:
    """Return the row of every image that has one."""
    stems = {row: row for row in rows} | {_stem(row): row for row in rows}
    names: dict[str, list[str]] = {}
    for stem, row in stems.items():
        names.setdefault(PurePosixPath(stem).name, []).append(row)
    out = {}
    for id in images:
        short = set(names.get(PurePosixPath(id).name, ()))
        if id in stems:
            out[id] = stems[id]
        elif len(short) == 1:
            out[id] = short.pop()
    return out


def _stem(name: str) -> str:
    """Return the name of an image without the extension of an image file; other dots belong to the name."""
    path = PurePosixPath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else name


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _rows(source: str | Path | Rows) -> dict[str, dict[str, Any]]:
    where = "" if isinstance(source, Mapping) else f" {source}"
    try:
        rows = _from_json(source) if isinstance(source, Mapping) else _from_file(Path(source).expanduser())
    except (OSError, ValueError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise UserError(f"Cannot read the groups{where}: {why}; expected {FORMS}.") from None
    if not rows:
        raise UserError(f"The groups{where} hold no image; expected {FORMS}.")
    return rows


def _from_file(path: Path) -> dict[str, dict[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    return _from_json(json.loads(text)) if path.suffix.lower() == ".json" else _from_csv(text)


def _from_csv(text: str) -> dict[str, dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    if IMAGE not in (reader.fieldnames or ()):
        raise ValueError(f'its columns are {", ".join(reader.fieldnames or ["none"])}, without "{IMAGE}"')
    rows: dict[str, dict[str, Any]] = {}
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} has another number of columns than the first line")
        _add(rows, row.pop(IMAGE), row)
    return rows


def _from_json(tree: Any) -> dict[str, dict[str, Any]]:
    """Read a mapping of images to metadata, or a list of metadata that each hold "image"."""
    rows: dict[str, dict[str, Any]] = {}
    if not isinstance(tree, Mapping | list):
        raise ValueError(f"it holds a {type(tree).__name__}")
    entries = tree.items() if isinstance(tree, Mapping) else [(None, one) for one in tree]
    for name, one in entries:
        if not isinstance(one, Mapping) or (name is None and IMAGE not in one):
            raise ValueError(f"it holds {one!r} where the metadata of an image is expected")
        _add(rows, str(one[IMAGE] if name is None else name), {k: v for k, v in one.items() if k != IMAGE})
    return rows


def _add(rows: dict[str, dict[str, Any]], name: str, values: dict[str, Any]) -> None:
    if name in rows:
        raise ValueError(f"it names the image '{name}' twice")
    rows[name] = values
