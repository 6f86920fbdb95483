"""Training, evaluating, comparing and opening from Python, and that the command line does it by the same functions."""

import json

import numpy as np
import pytest

import faircl
from faircl.api.configuring import as_overrides

TINY = {
    "data.images": 24,
    "data.test_images": 8,
    "data.size": 32,
    "train.epochs": 0.5,
    "train.later_epochs": 0.5,
    "train.batch": 8,
    "train.crop": 32,
    "model.width": 8,
    "model.embedding": 8,
    "eval.examples": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> faircl.Run:
    return faircl.train("demo", tmp_path_factory.mktemp("api") / "run", TINY, reporter=faircl.SilentReporter())


# ---- configurations


def test_settings_are_those_of_the_command_line():
    given = {"optim.lr": 1e-5, "train.scale": (0.5, 1), "method": {"name": "mib"}, "scenario.task": "6-4", "seed": 3}
    config = faircl.load_config("demo", given)
    texts = ["optim.lr=0.00001", "train.scale=[0.5, 1]", "method.name=mib", "scenario.task=6-4", "seed=3"]
    assert config == faircl.load_config("demo", texts)
    assert config.optim.lr == 1e-5
    assert isinstance(config, faircl.RunConfig)


@pytest.mark.parametrize(
    "value", [None, True, 3, 1e-9, 2.5, "6-4", "1e5", "a: b", "ü…", [1, [2]], {"a": [None]}, "", "0.5"]
)
def test_values_come_through_as_they_are(value):
    from faircl.config.overrides import parse_override

    (text,) = as_overrides({"a.b": value})
    assert parse_override(text) == {"a": {"b": value}}


def test_paths_and_configurations(tmp_path):
    config = faircl.load_config("demo", {"seed": 5})
    (tmp_path / "mine.yaml").write_text(config.to_yaml())
    assert faircl.load_config(tmp_path / "mine.yaml") == faircl.load_config(str(tmp_path / "mine.yaml")) == config
    assert faircl.load_config(config) is config
    assert faircl.load_config(config, {"seed": 6}).seed == 6
    assert str(faircl.load_config("folder", {"data.root": tmp_path}).data.root) == str(tmp_path)


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        ("demoo", None, "Unknown recipe 'demoo'"),
        (3, None, "found 3"),
        ("demo", "optim.lr=1", "Settings are a mapping"),
        ("demo", [("optim.lr", 1)], "holds strings"),
        ("demo", {"optim.lr": np.float32(1)}, r"Setting optim\.lr is .*; expected a number"),
        ("demo", {3: 1}, "name of a setting is a string"),
        ("demo", {"optim.lrr": 1}, "Did you mean 'lr'"),
        ("demo", {"optim.lr": "much"}, r"Setting optim\.lr"),
    ],
)
def test_wrong_configurations_are_said(source, settings, words):
    with pytest.raises(faircl.UserError, match=words):
        faircl.load_config(source, settings)


# ---- runs


def test_training_returns_the_run(run):
    assert [metrics.step for metrics in run.steps] == [0, 1]
    assert isinstance(run.final, faircl.StepMetrics)
    assert run.config == faircl.load_config("demo", TINY)
    assert [len(step.classes) for step in run.scenario.steps] == [6, 4]
    assert run.scenario.sha256 == run.scenario_tree["sha256"]
    assert faircl.open_run(str(run.folder)) == run
    assert len(repr(run)) < 300


def test_a_run_is_resumed_or_refused(run):
    again = faircl.train(run.config, run.folder, resume=True, reporter=faircl.SilentReporter())
    assert again.steps == run.steps
    with pytest.raises(faircl.UserError, match="already holds this run"):
        faircl.train(run.config, run.folder)


def test_progress_goes_to_standard_error_unless_told_otherwise(tmp_path, capfd, silent):
    short = TINY | {"scenario.task": "offline", "train.epochs": 0.1}
    faircl.train("demo", tmp_path / "a", short)
    out, err = capfd.readouterr()
    assert (out, "step 0" in err) == ("", True)
    reporter = silent()
    faircl.train("demo", tmp_path / "b", short, reporter=reporter)
    assert capfd.readouterr() == ("", "")
    assert "step 0 train" in reporter.tasks


def test_the_command_line_trains_the_same_run(run, cli, tmp_path):
    flags = [word for text in as_overrides(TINY) for word in ("--set", text)]
    assert cli("train", "demo", "--out", tmp_path / "run", *flags).code == 0
    for step in ("00", "01"):
        name = f"steps/{step}/model.safetensors"
        assert (tmp_path / "run" / name).read_bytes() == (run.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("function", "command"),
    [
        ("train", ("train", "demo", "--out", "x")),
        ("train", ("train", "demo", "--out", "x", "--fit", "8gb")),
        ("resume", ("train", "--resume", "x")),
        ("resume", ("train", "--out", "x", "--resume")),
        ("load_config", ("config", "show", "demo")),
        ("evaluate", ("eval", "RUN")),
        ("compare", ("compare", "RUN")),
        ("open_scenario", ("scenario", "show", "--data", "scenes")),
        ("train", ("demo", "--out", "x")),
    ],
)
def test_the_command_line_calls_the_public_functions(function, command, cli, run, monkeypatch):
    def called(*args, **settings):
        raise faircl.UserError("the public function was called")

    monkeypatch.setattr(faircl, function, called)
    result = cli(*(run.folder if word == "RUN" else word for word in command))
    assert (result.code, result.err.splitlines()[-1].endswith("the public function was called")) == (2, True)


def test_a_damaged_run_is_said(run, tmp_path):
    for name, text in (("metrics.jsonl", '{"kind": "eval", "step": 0}\n'), ("config.yaml", "a: [")):
        folder = tmp_path / name
        folder.mkdir()
        for kept in ("config.yaml", "metrics.jsonl", "scenario.json"):
            (folder / kept).write_bytes((run.folder / kept).read_bytes())
        (folder / name).write_text(text)
        with pytest.raises(faircl.UserError, match="is damaged"):
            faircl.open_run(folder)


# ---- evaluating and comparing


def test_evaluating_again_gives_what_training_found(run):
    found = faircl.evaluate(run, reporter=faircl.SilentReporter())
    assert [metrics.to_json() for metrics in found] == [metrics.to_json() for metrics in run.steps]
    (last,) = faircl.evaluate(run.folder, 1, convention="plop", reporter=faircl.SilentReporter())
    assert (last.step, last.convention) == (1, "plop")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"convention": "ful"}, "Did you mean 'full'"),
        ({"step": 7}, "has no step 7"),
        ({"root": "x"}, "is for folder data"),
    ],
)
def test_wrong_evaluations_are_said(run, settings, words):
    with pytest.raises(faircl.UserError, match=words):
        faircl.evaluate(run, **settings)


def test_compared_runs(run, tmp_path, cli):
    with pytest.raises(faircl.UserError, match=f"{run.folder} is given twice"):
        faircl.compare([run, run.folder])
    made = faircl.compare([run, run.folder], out=tmp_path / "page", anyway=True)
    assert made.notes[0] == f"warning: {run.folder} is given twice"
    assert [label for label, _ in made.runs] == ["faircl", "faircl"]
    (row,) = made.rows
    assert row.mean["all"] == pytest.approx(run.final.groups["all"].miou)
    assert row.spread["all"] == pytest.approx(0)
    assert made.page == tmp_path / "page/comparison.html"
    assert made.page.is_file()
    assert made.table.markdown().count("| faircl |") == 1
    named = faircl.compare([run, str(run.folder)], ["a", "b"], anyway=True)
    assert [row.label for row in named.rows] == ["a", "b"]
    assert named.page is None
    printed = json.loads(cli("compare", f"a={run.folder}", f"b={run.folder}", "--anyway", "--json").out)
    assert printed["rows"][0]["mean"] == named.rows[0].mean


def test_wrong_comparisons_are_said(run, tmp_path):
    for runs, names, words in (
        ([], None, "at least one run"),
        (str(run.folder), None, "are a list"),
        ([run], ["a", "b"], "1 runs to compare but 2 names"),
        ([tmp_path], None, "is not a run folder"),
    ):
        with pytest.raises(faircl.UserError, match=words):
            faircl.compare(runs, names)


# ---- data and scenarios


def test_opening_data(street):
    data = faircl.open_data("folder", street)
    sample = data.read("train", data.ids("train")[0])
    assert sample.image.shape == (32, 32, 3)
    assert len(faircl.open_data("scenes", images=5, size=64).ids("train")) == 5
    with pytest.raises(faircl.UserError, match="Did you mean 'images'"):
        faircl.open_data("scenes", imags=5)
    with pytest.raises(faircl.UserError, match="'scenes' has no root"):
        faircl.open_data("scenes", "x")
    with pytest.raises(faircl.UserError, match="Unknown data set 'foldr'"):
        faircl.open_data("foldr")


def test_opening_scenarios(street, cli):
    scenario = faircl.open_scenario("folder", street, task="6-4", order="random:1", reporter=faircl.SilentReporter())
    flags = ("--data", "folder", "--root", street, "--task", "6-4", "--order", "random:1", "--json")
    assert scenario.sha256 == json.loads(cli("scenario", "show", *flags).out)["sha256"]
    lists = faircl.open_scenario("scenes", task=(("road", 2), (3,)), settings={"data.images": 24}, joint=True)
    assert [step.classes for step in lists.steps] == [(1, 2, 3)]
    with pytest.raises(faircl.UserError, match="Unknown evaluation convention"):
        faircl.open_scenario("scenes", task="6-4", convention="none")
    with pytest.raises(faircl.UserError, match=r"Setting scenario\.setting"):
        faircl.open_scenario("scenes", task="6-4", setting="both")
