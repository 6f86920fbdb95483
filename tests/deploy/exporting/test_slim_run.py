"""The folder for the Hugging Face hub as a run: loaded, evaluated, exported again."""

import json
import math

import numpy as np
import pytest
import yaml
from exported import photos

import faircl
from faircl.checksums import damaged_file
from faircl.progress import SilentReporter
from faircl.runs.folder import RunFolder


@pytest.fixture(scope="module")
def folder(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("hf") / "tiny"
    return faircl.export(tiny_run.path, "huggingface", out, reporter=SilentReporter()).path


def test_it_holds_one_step_and_no_more(folder):
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = ("SHA256SUMS", "method.json", "method.safetensors", "model.json", "model.safetensors")
    assert files == {
        "README.md",
        *(f"faircl/{name}" for name in ("config.yaml", "environment.json", "metrics.jsonl", "scenario.json")),
        *(f"faircl/steps/01/{name}" for name in names),
    }
    assert damaged_file(folder / "faircl/steps/01") is None


def test_it_is_loaded_as_the_run_is(folder, tiny_run):
    one, other = faircl.load(folder), faircl.load(tiny_run.path)
    assert (one.step, one.names, one.colours) == (other.step, other.names, other.colours)
    image = photos(1, 50, 60)[0].transpose(1, 2, 0)
    assert np.array_equal(one.predict(image).mask, other.predict(image).mask)
    with pytest.raises(faircl.UserError, match="exported without the network of step 0; it has 1"):
        faircl.load(folder, 0)
    with pytest.raises(faircl.UserError, match="no step -2; counted from its last, steps go back to -1"):
        faircl.load(folder, -2)


@pytest.mark.slow
def test_its_results_are_read_and_measured_again(folder, tiny_run):
    whole, slim = faircl.open_run(tiny_run.path), faircl.open_run(folder)
    assert [metrics.to_json() for metrics in slim.steps] == [metrics.to_json() for metrics in whole.steps]
    (again,) = faircl.evaluate(folder, reporter=SilentReporter())
    assert again.to_json() == whole.final.to_json()
    assert RunFolder.open(folder / "faircl").finished_steps() == 2


@pytest.mark.slow
def test_it_is_exported_again(folder, tmp_path):
    again = faircl.export(folder, "huggingface", tmp_path / "again", reporter=SilentReporter()).path
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert (again / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_an_earlier_step_is_the_run_as_it_was_then(tiny_run, tmp_path):
    first = faircl.export(tiny_run.path, "huggingface", tmp_path / "first", 0, reporter=SilentReporter()).path
    assert len(faircl.open_run(first).steps) == 1
    assert faircl.load(first).names == faircl.load(tiny_run.path, 0).names
    (again,) = faircl.evaluate(first, reporter=SilentReporter())
    assert again.to_json() == faircl.open_run(tiny_run.path).steps[0].to_json()
    with pytest.raises(faircl.UserError, match="has no step 1"):
        faircl.load(first, 1)


@pytest.mark.slow
def test_the_command_evaluates_it_on_a_data_folder(tiny_train, street, tmp_path, cli):
    run = tiny_train(tmp_path / "run", root=street)
    out = faircl.export(run.path, "huggingface", tmp_path / "hf", reporter=SilentReporter()).path
    moved = street.rename(tmp_path / "moved")
    result = cli("eval", out, "--root", moved, "--json")
    assert result.code == 0, result.err
    (step,) = json.loads(result.out)["runs"][0]["steps"]
    assert step["miou"] == faircl.open_run(run.path).final.to_json()["miou"]
    assert "`folder street`" in (out / "README.md").read_text()


# ---- the card


def test_the_card_has_the_numbers_of_the_run(folder, tiny_run):
    card = (folder / "README.md").read_text(encoding="utf-8")
    metrics = faircl.open_run(tiny_run.path).final
    for c in metrics.classes:
        iou = "–" if math.isnan(c.iou) else f"{c.iou:.1f}"
        assert f"| {c.id} | {c.name} | " in card
        assert f" | {c.learned_at} | {iou} | {c.pixels:,} |" in card
    for name in ("old", "new", "all"):
        assert f" | {metrics.groups[name].miou:.1f} | {metrics.groups[name].std:.1f} |" in card
    assert f"Worst class: {metrics.worst.name} ({metrics.worst.iou:.1f})" in card
    head = yaml.safe_load(card.split("---")[1])
    assert head["library_name"] == "faircl"
    assert "license" not in head


def test_a_folder_of_its_own_named_faircl_is_no_run(tmp_path):
    (tmp_path / "faircl").mkdir()
    with pytest.raises(faircl.UserError, match="is not a run folder"):
        faircl.load(tmp_path)
