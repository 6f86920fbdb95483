"""Published numbers stand beside runs of the same benchmark, in a group of their own, and take no part in ranking."""

import csv
import io

import pytest
from recorded_run import make_recorded_run

import faircl
from faircl.config.published import tables
from faircl.report.comparison.tables import main_table

ADE = {"names": tuple(f"c{k}" for k in range(151)), "learned": (0,) * 101 + (1,) * 50, "data": "ade", "task": "100-50"}
ADE |= {"images": 6, "model": "deeplabv3"}
VOC = {
    "names": tuple(f"c{k}" for k in range(21)),
    "learned": (0,) * 16 + (1, 2, 3, 4, 5),
    "data": "voc",
    "task": "15-1",
}
VOC |= {"images": 6, "model": "segformer"}


@pytest.fixture(scope="module")
def ade(tmp_path_factory):
    root = tmp_path_factory.mktemp("ade")
    runs = [make_recorded_run(root / f"{k}", **ADE, seed=k, right=0.2 + 0.1 * k) for k in range(2)]
    return faircl.compare(runs, ["ours", "theirs"])


def test_rows_of_the_same_data_task_and_network(ade):
    names = [row.name for row in ade.published]
    assert names[:3] == ["Joint", "ILT", "MiB"]
    assert "FairCL + DeepLab-V3" in names
    assert "FairCL + SegFormer" not in names
    assert len(names) == len(set(names))
    mib = next(row for row in ade.published if row.name == "MiB")
    printed = tables()["ade-100-50"].row("MiB")
    assert mib.numbers == {"initial": printed["0-100"], "added": printed["101-150"], "all": 32.79, "average": 37.31}
    assert mib.source == "Table 3 (tab:adeota)"  # not SSUL's table, which has the row too


def test_other_networks_settings_and_data_have_none_or_others(tmp_path):
    rows = faircl.compare([make_recorded_run(tmp_path / "voc", **VOC)]).published
    assert {"FairCL + SegFormer", "SATS, SegFormer-B2"} <= {row.name for row in rows}
    assert not any("DeepLab" in row.name for row in rows)
    for name, change in {"disjoint": {"setting": "disjoint"}, "task": {"task": "15-5"}, "data": {"data": "x"}}.items():
        assert faircl.compare([make_recorded_run(tmp_path / name, **VOC | change)]).published == ()
    assert faircl.compare([tmp_path / "voc"], published=False).published == ()


def test_they_are_marked_and_never_ranked(ade):
    for layout in ("full", "paper", "ablation", "groups"):
        table = main_table(ade, layout)
        theirs = [row for row in table.cells() if row[0].text == "published, not reproduced here"]
        assert theirs
        assert all(row[1].text.endswith("†") for row in theirs)
        assert not any(cell.best or cell.mark for row in theirs for cell in row)
        assert "not reproduced here" in table.footnotes[-1]
    ours = {row[1].text: [c.best for c in row] for row in ade.table.cells() if row[0].text == "our runs"}
    assert any(ours["theirs"])  # though the paper's numbers are higher
    rows = list(csv.DictReader(io.StringIO(ade.table.csv())))
    assert {row["results"] for row in rows} == {"our runs", "published, not reproduced here"}
    assert next(row["old"] for row in rows if row["method"] == "MiB†") == "40.52"


def test_layouts_are_those_of_the_paper(ade):
    paper = main_table(ade, "paper").latex()
    assert "\\multicolumn{4}{c}{100-50 (2 steps)}" in paper
    assert "Method & 0-100 & 101-150 & all & avg \\\\" in paper
    assert "MiB\\textsuperscript{$\\dagger$} & 40.52 & 17.17 & 32.79 & 37.31 \\\\" in paper
    ablation = main_table(ade, "ablation").latex()
    heads = ["0-100", "101-150", "all"]
    assert " & ".join(["", *(f"\\multicolumn{{2}}{{c}}{{{head}}}" for head in heads)]) in ablation
    assert "Method & mIoU & STD & mIoU & STD & mIoU & STD & mIoU \\\\" in ablation
    assert "L\\_seg alone\\textsuperscript{$\\dagger$} & 0.08 & 0.84 & 19.52 & 20.18 & 6.52 & 13.14 & 24.41" in ablation
    groups = main_table(ade, "groups")
    assert [c.heading for c in groups.columns[2:]] == [
        "Major group\nmIoU", "Major group\nSTD", "Minor group\nmIoU", "Minor group\nSTD",
    ]  # fmt: skip
    audit = faircl.compare([ade.runs[0][1]]).rows[0].mean
    from faircl.fairness import audit_record

    expected = audit_record(ade.runs[0][1].records[1], resamples=0)
    assert (audit["major"], audit["minor"]) == pytest.approx((expected.major_miou, expected.minor_miou))
    assert audit["worst_third"] == pytest.approx(expected.worst_k_mean)
