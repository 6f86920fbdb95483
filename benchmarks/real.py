"""Methods on small real data: many runs side by side on one GPU, chosen on validation images.

    python benchmarks/real.py --camvid data/camvid --ccp data/ccp --weights mobilenet_v2.safetensors \\
        --plan plan.yaml --out runs/real --jobs 10 --minutes 9
    python benchmarks/real.py report --out runs/real --camvid data/camvid --ccp data/ccp --images test

The first form trains the rows of a plan (``real_runs/plan.py`` has its form), every run evaluated on its validation
images, or on the test images where the plan says so, and appends a line per finished run to results.jsonl. Runs with
the same first step share it. After ``--minutes`` it stops what is running; the same command continues, and skips what
is finished. A failed run is logged in failed.log; the others go on. Settings are part of a run's name, the source is
not: use another ``--out`` after changing it.

``report`` prints tables from results.jsonl. With ``--images test`` it evaluates the rows that validation has chosen on
the test images first, once: they are kept in test.jsonl. ``--page`` writes the tables into a page of the documentation.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from pathlib import Path

from real_runs.plan import Place, read_plan
from real_runs.report import report
from real_runs.runner import Runner
from real_runs.workload import read_plans

from faircl.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _report(words[1:]) if words[:1] == ["report"] else _train(words)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


def _train(words: list[str]) -> int:
    parser = _parser()
    parser.add_argument("--minutes", type=float, help="stop after this time; by default when all is trained")
    parser.add_argument("--commit", default="", help="recorded with results where the source tree has no git")
    options = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # running jobs are ended, too
    end = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    if not options.plan:
        raise UserError("There is no plan to train; name one with --plan FILE.")
    jobs = read_plans(options.plan, Place(_roots(options), options.weights))
    runner = Runner(jobs, options.out, options.jobs, lambda: time.monotonic() > end, _say, options.commit)
    return 0 if runner.run() else 1


def _report(words: list[str]) -> int:
    parser = _parser()
    parser.add_argument("--images", choices=("validation", "test"), default="validation")
    parser.add_argument("--labels", nargs="*", default=[], help="rows to show beside those that validation has chosen")
    parser.add_argument("--page", type=Path, help="Markdown file to write the tables into, between its two marks")
    options = parser.parse_args(words)
    roots, runs = _roots(options), None
    if options.plan:
        place = Place(roots, options.weights)
        runs = {job.name for plan in options.plan for job in read_plan(plan, place)}
    report(options.out, options.images, roots, options.labels, options.jobs, options.page, runs)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/real"))
    parser.add_argument("--camvid", type=Path, help="folder of CamVid")
    parser.add_argument("--ccp", type=Path, help="folder of Clothing Co-Parsing")
    parser.add_argument("--weights", type=Path, help="ImageNet weights of MobileNetV2; none: random ones")
    parser.add_argument(
        "--plan",
        type=Path,
        action="append",
        default=[],
        help="rows to train, or to report (by default all); of several plans the rows of the first come first",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    return parser


def _roots(options: argparse.Namespace) -> dict[str, Path]:
    given = {"camvid": options.camvid, "ccp": options.ccp}
    return {name: path for name, path in given.items() if path is not None}


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
