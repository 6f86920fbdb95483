"""Naming a data set by a folder, or by a reader and its root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from faircl.config.run import parse_data
from faircl.data.sample import SegmentationData
from faircl.errors import UserError, listed
from faircl.readers.base import ReaderConfig
from faircl.registry import READERS

ReaderAndData = tuple[ReaderConfig, SegmentationData]


def reader_settings(data: str | Path | Mapping[str, Any], root: str | Path | None = None) -> dict[str, Any]:
    """Return the settings of a reader: its own name with a root, or a folder's path, read by the reader 'folder'."""
    if isinstance(data, Mapping):
        return dict(data)
    if str(data) in READERS.names() and not (root is None and Path(data).is_dir()):
        return {"name": str(data)} | ({} if root is None else {"root": str(root)})
    if root is not None:
        raise UserError(f"There is no reader '{data}'; with a root the data is one of: {listed(READERS.names())}.")
    path = Path(data).expanduser()
    if not path.is_dir():
        raise UserError(
            f"The data {data} is neither a folder nor a reader; give a folder with images/, masks/ and classes.txt, or "
            f"a reader and its root, as in --data cvat --root DIR."
        )
    return {"name": "folder", "root": str(path)}


def open_reader(settings: Mapping[str, Any], role: Literal["train", "test"] = "train") -> ReaderAndData:
    """Open a data set by the settings of its reader, to learn from its training split or to test on its test split."""
    reader, _ = parse_data({"data": dict(settings), "scenario": {}})
    reader = reader.absolute()
    data = reader.open()
    return _with_only_split(reader, data, role), data


def _with_only_split(reader: ReaderConfig, data: SegmentationData, role: str) -> ReaderConfig:
    """Use the only split that there is, whatever its name, as in the exports of annotation tools."""
    splits = tuple(data.splits()) if hasattr(data, "splits") else ()
    if len(splits) == 1 and not {reader.train, reader.test} & {*splits}:
        return reader.model_copy(update={role: splits[0]})
    return reader
