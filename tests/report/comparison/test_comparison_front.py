"""A low spread is praised only on its front with mIoU, and never where it was paid for by strong classes alone."""

import numpy as np
import pytest
from recorded_run import make_recorded_run

import faircl
from faircl.report.comparison.evidence import Evidence
from faircl.report.comparison.front import FRONTED, fronts, levelled_down, lowest
from faircl.report.comparison.rows import Row
from faircl.report.comparison.tables import main_table

NOTHING = Evidence(0, (), (), np.zeros(0, np.int64), np.zeros(0, bool), {})


def row(label, miou, std, worst_third):
    mean = dict.fromkeys([*FRONTED, *FRONTED.values()], 50.0)
    return Row(
        label, ("r",), mean | {"all": miou, "std": std, "worst_third": worst_third}, dict.fromkeys(mean, 0.0), ()
    )


def on_front(*rows):
    passed_over = levelled_down(rows, NOTHING)
    return passed_over, fronts(rows, passed_over)["std"]


def test_a_network_that_forgot_everything_is_passed_over():
    fine, fair, joint = row("fine", 21, 12, 0), row("fair", 60, 20, 30), row("joint", 70, 18, 40)
    passed_over, front = on_front(fine, fair, joint)
    assert passed_over == {"fine": "joint"}  # fair is beaten in both, not levelled down
    assert front == ("joint",)
    assert lowest((fine, fair, joint), front, "std") == 18


def test_evenness_that_helps_weak_classes_counts():
    even, strong = row("even", 58, 10, 45), row("strong", 61, 25, 20)
    passed_over, front = on_front(even, strong)
    assert passed_over == {}
    assert front == ("even", "strong")
    assert lowest((even, strong), front, "std") == 10


def test_a_row_that_is_beaten_by_one_passed_over_is_not_on_the_front():
    beaten, levelled, strong = row("beaten", 50, 20, 31), row("levelled", 51, 19, 30), row("strong", 60, 25, 30)
    passed_over, front = on_front(beaten, levelled, strong)
    assert passed_over == {"levelled": "strong"}
    assert front == ("strong",)


def test_in_a_group_of_classes_the_mean_of_the_group_decides():
    fine, fair = row("fine", 20, 10, 0), row("fair", 60, 20, 30)
    fine.mean.update(new=70.0, new_std=5.0, old=5.0, old_std=4.0)
    fair.mean.update(new=65.0, new_std=8.0, old=60.0, old_std=20.0)
    passed_over = levelled_down((fine, fair), NOTHING)
    found = fronts((fine, fair), passed_over)
    assert passed_over == {"fine": "fair"}
    assert (found["std"], found["old_std"], found["new_std"]) == (("fair",), ("fair",), ("fine",))


def test_a_row_that_is_more_even_in_a_group_it_serves_better_is_not_levelled_down():
    joint, fair = row("joint", 58, 30, 20), row("fair", 68, 20, 30)
    joint.mean.update(major=88.0, major_std=6.0)
    fair.mean.update(major=86.0, major_std=7.0)
    assert levelled_down((joint, fair), NOTHING) == {}


@pytest.mark.parametrize(("miou", "passed"), [(59.5, False), (58.5, True)])
def test_without_records_a_point_of_miou_decides(miou, passed):
    assert on_front(row("a", miou, 10, 20), row("b", 60, 20, 20))[0] == ({"a": "b"} if passed else {})


def test_one_row_or_unknown_spreads_are_not_highlighted():
    alone = (row("a", 50, 10, 5),)
    assert lowest(alone, ("a",), "std") is None
    assert lowest((row("a", 50, float("nan"), 5), row("b", 40, float("nan"), 5)), (), "std") is None


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Fine-tuning that serves all classes alike and badly, two methods, of which one is more even."""
    root = tmp_path_factory.mktemp("front")
    shares = {
        "fine": (0.10, 0.10, 0.10, 0.10, 0.10, 0.10),
        "plain": (0.95, 0.95, 0.95, 0.60, 0.50, 0.40),
        "fair": (0.92, 0.92, 0.92, 0.85, 0.85, 0.85),
    }
    runs = [make_recorded_run(root / k, right=right, seed=n, method=k) for n, (k, right) in enumerate(shares.items())]
    return faircl.compare(runs, out=root / "page")


def test_summary_table_page_and_json_praise_the_same_run(compared):
    table = compared.table
    names = [column.name for column in table.columns]
    for name in ("STD", "gap"):
        cells = {row[0].text: row[names.index(name)] for row in table.cells()}
        assert float(cells["fine"].text) < float(cells["fair"].text)
        assert [label for label, cell in cells.items() if cell.best] == ["fair"]
    fine, fair = (next(row.mean for row in compared.rows if row.label == label) for label in ("fine", "fair"))
    said = (
        f"Lowest STD among the runs on the front of mean IoU and STD: fair, {fair['std']:.1f} at a mean IoU of "
        f"{fair['all']:.1f} %; fine ({fine['std']:.1f} at {fine['all']:.1f} %) has a lower one, but at a lower mean "
        "IoU and with no gain for the worst third of the classes."
    )
    assert said in compared.summary
    assert said in compared.page.read_text()
    found = compared.to_json()
    assert found["front"]["std"] == ["fair"]
    assert found["levelled_down"]["fine"] == "fair"


def test_marks_do_not_praise_a_falling_std_that_costs_accuracy(compared, tmp_path):
    from faircl.report.comparison.tables import main_table

    against_fair = faircl.compare([run for _, run in compared.runs], against="fair")
    names = [column.name for column in against_fair.table.columns]
    marks = {row[0].text: (row[names.index("all")].mark, row[names.index("STD")].mark) for row in
             main_table(against_fair).cells()}  # fmt: skip
    assert against_fair.changes["fine"].measures["std"].significant
    assert marks == {"fine": ("worse", None), "plain": ("worse", "worse"), "fair": (None, None)}


def test_a_table_without_marks_does_not_explain_them(compared):
    assert any("▲" in note for note in main_table(compared, "full").footnotes)
    assert not any("▲" in note for note in main_table(compared, "groups").footnotes)
