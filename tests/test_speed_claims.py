"""The script that checks the claims of speed: what it runs exists, and its claims can fail."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
import typer

from faircl.bench.input import InputSpeed
from faircl.bench.loss import LossCost
from faircl.bench.step import StepTime
from faircl.cli.app import app

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "speed.py"


@pytest.fixture(scope="module")
def speed():
    spec = importlib.util.spec_from_file_location("speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def step(method, milliseconds, peak):
    times = (milliseconds, milliseconds)
    return StepTime("net", method, 1, milliseconds, times, 24e3 / milliseconds, peak, 1.0, 1.0, None, 1, 0).to_json()


def steps(**changed):
    """A step that holds all that is claimed, but for what is changed: milliseconds and GiB by method."""
    held = {"plain eager": (260, 20), "plain compiled": (130, 19), "finetune": (60, 10), "plop": (90, 13)}
    return [step(name, *numbers) for name, numbers in {**held, "faircl": (61, 10.2), **changed}.items()]


def losses(**changed):
    exact = {"loss_error": 1e-7, "gradient_error": 1.6e-3, "gradient_error_fp32": 1e-7, "repeatable": True}
    return [
        LossCost(loss, 151, 512, stride, 24, ms, extra_gib=0.2, **{**exact, **changed}).to_json()
        for stride, times in ((16, (180, 2)), (4, (28, 2.5)))
        for loss, ms in zip(("interpolate + cross_entropy", "fused"), times, strict=True)
    ]


def reads(per_second):
    ways = ("plain Pillow loader", "decode", "augment device")
    return [InputSpeed(way, 16, per_second, 1.0, 1.0, 1.0).to_json() for way in ways]


@pytest.mark.parametrize(
    "part",
    ["loss", "cost", "deeplab", "segformer", "deeplab-compile", "segformer-compile", "input", "evaluation"],
)
def test_every_part_is_a_command_that_exists(part, speed, tmp_path):
    name, *words = speed.commands(tmp_path, 3, 16)[part]
    command = typer.main.get_command(app).commands["bench"].commands[name]
    command.make_context(name, [*words, "--json"])  # which raises an error at an option that it does not know


def failing(claims):
    return [text for right, text in claims if not right]


def test_claims_hold_where_they_should(speed):
    assert not failing(speed.deeplab_claims(steps()))
    assert not failing(speed.segformer_claims(steps()))
    assert not failing(speed.loss_claims(losses()))
    assert not failing(speed.input_claims(reads(2000)))


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"plain eager": (170, 20)}, "plain eager"),
        ({"plain compiled": (97, 19)}, "plain compiled"),
        ({"plain compiled": (130, 16.9)}, "peak_gib"),
        ({"finetune": (55, 10)}, "milliseconds"),
        ({"finetune": (60, 9.2)}, "peak_gib"),
        ({"plop": (78, 13)}, "milliseconds"),
        ({"plop": (90, 11.3)}, "peak_gib"),
    ],
)
def test_claims_of_a_step_can_fail(changed, about, speed):
    (text,) = failing(speed.deeplab_claims(steps(**changed)))
    assert about in text


@pytest.mark.parametrize(
    "changed", [{"loss_error": 2e-5}, {"gradient_error": 3e-3}, {"gradient_error_fp32": 2e-5}, {"repeatable": False}]
)
def test_claims_of_exactness_can_fail(changed, speed):
    assert len(failing(speed.loss_claims(losses(**changed)))) == 2  # at both strides


def test_claims_of_memory_and_of_input_can_fail(speed):
    assert failing(speed.input_claims(reads(1999)))
    grown = LossCost("fused", 1000, 1024, 16, 24, 2.0, extra_gib=95.0).to_json()  # that of upsampled logits
    assert failing(speed.cost_claims([grown]))
    assert not failing(speed.cost_claims([{**grown, "extra_gib": 1.5}]))
    assert failing(speed.cost_claims([{**grown, "extra_gib": None, "note": "out of memory"}]))
    assert len(failing(speed.loss_claims([{**row, "milliseconds": None} for row in losses()]))) == 2


def test_what_was_timed_is_read_again_and_printed(speed, tmp_path, monkeypatch, capsys):
    facts = {"gpu": "H200", "cpu": "Xeon", "cores": 16, "torch": "2.11", "commit": "abc"}
    (tmp_path / "input.json").write_text(json.dumps({"environment": facts, "rows": reads(2100)}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("sys.argv", ["speed.py", "--out", str(tmp_path), "--part", "input"])
    assert speed.main() == 0
    said = capsys.readouterr().out
    assert "H200, Xeon, 16 cores, torch 2.11, commit abc" in said
    assert "| augment device |" in said
    assert "- holds: augment device: 2100 crops per second from JPEGs are at least 2000 (by default 2100)" in said


def test_without_a_gpu_it_says_so(speed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["speed.py", "--out", str(tmp_path)])
    assert speed.main() == 1
    assert "torch sees none here" in capsys.readouterr().err
