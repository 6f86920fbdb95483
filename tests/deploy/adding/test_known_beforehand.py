"""Classes added one by one are learned as by a training that knew all steps beforehand, bit by bit."""

import json

import pytest
import torch
from additions import copy_first_step, write_images
from safetensors.torch import load_file
from street_folders import OLD, street_folder
from tiny_runs import TINY, Silent

import faircl
from faircl.engine import step_results
from faircl.runs.folder import RunFolder
from faircl.runs.versions import VersionChain

NEW = ("van", "fence")
TASK = [list(OLD), *([name] for name in NEW)]


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A run of three steps on a folder of scenes that label all classes."""
    monkeypatch.setattr(step_results, "write_run_page", lambda path: None)
    root = street_folder(tmp_path / "streets", (*OLD, *NEW), seed=3, images=40)
    settings = [f"data.root={root}", f"scenario.task={json.dumps(TASK)}", "train.accelerator=cpu", "train.threads=1"]
    settings += ["train.later_epochs=3", *(one for one in TINY if one.split(".")[0] == "model" or "train.crop" in one)]
    settings += ["train.epochs=2", "train.batch=2", "train.log_every=1"]
    return faircl.train("folder", tmp_path / "known", settings, reporter=Silent()), root


@pytest.mark.slow
def test_a_class_added_to_a_model_is_a_step_of_a_run(known, tmp_path):
    run, root = known
    data = faircl.open_data("folder", root)
    added = tmp_path / "added"
    copy_first_step(run.folder, added)
    for step, name in enumerate(NEW, start=1):
        folder = write_images(data, run.scenario.steps[step].images, name, tmp_path / name)
        faircl.add_classes(added, folder, classes=[name], reporter=Silent())
        version = RunFolder(VersionChain.open(added).folder(step))
        paths = version.step_path(1), run.folder / "steps" / f"{step:02}"
        ours, theirs = (load_file(path / "model.safetensors") for path in paths)
        assert len(ours) == len(theirs)
        assert all(torch.equal(ours[key], value) for key, value in theirs.items()), f"step {step}"
        assert version.load_scenario().earlier_steps == step - 1
