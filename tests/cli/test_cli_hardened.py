"""Things strangers broke once: markup in names, damaged runs, other devices, plugins, standard output."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from faircl import registry
from faircl.cli.demo import RUNS

TINY = (
    "data.images=24 data.test_images=8 data.size=32 train.epochs=0.2 train.later_epochs=0.2 train.crop=32 model.width=8"
)
FLAGS = [word for setting in TINY.split() for word in ("--set", setting)]


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run.path, tmp_path / "run")


def test_yaml_booleans_are_not_class_ids(refused):
    refused("scenario.task", "train", "demo", "--out", "never", "--set", "scenario.task=[[yes],[no]]")


def test_a_class_may_be_called_like_markup(cli, street, tmp_path):
    names = (street / "classes.txt").read_text(encoding="utf-8").splitlines()
    (street / "classes.txt").write_text("\n".join(["background", "[/b]", "[red]x[/red]", *names[3:]]), encoding="utf-8")
    flags = ("--set", f"data.root={street}", "--set", "scenario.task=6-4", "--set", "train.workers=0")
    small = (
        "--set",
        "train.epochs=0.2",
        "--set",
        "train.later_epochs=0.2",
        "--set",
        "train.crop=32",
        "--set",
        "model.width=8",
    )
    result = cli("train", "folder", "--out", tmp_path / "q[/b]", *flags, *small)
    assert result.code == 0, result.err
    assert f"report: {tmp_path / 'q[/b]' / 'report.html'}" in result.out
    assert cli("eval", tmp_path / "q[/b]").code == 0


def test_the_demo_takes_its_seed_from_set_too(cli, tmp_path):
    result = cli("demo", "--json", "--out", tmp_path / "demo", *FLAGS, "--set", "seed=3")
    assert {run["seed"] for run in json.loads(result.out)["runs"]} == {3}
    assert [run["name"] for run in json.loads(result.out)["runs"]] == [label for label, _ in RUNS]
    assert (tmp_path / "demo" / "comparison.png").stat().st_size > 1000


def test_the_demo_names_the_recipe_a_setting_does_not_fit(refused):
    refused("demo-finetune: Unknown setting 'gamma'", "demo", "--out", "never", "--set", "method.gamma=1")


def test_files_a_killed_process_owed_are_written_on_resume(cli, run):
    for name in ("report.html", "metrics.csv"):
        (run / name).unlink()
    before = (run / "metrics.jsonl").read_bytes()
    assert cli("train", run / "config.yaml", "--out", run, "--resume").code == 0
    assert (run / "report.html").is_file()
    assert (run / "metrics.csv").is_file()
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("metrics.jsonl", "{}\n", "without a kind"),
        ("metrics.jsonl", "", "lacks evaluations"),
        ("scenario.json", "{}", "lacks its sha256"),
        ("steps/01/model.json", "{}", "heads"),
        ("steps/01/model.json", "[]", "no JSON object"),
        ("config.yaml", "foo: 1\n", "config.yaml: "),
    ],
)
def test_damaged_runs_are_named(refused, run, name, text, words):
    (run / name).write_text(text, encoding="utf-8")
    (run / "steps/01/SHA256SUMS").unlink()  # a change that the checksums do not tell
    refused(words, "eval", run, made=True)


def test_a_step_in_the_wrong_place_is_refused(refused, run):
    shutil.rmtree(run / "steps/01")
    shutil.copytree(run / "steps/00", run / "steps/01")
    refused("is of step 0, not of step 1", "eval", run, made=True)


def test_a_run_made_on_a_gpu_is_evaluated_anywhere(cli, run):
    config = (run / "config.yaml").read_text(encoding="utf-8")
    changed = config.replace("accelerator: auto", "accelerator: cuda").replace("precision: fp32", "precision: fp16")
    assert changed != config
    (run / "config.yaml").write_text(changed, encoding="utf-8")
    assert cli("eval", run, "--json").code == 0


def test_a_broken_plugin_is_named_and_hides_no_other(refused, cli, monkeypatch):
    point = EntryPoint("broken", "nowhere.at.all:Method", "faircl.methods")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "faircl.methods" else [])
    refused("'broken' (nowhere.at.all:Method) cannot be loaded", "methods", "broken")
    listed = cli("methods")
    assert listed.code == 0
    assert "'broken' (nowhere.at.all:Method) cannot be loaded" in listed.err
    assert "finetune" in listed.out
    assert "broken" not in listed.out


def test_too_little_memory_is_a_sentence(cli, monkeypatch, tmp_path):
    from faircl.engine.trainer import Trainer

    def starve(self, step, resumed):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(Trainer, "train_step", starve)
    result = cli("train", "demo", "--out", tmp_path / "run", *FLAGS)
    assert result.code == 2
    assert "too little memory" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a Linux device")
def test_a_full_standard_output_is_a_sentence():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "faircl", "config", "show", "demo"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "faircl: the system refused: No space left on device.\n"
