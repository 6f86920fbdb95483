"""Making PASCAL VOC's augmented training split from SBD, the Semantic Boundaries Dataset.

SBD annotates most of the images for which VOC has boxes but no mask, in MATLAB files: cls/x.mat.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Set
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from faircl.data.listing import describe_missing, list_files, open_root
from faircl.data.masks import IGNORE_8BIT, write_mask
from faircl.data.raster_files import file_bytes
from faircl.errors import UserError
from faircl.labels import Mask
from faircl.progress import Reporter
from faircl.readers.catalog import VOC
from faircl.readers.voc import AUGMENTED, AUGMENTED_MASKS, LISTS, VocData, read_list

_SBD_LISTS = ("train.txt", "val.txt")
_EXPECTED = "expected benchmark_RELEASE/dataset with cls/, train.txt and val.txt"


def prepare_voc(root: Path, sbd: Path, reporter: Reporter) -> dict[str, int]:
    """Write SegmentationClassAug and the list train_aug of VOC; return how many masks and ids were written.

    Images of VOC's own train and val keep VOC's masks, which ignore the borders of objects; the others take SBD's.
    train_aug is all of SBD and VOC's train, without VOC's val. Everything is written to a temporary folder and moved at
    the end.
    """
    data, source = VocData(root), _find_sbd(sbd)
    masks, augmented = data.root / AUGMENTED_MASKS, data.root / LISTS / f"{AUGMENTED}.txt"
    for path in (masks, augmented):
        if os.path.lexists(path):
            raise UserError(f"{path} exists already, so nothing was written; remove it to make it anew.")
    load = _mat_loader()
    own = {id: data.mask_path(split, id) for split in ("train", "val") for id in data.ids(split)}
    mats = _find_mats(source, own.keys())
    ids = sorted((own.keys() | mats.keys()) - set(data.ids("val")))
    part = data.root / f".{AUGMENTED_MASKS}.part"
    try:
        shutil.rmtree(part, ignore_errors=True)  # left by a run that was killed
        (part / "masks").mkdir(parents=True)
        with reporter.task("writing masks", len(own) + len(mats)) as task:
            for id, path in own.items():
                (part / "masks" / f"{id}.png").write_bytes(file_bytes(path, "mask"))
                task.advance()
            for id, path in mats.items():
                write_mask(part / "masks" / f"{id}.png", _read_mat(path, load))
                task.advance()
        (part / "list").write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")
        _move(part, masks, augmented)
    except OSError as error:
        raise UserError(
            f"Cannot write {masks}: {error.strerror or error}; nothing was kept, so fix it and prepare again."
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return {"masks": len(own) + len(mats), "from_voc": len(own), "from_sbd": len(mats), AUGMENTED: len(ids)}


def _move(part: Path, masks: Path, augmented: Path) -> None:
    """Move masks and list to their places; masks first, because the split can be read without its list."""
    augmented.parent.mkdir(parents=True, exist_ok=True)
    os.replace(part / "masks", masks)
    try:
        os.replace(part / "list", augmented)
    except OSError:
        os.replace(masks, part / "masks")
        raise


def _find_sbd(root: Path) -> Path:
    """Return the folder with cls/ and the lists: the root itself, or below it."""
    given = open_root(root, _EXPECTED)
    for place in (given, given / "dataset", given / "benchmark_RELEASE" / "dataset"):
        if os.path.isdir(place / "cls"):
            for name in _SBD_LISTS:
                if not os.path.isfile(place / name):
                    raise UserError(f"SBD in {place} has no {name}; {_EXPECTED}: unpack it again.")
            return place
    raise UserError(f"Folder {given} is not SBD, as it has no cls/; {_EXPECTED} in it.")


def _find_mats(sbd: Path, own: Set[str]) -> dict[str, Path]:
    """Return the annotations of SBD's images without a VOC mask, by id."""
    wanted = sorted({id for name in _SBD_LISTS for id in read_list(sbd / name)} - own)
    found, _ = list_files(sbd / "cls", {".mat"})
    if missing := [id for id in wanted if id not in found]:
        raise UserError(
            f"SBD's lists in {sbd} have {describe_missing(missing, 'id', 'no file in cls/')}; unpack SBD again."
        )
    return {id: sbd / "cls" / f"{id}{found[id]}" for id in wanted}


def _mat_loader() -> Callable[..., dict[str, Any]]:
    try:
        loader: Callable[..., dict[str, Any]] = import_module("scipy.io").loadmat
    except ImportError:
        raise UserError("Reading SBD's .mat files needs SciPy; install it with: pip install faircl[sbd]") from None
    return loader


def _read_mat(path: Path, load: Callable[..., dict[str, Any]]) -> Mask:
    """Return class ids (H, W) uint8 of an annotation: the field Segmentation of the struct GTcls."""
    data = BytesIO(file_bytes(path, "annotation"))
    try:
        mask = np.asarray(load(data, variable_names=["GTcls"])["GTcls"]["Segmentation"][0, 0])
    except Exception as error:  # a damaged file makes SciPy raise many kinds of errors
        raise UserError(
            f"{path} is not an annotation of SBD ({type(error).__name__}); expected GTcls.Segmentation in it: unpack "
            "SBD again."
        ) from error
    if mask.ndim != 2 or mask.dtype.kind not in "ui" or not mask.size:
        raise UserError(
            f"{path} holds {mask.dtype} of shape {mask.shape} as GTcls.Segmentation; expected class ids (H, W): unpack "
            "SBD again."
        )
    ids = np.unique(mask)
    if unknown := [int(id) for id in ids if not (0 <= id < len(VOC) or id == IGNORE_8BIT)]:
        raise UserError(
            f"{path} holds value {unknown[0]}; expected ids 0 to {len(VOC) - 1} or {IGNORE_8BIT}: unpack SBD again."
        )
    return mask.astype(np.uint8)
