"""Label and prediction files that belong together: same path below their folders, or same name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from faircl.data.listing import describe_missing, list_files
from faircl.errors import UserError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
"""Files that are read; JPEG is among them so that it is refused with its reason."""


class Pair(NamedTuple):
    """The id of an image, '/'-separated, and the files of its label and prediction."""

    id: str
    label: Path
    prediction: Path


class Pairs(NamedTuple):
    """The pairs by id, and sentences on files that were left out."""

    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def pair_files(labels: Path, predictions: Path, *, endings: tuple[str, str] = ("", ""), common: bool = False) -> Pairs:
    """Pair the files of two folders, subfolders included, by their path without extension.

    ``endings`` are taken off the names of labels and of predictions first ("_gtFine_labelTrainIds"); files with
    another ending are left out. Where no path is the same, files are paired by name alone, if names are unique.
    Labels without a prediction are an error, or left out if ``common``; predictions without a label are left out.
    """
    truths = _listed(labels, "labels", endings[0])
    guesses = _listed(predictions, "predictions", endings[1])
    if not truths.keys() & guesses.keys():
        by_name = _by_name(truths), _by_name(guesses)
        if by_name[0] and by_name[1]:
            truths, guesses = by_name
    shared = sorted(truths.keys() & guesses.keys())
    if not shared:
        raise UserError(
            f"No file of {labels} has the name of one of {predictions}: found '{min(truths)}' and '{min(guesses)}'; "
            "give files of one image the same name, or say how the names end: --labels-ending, --predictions-ending."
        )
    missing, extra = sorted(truths.keys() - guesses.keys()), sorted(guesses.keys() - truths.keys())
    notes = []
    if missing:
        found = describe_missing(missing, "label", f"no prediction in {predictions}")
        if not common:
            raise UserError(f"Found {found}; add them, or audit what both folders have with --common.")
        notes.append(f"left out {found}")
    if extra:
        notes.append(f"left out {describe_missing(extra, 'prediction', f'no label in {labels}')}")
    return Pairs(tuple(Pair(id, truths[id], guesses[id]) for id in shared), tuple(notes))


def _listed(folder: Path, kind: str, ending: str) -> dict[str, Path]:
    """Return the mask files below a folder by id."""
    if not os.path.isdir(folder):
        found = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise UserError(f"The folder of {kind} {folder} {found}; give a folder of masks.")
    found_files, _ = list_files(folder, SUFFIXES)
    files = {
        id.removesuffix(ending): folder / f"{id}{suffix}" for id, suffix in found_files.items() if id.endswith(ending)
    }
    if not files:
        kinds = " ".join(sorted(SUFFIXES))
        what = f"file whose name ends in '{ending}'" if ending and found_files else f"mask ({kinds})"
        raise UserError(f"The folder of {kind} {folder} holds no {what}; give the folder that has them.")
    return files


def _by_name(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return files by the last part of their id; none if two have the same."""
    short = {PurePosixPath(id).name: path for id, path in files.items()}
    return short if len(short) == len(files) else {}
