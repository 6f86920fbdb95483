"""Tables of benchmarks/unknown.py, and the choice of the default score."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from faircl.tables import Column, Table, Value

Record = dict[str, Any]
MEASURES = {"auroc": "AUROC", "fpr95": "FPR95", "ap": "AP"}


def best_score(records: Sequence[Record]) -> str:
    """Return the score with the highest mean AUROC: over the cases of each data set, then over data sets."""
    scores = list(dict.fromkeys(record["score"] for record in records))
    return max(scores, key=lambda score: _over_data(records, score, "auroc"))


def summary_table(records: Sequence[Record]) -> Table:
    """Return one row per score: means over the cases of each data set and over data sets."""
    sources = list(dict.fromkeys(record["data"] for record in records))
    columns = [Column("score")]
    for source in (*sources, *(["mean"] if len(sources) > 1 else [])):
        columns += [_column(f"{source} {title}", key) for key, title in MEASURES.items()]
    rows: list[list[Value]] = []
    for score in dict.fromkeys(record["score"] for record in records):
        row: list[Value] = [score]
        for source in sources:
            row += [_over_cases(records, source, score, key) for key in MEASURES]
        if len(sources) > 1:
            row += [_over_data(records, score, key) for key in MEASURES]
        rows.append(row)
    return Table(columns, rows, caption="Unknown pixels against known ones, percent; means over cases.")


def background_table(records: Sequence[Record]) -> Table:
    """Return one row per score: mean AUROC where the background class counts as known, and where it does not."""
    columns = [Column("score"), Column("background known", 1), Column("background not known", 1)]
    with_variants = {record["case"] for record in records if not record["background"]}
    rows: list[list[Value]] = []
    for score in dict.fromkeys(record["score"] for record in records):
        own = [record for record in records if record["score"] == score and record["case"] in with_variants]
        rows.append([score, *(fmean(r["auroc"] for r in own if r["background"] is kind) for kind in (True, False))])
    return Table(
        columns, rows, best_by_row=True, caption="AUROC, percent, mean over the cases with a background class."
    )


def case_table(records: Sequence[Record]) -> Table:
    """Return one row per score of one case."""
    columns = [Column("score"), *(_column(title, key) for key, title in MEASURES.items())]
    columns.append(Column("known above 0.95", digits=1))
    rows = [[record["score"], *(record[key] for key in MEASURES), record["alarms"]] for record in records]
    first = records[0]
    return Table(columns, rows, caption=f"{first['case']}: {first['unknown']} % of the pixels are unknown; percent.")


def _column(title: str, key: str) -> Column:
    return Column(title, digits=1, best="min" if key == "fpr95" else "max")


def _over_cases(records: Sequence[Record], source: str, score: str, key: str) -> float:
    return fmean(record[key] for record in records if (record["data"], record["score"]) == (source, score))


def _over_data(records: Sequence[Record], score: str, key: str) -> float:
    sources = dict.fromkeys(record["data"] for record in records)
    return fmean(_over_cases(records, source, score, key) for source in sources)
