"""Real services, offline: what they kept of a run equals metrics.jsonl, also if the run failed and was resumed."""

import json
import sys

import pytest
from grids import grid
from logged_runs import expected, mlflow_run, tensorboard_points, wandb_run
from tiny_runs import Silent

from faircl.engine.loggers.mlflow_run import MlflowRun
from faircl.engine.loggers.points import point
from faircl.engine.loggers.service import RunInfo
from faircl.engine.loggers.services import SERVICES, check_installed, check_services
from faircl.engine.loggers.tensorboard_files import TensorBoardFiles
from faircl.engine.loggers.wandb_run import WandbRun
from faircl.errors import UserError

NASTY = ["a/b", "<script>alert(1)</script>", 'x, "y"', "=1+1", "🚲", "..", "Đường", "n" * 300]
RECORD = {"kind": "eval", "step": 0, "miou": {"all": 5.0}, "worst": {"iou": 0.5}}
RECORD["classes"] = [{"id": id, "name": name, "iou": id + 0.5} for id, name in enumerate(NASTY)]


@pytest.fixture(autouse=True)
def _hermetic(hermetic):
    return hermetic


@pytest.fixture(scope="module")
def wandb(hermetic):
    """The package; its process ends with the module."""
    import wandb

    yield wandb
    wandb.teardown()


def state(folder, name):
    return json.loads((folder / "loggers.json").read_text())[name]


def approximately(points):
    return {place: pytest.approx(values, rel=1e-6) for place, values in points.items()}  # TensorBoard keeps float32


def log_nasty_classes(service, folder):
    """Send a record with classes of any name; return its service's id."""
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 0\n")
    begun = service.begin(RunInfo(folder, {"scenario": {"task": [["a", NASTY[1] * 100]]}, "train": {"lr": None}}), None)
    service.log(point(RECORD, [3]))
    service.end("finished", None)
    return begun.id


# ---- TensorBoard


def test_tensorboard_keeps_what_metrics_has(logged):
    run = logged("tensorboard", broken=True)
    points = expected(run)
    assert tensorboard_points(run) == approximately(points)
    assert {key.split("/")[0] for key, _ in points} == {"step0", "step1", "eval"}
    assert {key for key, _ in points if "/validation/miou/" in key or "/measures/" in key}
    assert all(len(values) == 1 for values in points.values())
    assert len(list((run / "tensorboard").iterdir())) == 2  # a file per process


def test_tensorboard_takes_classes_of_any_name(tmp_path):
    log_nasty_classes(TensorBoardFiles(), tmp_path / "run")
    points = tensorboard_points(tmp_path / "run")
    assert [points[key, 3] for key in sorted(key for key, _ in points if "/iou/" in key)] == [
        [id + 0.5] for id in range(len(NASTY))
    ]


# ---- Weights & Biases


@pytest.mark.slow
def test_wandb_keeps_what_metrics_has(logged, wandb, capfd):
    run = logged("wandb", broken=True, page=True)
    kept = wandb_run(run)
    assert kept.points == expected(run)
    assert kept.ids == {state(run, "wandb")["id"]}  # one run, in two folders
    assert kept.codes == [1, 0]
    assert kept.rows == sorted(set(kept.rows))  # numbers of rows grow over both folders
    assert {step for _, _, step in kept.rows} == {0, 1}
    assert kept.artifacts == [(f"report-{state(run, 'wandb')['id']}", "report")]
    assert kept.settings["train"]["loggers"] == ["wandb"]
    assert kept.settings["optim"]["lr"] > 0
    assert not [path for path in run.rglob("*") if path.is_symlink() and path.is_dir()]
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_wandb_takes_classes_of_any_name_and_its_variables(tmp_path, wandb, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "chosen")
    id = log_nasty_classes(WandbRun(), tmp_path / "run")
    assert id == "chosen"
    kept = wandb_run(tmp_path / "run")
    assert kept.ids == {"chosen"}
    assert sorted(values[0] for (key, _), values in kept.points.items() if "/iou/" in key) == [
        id + 0.5 for id in range(len(NASTY))
    ]


@pytest.mark.slow
def test_wandb_leaves_a_run_of_the_script_alone(tmp_path, wandb, monkeypatch):
    with wandb.init(dir=tmp_path, settings=wandb.Settings(silent=True)) as own:
        log_nasty_classes(WandbRun(), tmp_path / "run")
        assert wandb.run is own
        own.log({"still": 1})


@pytest.mark.slow
def test_wandb_online_without_a_login_is_a_mistake_found_before_training(wandb, monkeypatch, tmp_path):
    wandb.teardown()
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(UserError, match=r"nobody is logged in; run 'wandb login', or set WANDB_MODE=offline"):
        check_services(["wandb"])
    wandb.teardown()


@pytest.mark.slow
def test_the_process_of_wandb_may_end_while_training(logged, wandb, monkeypatch):
    reporter = Silent()
    log, calls = WandbRun.log, []

    def torn_down(self, given):
        calls.append(given)
        if len(calls) == 3:
            wandb.teardown()
        log(self, given)

    monkeypatch.setattr(WandbRun, "log", torn_down)
    run = logged("wandb", reporter=reporter)
    notes = [text for text in reporter.said if text.startswith("note: Weights & Biases failed: ")]
    assert len(notes) == 1
    assert state(run, "wandb")["sent"] == [2, 0]
    assert len(expected(run)) > 50


# ---- MLflow


@pytest.mark.slow
def test_mlflow_keeps_what_metrics_has(logged, capfd):
    run = logged("mlflow", broken=True, page=True)
    kept = mlflow_run(run, state(run, "mlflow")["id"])
    assert kept.points == expected(run)
    assert kept.state == "FINISHED"
    assert kept.runs == 1
    assert kept.artifacts == {"config.yaml", "report.html"}
    assert kept.settings["train.loggers"] == '["mlflow"]'
    assert kept.settings["method.name"] == "faircl"
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_mlflow_takes_classes_of_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    id = log_nasty_classes(MlflowRun(), tmp_path / "run")
    kept = mlflow_run(tmp_path / "run", id)
    assert sorted(values[0] for (key, _), values in kept.points.items() if "/iou/" in key) == [
        id + 0.5 for id in range(len(NASTY))
    ]
    assert kept.settings["scenario.task"].endswith("…")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # nothing in the working directory


@pytest.mark.slow
def test_mlflow_uses_the_store_and_experiment_of_its_variables(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path / 'shared.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.chdir(tmp_path)
    ids = [log_nasty_classes(MlflowRun(), tmp_path / name) for name in ("one", "two")]
    experiment = MlflowClient(store).get_experiment_by_name("mine")
    found = MlflowClient(store).search_runs([experiment.experiment_id])
    assert {run.info.run_id: run.info.run_name for run in found} == dict(zip(ids, ("one", "two"), strict=True))
    assert not (tmp_path / "one/mlflow.db").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("status", "named"), [("failed", "FAILED"), ("interrupted", "KILLED")])
def test_mlflow_says_how_a_run_ended(tmp_path, status, named):
    service = MlflowRun()
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    id = service.begin(RunInfo(tmp_path, {}), None).id
    service.end(status, None)
    assert mlflow_run(tmp_path, id).state == named
    service.begin(RunInfo(tmp_path, {}), id)
    assert mlflow_run(tmp_path, id).state == "RUNNING"


@pytest.mark.slow
def test_a_run_that_has_moved_keeps_no_file_at_its_old_place(tmp_path):
    service, old, new = MlflowRun(), tmp_path / "old", tmp_path / "new"
    id = log_nasty_classes(service, old)
    old.rename(new)
    again = MlflowRun()
    again.begin(RunInfo(new, {}), id)
    again.end("finished", new / "config.yaml")
    assert not old.exists()
    assert mlflow_run(new, id).state == "FINISHED"


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_noted_and_training_goes_on(logged, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    reporter = Silent()
    run = logged("mlflow", reporter=reporter)
    notes = [text for text in reporter.said if text.startswith("note: MLflow failed: ")]
    assert len(notes) == 1
    assert len(expected(run)) > 50
    assert not (run / "loggers.json").exists()


# ---- all of them


@pytest.mark.parametrize("name", SERVICES)
def test_a_missing_package_is_a_mistake_with_a_hint(name, monkeypatch):
    package = SERVICES[name].packages()[0]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{package} cannot be imported; .* pip install 'faircl\[{name}\]'"):
        check_installed([name])


def test_a_folder_named_like_a_package_is_none(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(UserError, match="wandb cannot be imported"):
        check_installed(["wandb"])


def test_a_local_store_of_mlflow_needs_its_database(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(UserError, match="sqlalchemy cannot be imported"):
        check_installed(["mlflow"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    check_installed(["mlflow"])


@grid("name", SERVICES, quick=lambda name: name == "tensorboard")
def test_a_service_that_raises_in_the_middle_stops_nothing(name, logged, monkeypatch):
    """A full disk, as it were, at the third record."""
    calls = []

    class Full(TensorBoardFiles):
        title = SERVICES[name].title
        packages = staticmethod(SERVICES[name].packages)

        def log(self, given):
            calls.append(given)
            if len(calls) == 3:
                raise OSError(28, "No space left on device")
            super().log(given)

    monkeypatch.setitem(SERVICES, name, Full)
    reporter = Silent()
    run = logged(name, reporter=reporter)
    title = SERVICES[name].title
    notes = [text for text in reporter.said if text.startswith("note: ") and title in text]
    assert len(notes) == 1
    assert "No space left on device; training goes on without it" in notes[0]
    assert len(calls) == 3
    assert state(run, name)["sent"] == [2, 0]
    assert expected(run)
