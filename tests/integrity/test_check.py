"""Every kind of problem on a folder broken by hand; and that none of them hides another."""

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircl.data.colour_masks import ColourCoding
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import ColourTable
from faircl.data.sample import Classes, Sample
from faircl.integrity.check import check_data
from faircl.integrity.findings import KINDS, Report
from faircl.integrity.pair_check import explain_refused_mask
from faircl.readers.ade import AdeData
from faircl.readers.folder import FolderData
from faircl.readers.scenes import SceneData

MASK = np.array([[0, 1, 2], [255, 2, 1]], np.uint8)


def picture(seed: int, high: int = 2, wide: int = 3) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (high, wide, 3), np.uint8))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two splits of two images and three classes, nothing wrong with them."""
    root = tmp_path / "data"
    for seed, name in enumerate(("train/a", "train/b", "test/c", "test/d")):
        for kind in ("images", "masks"):
            (root / kind / name).parent.mkdir(parents=True, exist_ok=True)
        picture(seed).save(root / f"images/{name}.png")
        Image.fromarray(MASK).save(root / f"masks/{name}.png")
    (root / "classes.txt").write_text("background\ncat\ndog\n")
    return root


def check(root: Path, *splits: str, **options) -> Report:
    return check_data(FolderData(root), splits or ("train", "test"), **options)


def the_one(report: Report, kind: str, file: str | None, split: str = "train"):
    (finding,) = report.findings
    assert (finding.kind, finding.file, finding.split) == (kind, file, split)
    assert finding.severity == KINDS[kind].severity
    assert finding.message.endswith((".", "?"))
    assert report.ok == (finding.severity == "warning")
    return finding.message


def save_mask(root: Path, mask: np.ndarray, name: str = "train/a") -> None:
    Image.fromarray(mask).save(root / f"masks/{name}.png")


def test_nothing_wrong(root):
    report = check(root)
    assert report.ok
    assert report.to_json() == {
        "ok": True,
        "checked": {"train": 2, "test": 2},
        "findings": [],
        "skipped": {"train": [], "test": []},
    }


def test_scenes_have_nothing_wrong():
    report = check_data(SceneData(12, 12, 32), ("train", "test"))
    assert report.ok
    assert {finding.kind for finding in report.findings} <= {"empty-class"}


# Broken files


@pytest.mark.parametrize(("folder", "kind"), [("images", "unreadable-image"), ("masks", "unreadable-mask")])
@pytest.mark.parametrize("keep", [0, 40, -30])
def test_truncated(root, folder, kind, keep):
    path = root / folder / "train/b.png"
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in the_one(check(root), kind, f"{folder}/train/b.png")


def test_an_image_is_left_alone_with_masks_only(root):
    (root / "images/train/b.png").write_bytes(b"x")
    assert not check(root, images=False).findings
    shutil.rmtree(root / "images")
    assert not check(root, images=False).findings
    assert {finding.kind for finding in check(root).findings} == {"no-image"}


def test_both_broken_are_both_named(root):
    for folder in ("images", "masks"):
        (root / folder / "train/b.png").write_bytes(b"x")
    assert [finding.kind for finding in check(root).findings] == ["unreadable-image", "unreadable-mask"]


def test_size_mismatch(root):
    picture(0, high=3).save(root / "images/train/a.png")
    assert "3x2 pixels" in the_one(check(root), "size-mismatch", "masks/train/a.png")


# Values


def test_unknown_ids(root):
    save_mask(root, np.array([[0, 7, 9]] * 2, np.uint8))
    assert "value 7 in 2 pixels (and 1 more" in the_one(check(root), "unknown-ids", "masks/train/a.png")


def test_sixteen_bit_ids(root):
    save_mask(root, np.array([[0, 1, 26001]] * 2, np.uint16))
    assert "26001" in the_one(check(root), "deep-ids", "masks/train/a.png")


def test_rgb_by_mistake(root):
    picture(9).save(root / "masks/train/a.png")
    assert "RGB" in the_one(check(root), "rgb-mask", "masks/train/a.png")
    save_mask(root, np.repeat(MASK[..., None], 3, axis=2))
    assert "three channels are equal" in the_one(check(root), "grey-rgb-mask", "masks/train/a.png")


def test_unknown_colours(root):
    (root / "classes.txt").write_text("background 0 0 0\ncat 9 0 0\ndog 0 9 0\n")
    picture(9).save(root / "masks/train/a.png")
    the_one(check(root), "unknown-colours", "masks/train/a.png")


def test_transparent(root):
    Image.new("RGBA", (3, 2), (0, 0, 0, 9)).save(root / "masks/train/a.png")
    the_one(check(root), "unreadable-mask", "masks/train/a.png")


def test_jpeg_masks(root):
    Image.fromarray(MASK).save(root / "masks/train/a.png", format="JPEG")
    the_one(check(root), "jpeg-mask", "masks/train/a.png")
    os.rename(root / "masks/train/a.png", root / "masks/train/a.jpg")
    report = check(root)
    jpeg, single = report.findings
    assert (jpeg.kind, jpeg.file, single.kind) == ("jpeg-mask", "masks/train/a.jpg", "single-image")
    assert report.skipped["train"] == ()  # it is an error, and no other file is left over


def test_void_masks_and_empty_classes(root):
    save_mask(root, np.full((2, 3), 255, np.uint8))
    the_one(check(root), "ignored-mask", "masks/train/a.png")
    for name in "cd":
        save_mask(root, MASK % 2, f"test/{name}")
    first, second = check(root).findings
    assert (first.kind, second.kind, second.severity) == ("ignored-mask", "empty-class", "warning")
    assert (second.split, second.file) == ("test", None)
    assert "'dog'" in second.message


def test_a_mask_counts_although_its_image_is_broken(root):
    for name in "cd":
        (root / f"images/test/{name}.png").write_bytes(b"x")
    assert [finding.kind for finding in check(root, "test").findings] == ["unreadable-image"] * 2


def test_what_a_mask_is_refused_for_depends_on_what_was_expected(tmp_path):
    grey = io.BytesIO()
    Image.fromarray(np.repeat(MASK[..., None], 3, axis=2)).save(grey, format="PNG")
    painted = ColourCoding(3, ColourTable({(0, 0, 0): 0}))
    assert explain_refused_mask(grey.getvalue(), tmp_path, MaskCoding(3), "Why.")[0] == "grey-rgb-mask"
    assert explain_refused_mask(grey.getvalue(), tmp_path, painted, "Why.") == ("unknown-colours", "Why.")
    assert explain_refused_mask(grey.getvalue(), tmp_path, None, "Why.") == ("unknown-ids", "Why.")


def ade(root: Path, values: list[int]) -> AdeData:
    for place, kind in (("images", "jpg"), ("annotations", "png")):
        (root / place / "training").mkdir(parents=True)
        for seed in range(2):
            one = picture(seed, 1, len(values)) if place == "images" else Image.fromarray(np.array([values], np.uint8))
            one.save(root / place / "training" / f"{seed}.{kind}")
    return AdeData(root)


def test_shifted_ade(tmp_path):
    findings = check_data(ade(tmp_path, [0, 255, 149]), ("training",)).findings
    shifted = [finding for finding in findings if finding.severity == "error"]
    assert [finding.kind for finding in shifted] == ["shifted-ids"] * 2
    assert "shifted down by one" in shifted[0].message


def test_ade_as_published_and_with_other_values(tmp_path):
    assert check_data(ade(tmp_path / "good", [0, 1, 150]), ("training",)).ok
    findings = check_data(ade(tmp_path / "bad", [0, 255, 200]), ("training",)).findings
    assert {finding.kind for finding in findings if finding.severity == "error"} == {"unknown-ids"}


# Pairs and splits


def test_files_without_partner_do_not_stop_the_rest(root):
    (root / "masks/train/a.png").unlink()
    (root / "images/test/d.png").unlink()
    save_mask(root, np.full((2, 3), 9, np.uint8), "train/b")
    (root / "images/train/.DS_Store").touch()
    report = check(root)
    found = [(finding.kind, finding.split, finding.file) for finding in report.findings if finding.severity == "error"]
    assert found == [
        ("no-mask", "train", "images/train/a.png"),
        ("unknown-ids", "train", "masks/train/b.png"),
        ("no-image", "test", "masks/test/d.png"),
    ]
    assert report.checked == {"train": 1, "test": 2}
    assert report.skipped == {"train": ("images/train/.DS_Store",), "test": ()}


def test_a_listing_that_fails_is_a_finding(root):
    (root / "images/train/a.jpg").write_bytes(b"x")
    report = check(root, "train", "tset", "test")
    assert [(finding.kind, finding.split) for finding in report.findings] == [
        ("unlisted-split", "train"),
        ("unlisted-split", "tset"),
    ]
    assert "same id 'a'" in report.findings[0].message
    assert "Did you mean 'test'?" in report.findings[1].message
    assert report.checked == {"train": 0, "tset": 0, "test": 2}


def test_a_joined_split(root):
    (root / "masks/train/a.png").unlink()
    report = check(root, "train+test")
    the_one(report, "no-mask", "images/train/a.png", "train+test")
    assert report.checked == {"train+test": 3}


def test_empty_and_single(root):
    for name in "ab":
        (root / f"images/train/{name}.png").unlink()
        (root / f"masks/train/{name}.png").unlink()
    the_one(check(root), "empty-split", None)
    for folder in ("images", "masks"):
        (root / folder / "test/c.png").unlink()
    the_one(check(root, "test"), "single-image", None, "test")


def test_duplicates_and_leaks(root):
    shutil.copy(root / "images/train/a.png", root / "images/train/b.png")
    assert "images/train/a.png" in the_one(check(root), "duplicate", "images/train/b.png")
    shutil.copy(root / "images/train/a.png", root / "images/test/d.png")
    warning, error = check(root).findings
    assert (warning.kind, warning.severity) == ("duplicate", "warning")
    assert (error.kind, error.severity, error.split, error.file) == ("leak", "error", "test", "images/test/d.png")
    assert not check(root).ok


def test_every_problem_of_many_is_kept_in_order(root):
    for number in range(40):
        picture(100 + number).save(root / f"images/train/x{number:02d}.png")
        (root / f"masks/train/x{number:02d}.png").write_bytes(b"x")
    report = check(root)
    assert list(report.by_kind()) == ["unreadable-mask"]
    assert [finding.file for finding in report.findings] == [f"masks/train/x{number:02d}.png" for number in range(40)]


class Outside:
    """A reader of another package, which checks nothing."""

    classes = Classes(("a", "b"), False)

    def ids(self, split):
        return ("fine", "sizes", "ids", "raises", "again")

    def read(self, split, id):
        if id == "raises":
            raise KeyError("pixels")
        seed = 0 if id == "again" else ord(id[0])
        image = np.full((2, 2 + (id == "sizes"), 3), 0 if id in ("fine", "again") else seed, np.uint8)
        return Sample(id, image, self.read_mask(split, id))

    def read_mask(self, split, id):
        return np.array([[0, 1], [255, 5 if id == "ids" else 1]], np.uint8)


def test_a_reader_that_checks_nothing():
    report = check_data(Outside(), ("train",))
    assert [(finding.kind, finding.file) for finding in report.findings] == [
        ("size-mismatch", "sizes"),
        ("unknown-ids", "ids"),
        ("unreadable-image", "raises"),
        ("duplicate", "again"),
    ]
    assert "KeyError" in report.findings[2].message
    assert [finding.kind for finding in check_data(Outside(), ("train",), images=False).findings] == ["unknown-ids"]
