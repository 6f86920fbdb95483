"""A run over domain steps: 21 cities, two images each, all classes at every step."""

import json
import math
import shutil

import numpy as np
import pytest
from grids import grid
from trees import cityscapes_tree

from faircl.engine.reevaluate import evaluate_again
from faircl.readers.catalog import CITYSCAPES_CITIES

LABEL_IDS = np.array([7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33, 0], np.uint8)
QUICK = ("train.epochs=2", "train.later_epochs=1", "train.batch=2", "eval.batch=8")


@pytest.fixture(scope="module")
def city_root(tmp_path_factory):
    rng = np.random.default_rng(0)

    def masks(cities):
        ids = [f"{city}/{city}_{k:06d}_000019" for city in cities for k in range(2)]
        # The last of the 20 is void; no image shows all classes, and the first cities lack the last one.
        return {
            id: LABEL_IDS[rng.choice(20 if k > 9 else 18, (6, 8))].repeat(6, 0).repeat(6, 1) for k, id in enumerate(ids)
        }

    splits = {"train": masks(CITYSCAPES_CITIES[:18]), "val": masks(CITYSCAPES_CITIES[18:])}
    return cityscapes_tree(tmp_path_factory.mktemp("city"), splits)


@pytest.fixture
def city_train(city_root, tiny_train):
    """Train a tiny run on the cities; later settings override earlier ones."""

    def run(out, *settings, task="1-1", protocol="plop", **more):
        data = f"data={{name: cityscapes, root: '{city_root}'}}"
        scenario = f"scenario={{task: '{task}', protocol: {protocol}}}"
        own = [] if any(s.startswith("method=") for s in settings) else ["method.period=1"]
        return tiny_train(out, *QUICK, scenario, *own, *settings, data=data, **more)

    return run


@pytest.mark.slow
def test_21_cities_train_evaluate_and_resume(city_train, silent, tmp_path):
    reporter = silent()
    alone = "train.batch=1"  # a city has one training image
    whole = city_train(tmp_path / "whole", alone, reporter=reporter)
    records = whole.records("eval")
    assert [r["step"] for r in records] == list(range(21))
    warning = next(line for line in reporter.said if line.startswith("warning"))
    assert "have been trained on" in warning
    assert "protocol clean" in warning
    shares = json.loads((whole.path / "scenario.json").read_text())["shares"]
    assert f"{shares[-1]['leaked']:.1%} of the test images after the last step" in warning
    assert [r["leaked"] for r in records] == [share["leaked"] for share in shares]
    assert max(share["leaked"] for share in shares) > 0.2
    scenario = json.loads((whole.path / "scenario.json").read_text())
    assert [step["domains"] for step in scenario["steps"]] == [[city] for city in CITYSCAPES_CITIES]
    assert scenario["shares"][-1]["leaked"] > 0
    assert all(len(r["classes"]) == 19 for r in records)
    assert all(np.isfinite(list(r["miou"].values())[2]) for r in records)
    assert records[5]["miou"]["new"] is None  # a domain step has no new class
    assert "step 20: munster" in "\n".join(reporter.said)

    parts = shutil.copytree(whole.path, tmp_path / "parts")  # the state after a process was killed at step 18
    for step in (18, 19, 20):
        shutil.rmtree(parts / f"steps/{step}")
    kept = [line for line in (parts / "metrics.jsonl").read_text().splitlines() if json.loads(line)["step"] < 18]
    (parts / "metrics.jsonl").write_text("\n".join(kept) + "\n")
    resumed = city_train(parts, alone, resume=True)
    for name in ("model", "method"):
        assert (resumed.step_path(20) / f"{name}.safetensors").read_bytes() == (
            whole.step_path(20) / f"{name}.safetensors"
        ).read_bytes()
    reporter = silent()
    again = evaluate_again(whole, reporter, step=20)[0].to_json()
    assert again["classes"] == records[20]["classes"]
    assert reporter.said == [warning]  # evaluation repeats the warning


@grid(
    "method",
    [
        "{name: faircl, domain_prototypes: anchor, period: 1}",
        "finetune",
        "lwf-mc",
        "ilt",
        "mib",
        "plop",
        "rcil",
        "ssul",
    ],
)
def test_clean_cities(method, city_train, silent, tmp_path):
    reporter = silent()
    run = city_train(tmp_path / "run", f"method={method}", task="11-5", protocol="clean", reporter=reporter, page=True)
    assert run.finished_steps() == 3
    losses = [value for record in run.records("train") for value in record["terms"].values()]
    assert all(math.isfinite(value) for value in losses)
    assert not any(line.startswith("warning") for line in reporter.said)
    steps = json.loads((run.path / "scenario.json").read_text())["steps"]
    assert [len(step["train"]) for step in steps] == [11, 5, 5]
    assert [len(step["test"]) for step in steps] == [11, 16, 21]
    assert (run.path / "report.html").is_file()


def test_joint_over_cities(city_train, tmp_path):
    run = city_train(tmp_path / "run", "method=joint", task="11-5", protocol="plop")
    scenario = json.loads((run.path / "scenario.json").read_text())
    assert [(len(step["train"]), len(step["test"])) for step in scenario["steps"]] == [(33, 9)]
    assert scenario["shares"] == [{"leaked": 0, "hidden": 0}]
    assert len(run.records("eval")) == 1


def test_steps_of_classes_on_cityscapes(city_train, tmp_path):
    run = city_train(tmp_path / "run", task="13-6", protocol="classes")
    assert [len(r["classes"]) for r in run.records("eval")] == [13, 19]
