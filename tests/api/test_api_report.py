"""faircl.write_report and faircl report: where the page goes, and mistakes in one sentence."""

import errno
import json

import pytest
from report_runs import make_report_run

import faircl
from faircl.errors import UserError
from faircl.report import plots


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("miou_over_steps", "loss_curves"):
        monkeypatch.setattr(plots, name, lambda _: "<svg></svg>")
    return make_report_run(tmp_path / "run", 4, 2, 2, gallery=False)


def test_where_the_page_goes(run, tmp_path):
    assert faircl.write_report(run) == run / "report.html"
    assert faircl.write_report(str(run), out=str(tmp_path / "a.html")) == tmp_path / "a.html"
    assert faircl.write_report(faircl.open_run(run), step=0) == run / "report-step-0.html"
    assert "This page shows 1 of 2 steps: later ones are left out." in (run / "report-step-0.html").read_text()
    assert faircl.write_report(run, step=-2) == run / "report-step-0.html"
    assert faircl.write_report(run, step=-1) == run / "report-step-1.html"
    assert "mean IoU" in (tmp_path / "a.html").read_text()


def test_a_page_that_cannot_be_written_says_nothing_of_training(run, tmp_path):
    (tmp_path / ".a.html.part").mkdir()  # where the page is written first
    with pytest.raises(UserError, match=r"Cannot write .*a\.html: .*; choose another file with --out\.$"):
        faircl.write_report(run, out=tmp_path / "a.html")


def test_a_version_of_a_run(run):
    made = make_report_run(run / "versions" / "01", 5, 2, 2, gallery=False)
    assert faircl.write_report(made) == made / "report.html"
    with pytest.raises(UserError, match="has no version 7; it has: 0"):
        faircl.write_report(run, version=7)
    assert faircl.write_report(run, version=0) == run / "report.html"


@pytest.mark.parametrize(
    ("out", "said"),
    [("run", "is a folder"), ("run/metrics.jsonl", "must end in .html"), ("none/a.html", "there is no folder")],
)
def test_places_that_cannot_be_written(run, tmp_path, out, said):
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=said):
        faircl.write_report(run, out=tmp_path / out)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_full_disk_leaves_nothing_and_the_earlier_page(run, tmp_path, monkeypatch):
    page = tmp_path / "a.html"
    page.write_text("before")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError) as caught:
        faircl.write_report(run, out=page)
    said = f"Cannot write {page}: No space left on device; choose another file with --out."
    assert str(caught.value) == said
    assert page.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "run"]


def test_mistakes(run, tmp_path):
    with pytest.raises(UserError, match="Expected the path of an HTML file; found 3"):
        faircl.write_report(run, out=3)
    with pytest.raises(UserError, match="not a run folder"):
        faircl.write_report(tmp_path)
    with pytest.raises(UserError, match="no evaluation after step 9; it has: 0, 1"):
        faircl.write_report(run, step=9)
    with pytest.raises(UserError, match="no evaluation after step -3; it has: 0, 1"):
        faircl.write_report(run, step=-3)


def test_command(run, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from faircl.cli.app import app

    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(run), "--out", str(page), "--json"])
    assert json.loads(done.stdout) == {"page": str(page), "bytes": page.stat().st_size}
    done = CliRunner().invoke(app, ["report", str(run), "--open"])
    assert done.stdout.startswith(f"wrote {run / 'report.html'} (0.")
    assert opened == [(run / "report.html").as_uri()]
