"""What each part of the fast path buys: a FairCL update with one of them off at a time, on one GPU.

    python benchmarks/tricks.py --model deeplab --out runs/tricks
    python benchmarks/tricks.py --model segformer --out runs/tricks

512×512, batch 24, 151 classes, 101 of them old, bf16. "nothing" is timed at the start, in the middle and at the end,
which shows how far two timings of the same thing differ. ``--compile`` adds the variants under torch.compile, which
take minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from faircl.cli import configure_allocator

configure_allocator()

import torch  # noqa: E402

from faircl.acceleration import FUSIONS, accelerated, cuda_graphs  # noqa: E402
from faircl.bench import updates as bench  # noqa: E402
from faircl.bench.timing import free_memory  # noqa: E402
from faircl.config.run import parse_config  # noqa: E402
from faircl.engine.network import build_model  # noqa: E402
from faircl.engine.runtime import make_fabric, process_settings  # noqa: E402
from faircl.losses import cluster, consistency, pixel_scores  # noqa: E402
from faircl.progress import ConsoleReporter  # noqa: E402
from faircl.runs.environment import environment  # noqa: E402

MODELS = {
    "deeplab": {"name": "deeplabv3", "backbone": "resnet101", "stride": 16},
    "segformer": {"name": "segformer", "variant": "b3"},
    "small": {"name": "small"},
}
Change = tuple[Any, str, Any]


class Variant(NamedTuple):
    """What is patched (owner, name, value), and the settings of ``train`` that differ."""

    changes: Sequence[Change] = ()
    train: Mapping[str, Any] = MappingProxyType({})


class NoKernels:
    """Stands in for ``faircl.kernels`` in one module."""

    @staticmethod
    def usable(_: torch.Tensor) -> bool:
        return False


_record = cuda_graphs._record


def record_stages(model: Any, _: bool, config: Any, device: Any) -> str:
    return _record(model, True, config, device)


def fusions(*names: str) -> Change:
    return bench, "accelerated", partial(accelerated, fusions=names)


def variants(compiled: bool) -> dict[str, Variant]:
    """Return the variants by what is off."""
    plain = Variant()
    found = {"nothing": plain, "recorded graphs, and the fusions that need them": Variant(train={"graphs": False})}
    found |= {f"fusion: {name}": Variant([fusions(*(one for one in FUSIONS if one != name))]) for name in FUSIONS}
    found |= {
        "all fusions": Variant([fusions()]),
        "nothing (again)": plain,
        "leaving stages out of graphs": Variant([(cuda_graphs, "_record", record_stages)]),
        "reading values one update late": Variant([(bench, "delay_by_one", lambda updates: updates)]),
        "kernel of L_cluster": Variant([(cluster, "kernels", NoKernels)]),
        "kernel of L_cons": Variant([(consistency, "kernels", NoKernels)]),
        "kernel of cross-entropy": Variant([(pixel_scores, "kernels", NoKernels)]),
        "nothing (last)": plain,
    }
    if compiled:
        found["nothing, with train.compile"] = Variant(train={"compile": True})
        found["all fusions, with train.compile"] = Variant([fusions()], {"compile": True})
    return found


@contextmanager
def patched(changes: Sequence[Change]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(patch.object(owner, name, value))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/tricks"))
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--classes", type=int, default=151)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    size = bench.BenchSize(options.classes * 2 // 3 + 1, options.classes, options.iterations, 1)
    rows: list[dict[str, Any]] = []
    for name, variant in variants(options.compile).items():
        config = parse_config(
            {
                "data": {"name": "scenes"},
                "scenario": {"task": "6-4"},
                "model": MODELS[options.model],
                "method": {"name": "faircl"},
                "train": {
                    "batch": options.batch,
                    "crop": options.size,
                    "precision": options.precision,
                    **variant.train,
                },
            }
        )
        with patched(variant.changes), process_settings(config.train):
            fabric = make_fabric(config.train)
            network = build_model(config, pretrained=False)
            timed = bench.time_method(config, "faircl", network, fabric, size, ConsoleReporter())
        free_memory(fabric.device)
        rows.append({"off": name, "milliseconds": 1e3 * timed.seconds, "peak_gib": timed.peak / 2**30})
        print(json.dumps(rows[-1]), flush=True)
        found = {"model": options.model, "environment": environment(), "rows": rows}
        (options.out / f"{options.model}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
