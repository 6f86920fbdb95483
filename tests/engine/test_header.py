"""The lines before the first step, against the run that they describe."""

import re

import pytest
import torch

from faircl.config.prepared import open_data
from faircl.engine.header import header
from faircl.engine.network import build_model
from faircl.engine.plan import make_plan

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def lines(tiny_config, silent):
    """Return a function from settings to the header as a dictionary."""

    def make(*settings, resumed=None, **options):
        config = tiny_config(*settings, **options)
        plan = make_plan(config, open_data(config), silent())
        text = header(plan, build_model(config), CPU, resumed)
        return dict(re.split(" {2,}", line, maxsplit=1) for line in text.splitlines())

    return make


def test_a_run_of_two_steps(lines, tiny_run):
    found = lines()
    scenario = tiny_run.load_scenario()
    assert found["data"] == "scenes, 24 training and 8 test images"
    assert found["classes"] == f"{len(scenario.names) - 1} and background; task {scenario.task}, overlapped, 2 steps"
    assert found["method"] == "faircl"
    assert found["device"] == "CPU with 1 thread, precision fp32"
    updates = {record["step"]: record["iterations"] for record in tiny_run.records("train")}
    assert found["updates"] == (
        f"{updates[0]} at step 0, {updates[1]} at step 1, {sum(updates.values())} in all; batch 8, 2 epochs, then 1"
    )
    assert list(found) == ["data", "classes", "network", "method", "device", "updates"]


def test_parameters_are_those_of_the_last_network(lines, tiny_run):
    from safetensors.torch import load_file

    config, state = tiny_run.config(), load_file(tiny_run.step_path(1) / "model.safetensors")
    names = {name for name, _ in build_model(config).named_parameters()} | {k for k in state if "classifier" in k}
    number = sum(state[name].numel() for name in names)
    assert lines()["network"] == f"small, {number:,} parameters, all trainable"
    frozen = lines("optim.parts.backbone=0")["network"]
    backbone = sum(p.numel() for p in build_model(config).backbone.parameters())
    assert frozen == f"small, {number:,} parameters, {number - backbone:,} of them trainable"
    # What is trained at some step is trainable.
    assert lines("optim.later_parts.backbone=0")["network"].endswith("all trainable")
    assert lines("optim.parts.backbone=0", "optim.later_parts.backbone=0")["network"] == frozen
    assert lines("optim.parts.backbone=0", "optim.later_parts.backbone=1")["network"].endswith("all trainable")


def test_many_steps_and_accumulated_batches(lines):
    found = lines("scenario.task=6-1", "optim.accumulate=2", "train.batch=2")
    assert re.fullmatch(
        r"\d+ at step 0, .+ at each of 4 later steps, \d+ in all; batch 2 × 2, 2 epochs, then 1", found["updates"]
    )
    one = lines("scenario.task=offline")
    assert one["classes"].endswith("task offline, overlapped, 1 step")
    assert re.fullmatch(r"\d+ at step 0; batch 8, 2 epochs", one["updates"])
    assert lines("scenario.task=offline", "train.epochs=1")["updates"].endswith(", 1 epoch")


def test_a_resumed_run(lines):
    assert "resumed" not in lines()
    assert lines(resumed=(1, 0))["resumed"] == "at step 1 from its first update; 1 of 2 steps are done"
    assert lines(resumed=(0, 1200))["resumed"] == "at step 0 after update 1,200; 0 of 2 steps are done"


def test_validation_images_are_counted(lines):
    assert lines("data.validation=test")["data"].endswith(", 24 training, 8 validation and 8 test images")
