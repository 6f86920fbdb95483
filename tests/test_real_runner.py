"""The runner of benchmarks/real.py: shared first steps, interruptions, failures. Tables are in test_real_tables.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from real_runs import runner as real_runner
from real_runs.first_steps import first_step_key
from real_runs.plan import Job, Place, read_plan
from real_runs.results import Results
from real_runs.runner import Runner
from real_runs.workload import images, longest_first, read_plans
from tiny_runs import TINY, Silent

import faircl
from faircl.errors import UserError
from faircl.runs.folder import RunFolder

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "real.py"
SHARED = [*TINY, "data.validation=0.3", "train.accelerator=cpu"]
ROWS = [
    {"label": "faircl", "role": "ours"},
    {"label": "faircl, slow", "role": "ours", "family": "faircl", "settings": ["optim.later_lr=0.001"]},
]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(real_runner, "POLL_SECONDS", 0)


def plan(tmp_path, rows=ROWS, **changes) -> list[Job]:
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump({"seeds": [0], "benchmarks": ["demo"], "settings": SHARED, "rows": rows} | changes))
    return read_plan(path, Place({}))


class Ended:
    """A process that has ended."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode

    def terminate(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode


class InProcess(Runner):
    """Trains in this process, so that a test takes a second; ``stop_at`` is a task that ends it as a failure."""

    stop_at = ""

    def launch(self, job):
        reporter = Silent(self.stop_at)
        self.trained = [*getattr(self, "trained", []), (job.label, reporter)]
        try:
            faircl.resume(self.folder(job), reporter=reporter)
        except KeyboardInterrupt:
            self._log(job).write_text("first line\nthe reason\n")
            return Ended(143)
        return Ended(0)

    def steps_trained(self):
        """Return label and step of every step that was trained."""
        return [
            (label, int(task.split()[1]))
            for label, reporter in self.trained
            for task in reporter.tasks
            if task.startswith("step") and " train" in task
        ]


def weights(folder: Path, step: int) -> list[bytes]:
    path = RunFolder(folder).step_path(step)
    return [(path / name).read_bytes() for name in ("model.safetensors", "method.safetensors", "method.json")]


def run(jobs, out, **attributes):
    runner = InProcess(jobs, out, 1, say=lambda text: None)
    vars(runner).update(attributes)
    return runner, runner.run()


@pytest.mark.slow
def test_a_first_step_is_trained_once_and_the_end_is_that_of_a_whole_run(tmp_path):
    one, other = jobs = plan(tmp_path)
    runner, done = run(jobs, tmp_path / "out")
    assert done
    assert runner.steps_trained() == [("faircl", 0), ("faircl", 1), ("faircl, slow", 1)]
    folder, copied = runner.folder(one), runner.folder(other)
    assert weights(folder, 0) == weights(copied, 0)
    assert weights(folder, 1) != weights(copied, 1)
    whole = faircl.train(other.config, tmp_path / "whole", reporter=Silent()).folder
    for step in (0, 1):
        assert weights(whole, step) == weights(copied, step)
    for name in ("config.yaml", "scenario.json", "data.json"):
        assert (whole / name).read_bytes() == (copied / name).read_bytes()
    scores = [[record["miou"] for record in RunFolder(one).records("eval")] for one in (whole, copied)]
    assert scores[0] == scores[1]


def test_results_are_lines_and_finished_runs_are_skipped(tmp_path):
    jobs = plan(tmp_path)
    run(jobs, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert [(line["label"], line["family"], line["settings"]) for line in lines] == [
        ("faircl", "faircl", []),
        ("faircl, slow", "faircl", ["optim.later_lr=0.001"]),
    ]
    first = RunFolder(tmp_path / "out/runs" / lines[0]["run"])
    last = first.records("eval")[-1]
    assert lines[0]["images"] == "validation"
    assert [lines[0]["steps"][-1][key] for key in ("old", "new", "all")] == list(last["miou"].values())
    assert lines[0]["average"] == pytest.approx(last["average_over_steps"])
    assert lines[0]["steps"][-1]["classes"]["cyclist"] == last["classes"][-1]["iou"]
    assert lines[0]["seconds"] > 0
    runner, done = run(jobs, tmp_path / "out")
    assert done
    assert not hasattr(runner, "trained")


def test_an_interrupted_plan_is_continued(tmp_path):
    """Stopped within the second step of the run that trains the first: the rerun has nothing to train twice."""
    jobs = plan(tmp_path)
    out = tmp_path / "out"
    runner, done = run(jobs[:1], out, stop_at="step 1 train")
    assert not done
    assert runner.results.read() == []
    before = weights(runner.folder(jobs[0]), 0)
    runner, done = run(jobs, out)
    assert done
    assert runner.steps_trained() == [("faircl", 1), ("faircl, slow", 1)]
    assert weights(runner.folder(jobs[0]), 0) == weights(runner.folder(jobs[1]), 0) == before


def test_what_is_running_at_the_end_of_the_time_is_ended(tmp_path):
    events = []

    class Endless(Ended):
        def poll(self):
            return None

        def terminate(self):
            events.append("terminate")

        def wait(self, timeout=None):
            events.append("wait")
            return 143

    class Starting(Runner):
        def launch(self, job):
            events.append("start")
            return Endless(143)

    runner = Starting(plan(tmp_path), tmp_path / "out", 4, lambda: "start" in events, say=lambda text: None)
    assert not runner.run()
    assert events == ["start", "terminate", "wait"]  # the second run waits for the first one's first step
    assert {job.label for job in runner.waiting} == {"faircl", "faircl, slow"}
    assert runner.results.read() == []


def test_a_failed_run_is_logged_and_another_trains_the_first_step(tmp_path):
    class FirstFails(InProcess):
        def launch(self, job):
            self.stop_at = "step 0 train" if job.label == "faircl" else ""
            return super().launch(job)

    said = []
    runner = FirstFails(plan(tmp_path), tmp_path / "out", 1, say=said.append)
    assert not runner.run()
    assert runner.steps_trained() == [("faircl", 0), ("faircl, slow", 0), ("faircl, slow", 1)]
    assert [result["label"] for result in runner.results.read()] == ["faircl, slow"]
    text = (tmp_path / "out/failed.log").read_text()
    assert "fails with exit code 143" in text
    assert "the reason" in text
    assert any("the reason" in line for line in said)


@pytest.mark.slow
def test_a_first_step_of_another_commit_is_not_copied(tmp_path):
    jobs = plan(tmp_path)
    runner, _ = run(jobs[:1], tmp_path / "out")
    path = runner.folder(jobs[0]) / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"commit": "another"}))
    runner, _ = run(jobs, tmp_path / "out")
    assert runner.steps_trained() == [("faircl, slow", 0), ("faircl, slow", 1)]


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        (["optim.later_lr=0.001", "train.later_epochs=3", "train.frozen_norm=later"], True),
        (["optim.later_parts={backbone: 0.1}"], True),
        (["optim.parts.old_classifier=0.1", "method.unlabelled=teacher"], True),
        (["optim.lr=0.001"], False),
        (["train.epochs=3"], False),
        (["balance.loss=weighted"], False),
        (["train.frozen_norm=always"], False),
        (["method.lambda_class=0"], False),
        (["method=finetune"], False),
        (["method=joint"], False),
        (["scenario.task=5-5"], False),
    ],
)
def test_which_settings_the_first_step_depends_on(settings, same, tmp_path):
    one, other = plan(tmp_path, [{"label": "a"}, {"label": "b", "settings": settings}])
    assert (first_step_key(one) == first_step_key(other)) == same


def test_the_first_step_of_a_pretrained_network_depends_on_its_weights_and_seed(tmp_path):
    path = tmp_path / "plan.yaml"
    rows = [{"label": "a", "seeds": [0, 1]}, {"label": "b", "settings": ["optim.later_lr=0.1"]}]
    path.write_text(yaml.safe_dump({"seeds": [0], "benchmarks": ["camvid-6-5"], "rows": rows}))
    keys = [
        first_step_key(job)
        for weights in (None, tmp_path / "not-there.safetensors")
        for job in read_plan(path, Place({"camvid": tmp_path}, weights))
    ]
    assert keys[0] == keys[2]
    assert keys[3] == keys[5]
    assert len(set(keys)) == 4


def test_the_longest_job_begins(tmp_path):
    rows = [{"label": "short"}, {"label": "long", "settings": ["train.later_epochs=40"]}]
    rows.append({"label": "joint", "settings": ["method=joint", "train.epochs=5"]})
    jobs = plan(tmp_path, rows)
    assert [job.label for job in longest_first(jobs)] == ["long", "joint", "short"]
    scenario = faircl.open_scenario(
        "scenes", task="6-4", settings=[one for one in SHARED if one.startswith("data.")], reporter=Silent()
    )
    first, second = (len(step.images) for step in scenario.steps)
    assert images(jobs[0]) == 2 * first + second


def test_the_jobs_of_the_first_plan_begin_and_no_run_comes_twice(tmp_path):
    (short,) = plan(tmp_path, ROWS[:1])
    (tmp_path / "plan.yaml").rename(tmp_path / "first.yaml")
    both = plan(tmp_path, [{"label": "long", "settings": ["train.epochs=9"]}, ROWS[0]])
    found = read_plans([tmp_path / "first.yaml", tmp_path / "plan.yaml"], Place({}))
    assert [job.name for job in found] == [short.name, both[0].name]
    assert both[1].name == short.name


def test_names_of_runs_follow_settings_not_places(tmp_path):
    rows = [{"label": "A b, c"}]
    (job,) = plan(tmp_path, rows)
    assert job.name.startswith("demo-a-b-c-0-")
    assert plan(tmp_path, rows)[0].name == job.name
    assert plan(tmp_path, [{"label": "A b, c", "settings": ["optim.lr=0.5"]}])[0].name != job.name
    folders = []
    for name in ("x", "y"):
        root = tmp_path / name / "camvid"
        root.mkdir(parents=True)
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"seeds": [0], "benchmarks": ["camvid-6-5"], "rows": rows}))
        (made,) = read_plan(tmp_path / "plan.yaml", Place({"camvid": root}, tmp_path / name / "w.safetensors"))
        assert (made.config.data.root, made.config.eval.images) == (root, "validation")
        assert made.config.model.weights == str(tmp_path / name / "w.safetensors")
        folders.append(made.name)
    assert folders[0] == folders[1]


def test_a_plan_of_chosen_rows_evaluates_test_images(tmp_path):
    (validated,), (tested,) = (plan(tmp_path, ROWS[:1], images=images) for images in ("validation", "test"))
    assert (validated.config.eval.images, tested.config.eval.images) == ("validation", "test")
    assert validated.name != tested.name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": [{"settings": []}]}, "Row 0 of .* has no label"),
        ({"rows": [{"label": "a", "setings": []}]}, "Unknown key 'setings' in row 0 of"),
        ({"rows": [{"label": "a", "role": "best"}]}, "expected one of: ours, baseline, bound, ablation"),
        ({"rows": [{"label": "a"}, {"label": "a"}]}, "has the run demo-a-0-.* twice"),
        ({"rows": [{"label": "a"}], "seeds": []}, "There are no seeds for row 0"),
        ({"rows": [{"label": "a", "settings": ["optim.rate=1"]}]}, "Unknown setting 'rate'"),
        ({"rows": [{"label": "a"}], "benchmarks": ["ccp-16-2"]}, "folder of ccp-16-2's data is not given; add --ccp"),
        ({"rows": "a"}, "is no plan"),
        ({"rows": [{"label": "a"}], "images": "train"}, "images of .* are 'train'; expected one of: validation, test"),
        ({"rows": [{"label": "a"}], "benchmarks": ["demos"]}, "Unknown recipe 'demos'"),
    ],
)
def test_mistakes_in_a_plan(changes, words, tmp_path):
    with pytest.raises(UserError, match=words):
        plan(tmp_path, **{"settings": [] if "benchmarks" in changes else SHARED} | changes)


def test_part_of_a_line_is_no_result(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.append({"run": "a", "x": 1})
    with results.path.open("a") as file:
        file.write('{"run": "b", "x"')
    assert results.read() == [{"run": "a", "x": 1}]
    results.append({"run": "a", "x": 2})
    assert results.read() == [{"run": "a", "x": 2}]
    assert results.path.read_text().count("\n") == 2


@pytest.mark.slow
def test_the_command_line(tmp_path):
    """Real processes, two at a time, stopped at once, continued, and evaluated on the test images."""
    plan(tmp_path)
    command = [sys.executable, SCRIPT]
    train = [*command, "--plan", tmp_path / "plan.yaml", "--out", tmp_path / "out", "--jobs", "2"]
    stopped = subprocess.run([*train, "--minutes", "0.1"], capture_output=True, text=True)
    assert "2 runs to train, 0 finished before" in stopped.stdout
    done = subprocess.run(train, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = Results(tmp_path / "out/results.jsonl").read()
    assert {result["label"] for result in results} == {"faircl", "faircl, slow"}
    shown = subprocess.run(
        [*command, "report", "--out", tmp_path / "out", "--images", "test"], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("## demo\n\nTest images; seeds 0; ")
    (kept,) = Results(tmp_path / "out/test.jsonl").read()  # of the two, the one with the higher validation score
    assert kept["label"] == max(results, key=lambda result: result["steps"][-1]["all"])["label"]
    expected = faircl.evaluate(tmp_path / "out/runs" / kept["run"], images="test", reporter=Silent())
    assert kept["steps"][-1]["all"] == pytest.approx(expected[-1].groups["all"].miou)
