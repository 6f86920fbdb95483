"""Choosing and tables of benchmarks/real.py, against numbers worked out by hand."""

import math

import pytest
from real_runs.choosing import best_baseline, best_label, chosen_variants, paired, spread
from real_runs.report import BEGINS, ENDS, benchmark_report, report, with_tables
from real_runs.results import Results, check_labels, evaluated
from real_runs.tables import ablation_table, class_table, comparison_table

from faircl.errors import UserError


def result(label, seed, score, *, role="baseline", family=None, images="validation", first=40.0, **last):
    """A run of two steps, whose mean IoU over all classes is ``first`` and then ``score``."""
    steps = [
        {"step": 0, "old": None, "new": first, "all": first, "std": 1.0, "worst": 3.0, "worst_class": "a"},
        {"step": 1, "old": score + 1, "new": score - 1, "all": score, "std": 2.0, "worst": 4.0, "worst_class": "b"},
    ]
    steps[0]["classes"] = {"a": first}
    steps[1] = steps[1] | {"classes": {"a": score + 2, "b": score - 2}} | last
    about = {"benchmark": "toy", "label": label, "family": family or label, "role": role, "seed": seed}
    about |= {
        "run": f"{label}-{seed}",
        "settings": [f"method={label}"],
        "shared_settings": [],
        "images": images,
        "commit": "c0ffee",
    }
    return about | {"hardware": "a card", "seconds": 1.0, "average": (first + score) / 2, "steps": steps}


ROWS = [
    result("ours", 0, 60.0, role="ours"),
    result("ours", 1, 64.0, role="ours"),
    result("mib", 0, 50.0),
    result("mib", 1, 52.0),
    result("mib, weighted", 0, 55.0, family="mib"),
    result("mib, weighted", 1, 53.0, family="mib"),
    result("plop", 0, 53.5),
    result("joint", 0, 70.0, role="bound"),
    result("no cons", 0, 58.0, role="ablation"),
    result("no cons", 1, 60.0, role="ablation"),
]


def rows(*labels):
    return [row for row in ROWS if row["label"] in labels]


def test_validation_chooses_the_highest_mean_over_the_seeds_present():
    assert best_label(rows("mib", "mib, weighted")) == "mib, weighted"  # 54.0 against 51.0
    assert best_label(rows("mib", "plop")) == "plop"  # one seed of 53.5
    assert chosen_variants(ROWS, "toy") == {"ours": "ours", "mib": "mib, weighted", "plop": "plop", "joint": "joint"}
    assert best_baseline(ROWS, "toy") == "mib, weighted"  # joint training is a bound, not a baseline
    assert best_baseline(rows("ours"), "toy") is None


def test_nothing_is_chosen_by_test_images():
    with pytest.raises(UserError, match="chosen by validation images, but mib-0 was evaluated on test images"):
        best_label([result("mib", 0, 50.0, images="test"), result("plop", 0, 50.0)])
    assert best_label([result("mib", 0, 50.0, images="test"), result("mib", 1, 40.0, images="test")]) == "mib"


def test_rows_that_were_trained_with_test_images_are_reported_as_they_are(tmp_path, capsys):
    results = Results(tmp_path / "results.jsonl")
    for row in [row | {"images": "test"} for row in ROWS if row["label"] in ("ours", "plop", "no cons")]:
        results.append(row)
    report(tmp_path, "test", {})
    text = capsys.readouterr().out
    assert "\nTest images; " in text
    assert "\nBaseline: plop.\n" in text
    assert "by validation" not in text  # nothing was chosen
    assert not (tmp_path / "test.jsonl").exists()


def test_paired_differences():
    found = paired(rows("ours"), rows("mib"), "all")  # 10 and 12: mean 11, deviation √2, error √2 / √2
    assert (found.mean, found.seeds) == (11.0, 2)
    assert found.error == pytest.approx(1.0)
    single = paired(rows("ours"), rows("plop"), "all")
    assert (single.mean, single.seeds) == (6.5, 1)
    assert math.isnan(single.error)
    assert paired(rows("ours"), rows("mib"), "average").mean == 5.5
    none = paired(rows("ours"), [], "all")
    assert math.isnan(none.mean)
    assert none.seeds == 0


def test_spread_is_that_of_a_sample():
    assert spread([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert math.isnan(spread([1.0]))


def test_the_comparison_table():
    lines = comparison_table(ROWS, ["plop", "ours"]).markdown().splitlines()
    assert lines[0] == "| method | seeds | old | new | all | average over steps | STD | worst class |"
    assert lines[2] == "| plop | 1 | 54.5 | 52.5 | 53.5 | 46.8 | 2.0 | 4.0 |"
    assert lines[3] == "| ours | 2 | 63.0±2.8 | 61.0±2.8 | 62.0±2.8 | 51.0±1.4 | 2.0±0.0 | 4.0±0.0 |"


def test_the_class_table():
    lines = class_table(ROWS, "ours").markdown().splitlines()
    assert lines[2:] == [
        "| class | after step 0 | after step 1 |",
        "| :-- | --: | --: |",
        "| a | 40.0 | 64.0 |",
        "| b | – | 60.0 |",
    ]


def test_the_ablation_table():
    lines = ablation_table(ROWS, "ours", ["no cons", "plop"]).markdown().splitlines()
    assert lines[2].startswith("| ours | 2 | 63.0 | 61.0 | 62.0 | 51.0 |")
    # Differences −2 and −4: mean −3, deviation √2, error 1; half of it for the average over two steps.
    assert lines[3].startswith("| no cons | 2 | -3.0 ± 1.0 | -3.0 ± 1.0 | -3.0 ± 1.0 | -1.5 ± 0.5 | +0.0 ± 0.0 |")
    assert lines[4].startswith("| plop | 1 | -6.5 | -6.5 | -6.5 |")


def test_the_report_shows_what_validation_chose_on_other_images(tmp_path, capsys):
    tested = [row | {"images": "test"} for row in ROWS if row["label"] != "mib"]
    text = benchmark_report(ROWS, tested, "toy")
    assert text.startswith("## toy\n\nTest images; seeds 0, 1; a card; commit c0ffee.\n")
    order = [line.split(" | ")[0][2:] for line in text.splitlines()[6:10]]
    assert order == ["plop", "mib, weighted", "ours", "joint"]  # by their mean on the test images
    assert "Best baseline by validation: mib, weighted." in text
    assert "| ours | 2 | +8.0 ± 3.0 |" in text
    assert "| no cons | method=no cons |" in text
    results = Results(tmp_path / "results.jsonl")
    for row in ROWS:
        results.append(row)
    report(tmp_path, "validation", {})
    assert "\nValidation images; " in capsys.readouterr().out
    with pytest.raises(UserError, match="There are no results"):
        report(tmp_path / "none", "validation", {})


def test_no_table_compares_test_images_with_validation_images(tmp_path, capsys):
    results = Results(tmp_path / "results.jsonl")
    for row in ROWS:
        results.append(row | ({"images": "test"} if row["label"] in ("ours", "no cons") else {}))
    with pytest.raises(UserError, match="Some runs of toy were evaluated on validation images and some on test images"):
        report(tmp_path, "validation", {})
    validated = {row["run"] for row in ROWS if row["label"] not in ("ours", "no cons")}
    report(tmp_path, "validation", {}, runs=validated)
    assert "\nValidation images; " in capsys.readouterr().out


def test_a_label_stands_for_one_row(tmp_path, capsys):
    results = Results(tmp_path / "results.jsonl")
    changed = result("ours", 2, 61.0, role="ours") | {"settings": ["optim.lr=1"]}
    for row in [*ROWS, changed]:
        results.append(row)
    with pytest.raises(UserError, match="Runs ours-0 and ours-2 of label 'ours' have different settings"):
        report(tmp_path, "validation", {})
    report(tmp_path, "validation", {}, runs={row["run"] for row in ROWS})  # those of a plan
    assert "seeds 0, 1;" in capsys.readouterr().out
    with pytest.raises(UserError, match="have different settings"):
        check_labels([*ROWS, ROWS[0] | {"run": "another"}])


def test_tables_go_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGINS}\nold\n{ENDS}\nafter\n")
    once = with_tables(page.read_text(), "new", page)
    assert once == f"before\n{BEGINS}\n\nnew\n{ENDS}\nafter\n"
    assert with_tables(once, "new", page) == once
    with pytest.raises(UserError, match="has no place for the tables"):
        with_tables("nothing", "new", page)


def test_joint_training_has_no_average():
    record = {"step": 1, "miou": {"old": 1.0, "new": 2.0, "all": 1.5}, "std": 0.0, "worst": {"name": "a", "iou": 1.0}}
    record |= {"classes": [{"name": "a", "iou": None}], "images": "validation"}
    assert evaluated([record])["average"] is None
    assert evaluated([record])["steps"][0]["classes"] == {"a": None}
    both = evaluated([record | {"step": 0, "miou": {"old": None, "new": 0.5, "all": 0.5}}, record])
    assert both["average"] == 1.0
