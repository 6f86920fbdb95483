"""``faircl train`` as people type it: options for common settings, and runs that are continued."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from grids import grid

import faircl
from faircl.cli.train_options import with_options
from faircl.config.run import load_config
from faircl.errors import UserError

SMALL = ("train.crop=32", "train.workers=0", "model.width=8", "model.embedding=8")
QUICK = ("--epochs", "0.3", *(part for setting in SMALL for part in ("--set", setting)))


def resolved(settings=(), **given):
    keys = {"task": "scenario.task", "method": "method.name", "epochs": "train.epochs", "lr": "optim.lr"}
    options = {f"--{name}": (keys[name], value) for name, value in given.items()}
    return load_config("folder", with_options(options, settings))


@pytest.fixture
def begun(tiny_run, tmp_path):
    """A finished run of one's own."""
    return shutil.copytree(tiny_run.path, tmp_path / "runs" / "begun")


# ---- options


def test_options_are_settings(cli, street, out):
    typed = ("--root", street, "--task", "6-4", "--method", "mib", "--model", "small", "--batch", "4", "--lr", "0.02")
    result = cli("train", "folder", "--out", out, *typed, *QUICK, "--device", "cpu", "--workers", "0", "--seed", "3")
    assert result.code == 0, result.err
    saved = yaml.safe_load((out / "config.yaml").read_text())
    assert (saved["data"]["root"], saved["scenario"]["task"]) == (str(street), "6-4")
    assert (saved["method"]["name"], saved["model"]["name"], saved["seed"]) == ("mib", "small", 3)
    assert (saved["train"]["batch"], saved["train"]["workers"], saved["train"]["accelerator"]) == (4, 0, "cpu")
    assert (saved["train"]["epochs"], saved["train"]["later_epochs"]) == (0.3, None)
    assert (saved["optim"]["lr"], saved["optim"]["later_lr"]) == (0.02, None)


def test_what_is_typed_for_all_steps_is_not_changed_by_the_recipe():
    recipe = load_config("folder")
    assert (recipe.train.later_epochs, recipe.optim.later_lr) == (20, 0.02)
    assert resolved(epochs=3.0).train.later_epochs is None
    assert resolved(lr=0.1).optim.later_lr is None
    assert resolved(["train.later_epochs=7"], epochs=3.0).train.later_epochs == 7
    assert resolved(["optim.later_lr=0.3"], lr=0.1).optim.later_lr == 0.3


def test_a_task_may_be_lists_of_classes():
    assert resolved(task="[[road, car], [tree]]").scenario.task == [["road", "car"], ["tree"]]
    assert resolved(task="offline").scenario.task == "offline"
    assert resolved(task="2024-01-01").scenario.task == "2024-01-01"  # a date in YAML


def test_a_method_takes_further_settings():
    config = resolved(["method.lambda_class=0.5"], method="faircl")
    assert (config.method.name, config.method.lambda_class) == ("faircl", 0.5)


@pytest.mark.parametrize(
    ("setting", "given", "words"),
    [
        (
            "scenario.task=5-5",
            {"task": "6-4"},
            "scenario.task is given twice, by --task 6-4 and by --set scenario.task=5-5",
        ),
        ("scenario={task: 5-5}", {"task": "6-4"}, "by --task 6-4 and by --set scenario={task: 5-5}"),
        ("method=mib", {"method": "plop"}, "method.name is given twice, by --method plop and by --set method=mib"),
        ("train.epochs=4", {"epochs": 3.0}, "by --epochs 3.0 and by --set train.epochs=4"),
    ],
)
def test_a_setting_given_twice_is_refused(setting, given, words):
    with pytest.raises(UserError) as caught:
        resolved([setting], **given)
    assert words in str(caught.value)


def test_the_demo_refuses_two_seeds(refused, out):
    refused("by --seed 1 and by --set seed=2", "demo", "--out", out, "--seed", "1", "--set", "seed=2")


def test_the_same_value_twice_is_no_mistake():
    assert resolved(["method=mib", "train.epochs=3"], method="mib", epochs=3.0).train.epochs == 3


def test_the_help_shows_lists_and_says_what_counts_for_later_steps(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    text = " ".join(cli("train", "--help").out.split())
    assert "'[[sky, road], [car]]'" in text
    assert "(train.later_epochs) is dropped" in text
    assert "'[name, name, …]'" in " ".join(cli("scenario", "show", "--help").out.split())


# ---- what is missing


def test_without_a_recipe_a_folder_or_a_run(refused):
    refused("No recipe is given", "train")
    refused("No folder for the run is given; add --out", "train", "demo")
    refused("No run to continue is given", "train", "--resume")


def test_without_a_task(refused, street, out):
    words = "the data has 10 classes: road, building, tree, car, van, pedestrian, pavement, fence, kiosk, cyclist. Set "
    refused(words + "scenario.task, as in --task 6-4", "train", "folder", "--root", street, "--out", out)
    with pytest.raises(UserError, match="--task offline trains all at once"):
        faircl.train("folder", out, {"data.root": street})


def test_the_proposed_task_fits(refused, street, out):
    line = ("train", "folder", "--root", street, "--out", out)
    (street / "classes.txt").write_text("background\nroad\n")
    refused("the data has 1 class: road. Set scenario.task, as in --task offline.", *line)
    (street / "classes.txt").write_text("\n".join(["background", *(f"c{number}" for number in range(23))]))
    refused("c18, c19, … and 3 more. Set scenario.task, as in --task 14-9", *line)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["train.batch=25"], "train.batch is 25, but the data has 24 training images; lower train.batch (--batch)"),
        (["scenario.task=9-1"], "train.batch is 8, but step 1 has 3 training images; lower train.batch (--batch) to 3"),
        (
            ["scenario.task=9-1", "memory.images=9"],
            "Of a batch of 8 images 4 are of the step, but step 1 has 3 training",
        ),
    ],
)
def test_a_batch_that_is_larger_than_a_step(settings, words, train):
    train(words, *settings)


def test_a_replay_memory_fills_a_batch(cli, out, tiny_flags):
    more = ("scenario.task=9-1", "memory.images=9", "memory.share=0.7", "train.epochs=0.1")
    flags = [part for setting in more for part in ("--set", setting)]
    result = cli("train", "demo", "--out", out, *tiny_flags, *flags)
    assert result.code == 0, result.err


def test_joint_training_needs_no_task(cli, street, out):
    result = cli("train", "folder", "--root", street, "--method", "joint", "--batch", "4", "--out", out, *QUICK)
    assert result.code == 0, result.err
    assert json.loads((out / "scenario.json").read_text())["task"] == "offline"


# ---- continuing


@pytest.mark.parametrize("form", ["{r} RUN", "RUN {r}", "--out RUN {r}"])
def test_a_run_is_continued_without_its_settings(form, cli, begun, tiny_run):
    shutil.rmtree(begun / "steps" / "01")
    records = [json.loads(line) for line in (begun / "metrics.jsonl").read_text().splitlines()]
    (begun / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records if r["step"] == 0))
    words = form.format(r="--resume").replace("RUN", str(begun)).split()
    result = cli("train", *words, "--json")
    assert result.code == 0, result.err
    assert len(json.loads(result.out)["runs"][0]["steps"]) == 2
    weights = [path / "steps" / "01" / "model.safetensors" for path in (begun, tiny_run.path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_what_does_not_change_a_run_may_be_changed(cli, refused, begun):
    assert cli("train", "--resume", begun, "--set", "train.log_every=3", "--workers", "1").code == 0
    refused("was begun with train.batch 8, not 4;", "train", "--resume", begun, "--batch", "4", made=True)


def test_data_that_has_moved(cli, street, out, tmp_path):
    assert cli("train", "folder", "--root", street, "--task", "6-4", "--batch", "4", "--out", out, *QUICK).code == 0
    street.rename(tmp_path / "moved")
    assert cli("train", "--resume", out).code == 2
    assert cli("train", "--resume", out, "--root", tmp_path / "moved").code == 0
    faircl.resume(out, {"data.root": tmp_path / "moved"}, reporter=faircl.SilentReporter())


@pytest.mark.parametrize("form", ["--resume RUN", "--out RUN --resume", "demo --out RUN --resume"])
def test_a_run_that_is_not_there(form, refused, tmp_path):
    def no_run(words, folder):
        refused(words, "train", *form.replace("RUN", str(folder)).split())

    no_run("There is no run to continue in", tmp_path / "nowhere")
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".config.yaml.part").write_text("seed: 0")
    no_run("stopped before anything was saved; start it again without --resume", tmp_path / "killed")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("")
    no_run("it has no config.yaml; give the folder that 'faircl train' wrote", tmp_path / "notes")
    assert not (tmp_path / "nowhere").exists()


def test_python_continues_too(begun, tmp_path):
    run = faircl.resume(begun, reporter=faircl.SilentReporter())
    assert faircl.resume(run, reporter=faircl.SilentReporter()).folder == begun
    for call in (
        lambda: faircl.resume(tmp_path / "nowhere"),
        lambda: faircl.train("demo", tmp_path / "nowhere", resume=True),
        lambda: faircl.train(run.config, tmp_path / "nowhere", resume=True),
    ):
        with pytest.raises(UserError, match=r"There is no run to continue in .*nowhere"):
            call()


def test_a_run_begins_beside_hidden_files(cli, out, tiny_flags):
    out.mkdir(parents=True)
    (out / ".lock").write_text("")
    assert cli("train", "demo", "--out", out, *tiny_flags).code == 0


# ---- mistakes are answered at once

MISTAKES = {
    "data folder": ("folder --root nowhere --task 5-3 --out OUT", "nowhere does not exist"),
    "split": ("folder --root STREET --task 6-4 --set data.test=tset --out OUT", "has no split 'tset'"),
    "task": ("folder --root STREET --task 5-3 --out OUT", "Task '5-3' does not divide 10 classes"),
    "no task": ("folder --root STREET --out OUT", "No task says"),
    "recipe": ("foldr --root STREET --task 6-4 --out OUT", "Unknown recipe 'foldr'"),
    "key": ("folder --root STREET --task 6-4 --set train.epoch=3 --out OUT", "Unknown setting 'epoch'"),
    "value": ("folder --root STREET --task 6-4 --batch 0 --out OUT", "Setting train.batch"),
    "method": ("folder --root STREET --task 6-4 --method mibb --out OUT", "Unknown method 'mibb'"),
    "model": ("folder --root STREET --task 6-4 --model smal --out OUT", "Unknown model 'smal'"),
    "out": ("folder --root STREET --task 6-4", "add --out"),
    "twice": ("folder --task 6-4 --set scenario.task=5-5 --out OUT", "given twice"),
    "run": ("--resume OUT", "There is no run to continue"),
}
CODE = """
import sys
from faircl.cli.app import run
sys.argv = ["faircl", "train", *sys.argv[1:]]
try:
    run()
finally:
    heavy = {"torch", "torchvision", "transformers", "timm", "lightning_fabric", "matplotlib"} & set(sys.modules)
    print("imported:", *sorted(heavy))
"""


@grid("name", MISTAKES, quick=lambda name: name in ("key", "method", "out", "run"))
def test_a_mistake_is_found_before_torch_is_imported(name, street, out):
    line, words = MISTAKES[name]
    args = [{"STREET": str(street), "OUT": str(out)}.get(word, word) for word in line.split()]
    done = subprocess.run([sys.executable, "-c", CODE, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout.strip() == "imported:"
    assert not out.exists()


def test_only_joint_training_is_joint():
    from faircl.registry import METHODS, is_joint

    assert {name for name in METHODS.builtin if METHODS.get(name).joint} == {"joint"}
    assert [is_joint(name) for name in ("joint", "faircl")] == [True, False]
