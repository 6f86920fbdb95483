"""Measure how well the unknown map finds classes that a network has never learned.

    python benchmarks/unknown.py --data scenes
    python benchmarks/unknown.py --camvid data/camvid --weights mobilenet_v2.safetensors --images val
    python benchmarks/unknown.py --camvid data/camvid --weights mobilenet_v2.safetensors --images test \\
        --jsonl docs/results/unknown-test.jsonl

In every case some classes are void in the training masks, and unknown in the images that are scored; all other classes
are known. In the cases of two steps three of the known classes are learned later. A case trains FairCL on a copy of the
data (OUT/data) into OUT/runs, unless that is there, and scores all pixels of the validation or test images, void ones
left out. Measurements are kept in OUT/results and not repeated.

The score with the best mean AUROC on validation images is to be the default; test images are for reporting only.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from unknown_runs.cases import HELD_OUT, Case, cases, open_data
from unknown_runs.measuring import measure
from unknown_runs.tables import background_table, best_score, case_table, summary_table
from unknown_runs.training import train

from faircl.errors import UserError
from faircl.files import write_text
from faircl.progress import ConsoleReporter, Reporter
from faircl.runs.environment import environment
from faircl.runs.reading import read_json


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        records = [record for case in cases(options.data) for record in _results(case, options, ConsoleReporter())]
        if options.jsonl is not None:
            write_text(options.jsonl, "".join(json.dumps(record) + "\n" for record in records))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    known = [record for record in records if record["background"]]
    print(summary_table(known).markdown())
    for name in dict.fromkeys(record["case"] for record in known):
        print("\n" + case_table([record for record in known if record["case"] == name]).markdown())
    if len(known) < len(records):
        print("\n" + background_table(records).markdown())
    print(f"\nbest mean AUROC: {best_score(known)} ({options.images} images)")
    return 0


def _results(case: Case, options: argparse.Namespace, reporter: Reporter) -> list[dict[str, Any]]:
    """Return the records of a case, measured now or before."""
    kept = options.out / "results" / f"{case.name}-{options.images}.jsonl"
    if kept.is_file():
        return [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    run = train(case, options.out, options.camvid, options.weights, options.seed, reporter)
    here, trained = environment(), read_json(run / "environment.json")
    about = {"seed": options.seed, "trained": trained["commit"], "commit": here["commit"]}
    about |= {"hardware": f"{here['cpu'] if here['gpu'] == 'none' else here['gpu']}, torch {here['torch']}"}
    data = open_data(case.source, options.camvid)
    records = [record | about for record in measure(case, run, data, options.images, reporter)]
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, "".join(json.dumps(record) + "\n" for record in records))
    return records


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/unknown"))
    parser.add_argument("--data", nargs="+", choices=list(HELD_OUT), default=list(HELD_OUT), help="data sets")
    parser.add_argument("--camvid", type=Path, help="folder of CamVid")
    parser.add_argument("--weights", type=Path, help="ImageNet weights of MobileNetV2, for CamVid")
    parser.add_argument("--images", choices=("val", "test"), default="val", help="images to score")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    parser.add_argument("--jsonl", type=Path, help="file to write every measurement into")
    return parser


if __name__ == "__main__":
    sys.exit(main())
