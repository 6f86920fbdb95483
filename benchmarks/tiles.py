"""Compare masks made in tiles with masks of whole images: mean IoU of both on the test images of a run.

    python benchmarks/tiles.py runs/first --tile 128 --overlap 64

Prints, for every pair of tile and overlap, the mean IoU over all classes, its difference from that of whole images, and
the share of pixels whose class differs; then the same as JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import faircl
from faircl.engine.reevaluate import saved_steps
from faircl.metrics.confusion import ConfusionMatrix, iou
from faircl.runs.folder import RunFolder
from faircl.scenario import FULL
from faircl.tables import Column, Table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--tile", type=int, action="append", help="may be repeated")
    parser.add_argument("--overlap", type=int, action="append", help="may be repeated; default: a quarter")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    pairs: list[tuple[int | None, int | None]] = [(None, None)]
    pairs += [(tile, overlap) for tile in options.tile or [128] for overlap in options.overlap or [None]]
    folder = RunFolder.open(options.run)
    scenario, data = folder.load_scenario(), folder.config().data.open()
    predictor = faircl.load(options.run, device=options.device)
    step = saved_steps(folder, None)[-1]
    split, table = folder.config().data.test, torch.from_numpy(scenario.test_table(step, FULL).astype("int64"))
    channels = torch.zeros(len(scenario.classes.names), dtype=torch.int64)
    channels[list(scenario.channel_ids)] = torch.arange(len(scenario.channel_ids))
    counts = [ConfusionMatrix(scenario.channels(step), torch.device("cpu")) for _ in pairs]
    differ, pixels = [0] * len(pairs), 0
    for id in scenario.steps[step].test_images:
        sample = data.read(split, id)
        masks = [predictor.predict(sample.image, tile=tile, overlap=overlap).mask for tile, overlap in pairs]
        pixels += sample.mask.size
        for k, mask in enumerate(masks):
            counts[k].update(channels[torch.from_numpy(mask).long()], table[torch.from_numpy(sample.mask).long()])
            differ[k] += int((mask != masks[0]).sum())
    means = [100 * float(iou(one.counts).nanmean()) for one in counts]
    rows = [
        {"tile": tile, "overlap": overlap, "miou": mean, "difference": mean - means[0], "pixels": 100 * other / pixels}
        for (tile, overlap), mean, other in zip(pairs, means, differ, strict=True)
    ]
    columns = [
        Column("tile"),
        Column("overlap"),
        Column("mIoU", 2),
        Column("difference", 2),
        Column("pixels that differ, %", 3),
    ]
    print(Table(columns, [list(row.values()) for row in rows], title=str(options.run)).text("markdown"))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
