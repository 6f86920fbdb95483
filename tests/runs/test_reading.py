"""Files of a run folder: records read once, damage told in a sentence."""

import json

import pytest
from fake_run import make_run

from faircl.errors import UserError
from faircl.runs.reading import read_config, read_records, step_metrics, train_records
from faircl.runs.run import load_run


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "run", examples=0)


@pytest.mark.parametrize(
    ("method", "found"),
    [
        ("{name: faircl, gamma: 1}", {"name": "faircl", "gamma": 1, "lambda_iou": 0.0}),
        ("{name: faircl, lambda_iou: 0.5}", {"name": "faircl", "lambda_iou": 0.5}),
        ("{name: faircl-paper}", {"name": "faircl-paper"}),
        (
            "{name: ewf, method: {name: faircl}}",
            {"name": "ewf", "method": {"name": "faircl", "lambda_iou": 0.0}},
        ),
    ],
)
def test_a_run_of_before_a_setting_has_what_it_was_trained_with(method, found, tmp_path):
    (tmp_path / "config.yaml").write_text(f"method: {method}\n", encoding="utf-8")
    assert read_config(tmp_path)["method"] == found


def test_the_later_of_two_records_counts(run_dir):
    records = read_records(run_dir)
    evaluation = {**records[-1], "gap": 12.5}
    loss = {**records[0], "loss": None}
    metrics = step_metrics([*records, evaluation])
    assert [one.step for one in metrics] == [0, 1, 2]
    assert metrics[-1].gap == 12.5
    losses = train_records([*records, loss])
    assert len(losses) == sum(record["kind"] == "train" for record in records)
    assert losses[0].loss != losses[0].loss  # null is NaN


def test_an_unfinished_last_line_is_left_out(run_dir):
    path, whole = run_dir / "metrics.jsonl", read_records(run_dir)
    path.write_text(path.read_text() + '{"kind": "tr')
    assert read_records(run_dir) == whole
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UserError, match=r"damaged: line \d+ is not JSON"):
        read_records(run_dir)


@pytest.mark.parametrize("line", ["[1]", "3", json.dumps({"kind": "eval"}), json.dumps({"step": 1})])
def test_lines_without_kind_and_step_are_refused(run_dir, line):
    path = run_dir / "metrics.jsonl"
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(UserError, match="line 1 is without a kind and a step"):
        load_run(run_dir)


@pytest.mark.parametrize("name", ["config.yaml", "scenario.json", "environment.json"])
@pytest.mark.parametrize("content", [b"[x", b"- a\n", b"\xff\xfe\x80", b""])
def test_damaged_files_are_one_sentence(run_dir, name, content):
    (run_dir / name).write_bytes(content)
    with pytest.raises(UserError, match="the run folder is damaged"):
        load_run(run_dir)
