"""The page of a comparison: content, escaping, offline, whatever the runs lack."""

import json
import re

import pytest
from fake_run import make_run
from recorded_run import make_recorded_run

import faircl
from faircl.report.comparison import page as page_module
from faircl.report.comparison.strips import make_strips


@pytest.fixture
def no_plots(monkeypatch):
    """Drawing takes most of the time of a page, and has its own tests."""
    for name in ("pareto_plot", "over_steps"):
        monkeypatch.setattr(page_module, name, lambda _: "<svg></svg>")


def read(path):
    html = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))", html)
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    assert html.count("<script>") == 1
    assert "url(http" not in html
    assert not list(path.parent.glob(".*tmp"))
    return html


def test_page_of_seeds_and_methods(tmp_path):
    runs = [make_recorded_run(tmp_path / f"{k}", seed=k, right=0.5 + 0.1 * (k > 1), pictures=2) for k in range(3)]
    made = faircl.compare(runs, ["a <b>", "a <b>", "other"], tmp_path / "out" / "deep")
    html = read(made.page)
    for row in made.rows:
        assert f"{row.mean['all']:.1f}" in html
    assert f"Highest mean IoU: other, {made.rows[1].mean['all']:.1f} %." in html
    assert "Every run on its own" in html
    assert html.count("<svg role=") == 2
    assert "<b>" not in html
    bars = re.findall(r'<tr><th scope="row">([^<]*)</th><td class="number" data-value="([^"]*)">', html)
    differences = [float(value) for name, value in bars if name in made.runs[0][1].class_names.values()]
    half = len(made.runs[0][1].final.classes)
    assert differences[:half] == sorted(differences[:half], reverse=True)
    assert differences[0] == pytest.approx(max(one.difference for one in made.changes["other"].classes))
    assert len(re.findall('<img src="data:image/png', html)) == 2 * (2 + 2 * 2)  # image, truth, two methods × two steps
    assert len(html) < 300_000


def test_page_of_one_run_and_of_runs_without_records(tmp_path, no_plots):
    first, second = (make_run(tmp_path / name, seed=k, method=name) for k, name in enumerate("ab"))
    alone = faircl.compare([first], out=tmp_path / "one")
    assert alone.summary == ()
    assert "Run a" in read(alone.page)
    both = faircl.compare([first, second], out=tmp_path / "two")
    assert [note.split(" of every")[0] for note in both.notes] == [
        "note: runs of row a keep no record",
        "note: runs of row b keep no record",
    ]
    html = read(both.page)
    assert "keep no record" in html
    assert "Every class against" not in html
    assert both.changes == {}
    assert both.class_table.csv().count("\n") == 1 + len(both.runs[0][1].final.classes)


def test_page_of_unlike_runs_says_so(tmp_path, no_plots):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", learned=(0, 0, 1), examples=0)
    path = second / "scenario.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"labels_sha256": "other"}))
    made = faircl.compare([first, second], ["x", "y"], tmp_path, anyway=True)
    assert "differ in data" in read(made.page)
    assert make_strips(made) == []


def test_strips_have_rows_of_methods_and_columns_of_steps(tmp_path):
    names = ("background", "road", "car", "van")
    runs = [make_recorded_run(tmp_path / f"{k}", names, (0, 0, 1, 2), seed=k, pictures=3) for k in range(2)]
    (runs[1] / "steps/01/examples/0.png").unlink()
    strips = make_strips(faircl.compare(runs, ["x", "y"]))
    assert len(strips) == 3
    assert strips[0].steps == (0, 1, 2)
    assert [(label, [one is not None for one in pictures]) for label, pictures in strips[0].rows] == [
        ("x", [True, True, True]),
        ("y", [True, False, True]),
    ]
    assert strips[0].rows[0][1][2].alt == "x after step 2: prediction for example 1"
    assert [name for name, _ in strips[0].legend] == list(names)


def test_the_reference_must_be_one_of_the_labels(tmp_path):
    run = make_run(tmp_path / "a", examples=0)
    with pytest.raises(faircl.UserError, match=r"no run labelled 'y'.* the labels are x\."):
        faircl.compare([run], ["x"], against="y")
