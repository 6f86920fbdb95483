"""Export of any data set in the folder layout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from PIL import Image as Pillow

from faircl.data.masks import write_mask
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.progress import Reporter
from faircl.readers.folder import CLASSES_FILE


def write_folder(data: SegmentationData, splits: Sequence[str], out: Path, reporter: Reporter) -> dict[str, int]:
    """Write splits of a data set as images/, masks/ and classes.txt; return the number of images of each.

    Files are written to a temporary folder and moved at the end, so that an interrupted export leaves nothing behind.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"Output {out} is a file; choose a folder with --out.")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"Output folder {out} already exists and is not empty; choose another with --out.")
    exists = out.exists()  # it may be the current folder or a mount, so it is filled and not replaced
    part = out / ".part" if exists else out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        (part / CLASSES_FILE).write_text("\n".join(data.classes.names) + "\n", encoding="utf-8")
        for split in splits:
            _write_split(data, split, part, reporter)
        if exists:
            for name in ("masks", "images", CLASSES_FILE):
                os.replace(part / name, out / name)
        else:
            os.replace(part, out)
    except OSError as error:
        raise UserError(f"Cannot write {out}: {error.strerror}; choose another folder with --out.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return {split: len(data.ids(split)) for split in splits}


def _write_split(data: SegmentationData, split: str, root: Path, reporter: Reporter) -> None:
    with reporter.task(f"writing {split}", len(data.ids(split))) as task:
        for id in data.ids(split):
            sample = data.read(split, id)
            image, mask = (root / kind / split / f"{id}.png" for kind in ("images", "masks"))
            for path in (image, mask):
                path.parent.mkdir(parents=True, exist_ok=True)
            Pillow.fromarray(sample.image).save(image)
            write_mask(mask, sample.mask)
            task.advance()
