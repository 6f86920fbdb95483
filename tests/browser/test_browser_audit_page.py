"""The page of an audit in a real browser: nothing is asked for, no script runs, no serious finding of axe."""

import pytest
from records import random_record

from faircl.auditing.limits import check_limits, read_limits
from faircl.fairness.audit import audit_record
from faircl.fairness.record import RecordedClass
from faircl.report.audit_page import write_audit_page


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    record = random_record(classes=21)
    names = ["<script>alert(1)</script>", '=cmd "quoted", 🚲', *(f"class {k}" for k in range(2, 21))]
    classes = tuple(RecordedClass(k, name) for k, name in enumerate(names))
    record = type(record)(classes, record.images, record.confusions, record.reliability)
    groups = {"city": {id: "Ulm" if k % 2 else "Bonn" for k, id in enumerate(record.images)}}
    audit = audit_record(record, groups=groups)
    checks = list(check_limits(audit, read_limits({"max_std": 1, "min_class_iou": 90})))
    path = tmp_path_factory.mktemp("audit") / "report.html"
    return write_audit_page(path, record, audit, "Audit of <b>masks</b>", checks=checks, notes=["a note"])


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_page(open_page, axe, page_file, width, scheme):
    watched = open_page(page_file.as_uri(), width=width, scheme=scheme)
    assert watched.errors == []
    assert watched.requests == []
    assert axe(watched.page) == []
    assert watched.page.locator("script").count() == 0
    assert watched.page.get_by_text("<script>alert(1)</script>").first.is_visible()
    wide = watched.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width  # wide tables scroll inside the page
