"""Draw the pictures of docs/architecture.md from the code.

    python docs/make_architecture.py

Writes docs/images/packages.svg, the import graph between packages, and docs/images/walk.svg, the way of one image. The
table of packages in docs/architecture.md is printed; the tests check that page and code agree.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from import_graph import package_graph  # noqa: E402

SOURCE = ROOT / "src" / "faircl"
INK, PALE, LINE = "#1f2933", "#e8eef5", "#8a99a8"

COLUMNS = {"data": 2.5, "readers": 1.6, "scenario": 3.4, "integrity": 0.7, "config": 2.5, "loading": 2.9}
COLUMNS |= {"kernels": 6.2, "losses": 6.6, "models": 5.0, "methods": 5.0, "acceleration": 6.6}
COLUMNS |= {
    "metrics": 9.0,
    "runs": 8.2,
    "report": 8.2,
    "engine": 5.0,
    "api": 3.6,
    "serving": 2.2,
    "bench": 6.4,
    "cli": 5.0,
}
"""Where a package is drawn, from left to right; others are spread over their row."""
WALK = [
    # title, what happens, where
    [
        ("image and mask", "files of a data set", "disk"),
        ("Sample", "uint8 image, class ids", "readers, data"),
        ("labels of the step", "LabelTable lookup: other\nsteps' classes are hidden", "scenario, loading"),
        ("window", "crop, zoom, flip, jitter", "loading.transforms"),
        ("Batch", "packed, sent to\nthe device", "loading.batch"),
    ],
    [
        ("SegOutput", "logits at network stride,\nembedding, stages", "models.segmenter"),
        ("targets", "labels for\nunlabelled pixels", "methods"),
        ("loss terms", "named terms; logits are\nupsampled in the loss", "methods, losses"),
        ("update", "sum, backward,\noptimiser step", "engine.update"),
        ("prototypes", "queues, class distribution", "methods, prototypes"),
    ],
    [
        ("whole image", "at its own size", "loading.whole_images"),
        ("prediction", "argmax of\nupsampled logits", "engine.evaluate"),
        ("confusion matrix", "one per step", "metrics.confusion"),
        ("StepMetrics", "IoU per class, fairness,\nforgetting", "metrics.summary"),
        ("run folder, report", "metrics.jsonl, report.html", "runs, report"),
    ],
]
ROWS = ("reading", "training", "evaluating")


def packages() -> list[str]:
    """Return the packages of faircl, without those that hold no code."""
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name != "recipes")


def summary(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def graph() -> dict[str, set[str]]:
    """Return which package imports which, between packages alone."""
    names = set(packages())
    return {name: (set(found) & names) - {name} for name, found in package_graph(SOURCE).items() if name in names}


def levels(edges: dict[str, set[str]]) -> dict[str, int]:
    """Return how deep a package stands: 0 imports no other, n imports one of level n − 1."""
    found: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in found:
            found[name] = 1 + max((level(other) for other in edges.get(name, ())), default=-1)
        return found[name]

    return {name: level(name) for name in edges}


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out edges that a longer path implies."""

    def reach(name: str) -> set[str]:
        return {further for other in edges[name] for further in ({other} | reach(other))}

    return {
        name: {one for one in others if not any(one in reach(other) for other in others - {one})}
        for name, others in edges.items()
    }


def table() -> str:
    """Return the packages as a markdown table, from the foundation up."""
    edges = graph()
    depth = levels(edges)
    rows = ["| package | what it is | imports |", "|---|---|---|"]
    for name in sorted(edges, key=lambda one: (depth[one], one)):
        rows.append(f"| `{name}` | {summary(name)} | {', '.join(sorted(edges[name])) or '–'} |")
    return "\n".join(rows)


def draw_packages(path: Path) -> None:
    """Draw packages as boxes, each above what it imports."""
    import matplotlib.pyplot as plt

    edges = graph()
    depth, shown = levels(edges), reduced(edges)
    rows = [sorted(name for name in edges if depth[name] == level) for level in range(max(depth.values()) + 1)]
    figure, axes = plt.subplots(figsize=(9, 0.95 * len(rows)))
    place = {
        name: (COLUMNS.get(name, (k + 1) / (len(row) + 1) * 10), level)
        for level, row in enumerate(rows)
        for k, name in enumerate(row)
    }
    for name, others in shown.items():
        for other in others:
            (x, y), (u, v) = place[name], place[other]
            axes.annotate(
                "", (u, v + 0.2), (x, y - 0.2), arrowprops={"arrowstyle": "->", "color": LINE, "lw": 0.9}, zorder=1
            )
    for name, (x, y) in place.items():
        box = {"boxstyle": "round,pad=0.45", "fc": PALE, "ec": INK, "lw": 0.8}
        axes.text(x, y, name, ha="center", va="center", fontsize=10, color=INK, bbox=box, zorder=2)
    axes.set(xlim=(0, 10), ylim=(-0.6, len(rows) - 0.4))
    axes.axis("off")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def draw_walk(path: Path) -> None:
    """Draw the way of one image: reading, training, evaluating."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(13, 5.4))
    for row, boxes in enumerate(WALK):
        y = -1.5 * row
        axes.text(-1.15, y, ROWS[row], ha="right", va="center", fontsize=11, color=INK, weight="bold")
        for column, (title, text, where) in enumerate(boxes):
            x = 2.35 * column
            axes.add_patch(plt.Rectangle((x - 1, y - 0.55), 2, 1.1, fc=PALE, ec=INK, lw=0.8))
            axes.text(x, y + 0.33, title, ha="center", va="center", fontsize=10, color=INK, weight="bold")
            axes.text(x, y - 0.02, text, ha="center", va="center", fontsize=8, color=INK)
            axes.text(x, y - 0.4, where, ha="center", va="center", fontsize=7, color="#52606d", family="monospace")
            if column:
                axes.annotate("", (x - 1, y), (x - 1.35, y), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1})
    end = 2.35 * 4
    for row in (0, 1):  # to the beginning of the next row
        y = -1.5 * row
        line = [(end, y - 0.55), (end, y - 0.75), (0, y - 0.75)]
        axes.plot(*zip(*line, strict=True), color=INK, lw=1)
        axes.annotate("", (0, y - 0.95), (0, y - 0.75), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1})
    axes.set(xlim=(-2.4, end + 1.1), ylim=(-3.7, 0.7))
    axes.axis("off")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw both pictures and print the table."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "faircl", "svg.fonttype": "none", "font.family": "DejaVu Sans"}
    draw_packages(DOCS / "images" / "packages.svg")
    draw_walk(DOCS / "images" / "walk.svg")
    print(table())


if __name__ == "__main__":
    main()
