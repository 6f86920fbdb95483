"""What scripts read: JSON on standard output and nothing else there, with the keys of the contract."""

import json

import pytest
import yaml

from faircl.config.recipes import recipe_names
from faircl.config.run import load_config

STEP = {"step", "miou", "std", "gap", "error_gap", "worst", "classes"}


def parsed(result):
    assert result.code == 0, result.err
    return json.loads(result.out)  # fails on anything before or after, and below on NaN


def check_step(step: dict) -> None:
    assert set(step) >= STEP
    assert set(step["miou"]) == {"old", "new", "all"}
    assert set(step["worst"]) == {"name", "iou"}
    assert isinstance(step["worst"]["name"], str)
    for of_class in step["classes"]:
        assert set(of_class) >= {"id", "name", "iou", "pixels"}
        assert isinstance(of_class["id"], int)
        assert isinstance(of_class["pixels"], int)
        assert of_class["iou"] is None or 0 <= of_class["iou"] <= 100
    present = [c for c in step["classes"] if c["iou"] is not None]
    worst = min(present, key=lambda c: c["iou"])
    assert step["worst"]["iou"] == worst["iou"]
    assert step["gap"] == pytest.approx(max(c["iou"] for c in present) - worst["iou"])
    assert step["miou"]["all"] == pytest.approx(sum(c["iou"] for c in present) / len(present))


def test_eval(cli, tiny_run):
    result = cli("eval", tiny_run.path, "--json")
    (run,) = parsed(result)["runs"]
    assert (run["run"], run["method"], run["model"], run["task"]) == (str(tiny_run.path), "faircl", "small", "6-4")
    assert run["scenario_sha256"] == tiny_run.scenario()["sha256"]
    assert [step["step"] for step in run["steps"]] == [0, 1]
    assert "NaN" not in result.out
    for step, record in zip(run["steps"], tiny_run.records("eval"), strict=True):
        check_step(step)
        assert {key: record[key] for key in step} == step  # exactly what training recorded


def test_eval_of_two_runs_and_one_step(cli, tiny_run):
    runs = parsed(cli("eval", tiny_run.path, tiny_run.path, "--step", 1, "--json"))["runs"]
    assert [[step["step"] for step in run["steps"]] for run in runs] == [[1], [1]]


def test_train(cli, tmp_path, tiny_flags):
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, "--seed", 3, "--json")
    (run,) = parsed(result)["runs"]
    assert run["seed"] == 3
    for step in run["steps"]:
        check_step(step)
    assert "step 0: road" in result.err  # progress is for people


@pytest.fixture
def demo_flags(tiny_flags):
    return [*tiny_flags, "--set", "train.epochs=1", "--seed", "5"]


@pytest.mark.slow
def test_demo_trains_four_runs_once(cli, tmp_path, demo_flags):
    result = cli("demo", "--out", tmp_path / "demo", *demo_flags, "--json")
    found = parsed(result)
    assert [run["seed"] for run in found["runs"]] == [5] * 4
    assert [run["name"] for run in found["runs"]] == ["fine-tune", "FairCL", "FairCL without fairness", "joint"]
    assert [run["method"] for run in found["runs"]] == ["finetune", "faircl", "faircl", "joint"]
    for run in found["runs"]:
        check_step(run["steps"][-1])
        assert len(run["steps"][-1]["classes"]) == 11
        assert run["steps"][-1]["miou"]["old"] is not None
    page = (tmp_path / "demo").joinpath(found["page"].rsplit("/", 1)[-1])
    assert page.is_file()
    assert "[4/4] joint" in result.err

    again = cli("demo", "--out", tmp_path / "demo", *demo_flags, "--json")
    assert parsed(again) == found
    assert again.err.count("all steps are finished; there is nothing to train") == 4  # read, not trained again
    assert "step 0" not in again.err
    table = cli("demo", "--out", tmp_path / "demo", *demo_flags)
    assert table.code == 0
    assert "FairCL without fairness" in table.out


def test_methods(cli):
    rows = parsed(cli("methods", "--json"))
    assert {"finetune", "joint", "faircl"} <= {row["name"] for row in rows}
    assert all(set(row) == {"name", "summary", "needs", "paper"} and all(row.values()) for row in rows)
    one = parsed(cli("methods", "faircl", "--json"))
    settings = {setting["name"]: setting for setting in one["settings"]}
    assert settings["lambda_class"]["default"] == 1.0
    assert settings["clip"]["default"] == [0.2, 5.0]
    assert all(setting["description"] for setting in one["settings"])


def test_models(cli):
    assert {"small"} <= {row["name"] for row in parsed(cli("models", "--json"))}
    small = parsed(cli("models", "small", "--json"))
    assert {setting["name"] for setting in small["settings"]} >= {"width", "embedding", "norm", "dropout"}


def test_recipes(cli):
    rows = parsed(cli("recipes", "--json"))
    assert [row["name"] for row in rows] == recipe_names()
    assert all(row["about"] for row in rows)


def test_doctor(cli):
    rows = parsed(cli("doctor", "--json"))
    assert {row["name"] for row in rows} >= {"python", "packages", "devices", "torchvision", "training"}
    assert all(set(row) == {"name", "ok", "found"} and row["ok"] is True for row in rows)


def test_a_failing_check_is_exit_code_1(cli, monkeypatch):
    from faircl.engine import doctor

    monkeypatch.setattr(doctor, "_training", lambda: 1 / 0)
    result = cli("doctor", "--json")
    assert result.code == 1
    rows = {row["name"]: row for row in json.loads(result.out)}
    assert not rows["training"]["ok"]
    assert "ZeroDivisionError" in rows["training"]["found"]
    assert "FAIL" in cli("doctor").out


def test_config_show(cli, tmp_path):
    tree = parsed(cli("config", "show", "demo", "--set", "method.fairness=kl", "--json"))
    assert tree["method"]["fairness"] == "kl"
    assert tree == load_config("demo", ["method.fairness=kl"]).model_dump(mode="json")
    text = cli("config", "show", "demo").out
    saved = tmp_path / "my.yaml"
    saved.write_text(text)
    assert load_config(str(saved)) == load_config("demo")
    assert yaml.safe_load(text) == parsed(cli("config", "show", saved, "--json"))


def test_synth_then_train_on_it(cli, tmp_path, tiny_flags):
    out = tmp_path / "data" / "street"
    size = ["--images", 20, "--test-images", 4, "--size", 32]
    found = parsed(cli("data", "synth", "--out", out, *size, "--json"))
    assert found["images"] == {"train": 20, "test": 4}
    assert found["root"] == str(out)
    assert len(found["classes"]) == 11
    assert sorted(file.name for file in out.parent.iterdir()) == ["street"]
    kept = [flag for flag in tiny_flags if flag != "--set" and not flag.startswith("data.")]
    settings = [f"data={{name: folder, root: '{out}'}}", *kept, "train.epochs=0.5", "train.later_epochs=0.5"]
    flags = [part for setting in settings for part in ("--set", setting)]
    (run,) = parsed(cli("train", "demo", "--out", tmp_path / "run", *flags, "--json"))["runs"]
    assert len(run["steps"]) == 2
    # The folder holds exactly what the generator draws: same labels, so the same image choice.
    saved = json.loads((tmp_path / "run/scenario.json").read_text())
    assert saved["steps"][0]["test"] == [f"test-{k:05d}" for k in range(4)]


def test_synth_refuses_to_overwrite(cli, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").write_text("precious")
    size = ["--images", 1, "--test-images", 1, "--size", 32]
    result = cli("data", "synth", "--out", tmp_path / "full", *size)
    assert result.code == 2
    assert result.err.startswith("faircl: Output folder")
    assert cli("data", "synth", "--out", tmp_path / "full/a", *size).code == 2
    assert cli("data", "synth", "--out", tmp_path / "full/a/b", *size).code == 2
    assert [file.name for file in tmp_path.rglob("*")] == ["full", "a"]


def test_synth_into_the_folder_one_stands_in(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli("data", "synth", "--out", ".", "--images", 1, "--test-images", 1, "--size", 32)
    assert result.code == 0, result.err
    assert (tmp_path / "classes.txt").is_file()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["classes.txt", "images", "masks"]
