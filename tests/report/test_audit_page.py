"""The page of an audit: what it shows, names as text, and tables of all sizes."""

import csv

import pytest
from records import named, random_record, record_of

from faircl.auditing.limits import LimitCheck
from faircl.fairness.audit import audit_record
from faircl.fairness.difference import paired_difference
from faircl.fairness.record import RecordedClass
from faircl.report.audit_page import audit_summary, write_audit_page
from faircl.report.audit_tables import class_table, confusion_table, difference_table, headline_table

RECORD = record_of([([0, 0, 1, 1], [0, 0, 0, 255])], named(3))


def test_confusion_in_percent_of_the_truth():
    table = confusion_table(RECORD)
    assert [column.name for column in table.columns] == ["truth \\ predicted", "c0", "c1", "c2", "none"]
    assert table.rows == [["c0", 100, None, None, None], ["c1", 50, None, None, 50]]


def test_no_confusion_of_many_classes():
    assert confusion_table(random_record(classes=41)) is None
    assert confusion_table(random_record(classes=40)) is not None


def test_the_mean_comes_before_the_spread():
    rows = [row[0] for row in headline_table(audit_record(random_record())).rows]
    assert rows[0] == "mean IoU"
    assert "calibration error" in rows
    assert "calibration error" not in [row[0] for row in headline_table(audit_record(RECORD)).rows]


@pytest.mark.parametrize(
    ("truth", "predicted", "row", "sentence"),
    [
        (
            [0, 0, 1, 2],
            [0, 0, 2, 0],
            "worst class: c1, and 1 other equal to it",
            "is served worst, as is c2, at 0.0",
        ),
        ([0, 1, 2, 3], [0, 2, 3, 1], "worst class: c1, and 2 others equal to it", "worst, as are c2 and c3, at 0.0"),
        ([0, 0, 1, 1], [0, 0, 0, 1], "worst class: c1", "c1 is served worst, at 50.0"),
    ],
)
def test_classes_as_bad_as_the_worst_are_counted_and_named(truth, predicted, row, sentence):
    audit = audit_record(record_of([(truth, predicted)], named(5)), resamples=0)
    assert row in [line[0] for line in headline_table(audit).rows]
    assert sentence in audit_summary(audit, [])


def test_csv_has_the_ends_of_intervals_as_numbers():
    before, after = random_record(right=0.5), random_record(right=0.7)
    audit, difference = audit_record(before), paired_difference(after, before)
    for table, interval in (
        (headline_table(audit), audit.miou_interval),
        (class_table(audit), max(audit.classes, key=lambda one: one.pixels).interval),
        (difference_table(difference), difference.miou.interval),
    ):
        lines = list(csv.reader(table.csv().splitlines()))
        low, high = (float(lines[1][lines[0].index(name)]) for name in ("low", "high"))
        assert (low, high) == interval
    assert difference.miou.interval.high < 0  # a spreadsheet takes it for a number, without an apostrophe


def test_summary():
    audit = audit_record(RECORD)
    broken = LimitCheck("max_std", "", 1, 2, False, "the STD is 2")
    assert "c1 is served worst" in audit_summary(audit, [])
    assert audit_summary(audit, [broken]).endswith("1 limit is broken.")
    assert audit_summary(audit, [broken, broken]).endswith("2 limits are broken.")
    assert audit_summary(audit, [broken._replace(holds=True)]).endswith("All limits hold.")
    one = audit_record(record_of([([0, 0], [0, 0])], named(1)))
    assert audit_summary(one, []) == "Mean IoU 100.0\N{NO-BREAK SPACE}% over 1 class in 1 image."


@pytest.mark.parametrize("title", ["Audit", "<script>alert(1)</script>"])
def test_page(tmp_path, title):
    names = (RecordedClass(0, "<script>alert(2)</script>"), RecordedClass(1, '=cmd "q", 🚲'))
    record = record_of([([0, 0, 1, 1], [0, 1, 1, 1])] * 4, names)
    groups = {"<i>city": {"image0": "<u>Ulm</u>"}}
    audit = audit_record(record, groups=groups)
    check = LimitCheck("max_std", "", 1, 2, False, "the STD is <b>2</b>")
    path = write_audit_page(
        tmp_path / "report.html",
        record,
        audit,
        title,
        checks=[check],
        difference=paired_difference(record, record),
        notes=["<em>left out</em>"],
    )
    text = path.read_text(encoding="utf-8")
    for escaped in ("<script>", "<i>city", "<u>", "<b>2", "<em>"):
        assert escaped not in text
    for shown in ("Limits", "Measures", "Before and after", "Every class", "Images by", "Where the pixels", "Notes"):
        assert shown in text
    assert "://" not in text
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
