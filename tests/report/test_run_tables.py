"""Tables of a run, and its evaluations as they are read."""

import json

import pytest
from fake_run import make_run

from faircl.errors import UserError
from faircl.report.run_tables import class_table, step_table
from faircl.runs.run import load_run


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "run")


def test_resumed_and_killed_run(run_dir):
    """The later of two evaluations of a step counts; an unfinished last line is passed over."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines()
    again = json.loads(lines[-1])
    again["gap"] = 12.34
    path.write_text("\n".join([*lines, json.dumps(again), '{"kind": "tr']))
    assert load_run(run_dir).final.gap == 12.34
    assert len(load_run(run_dir).steps) == 3
    path.write_text("\n".join([*lines[:3], "{", *lines[3:]]))
    with pytest.raises(UserError, match="line 4 is not JSON"):
        load_run(run_dir)


def test_tables_of_a_run(run_dir):
    run = load_run(run_dir)
    steps, classes = step_table(run.steps, run), class_table(run.steps, run)
    assert [row[0] for row in steps.rows] == ["0", "1", "2"]
    assert [row[4] for row in steps.rows] == [m.groups["all"].miou for m in run.steps]
    assert len(classes.rows) == 6
    row = dict(zip([c.name for c in classes.columns], classes.cells()[4], strict=True))
    assert row["Class"].text == "traffic light"
    assert row["IoU after step 0"].text == "–"
    assert row["Training pixels"].text == "1,004"
    assert row["IoU after step 1"].text == f"{run.steps[1].classes[4].iou:.2f}"
