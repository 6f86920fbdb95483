"""The state of a method on disk: numbers and tensors, written once, refused where they do not fit."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from faircl.checksums import CHECKSUMS
from faircl.engine.reevaluate import evaluate_again
from faircl.errors import UserError
from faircl.runs.folder import RunFolder


@pytest.fixture
def cut_short(tiny_run, tmp_path):
    """A run whose second step is still to be trained."""
    folder = RunFolder(shutil.copytree(tiny_run.path, tmp_path / "run"))
    shutil.rmtree(folder.step_path(1))
    folder.write_records([record for record in folder.records() if record["step"] == 0])
    assert folder.finished_steps() == 1
    return folder


def change(path, **changes):
    about = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in about.items() if value is not None}))
    (path.parent / CHECKSUMS).unlink(missing_ok=True)  # as in folders that were written before there were checksums


def test_numbers_are_json_and_tensors_are_safetensors(tiny_run):
    about = json.loads((tiny_run.step_path(1) / "method.json").read_text())
    assert (about["format"], about["method"], about["step"]) == (2, "faircl", 1)
    assert about["numbers"]["old_classes"] == 7
    assert about["numbers"]["domain"] is False
    assert about["numbers"]["bank.step_momentum"] == 0.99
    tensors = load_file(tiny_run.step_path(1) / "method.safetensors")
    assert tensors["bank.prototypes"].shape[0] == tensors["distribution.share"].shape[0] == 11
    assert all(value.ndim > 0 for value in tensors.values())
    assert not set(tensors) & set(about["numbers"])


def test_a_step_resumed_from_its_state_is_the_same(cut_short, tiny_run, tiny_train):
    tiny_train(cut_short.path, resume=True)
    for file in ("model.safetensors", "method.safetensors", "method.json"):
        assert (cut_short.step_path(1) / file).read_bytes() == (tiny_run.step_path(1) / file).read_bytes()


def test_a_run_of_the_older_format_is_not_resumed(cut_short, tiny_train):
    change(cut_short.step_path(0) / "method.json", format=1, numbers=None)
    with pytest.raises(UserError, match=r"earlier version of faircl.*finish the run with that version") as error:
        tiny_train(cut_short.path, resume=True)
    assert "\n" not in str(error.value)
    assert cut_short.finished_steps() == 1


def test_a_run_of_the_older_format_is_evaluated(tiny_run, silent, tmp_path):
    old = RunFolder(shutil.copytree(tiny_run.path, tmp_path / "run"))
    for step in (0, 1):
        change(old.step_path(step) / "method.json", format=1, numbers=None)
        save_file({}, old.step_path(step) / "method.safetensors")
    wanted = [record["miou"] for record in tiny_run.records("eval")]
    assert [metrics.to_json()["miou"] for metrics in evaluate_again(old, silent())] == wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 3}, "newer version"),
        ({"format": None}, "damaged"),
        ({"numbers": None}, "has no numbers"),
        ({"numbers": []}, "has no numbers"),
        ({"numbers": {"old_classes": 7}}, "missing .*bank.empty"),
    ],
    ids=str,
)
def test_a_damaged_json_is_named(changes, words, cut_short, tiny_train):
    change(cut_short.step_path(0) / "method.json", **changes)
    with pytest.raises(UserError, match=words):
        tiny_train(cut_short.path, resume=True)


def test_missing_tensors_and_changed_numbers_are_named(cut_short, tiny_train):
    path = cut_short.step_path(0)
    numbers = json.loads((path / "method.json").read_text())["numbers"]
    change(path / "method.json", numbers=numbers | {"updates": "many"})
    with pytest.raises(UserError, match="'updates' must be of type int, found 'many'"):
        tiny_train(cut_short.path, resume=True)
    change(path / "method.json", numbers=numbers)
    tensors = load_file(path / "method.safetensors")
    save_file({name: value for name, value in tensors.items() if name != "bank.ready"}, path / "method.safetensors")
    with pytest.raises(UserError, match=r"missing \['bank.ready'\]"):
        tiny_train(cut_short.path, resume=True)
