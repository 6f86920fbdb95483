"""Broken and odd trees in every layout: a clear sentence or a right reading, and no file left out in silence."""

import json
import os
import signal
import subprocess
import sys
import unicodedata
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from broken_trees import CASES, TREES, Reads, Refused, png
from grids import grid
from PIL import Image

from faircl.registry import READERS

IMAGE_CASES = [
    *("folder-truncated_image", "folder-image_of_another_size", "folder-mask_without_image_in_a_folder"),
    *(
        "folder-dangling_image",
        "folder-fifo_image",
        "folder-tiff_image_whose_header_lies",
        "ade-truncated_image",
        "ade-mask_without_image",
    ),
    *("voc-image_of_no_bytes", "cityscapes-image_of_another_size", "cvat-no_images_at_all"),
]
"""Trees whose masks are in order and whose images are not."""


def one_of_each_kind() -> set[str]:
    """Return a case of every way to break a tree; the layouts take turns."""
    by_kind: dict[str, list[str]] = {}
    for name, case in CASES.items():
        by_kind.setdefault(case.break_it.__name__, []).append(name)
    return {names[number % len(names)] for number, names in enumerate(by_kind.values())}


QUICK = one_of_each_kind()


def build(name: str, tmp_path: Path):
    """Make a good tree and break it; return its root, what must come of it, and flags that open it."""
    tree, break_it = CASES[name]
    if break_it.__name__ == "unreadable_mask" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    root = tree.make(tmp_path / "data")
    outcome = break_it(tree, root)
    at = getattr(outcome, "root", None) or root
    settings = (*tree.settings, *outcome.settings)
    return at, outcome, ("--data", tree.reader, "--root", at, *(part for one in settings for part in ("--set", one)))


@contextmanager
def patience(seconds: int = 60):
    """Fail, and do not wait for ever, where something waits for a FIFO."""

    def stop(*_: object) -> None:
        raise AssertionError(f"no answer within {seconds} seconds")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


@pytest.fixture
def answer(cli):
    """Call a command with patience; it may never show a traceback."""

    def call(*args: object):
        with patience():
            result = cli(*args)
        assert "Traceback" not in result.err
        assert "Error:" not in result.err
        return result

    return call


def one_sentence(result, words) -> None:
    assert (result.code, result.out) == (2, ""), result
    (line,) = result.err.splitlines()
    assert line.startswith("faircl: ")
    assert line.endswith((".", "?"))
    assert [word for word in words if word not in line] == [], line


def findings(result) -> list[dict[str, str]]:
    """What a check found but for classes that are not there."""
    found = json.loads(result.out)["findings"]
    return [finding for finding in found if finding["kind"] != "empty-class"]


def kinds(found) -> set[tuple[str, str | None]]:
    return {(finding["kind"], finding["file"]) for finding in found}


@pytest.mark.parametrize("name", TREES)
def test_good_trees_are_good(answer, tmp_path, name):
    """Else a case could be refused for what it did not break."""
    tree = TREES[name]
    root = tree.make(tmp_path / "data")
    flags = ("--data", tree.reader, "--root", root, *(part for one in tree.settings for part in ("--set", one)))
    expect_reads(answer, tree, root, flags, Reads(tree.masks))


@grid("name", CASES, quick=QUICK.__contains__)
def test_broken_tree(answer, tmp_path, name):
    root, outcome, flags = build(name, tmp_path)
    if isinstance(outcome, Refused):
        expect_refused(answer, flags, outcome)
    else:
        expect_reads(answer, CASES[name].tree, root, flags, outcome)


def expect_refused(answer, flags, outcome: Refused) -> None:
    one_sentence(answer("scenario", "show", *flags, "--json"), outcome.words)
    checked = answer("data", "check", *flags, "--json")
    if outcome.found is None:
        one_sentence(checked, outcome.words)
        return
    found = findings(checked)
    assert kinds(found) == outcome.found
    assert checked.code == (1 if any(finding["severity"] == "error" for finding in found) else 0)
    assert checked.err == ""
    for finding in found:
        if finding["kind"] == "unlisted-split":
            assert [word for word in outcome.words if word not in finding["message"]] == []
        elif finding["file"]:
            assert finding["file"] in finding["message"]


def expect_reads(answer, tree, root: Path, flags, outcome: Reads) -> None:
    masks, (train, test) = outcome.masks, (next(iter(outcome.masks)), list(outcome.masks)[-1])
    shown = answer("scenario", "show", *flags, "--json")
    assert shown.code == 0, shown.err
    (step,) = json.loads(shown.out)["steps"]
    assert (step["images"], step["test_images"]) == (holding_a_class(tree, masks[train]), len(masks[test]))
    assert step["leaked"] == outcome.leaked
    expect_notes(shown.err, outcome.skipped)

    checked = answer("data", "check", *flags, "--json")
    report = json.loads(checked.out)
    assert report["checked"] == {split: len(of_split) for split, of_split in masks.items()}
    assert kinds(findings(checked)) == outcome.found
    assert (checked.code, checked.err) == (0 if report["ok"] else 1, "")
    assert {split: sorted(names) for split, names in report["skipped"].items() if names} == {
        split: sorted(names) for split, names in outcome.skipped.items()
    }
    for split, of_split in masks.items():
        expect_pixels(answer, flags, split, of_split)
    expect_masks(tree, root, outcome)


def holding_a_class(tree, masks) -> int:
    """Images that show a class which is learned: not background, not ignored."""
    first = 1 if tree.reader in ("folder", "voc", "ade", "cvat") else 0
    return sum(bool(((mask >= first) & (mask < 255)).any()) for mask in masks.values())


def expect_notes(text: str, skipped) -> None:
    """One line for each split with skipped files, which counts them and names three."""
    lines = text.splitlines()
    assert len(lines) == len(skipped), text
    for line, (split, names) in zip(lines, skipped.items(), strict=True):
        assert line.startswith(f"note: skipped {len(names)} file")
        assert f" of split {split}, " in line
        assert sum(name in line for name in names) == min(len(names), 3), line


def expect_pixels(answer, flags, split: str, masks) -> None:
    stats = json.loads(answer("data", "stats", *flags, "--split", split, "--json").out)
    together = np.bincount(np.concatenate([mask.ravel() for mask in masks.values()]), minlength=256)
    assert stats["images"] == len(masks)
    assert [one["pixels"] for one in stats["classes"]] == together[: len(stats["classes"])].tolist()
    assert stats["ignored_share"] == pytest.approx(together[255] / together.sum())


def expect_masks(tree, root: Path, outcome: Reads) -> None:
    """Decoding goes another way than counting; both must give the masks made by hand."""
    settings = dict(one.removeprefix("data.").split("=") for one in (*tree.settings, *outcome.settings))
    values = {key: yaml.safe_load(value) for key, value in settings.items()}
    data = READERS.parse_config({"name": tree.reader, "root": str(root), **values}).open()
    for split, masks in outcome.masks.items():
        assert set(data.ids(split)) == set(masks)
        for id, mask in masks.items():
            np.testing.assert_array_equal(data.read_mask(split, id), mask, err_msg=id)


def test_there_are_enough_cases():
    assert len({case.break_it for case in CASES.values()}) >= 100
    assert all(sum(case.tree is tree for case in CASES.values()) >= 25 for tree in TREES.values())


@pytest.mark.parametrize("name", IMAGE_CASES)
def test_training_stops_before_it_writes(answer, tmp_path, name):
    root, outcome, _ = build(name, tmp_path)
    tree = CASES[name].tree
    recipe, out = tmp_path / "mine.yaml", tmp_path / "runs" / "run"
    recipe.write_text(
        yaml.safe_dump(
            {
                "data": {"name": tree.reader, "root": str(root)},
                "scenario": {"task": "offline"},
                "model": "small",
                "method": "finetune",
                "train": {"batch": 1},
            }
        )
    )
    settings = [part for one in (*tree.settings, *outcome.settings) for part in ("--set", one)]
    one_sentence(answer("train", recipe, "--out", out, *settings), (str(root),))
    assert not out.parent.exists()


# ---- pictures too large for Pillow


def large_mask(root: Path) -> tuple[str, int]:
    """Put a larger mask and image in the place of a; return its name and number of pixels."""
    mask = np.zeros((40, 50), np.uint8)
    mask[0, :3] = (0, 1, 2)
    (root / "masks/train/a.png").write_bytes(png(mask))
    Image.fromarray(np.zeros((40, 50, 3), np.uint8)).save(root / "images/train/a.jpg")
    (root / "images/train/a.png").unlink()
    return "masks/train/a.png", mask.size


def test_decompression_bomb(answer, tmp_path, monkeypatch):
    root = TREES["folder"].make(tmp_path / "data")
    name, pixels = large_mask(root)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels // 3)
    flags = ("--data", "folder", "--root", root)
    one_sentence(answer("scenario", "show", *flags, "--json"), (str(root / name), "too large", "MAX_IMAGE_PIXELS"))
    checked = answer("data", "check", *flags, "--json")
    assert checked.code == 1
    assert ("unreadable-mask", name) in kinds(findings(checked))


def test_rather_large_pictures_are_read_in_silence(answer, tmp_path, monkeypatch, recwarn):
    """Between one and two times its limit Pillow warns of an attack, on standard error."""
    root = TREES["folder"].make(tmp_path / "data")
    _, pixels = large_mask(root)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels * 2 // 3)
    for command in (("scenario", "show"), ("data", "check")):
        result = answer(*command, "--data", "folder", "--root", root, "--json")
        assert (result.code, result.err) == (0, ""), result
    assert [str(one.message) for one in recwarn if "bomb" in str(one.message)] == []


# ---- trees that may be read or refused, but not misread


@pytest.mark.parametrize("name", ["folder", "ade", "cityscapes", "voc"])
def test_link_that_leads_back(answer, tmp_path, name):
    """Followed blindly, it gives a split every image forty times."""
    tree = TREES[name]
    root = tree.make(tmp_path / "data")
    for file in (tree.mask, tree.image):
        place = (root / file).parent
        (place / "again").symlink_to(place, target_is_directory=True)
    settings = [part for one in tree.settings for part in ("--set", one)]
    shown = answer("scenario", "show", "--data", tree.reader, "--root", root, *settings, "--json")
    assert "again" in shown.err
    assert "again/again" not in shown.err
    if shown.code == 0:
        assert json.loads(shown.out)["steps"][0]["images"] == 2
    else:
        one_sentence(shown, ("link",))


def test_accents_composed_in_one_name_and_not_in_the_other(answer, tmp_path):
    """As Linux writes one of them and a Mac the other: a sentence that asks for what seems to be there is no help."""
    root = TREES["folder"].make(tmp_path / "data")
    for kind, form in (("images", "NFC"), ("masks", "NFD")):
        os.rename(root / kind / "train/a.png", root / kind / "train" / unicodedata.normalize(form, "é.png"))
    shown = answer("scenario", "show", "--data", "folder", "--root", root, "--json")
    if shown.code == 0:
        assert json.loads(shown.out)["steps"][0]["images"] == 2
    else:
        one_sentence(shown, ("Unicode",))


# ---- names that are no text, as the terminal gets them


def in_a_process(*args: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "faircl", *map(str, args)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:strict"}
    return subprocess.run(command, capture_output=True, env=env, timeout=60)


@pytest.fixture
def no_text(tmp_path) -> tuple[Path, str]:
    """A tree with a pair whose name is Latin-1, and its id."""
    root, id = TREES["folder"].make(tmp_path / "data"), os.fsdecode(b"caf\xe9")
    for kind in ("images", "masks"):
        os.rename(root / f"{kind}/train/a.png", root / f"{kind}/train/{id}.png")
    return root, id


def settled(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """Standard output of a process that left as it should."""
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")[-400:]
    assert done.returncode == code, done.stderr
    return done.stdout.decode()


def test_name_that_is_no_text(no_text):
    root, _ = no_text
    shown = settled(in_a_process("scenario", "show", "--data", "folder", "--root", root, "--json"), 0)
    assert json.loads(shown)["steps"][0]["images"] == 2
    assert json.loads(settled(in_a_process("data", "check", "--data", "folder", "--root", root, "--json"), 0))["ok"]


def test_broken_file_with_a_name_that_is_no_text(no_text):
    root, id = no_text
    (root / f"masks/train/{id}.png").write_bytes(b"x")
    refused = in_a_process("scenario", "show", "--data", "folder", "--root", root, "--json")
    assert settled(refused, 2) == ""
    assert b"caf" in refused.stderr
    for form in (["--json"], []):
        assert "caf" in settled(in_a_process("data", "check", "--data", "folder", "--root", root, *form), 1)


@pytest.mark.slow
def test_skipped_file_with_a_name_that_is_no_text(tmp_path):
    root = TREES["folder"].make(tmp_path / "data")
    (root / "masks/train" / os.fsdecode(b"caf\xe9.txt")).touch()
    shown = in_a_process("scenario", "show", "--data", "folder", "--root", root, "--json")
    settled(shown, 0)
    assert b"1 file" in shown.stderr
    assert b"caf" in shown.stderr
    for form in (["--json"], []):
        assert "caf" in settled(in_a_process("data", "check", "--data", "folder", "--root", root, *form), 0)
