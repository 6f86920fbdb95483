"""``faircl classes``: what it prints, and its mistakes: one sentence, exit code 2, nothing written."""

import json
import shutil

import pytest


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run.path, tmp_path / "run")


def test_classes_are_listed_with_their_origin(cli, run):
    assert cli("classes", "rename", run, "car=auto", "tree=plant").code == 0
    done = cli("classes", "merge", run, "pavement,kiosk", "--into", "kiosk", "--json")
    assert json.loads(done.out)["what"] == "merged pavement, kiosk into kiosk"
    done = cli("classes", "drop", run, "road, van")
    assert (done.code, done.err) == (0, "")
    assert "made of version 2: dropped road, van" in done.out
    listing = json.loads(cli("classes", "list", run, "--json").out)
    pixels = {one["name"]: one["pixels"] for one in json.loads((run / "scenario.json").read_text())["classes"]}
    assert listing["version"] == 3
    assert {one["id"]: one["name"] for one in listing["classes"]} == {
        **{0: "background", 2: "building", 3: "plant", 4: "auto"},
        **{6: "pedestrian", 8: "fence", 9: "kiosk", 10: "cyclist"},
    }
    merged = listing["classes"][6]
    assert merged == {
        **{"id": 9, "name": "kiosk", "colour": "#c00000", "version": 0, "step": 1},
        "pixels": pixels["pavement"] + pixels["kiosk"],
    }
    assert cli("classes", "list", run, "--format", "csv").out.splitlines()[:2] == [
        "id,name,colour,version,step,pixels",
        f"0,background,#000000,0,0,{pixels['background']}",
    ]
    assert "renamed car to auto, tree to plant" in cli("versions", "list", run).out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["rename", "car"], "'car' is not of the form OLD=NEW"),
        (["rename", "car=a", "car=b"], "two names, 'a' and 'b'"),
        (["rename", "cat=a"], "Unknown class 'cat'. Did you mean 'car'?"),
        (["rename", "car=Road"], "Another class is called 'road' already"),
        (["merge", "car", "--into", "x"], "two classes or more, found car"),
        (["merge", "car,car", "--into", "x"], "named twice"),
        (["merge", "car,tree", "--into", "road"], "Another class is called 'road' already"),
        (["drop", "background"], "cannot be dropped"),
        (["drop", ","], "No class to drop is named"),
        (["drop", "road,building,tree,car,van,pedestrian,pavement,fence,kiosk,cyclist"], "at least one must remain"),
    ],
)
def test_mistakes_are_one_sentence(cli, run, words, found):
    done = cli("classes", words[0], run, *words[1:])
    assert (done.code, done.out) == (2, "")
    assert found in done.err
    assert done.err.count("\n") == 1
    assert not (run / "versions").exists()


def test_a_folder_that_is_no_run_is_refused(cli, tmp_path):
    for words in (["list"], ["drop"], ["rename"]):
        done = cli("classes", *words, tmp_path, *({"drop": ["car"], "rename": ["a=b"]}.get(words[0], [])))
        assert (done.code, done.out) == (2, "")
        assert "is not a run folder" in done.err


def test_a_version_is_not_a_run_of_its_own(cli, run):
    cli("classes", "drop", run, "road")
    done = cli("classes", "drop", run / "versions/01", "car")
    assert done.code == 2
    assert f"is one version of {run}" in done.err


@pytest.mark.parametrize(
    "words",
    [("list",), ("rename", "car=auto"), ("merge", "car,tree", "--into", "thing"), ("drop", "car")],
    ids=lambda words: words[0],
)
def test_a_run_that_lost_its_last_step_is_damaged(words, refused, run):
    shutil.rmtree(run / "steps/01")
    kind, *options = words
    lost = "steps/01 is missing, though metrics.jsonl has its evaluation: the run folder is damaged"
    refused(lost, "classes", kind, run, *options)
    assert not (run / "versions").exists()
