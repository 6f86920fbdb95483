"""The report of all results: tables of every benchmark in Markdown, printed or written into a page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from faircl.errors import UserError
from faircl.files import write_text
from real_runs.choosing import baselines, best_baseline, chosen_variants, mean, measure
from real_runs.results import Result, Results, check_labels, only
from real_runs.tables import ablation_table, class_table, comparison_table, settings_table
from real_runs.testing import on_test_images

BEGINS, ENDS = "<!-- written by benchmarks/real.py report -->", "<!-- end of what benchmarks/real.py wrote -->"


def report(
    out: Path,
    images: str,
    roots: Mapping[str, Path],
    labels: Sequence[str] = (),
    jobs: int = 1,
    page: Path | None = None,
    runs: Collection[str] | None = None,
) -> None:
    """Print the tables of the rows that validation has chosen, of ablations and of ``labels``, or write them.

    ``runs`` are the names of the runs to show, by default all that have a result.
    """
    results = [result for result in Results(out / "results.jsonl").read() if runs is None or result["run"] in runs]
    if not results:
        raise UserError(f"There are no results in {out / 'results.jsonl'}; train a plan first.")
    check_labels(results)
    shown = [result for benchmark in _benchmarks(results) for result in _shown(results, benchmark, labels)]
    scored = on_test_images(out, shown, roots, jobs) if images == "test" else shown
    _check_images(scored)
    text = "\n".join(benchmark_report(results, scored, benchmark) for benchmark in _benchmarks(results))
    if page is None:
        print(text)
    else:
        write_text(page, with_tables(page.read_text(encoding="utf-8"), text, page))


def benchmark_report(results: Sequence[Result], scored: Sequence[Result], benchmark: str) -> str:
    """Return the section of a benchmark; ``results`` choose, on validation images, and ``scored`` are shown."""
    own = only(scored, benchmark=benchmark)
    ablations = list(dict.fromkeys(result["label"] for result in own if result["role"] == "ablation"))
    labels = sorted({result["label"] for result in own} - set(ablations), key=lambda label: _score(own, label))
    ours, baseline = _ours(results, benchmark), best_baseline(results, benchmark)
    parts = [f"## {benchmark}\n", f"{_about(own)}\n", comparison_table(own, labels).markdown()]
    if baseline is not None:
        chosen = len(baselines(results, benchmark)) > 1
        parts.append(f"{'Best baseline by validation' if chosen else 'Baseline'}: {baseline}.\n")
    if ours is not None and baseline is not None and ours != baseline:
        parts.append(ablation_table(own, baseline, [ours]).markdown())
    if ours is not None and ablations:
        parts += ["### Ablation\n", ablation_table(own, ours, ablations).markdown()]
    parts += ["### Classes\n", *(class_table(own, one).markdown() for one in (ours, baseline) if one is not None)]
    parts += ["### Settings\n", settings_table(own, [*labels, *ablations]).markdown()]
    return "\n".join(parts)


def with_tables(page: str, text: str, path: Path) -> str:
    """Return a page with a text between its two marks."""
    before, begins, rest = page.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise UserError(f"{path} has no place for the tables; expected the lines '{BEGINS}' and '{ENDS}' in it.")
    return f"{before}{BEGINS}\n\n{text}\n{ENDS}{after}"


def _shown(results: Sequence[Result], benchmark: str, labels: Sequence[str]) -> list[Result]:
    wanted = {*chosen_variants(results, benchmark).values(), *labels}
    own = only(results, benchmark=benchmark)
    return [result for result in own if result["label"] in wanted or result["role"] == "ablation"]


def _check_images(results: Sequence[Result]) -> None:
    """Raise a UserError if one table would compare test images with validation images."""
    for benchmark in _benchmarks(results):
        if len({result["images"] for result in only(results, benchmark=benchmark)}) > 1:
            raise UserError(
                f"Some runs of {benchmark} were evaluated on validation images and some on test images; name the plan "
                "whose rows to show (--plan), or score all with --images test."
            )


def _ours(results: Sequence[Result], benchmark: str) -> str | None:
    """Return the chosen label of the method in question."""
    own = only(results, benchmark=benchmark, role="ours")
    return chosen_variants(own, benchmark)[own[0]["family"]] if own else None


def _score(results: Sequence[Result], label: str) -> tuple[float, str]:
    """Return what rows are ordered by: the mean IoU of all classes, then the label."""
    return mean([measure(result, "all") for result in only(results, label=label)]), label


def _about(results: Sequence[Result]) -> str:
    """Say what the numbers are of, and what they were measured on."""
    commits = ", ".join(sorted({result["commit"] or "not recorded" for result in results}))
    hardware = "; ".join(sorted({result["hardware"] for result in results}))
    seeds = ", ".join(map(str, sorted({result["seed"] for result in results})))
    return f"{results[0]['images'].capitalize()} images; seeds {seeds}; {hardware}; commit {commits}."


def _benchmarks(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result["benchmark"] for result in results))
