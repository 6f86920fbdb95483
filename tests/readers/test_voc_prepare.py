import errno
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trees import sbd_tree, voc_tree

from faircl.errors import UserError
from faircl.progress import SilentReporter
from faircl.readers.voc import VocData
from faircl.readers.voc_prepare import prepare_voc

OWN = np.array([[0, 1, 255], [255, 15, 0]], np.uint8)
COARSE = np.array([[0, 1, 1], [15, 15, 0]], np.uint8)
EXTRA = np.array([[20, 20], [0, 8]], np.uint8)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    return voc_tree(tmp_path, {"train": {"t1": OWN, "t2": OWN}, "val": {"v1": OWN, "v2": OWN}}, images=False)


@pytest.fixture
def sbd(tmp_path: Path) -> Path:
    """SBD: t1 and v1 are VOC's too, s1 to s3 are its own; t2 and v2 are VOC's alone."""
    return sbd_tree(tmp_path / "sbd", {"s2": EXTRA, "t1": COARSE, "s1": EXTRA}, {"v1": COARSE, "s3": COARSE})


class Counting(SilentReporter):
    """A reporter that counts, and can stop at a count."""

    def __init__(self, stop_at: int = 0) -> None:
        self.count, self.stop_at, self.total = 0, stop_at, 0

    def task(self, label: str, total: int) -> Any:
        self.total = total
        return super().task(label, total)

    def advance(self, note: str = "") -> None:
        self.count += 1
        if self.count == self.stop_at:
            raise KeyboardInterrupt


def left_as_it_was(voc: Path) -> bool:
    return sorted(os.listdir(voc)) == ["ImageSets", "SegmentationClass"] and sorted(
        os.listdir(voc / "ImageSets" / "Segmentation")
    ) == ["train.txt", "val.txt"]


def test_masks_and_list(voc: Path, sbd: Path) -> None:
    reporter = Counting()
    assert prepare_voc(voc, sbd, reporter) == {"masks": 7, "from_voc": 4, "from_sbd": 3, "train_aug": 5}
    assert reporter.count == reporter.total == 7
    assert (voc / "ImageSets" / "Segmentation" / "train_aug.txt").read_text() == "s1\ns2\ns3\nt1\nt2\n"
    assert sorted(os.listdir(voc / "SegmentationClassAug")) == [
        f"{id}.png" for id in ("s1", "s2", "s3", "t1", "t2", "v1", "v2")
    ]
    assert sorted(os.listdir(voc)) == ["ImageSets", "SegmentationClass", "SegmentationClassAug"]
    data = VocData(voc)
    for id, mask in {"s1": EXTRA, "s2": EXTRA, "s3": COARSE, "t1": OWN, "t2": OWN}.items():
        np.testing.assert_array_equal(data.read_mask("train_aug", id), mask, err_msg=id)
    # The list says what the folder alone would say.
    (voc / "ImageSets" / "Segmentation" / "train_aug.txt").unlink()
    assert VocData(voc).ids("train_aug") == data.ids("train_aug")


def test_roots_at_any_depth(voc: Path, sbd: Path) -> None:
    for voc_root, sbd_root in ((voc, sbd), (voc.parent, sbd.parent), (voc.parent.parent, sbd.parent.parent)):
        prepare_voc(voc_root, sbd_root, SilentReporter())
        for mask in (voc / "SegmentationClassAug").iterdir():
            mask.unlink()
        (voc / "SegmentationClassAug").rmdir()
        (voc / "ImageSets" / "Segmentation" / "train_aug.txt").unlink()


def test_nothing_is_overwritten(voc: Path, sbd: Path) -> None:
    prepare_voc(voc, sbd, SilentReporter())
    mask = voc / "SegmentationClassAug" / "s1.png"
    mask.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"SegmentationClassAug exists already, so nothing was written; remove it"):
        prepare_voc(voc, sbd, SilentReporter())
    assert mask.read_bytes() == b"mine"
    os.rename(voc / "SegmentationClassAug", voc / "elsewhere")
    with pytest.raises(UserError, match=r"train_aug\.txt exists already"):
        prepare_voc(voc, sbd, SilentReporter())


def test_remains_of_a_killed_run_do_not_count(voc: Path, sbd: Path) -> None:
    (voc / ".SegmentationClassAug.part" / "masks").mkdir(parents=True)
    (voc / ".SegmentationClassAug.part" / "masks" / "stale.png").write_bytes(b"x")
    prepare_voc(voc, sbd, SilentReporter())
    assert not (voc / "SegmentationClassAug" / "stale.png").exists()
    assert not (voc / ".SegmentationClassAug.part").exists()


def test_interrupted(voc: Path, sbd: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare_voc(voc, sbd, Counting(stop_at=6))
    assert left_as_it_was(voc)


@pytest.mark.parametrize("broken", ["bytes", "cut", "other", "shape", "value"])
def test_broken_annotation(voc: Path, sbd: Path, broken: str) -> None:
    from scipy.io import savemat

    path = sbd / "cls" / "s3.mat"
    message = r"s3\.mat is not an annotation of SBD \(\w+\); expected GTcls\.Segmentation in it: unpack SBD again"
    if broken == "bytes":
        path.write_bytes(b"not a matlab file")
    elif broken == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif broken == "other":
        savemat(path, {"GTinst": {"Segmentation": COARSE}})
    elif broken == "shape":
        savemat(path, {"GTcls": {"Segmentation": np.zeros((2, 2, 2), np.uint8)}})
        message = r"s3\.mat holds uint8 of shape \(2, 2, 2\) as GTcls\.Segmentation; expected class ids \(H, W\)"
    else:
        savemat(path, {"GTcls": {"Segmentation": np.array([[0, 300]], np.uint16)}})
        message = r"s3\.mat holds value 300; expected ids 0 to 20 or 255"
    with pytest.raises(UserError, match=message):
        prepare_voc(voc, sbd, SilentReporter())
    assert left_as_it_was(voc)


def test_full_disk(voc: Path, sbd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        UserError, match=r"Cannot write .*SegmentationClassAug: No space left on device; nothing was kept"
    ):
        prepare_voc(voc, sbd, SilentReporter())
    assert left_as_it_was(voc)


def test_masks_go_back_when_the_list_cannot_be_moved(voc: Path, sbd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def refuse_list(source: Path, target: Path) -> None:
        if Path(target).suffix == ".txt":
            raise PermissionError(errno.EACCES, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_list)
    with pytest.raises(UserError, match=r"Cannot write .*: Permission denied"):
        prepare_voc(voc, sbd, SilentReporter())
    assert left_as_it_was(voc)


def test_without_scipy(voc: Path, sbd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(UserError, match=r"needs SciPy; install it with: pip install faircl\[sbd\]"):
        prepare_voc(voc, sbd, SilentReporter())
    assert left_as_it_was(voc)


def test_not_sbd(voc: Path, sbd: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty is not SBD, as it has no cls/; expected benchmark_RELEASE/dataset"):
        prepare_voc(voc, tmp_path / "empty", SilentReporter())
    (sbd / "cls" / "s1.mat").unlink()
    with pytest.raises(UserError, match=r"SBD's lists in .*dataset have 1 id with no file in cls/: s1; unpack SBD"):
        prepare_voc(voc, sbd, SilentReporter())
    (sbd / "val.txt").unlink()
    with pytest.raises(UserError, match=r"SBD in .*dataset has no val\.txt; expected"):
        prepare_voc(voc, sbd, SilentReporter())
    assert left_as_it_was(voc)


def test_voc_without_its_lists_or_masks(voc: Path, sbd: Path) -> None:
    (voc / "SegmentationClass" / "t1.png").unlink()
    with pytest.raises(UserError, match=r"train\.txt of .* has 1 id with no mask: t1"):
        prepare_voc(voc, sbd, SilentReporter())
    (voc / "ImageSets" / "Segmentation" / "train.txt").unlink()
    with pytest.raises(UserError, match=r"has no list train\.txt"):
        prepare_voc(voc, sbd, SilentReporter())
