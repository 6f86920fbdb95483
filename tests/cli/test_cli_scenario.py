"""``faircl scenario show`` and what else of it a stranger meets: wrong words, terminals, moved folders."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from grids import grid


def show(cli, *args):
    return cli("scenario", "show", *args)


def refused(result, *words):
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    for word in words:
        assert word in result.err


def test_the_table_names_classes_and_digests(cli):
    result = show(cli, "--data", "scenes", "--task", "6-4")
    assert result.code == 0
    found = json.loads(show(cli, "--data", "scenes", "--task", "6-4", "--json").out)
    for word in ("pavement, fence, kiosk, cyclist", found["sha256"], found["steps"][1]["sha256"][:12]):
        assert word in result.out
    assert [step["images"] for step in found["steps"]] == [200, 200]
    assert found["steps"][0]["names"] == ["road", "building", "tree", "car", "van", "pedestrian"]


def test_lists_of_classes_and_orders(cli):
    where = ("--data", "scenes")
    listed = json.loads(show(cli, *where, "--task", "[[car, van], [road]]", "--json").out)
    assert [step["names"] for step in listed["steps"]] == [["car", "van"], ["road"]]
    same = json.loads(show(cli, *where, "--set", "scenario.task=[[car, van], [road]]", "--json").out)
    assert same["sha256"] == listed["sha256"]
    shuffled = json.loads(show(cli, *where, "--task", "6-4", "--order", "random:1", "--json").out)
    assert sorted(n for s in shuffled["steps"] for n in s["names"]) != [
        n for s in shuffled["steps"] for n in s["names"]
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--data", "vco"), ["Unknown data set 'vco'", "Did you mean 'voc'"]),
        (("--data", "voc"), ["'voc' has no root", "data.root"]),
        (("--data", "voc", "--root", "nowhere"), ["nowhere does not exist"]),
        (("--data", "scenes", "--root", "x"), ["'scenes' has no root, found root x"]),
        (("--data", "huggingface", "--root", "x"), ["has no root", "set data.path"]),
        (("--data", "scenes", "--task", "7-4"), ["Task '7-4' has more classes"]),
        (("--data", "scenes", "--task", "6-5s"), ["'6-5s' divides 11 classes, but the data has 10"]),
        (("--data", "scenes", "--task", "[[car"), ["expected a name, or lists"]),
        (("--data", "scenes", "--task", "6-4", "--setting", "disjunct"), ["scenario.setting", "'disjunct'"]),
        (("--data", "scenes", "--task", "6-4", "--protocol", "fair"), ["scenario.protocol", "'fair'"]),
        (("--data", "scenes", "--task", "6-4", "--protocol", "clean"), ["needs data with domains"]),
        (("--data", "scenes", "--task", "6-4", "--convention", "ful"), ["Did you mean 'full'"]),
        (("--data", "scenes", "--set", "data=5"), ["Setting data is 5"]),
        (("--data", "scenes", "--set", "scenario=5"), ["Setting scenario is 5"]),
        (("--data", "scenes", "--set", "optim.lr=5"), ["optim has no meaning here"]),
        (("--data", "scenes", "--set", "data.tran=x"), ["Unknown setting 'tran'", "Did you mean 'train'"]),
    ],
)
def test_wrong_words(args, words, cli):
    refused(show(cli, *args), *words)


def test_domains_of_a_folder(cli, street):
    for kind in ("images", "masks"):
        for k, path in enumerate(sorted((street / kind / "train").iterdir())):
            site = street / kind / "train" / ("east" if k % 3 else "west")
            site.mkdir(exist_ok=True)
            path.rename(site / path.name)
    where = ("--data", "folder", "--root", street, "--task", "1-1", "--set", "data.test=train")
    found = json.loads(show(cli, *where, "--protocol", "clean", "--json").out)
    assert [step["domains"] for step in found["steps"]] == [["east"], ["west"]]
    assert [(step["images"], step["test_images"]) for step in found["steps"]] == [(12, 4), (6, 6)]
    refused(show(cli, *where, "--protocol", "clean", "--setting", "disjoint"), "leave scenario.setting out")
    (street / "masks/train/east").rename(street / "masks/train/south")
    (street / "images/train/east").rename(street / "images/train/south")
    other = json.loads(show(cli, *where, "--protocol", "clean", "--json").out)
    assert other["sha256"] != found["sha256"]


def test_one_split_for_both_leaks_wholly(cli, street):
    where = ("--data", "folder", "--root", street, "--task", "6-4", "--set", "data.test=train")
    result = show(cli, *where)
    assert "100.0%" in result.out
    assert "warning: up to 100.0%" in result.out


@grid("encoding", ["ascii", "cp1252", "utf-8:strict"])
def test_terminals_that_know_few_signs(encoding, street):
    (street / "classes.txt").write_text((street / "classes.txt").read_text().replace("road", "Straße"), "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for more in (["--json"], []):
        command = [sys.executable, "-m", "faircl", "scenario", "show", "--data", "folder", "--root", str(street), *more]
        done = subprocess.run(command, env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr
        if more:
            assert "Straße" in json.loads(done.stdout.decode(encoding.partition(":")[0]))["steps"][0]["names"]


def test_a_run_is_found_again_from_another_folder(cli, street, tiny_flags, monkeypatch):
    monkeypatch.chdir(street.parent)
    flags = [
        flag for pair in zip(tiny_flags[::2], tiny_flags[1::2], strict=True) if "data." not in pair[1] for flag in pair
    ]
    settings = ("--set", "data={name: folder, root: street}", *flags, "--set", "train.epochs=0.2")
    assert cli("train", "demo", "--out", "run", *settings).code == 0
    (street.parent / "below").mkdir()
    monkeypatch.chdir(street.parent / "below")
    assert cli("eval", "../run").code == 0


def test_data_are_looked_at_before_weights_are_fetched(cli, tmp_path):
    out = ("--out", tmp_path / "run")
    refused(cli("train", "voc-15-1", *out), "'voc' has no root; set data.root")
    refused(cli("train", "voc-15-1", *out, "--set", f"data.root={tmp_path / 'no'}"), "does not exist")
    assert not (tmp_path / "run").exists()


def test_a_joint_run_is_evaluated_by_the_number_it_shows(cli, tiny_train, tmp_path):
    run = tiny_train(tmp_path / "run", "train.epochs=0.3", recipe="demo-joint")
    shown = run.records("eval")[0]["step"]
    assert shown == 1
    assert cli("eval", run.path, "--step", shown).code == 0
    assert cli("eval", run.path, "--step", "2").code == 2


def test_a_mistyped_split_is_not_a_fault_of_the_data(cli, street):
    refused(cli("data", "check", "--data", "folder", "--root", street, "--split", "trian"), "Did you mean 'train'")


def test_only_training_speaks_of_runs_when_stopped(street):
    assert Path(street).is_dir()
    program = (
        "import sys; from faircl.cli import app; sys.argv = ['faircl', *sys.argv[1:]]\n"
        "def stop(*args, **more): raise KeyboardInterrupt\n"
        "app.app = stop; app.run()"
    )
    for command, said in (("train", "keeps its finished steps"), ("data", "faircl: stopped.")):
        done = subprocess.run([sys.executable, "-c", program, command], capture_output=True, text=True)
        assert done.returncode == 130
        assert said in done.stderr
