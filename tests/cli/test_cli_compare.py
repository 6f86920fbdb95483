"""``faircl compare``: means over seeds, labels, groups of published tables, what keeps runs from being comparable."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from fake_run import make_run
from recorded_run import make_recorded_run

from faircl.cli.results import steps_table_of
from faircl.config.run import load_config


@pytest.fixture(scope="module")
def runs(tiny_train, tmp_path_factory):
    """Fine-tuning with two seeds, FairCL with one, joint training."""
    root = tmp_path_factory.mktemp("compare")
    quick = ("train.epochs=0.5", "train.later_epochs=0.5")
    return {
        "a": tiny_train(root / "a", "method=finetune", *quick).path,
        "b": tiny_train(root / "b", "method=finetune", "seed=1", *quick).path,
        "fair": tiny_train(root / "fair", *quick).path,
        "joint": tiny_train(root / "joint", *quick, recipe="demo-joint").path,
    }


def final(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "eval"][-1]


def test_rows_are_means_over_the_runs_of_a_method(cli, runs):
    found = json.loads(cli("compare", *runs.values(), "--json").out)
    assert [row["label"] for row in found["rows"]] == ["finetune", "faircl", "joint"]
    first = found["rows"][0]
    values = [final(runs[name])["miou"]["all"] for name in "ab"]
    assert first["mean"]["all"] == pytest.approx(np.mean(values))
    assert first["spread"]["all"] == pytest.approx(np.std(values))
    assert first["runs"] == [str(runs["a"]), str(runs["b"])]
    assert found["rows"][2]["mean"]["forgetting"] is None
    assert found["notes"] == []
    table = cli("compare", *runs.values()).out
    assert f"{np.mean(values):.1f}±{np.std(values):.1f}" in table
    assert "convention full" in table


def test_groups_of_published_tables_are_headed_as_there(cli, tmp_path):
    """Background and two classes, then two, then one: papers print 0-2 and 3-5, not old and new classes."""
    run = make_run(tmp_path / "run")
    rows = list(csv.DictReader(cli("compare", run, "--format", "csv").out.splitlines()))
    measured = final(run)
    assert list(rows[0])[1:6] == ["old", "new", "0-2", "3-5", "all"]
    ious = [c["iou"] for c in measured["classes"]]
    assert float(rows[0]["0-2"]) == pytest.approx(np.mean(ious[:3]))
    assert float(rows[0]["3-5"]) == pytest.approx(np.mean(ious[3:]))
    two = make_run(tmp_path / "two", learned=(0, 0, 0, 1, 1))
    assert "0-2" not in cli("compare", two, "--format", "csv").out  # old and new are these groups
    found = json.loads(cli("compare", run, "--json").out)["rows"][0]["mean"]
    assert [found[name] for name in ("initial", "added")] == [measured[name]["miou"] for name in ("initial", "added")]


def test_labels_and_pages(cli, runs, tmp_path):
    labelled = [f"one={runs['a']}", f"two={runs['b']}"]
    found = json.loads(cli("compare", *labelled, "--page", tmp_path / "page", "--json").out)
    assert [row["label"] for row in found["rows"]] == ["one", "two"]
    assert (tmp_path / "page/comparison.html").is_file()
    assert found["page"] == str(tmp_path / "page/comparison.html")
    (tmp_path / "file").touch()
    taken = cli("compare", *labelled, "--page", tmp_path / "file")
    assert (taken.code, taken.out) == (2, "")
    assert f"Cannot make the folder {tmp_path / 'file'}: File exists; choose another with --page." in taken.err


def test_what_cannot_be_compared_is_said(cli, runs, tiny_train, tmp_path):
    other = tiny_train(
        tmp_path / "o", "method=finetune", "scenario.task=5-5", "train.epochs=0.3", "train.later_epochs=0.3"
    )
    differ = f"{runs['a']} and {other.path} differ in task (6-4 and 5-5)"
    result = cli("compare", runs["a"], other.path, "--page", tmp_path / "page")
    assert (result.code, result.out) == (2, "")
    assert f"not comparable: {differ}; leave out what differs, or add --anyway" in result.err
    assert not (tmp_path / "page").exists()
    result = cli("compare", runs["a"], other.path, "--anyway")
    assert result.code == 0
    assert f"warning: {differ}" in result.out
    result = cli("compare", tmp_path)
    assert result.code == 2
    assert "is not a run folder" in result.err
    assert cli("compare").code == 2


def test_a_row_of_runs_that_are_no_repeats_is_said(cli, runs, tiny_train, tmp_path):
    quick = ("train.epochs=0.3", "train.later_epochs=0.3")
    weighted = tiny_train(tmp_path / "w", "method=finetune", "balance.loss=weighted", *quick).path
    shorter = tiny_train(tmp_path / "s", "method=finetune", *quick).path
    found = json.loads(cli("compare", runs["a"], weighted, shorter, "--json").out)
    assert [row["label"] for row in found["rows"]] == ["finetune", "finetune, weighted"]
    assert found["notes"] == [
        "warning: the runs of row finetune differ in train.epochs, train.later_epochs; give them labels of their own"
    ]
    together = cli("compare", f"x={weighted}", f"x={shorter}").out
    assert "the runs of row x differ in balance.loss" in together


def test_an_unfinished_run_is_said(cli, runs, tiny_train, silent, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "half", "method=finetune", reporter=silent("step 1 train"))
    refused = cli("compare", runs["joint"], tmp_path / "half")
    assert refused.code == 2
    assert "were evaluated last after different steps (1 and 0)" in refused.err
    result = cli("compare", runs["joint"], tmp_path / "half", "--anyway")
    assert f"warning: {tmp_path / 'half'} has finished 1 of its 2 steps" in result.out
    assert "joint has finished" not in result.out


@pytest.mark.parametrize(("learned", "headed"), [((0, 0, 0, 1, 1, 2), ["0-2", "3-5"]), ((0, 0, 0, 1, 1), [])])
def test_the_table_of_a_run_has_the_groups_of_published_tables(tmp_path, learned, headed):
    path = make_run(tmp_path / "run", learned)
    saved = {"task": "t", "setting": "overlapped"}
    folder = SimpleNamespace(config=lambda: load_config("demo"), scenario=lambda: saved)
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "eval"]
    table = steps_table_of(folder, steps)
    assert [column.name for column in table.columns][1:-6] == ["old", "new", *headed, "all"]
    assert ("3-5 as far as learned" in table.caption) == bool(headed)
    ious = [c["iou"] for c in steps[1]["classes"]]
    if headed:
        assert table.rows[1][3:5] == pytest.approx([np.mean(ious[:3]), np.mean(ious[3:])])


def test_options_of_a_comparison_with_records(cli, tmp_path):
    runs = [make_recorded_run(tmp_path / f"{k}", seed=k, right=0.5 + 0.2 * k, method=f"m{k}") for k in range(2)]
    found = json.loads(cli("compare", *runs, "--against", "m1", "--json").out)
    assert found["against"] == "m1"
    (change,) = found["significance"]
    assert (change["label"], change["against"]) == ("m0", "m1")
    assert change["measures"]["all"]["significant"]
    assert change["measures"]["all"]["interval"]["high"] < 0
    assert len(change["classes"]) == 6
    assert found["published"] == []
    assert found["front"]["std"] == ["m1"]
    rows = list(csv.DictReader(cli("compare", *runs, "--classes", "--format", "csv").out.splitlines()))
    assert {row["run"] for row in rows} == {"m1"}
    assert all(float(row["low"]) < float(row["difference"]) < float(row["high"]) for row in rows)
    assert {row["difference mark"] for row in rows} == {"better"}
    assert "0-3 & 4-5 & all & avg" in cli("compare", *runs, "--layout", "paper", "--format", "latex").out
    wrong = cli("compare", *runs, "--against", "m2", "--page", tmp_path / "page")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no run labelled 'm2'" in wrong.err
    assert not (tmp_path / "page").exists()


def test_a_layout_is_not_for_classes(cli, tmp_path):
    run = make_run(tmp_path / "run")
    result = cli("compare", run, "--classes", "--layout", "paper")
    assert (result.code, result.out, len(result.err.strip().splitlines())) == (2, "", 1)
    assert "Found --classes with --layout paper" in result.err
    assert cli("compare", run, "--classes", "--layout", "full").code == 0
