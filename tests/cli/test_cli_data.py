"""``faircl data``: tables and JSON, exit codes, mistakes; and that nothing of it waits for torch."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from grids import grid

from faircl.registry import READERS

STATS = {"validation_images", "data", "split", "images", "ignored_share", "classes", "entropy", "major", "minor"}


def parsed(result, code: int = 0):
    assert result.code == code, result.err
    return json.loads(result.out)


# list


def test_list(cli):
    rows = parsed(cli("data", "list", "--json"))
    assert [row["name"] for row in rows] == READERS.names()
    assert all(set(row) == {"name", "summary", "tasks"} and row["summary"] for row in rows)
    assert "6-4" in next(row for row in rows if row["name"] == "scenes")["tasks"]
    table = cli("data", "list").out
    assert all(name in table for name in READERS.names())


@pytest.mark.parametrize("name", READERS.names())
def test_list_one(cli, name):
    one = parsed(cli("data", "list", name, "--json"))
    assert set(one) == {"name", "summary", "tasks", "layout", "settings"}
    assert all(set(setting) == {"name", "default", "choices", "values", "description"} for setting in one["settings"])
    assert all(setting["description"] for setting in one["settings"])
    text = cli("data", "list", name).out
    assert one["layout"].splitlines()[0] in text if one["layout"] else "below" not in text
    assert all(f"data.{setting['name']}" in text for setting in one["settings"])


def test_list_of_an_unknown_one(refused):
    refused("Did you mean 'folder'?", "data", "list", "foldr")


# stats


def test_stats(cli, street):
    found = parsed(cli("data", "stats", "--data", "folder", "--root", street, "--json"))
    assert set(found) == STATS
    assert (found["data"], found["split"], found["images"], found["ignored_share"]) == ("folder", "train", 24, 0)
    assert [c["id"] for c in found["classes"]] == list(range(11))
    assert set(found["classes"][0]) == {"id", "name", "pixels", "images", "share"}
    assert sum(c["share"] for c in found["classes"]) == pytest.approx(1)
    assert sum(c["pixels"] for c in found["classes"]) == 24 * 32 * 32
    assert 0 < found["entropy"] < 1
    assert (len(found["major"]), len(found["minor"])) == (3, 8)
    again = parsed(cli("data", "stats", "-d", "folder", "-r", street, "--no-cache", "--json"))
    assert again == found
    # The folder holds what the generator draws.
    sizes = [part for key in ("images=24", "test_images=8", "size=32") for part in ("--set", f"data.{key}")]
    assert parsed(cli("data", "stats", "--data", "scenes", *sizes, "--json")) == found | {"data": "scenes"}


def test_stats_table_is_sorted_by_frequency(cli, street):
    text = cli("data", "stats", "--data", "folder", "--root", street, "--split", "test", "--task", "6-4").out
    rows = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    pixels = [int(row[2].replace(",", "")) for row in rows]
    assert pixels == sorted(pixels, reverse=True)
    assert [row[5].strip() for row in rows] == ["major"] * 3 + ["minor"] * 8
    assert {row[0].strip(): row[6].strip() for row in rows}["kiosk"] == "1"
    assert "entropy" in text
    assert "folder, test: 8 images" in text


def test_stats_with_steps(cli, street):
    args = ("data", "stats", "--data", "folder", "--root", street, "--json")
    by_name = {c["name"]: c["step"] for c in parsed(cli(*args, "--task", "6-4"))["classes"]}
    assert (by_name["background"], by_name["road"], by_name["kiosk"]) == (0, 0, 1)
    listed = parsed(cli(*args, "--task", "[[car, van], [kiosk]]"))["classes"]
    assert {c["name"]: c["step"] for c in listed if c["step"] is not None} == {
        "background": 0,
        "car": 0,
        "van": 0,
        "kiosk": 1,
    }
    shuffled = parsed(cli(*args, "--task", "6-4", "--order", "random:1"))["classes"]
    assert sorted(c["step"] for c in shuffled) == sorted(by_name.values())
    assert {c["name"]: c["step"] for c in shuffled} != by_name


@pytest.mark.parametrize("suffix", [".svg", ".png", ".PDF"])
def test_stats_plot(cli, street, tmp_path, suffix):
    plot = tmp_path / f"classes{suffix}"
    args = ("data", "stats", "--data", "folder", "--root", street, "--task", "6-4", "--json")
    assert set(parsed(cli(*args, "--plot", plot))) == STATS
    assert plot.stat().st_size > 1000
    if suffix == ".svg":
        assert all(name in plot.read_text() for name in ("pedestrian", "kiosk", "step 1", "background"))


def test_stats_mistakes(refused, street, tmp_path):
    folder = ("data", "stats", "--data", "folder", "--root", street)
    refused("Did you mean 'folder'?", "data", "stats", "--data", "foldr", "--root", street)
    refused("does not exist", "data", "stats", "--data", "folder", "--root", tmp_path / "no")
    refused("no root", "data", "stats", "--data", "folder")
    refused("Did you mean 'train'?", *folder, "--split", "trian")
    refused("no folder", *folder, "--plot", tmp_path / "no/a.svg")
    refused("must end in", *folder, "--plot", tmp_path / "a.jpg")
    refused("more classes than the data", *folder, "--task", "15-1")
    refused("without a task", *folder, "--order", "random:1")
    refused("all classes are learned at every step", *folder, "--task", "6-4", "--set", "scenario.protocol=clean")
    refused("has no meaning here", *folder, "--set", "optim.lr=1")
    assert not list(tmp_path.glob("*.svg"))


# check


def test_check_of_good_data(cli, street):
    # The test split is so small that a rare class may be absent from it: a warning, which is no error.
    found = parsed(cli("data", "check", "--data", "folder", "--root", street, "--json"))
    assert set(found) == {"ok", "checked", "findings", "skipped"}
    assert found["ok"] is True
    assert found["checked"] == {"train": 24, "test": 8}
    assert {finding["kind"] for finding in found["findings"]} <= {"empty-class"}
    text = cli("data", "check", "--data", "folder", "--root", street, "--split", "train")
    assert (text.code, text.out) == (0, "checked: train 24; no problem\n")


def test_check_of_broken_data(cli, street):
    for number in range(12):
        (street / f"masks/train/train-{number:05d}.png").write_bytes(b"x")
    shutil.copy(street / "images/train/train-00020.png", street / "images/test/test-00000.png")
    (street / "masks/test/notes.txt").touch()
    args = ("data", "check", "--data", "folder", "--root", street)
    found = parsed(cli(*args, "--json"), code=1)
    assert found["ok"] is False
    errors = [finding for finding in found["findings"] if finding["severity"] == "error"]
    assert all(set(finding) == {"kind", "severity", "split", "file", "message"} for finding in errors)
    assert [finding["kind"] for finding in errors] == ["unreadable-mask"] * 12 + ["leak"]
    assert found["skipped"] == {"train": [], "test": ["masks/test/notes.txt"]}

    short, long = cli(*args), cli(*args, "--all")
    assert (short.code, long.code) == (1, 1)
    assert "and 2 more; --all names them" in short.out
    assert "train-00009.png cannot be decoded" in short.out
    assert "train-00011.png" not in short.out
    assert "train-00011.png" in long.out
    assert "more; --all" not in long.out
    assert "13 errors" in short.out
    assert "notes.txt" in short.out
    assert parsed(cli(*args, "--split", "test", "--masks-only", "--json"))["checked"] == {"test": 8}


def test_check_mistakes(refused, street, tmp_path):
    refused("does not exist", "data", "check", "--data", "folder", "--root", tmp_path / "no")
    refused("Did you mean 'folder'?", "data", "check", "--data", "foldr", "--root", street)
    refused("Unknown setting", "data", "check", "--data", "folder", "--root", street, "--set", "data.trian=x")


def test_a_split_that_is_not_there_is_a_finding(cli, street):
    found = parsed(cli("data", "check", "-d", "folder", "-r", street, "--set", "data.test=val", "--json"), code=1)
    (error,) = (finding for finding in found["findings"] if finding["severity"] == "error")
    assert (error["kind"], error["split"], error["file"]) == ("unlisted-split", "val", None)
    assert found["checked"] == {"train": 24, "val": 0}


# prepare


def test_prepare(cli, refused, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(
        "faircl.readers.voc_prepare.prepare_voc", lambda root, sbd, reporter: called.append((root, sbd)) or {"masks": 3}
    )
    args = ("data", "prepare", "voc", "--root", tmp_path / "voc", "--sbd", tmp_path / "sbd")
    assert parsed(cli(*args, "--json")) == {"masks": 3}
    assert cli(*args).out == "masks: 3\n"
    assert called == [(tmp_path / "voc", tmp_path / "sbd")] * 2
    refused("expected one of: voc", "data", "prepare", "ade", "--root", tmp_path, "--sbd", tmp_path)


# start


@grid(
    "command",
    [("stats", "FOLDER", "--task", "6-4", "--plot", "PLOT"), ("check", "FOLDER"), ("list",), ("list", "folder")],
)
def test_torch_is_not_imported(street, tmp_path, command):
    """Importing it takes seconds, on every start."""
    places = {"FOLDER": ["--data", "folder", "--root", str(street)], "PLOT": [str(tmp_path / "a.svg")]}
    args = ["faircl", "data", *(part for word in command for part in places.get(word, [word]))]
    code = (
        f"import sys, atexit; sys.argv = {args!r}\n"
        "atexit.register(lambda: print([name for name in ('torch', 'lightning_fabric') if name in sys.modules]))\n"
        "from faircl.cli.app import run; run()"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
