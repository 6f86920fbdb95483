"""Whole runs on two and four processes equal those of one, given the same batches."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from grids import grid
from processes import start
from safetensors.torch import load_file

from faircl.config.run import load_config
from faircl.engine.trainer import train

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")

# Neither the batch nor the test images divide evenly among the processes.
TINY = (
    "data.images=24",
    "data.test_images=7",
    "data.size=32",
    "train.batch=5",
    "train.crop=32",
    "train.log_every=1",
    "train.frozen_norm=always",  # statistics of a share of a batch are not those of the batch
    "model.width=8",
    "model.embedding=8",
    "eval.batch=4",
    "eval.examples=3",
)
BRIEF = ("train.epochs=1.5", "train.later_epochs=1.5")
SHORT = (*BRIEF, "method.period=2")
PAPER = ("method=faircl-paper", *SHORT)
EXACT = "train.precision=fp64"
SIXTY = ("train.epochs=12.5", "train.later_epochs=12.5")  # of 24 images in batches of 5
RUNS = {
    "sixty": (EXACT, *SIXTY),
    "soft": (EXACT, *SHORT, "method.windows=3", "method.replay=9", "memory.images=6", "optim.accumulate=2"),
    "paper": (EXACT, *SHORT, "method.unlabelled=paper", "method.assign=prototype"),
    "unknown": (
        EXACT,
        *SHORT,
        "method.unlabelled=paper",
        "method.lambda_cluster=0.02",
        "method.unknown_cluster=true",
        "method.margin=1",
    ),
    "prototype": (EXACT, *PAPER, "method.assign=prototype", "method.reject=0.2", "optim.accumulate=2", "optim.clip=1"),
    "kl": (EXACT, *PAPER, "method.fairness=kl", "method.histogram_momentum=0.5", "method.unlabelled=teacher"),
    "unbiased": (EXACT, *PAPER, "method.unlabelled=unbiased", "method.embedding=backbone", "model.norm=group"),
    "background": (EXACT, *PAPER, "method.init=background", "method.cap_assigned=true", "optim.name=adamw"),
    "rcil": (EXACT, *BRIEF, "method=rcil", "optim.clip=1"),
    "reminder": (EXACT, *BRIEF, "method=reminder", "balance.loss=seesaw", "balance.sampling=rare"),
    "memory": (EXACT, *BRIEF, "method=ssul-m", "memory.images=6", "balance.loss=tilted"),
    "once": ("scenario.task=offline", "train.epochs=0.2"),
    "dropout": (*PAPER, "model.dropout=0.3", "train.frozen_norm=never"),
}
ON = {2: tuple(name for name in RUNS if name != "once"), 4: ("sixty",)}


class Notes:
    """A reporter that keeps what was said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def task(self, label, total):
        from faircl.progress import SilentReporter

        return SilentReporter().task(label, total)


def run(out, name, resume=False):
    reporter = Notes()
    train(load_config("demo", [*TINY, *RUNS[name]]), out, reporter, resume)
    return reporter.said


def runs(root, names, begun):
    said = {name: run(Path(root, name), name) for name in names}
    if begun:
        run(Path(begun), "sixty", resume=True)
    return said


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def alone(root):
    for name in ON[2]:
        run(root / "1" / name, name)
    return root / "1"


@pytest.fixture(scope="module")
def said(root, alone):
    """Run everything on two and four processes, and continue one process's run on two; return what was said."""
    begun = root / "begun"
    shutil.copytree(alone / "sixty", begun)
    shutil.rmtree(begun / "steps/01")
    lines = (begun / "metrics.jsonl").read_text().splitlines(keepends=True)
    (begun / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] == 0))
    return {world: start(world, runs, root / str(world), ON[world], begun if world == 2 else None) for world in ON}


def records(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def flat(value):
    """Every number in a tree of JSON, with its place."""
    if isinstance(value, dict):
        return {(k, *place): v for k, part in value.items() for place, v in flat(part).items()}
    if isinstance(value, list):
        return {(k, *place): v for k, part in enumerate(value) for place, v in flat(part).items()}
    return {(): value}


def assert_equal_runs(found, expected, within):
    steps = sorted(step.name for step in (expected / "steps").iterdir())
    assert sorted(step.name for step in (found / "steps").iterdir()) == steps
    for step in steps:
        for part in ("model", "method"):
            one, other = (load_file(path / "steps" / step / f"{part}.safetensors") for path in (found, expected))
            assert one.keys() == other.keys()
            for name, value in other.items():
                torch.testing.assert_close(one[name], value, rtol=0, atol=within, msg=lambda m, n=name: f"{n}: {m}")
        one, other = (path / "steps" / step / "method.json" for path in (found, expected))
        assert one.read_bytes() == other.read_bytes()
        for file in sorted((expected / "steps" / step / "examples").iterdir()):
            assert (found / "steps" / step / "examples" / file.name).read_bytes() == file.read_bytes()
    numbers = [flat(records(path)) for path in (found, expected)]
    assert numbers[0].keys() == numbers[1].keys()
    for place, value in numbers[1].items():
        assert numbers[0][place] == (pytest.approx(value, abs=within) if isinstance(value, float) else value), place
    assert (found / "scenario.json").read_bytes() == (expected / "scenario.json").read_bytes()


@pytest.mark.slow
def test_sixty_iterations_at_two_steps_train_something(alone):
    losses = [line for line in records(alone / "sixty") if line["kind"] == "train"]
    assert [(line["step"], line["iteration"]) for line in losses] == [(s, i) for s in (0, 1) for i in range(1, 61)]
    assert sum(line["loss"] for line in losses[50:60]) < 0.9 * sum(line["loss"] for line in losses[:10])
    assert all(line["terms"][term] > 0 for line in losses[10:60] for term in ("seg", "cluster"))
    assert all(line["terms"][term] > 0 for line in losses[70:] for term in ("seg", "replay", "cluster"))
    bank = load_file(alone / "sixty/steps/01/method.safetensors")
    assert bank["bank.prototypes"].dtype == torch.float64
    assert bank["bank.prototypes"].abs().sum(1).gt(0).sum() >= 8
    assert bank["distribution.share"].sum() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.usefixtures("said")
def test_sixty_iterations_at_two_steps_equal_one_process(world, root, alone):
    assert_equal_runs(root / str(world) / "sixty", alone / "sixty", 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, settings in RUNS.items() if EXACT in settings and name != "sixty"])
@pytest.mark.usefixtures("said")
def test_every_part_of_the_method_equals_one_process(name, root, alone):
    assert_equal_runs(root / "2" / name, alone / name, 1e-8)


@grid("world", [2, 4])
def test_one_update_in_single_precision(world, tmp_path):
    run(tmp_path / "alone", "once")
    start(world, run, tmp_path / "several", "once")
    assert_equal_runs(tmp_path / "several", tmp_path / "alone", 1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("said")
def test_a_run_of_one_process_is_continued_by_two(root, alone):
    assert_equal_runs(root / "begun", alone / "sixty", 1e-8)


@pytest.mark.slow
def test_one_process_speaks(said, root):
    first, second = said[2]
    assert second == {name: [] for name in ON[2]}
    for name, lines in first.items():
        assert sum(line.startswith("step 0") for line in lines) == 1
        # Only the run that trains BatchNorm's statistics depends on the number of processes.
        assert sum("BatchNorm sees each process's share" in line for line in lines) == (name == "dropout")
    assert json.loads((root / "2/dropout/environment.json").read_text())["processes"] == "2"


@pytest.mark.slow
def test_resuming_a_finished_run_of_two_processes_alone(said, root):
    assert said
    before = records(root / "2/dropout")
    run(root / "2/dropout", "dropout", resume=True)
    assert records(root / "2/dropout") == before
