"""Draws the chart of the page "Proposition 1" from a run that has measured both sides.

    faircl train demo --set method.bound=true --out runs/bound
    python docs/make_bound_chart.py runs/bound

writes docs/images/proposition1.svg, or the file that is named second, and prints the numbers of the page's table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from faircl.report.plots import bound_curves
from faircl.runs.run import TrainRecord, load_run

THEME = """<style>svg { color: #1c1e21; background: #ffffff }
@media (prefers-color-scheme: dark) { svg { color: #e4e6ea; background: #1e2129 } }</style>"""


def main(run: Path, path: Path) -> None:
    """Write the chart of a run and print what it shows."""
    training = load_run(run).training
    head, mark, rest = bound_curves(training).partition("<defs>")
    path.write_text(f"{head}{THEME}\n{mark}{rest}", encoding="utf-8", newline="\n")
    for step in sorted({record.step for record in training if record.measures}):
        print(f"step {step}: {summary([r for r in training if r.step == step])}")
    print(path)


def summary(records: Sequence[TrainRecord]) -> str:
    """First and last records of a step in words."""
    first, last = records[0], records[-1]
    return "; ".join(
        f"iteration {r.iteration}: " + ", ".join(f"{name} {value:.2f}" for name, value in r.measures.items())
        for r in (first, last)
    )


if __name__ == "__main__":
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "images/proposition1.svg"
    main(Path(sys.argv[1]), target)
