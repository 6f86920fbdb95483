"""The file of an evaluation record: compressed columns and one line of JSON; equal records make equal bytes."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faircl.errors import UserError
from faircl.fairness.record import BINS, Confusions, EvaluationRecord, RecordedClass, Reliability
from faircl.files import move_into_place, writing

RECORD = "evaluation.npz"
"""Name of the file in the folder of a step."""
FORMAT = 1
_TIME = (1980, 1, 1, 0, 0, 0)  # the zip format's earliest: a real one would change the bytes of equal records


def save_record(record: EvaluationRecord, path: Path) -> None:
    """Write a record; the file appears when it is complete."""
    about = {
        "format": FORMAT,
        "bins": BINS,
        "step": record.step,
        "kind": record.kind,
        "convention": record.convention,
        "classes": [list(one) for one in record.classes],
        "images": list(record.images),
    }
    columns = {f"confusions.{name}": column for name, column in record.confusions._asdict().items()}
    columns |= {f"reliability.{name}": column for name, column in record.reliability._asdict().items()}
    part = path.with_name(f".{path.name}.part")
    with writing(path, lambda: part.unlink(missing_ok=True)):
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("about.json", _TIME), json.dumps(about), zipfile.ZIP_DEFLATED)
            for name, column in columns.items():
                stored = io.BytesIO()
                np.lib.format.write_array(stored, _narrowed(column), allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f"{name}.npy", _TIME), stored.getvalue(), zipfile.ZIP_DEFLATED)
        move_into_place(part, path)


def load_record(path: Path) -> EvaluationRecord:
    """Read a record; a UserError if the file is missing, damaged or of a newer format."""
    try:
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read("about.json"))
            if about["format"] != FORMAT or about["bins"] != BINS:
                raise UserError(f"{path} has format {about['format']}, expected {FORMAT}; read it with a newer faircl.")
            columns = {
                name: np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        confusions = Confusions(*(columns[f"confusions.{n}.npy"].astype(np.int64) for n in Confusions._fields))
        reliability = {name: columns[f"reliability.{name}.npy"].astype(np.int64) for name in Reliability._fields[:-1]}
        confidence = columns["reliability.confidence.npy"].astype(np.float64)
        return EvaluationRecord(
            classes=tuple(RecordedClass(*one) for one in about["classes"]),
            images=tuple(about["images"]),
            confusions=confusions,
            reliability=Reliability(**reliability, confidence=confidence),
            step=about["step"],
            kind=about["kind"],
            convention=about["convention"],
        )
    except FileNotFoundError:
        raise UserError(f"There is no record of an evaluation at {path}.") from None
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"Cannot read {path}: {error}; the file is damaged.") from None


def _narrowed(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return whole numbers in the narrowest type that holds them, and sums of confidences in 32 bits."""
    if column.dtype.kind == "f":
        return column.astype(np.float32)
    return column.astype(np.min_scalar_type(int(column.max(initial=0))))
