"""What each trick of the fast path buys: a FairCL update with one of them off at a time, on one GPU.

    python benchmarks/tricks.py --model deeplab --out runs/tricks
    python benchmarks/tricks.py --model segformer --out runs/tricks

512×512, batch 24, 151 classes, 101 of them old, bf16. "all" is timed at the start, in the middle and at the end, which
shows how far two timings of the same thing differ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from faircl.cli import configure_allocator

configure_allocator()

import torch  # noqa: E402

from faircl.acceleration import batch_norm  # noqa: E402
from faircl.acceleration import bias as biases  # noqa: E402
from faircl.acceleration import cuda_graphs as graphs  # noqa: E402
from faircl.acceleration import layer_norm as norms  # noqa: E402
from faircl.acceleration import recording as recorded  # noqa: E402
from faircl.bench import step as bench  # noqa: E402
from faircl.config.run import parse_config  # noqa: E402
from faircl.engine.network import build_model  # noqa: E402
from faircl.engine.runtime import make_fabric, process_settings  # noqa: E402
from faircl.losses import binary, cluster, consistency  # noqa: E402
from faircl.losses import pixel_scores as scores  # noqa: E402
from faircl.methods.faircl.method import FairCL  # noqa: E402
from faircl.models import aspp, backbones, mlp_decoder, segformer, segmenter  # noqa: E402
from faircl.progress import ConsoleReporter  # noqa: E402
from faircl.runs.environment import environment  # noqa: E402

MODELS = {
    "deeplab": {"name": "deeplabv3", "backbone": "resnet101", "stride": 16},
    "segformer": {"name": "segformer", "variant": "b3"},
    "small": {"name": "small"},
}


class _NoKernels:
    """Stands in for ``faircl.kernels`` in one module."""

    @staticmethod
    def usable(_: torch.Tensor) -> bool:
        return False


def no(*_: Any, **__: Any) -> bool:
    return False


def yes(*_: Any, **__: Any) -> bool:
    return True


_record = graphs._record


def record_stages(model: Any, _: bool, config: Any, device: Any) -> str:
    return _record(model, True, config, device)


def plain_pool(x: Any, norm: Any, relu: Any, pool: Any) -> Any:
    return pool(relu(norm(x)))


def plain_cat_pool(self: Any, x: torch.Tensor) -> torch.Tensor:
    return super(aspp.ASPP, self).forward(x)


KERNELS_OFF = [(batch_norm, "_fits", no), (norms, "kernels", _NoKernels), (biases, "by_kernels", no)]
INLETS_OFF = [
    (segmenter, "kernels", _NoKernels),
    (FairCL, "_scored", lambda self, out: (out.logits, None)),
]
SHORT_OFF = [(FairCL, "takes_short_logits", False)]
VARIANTS: dict[str, tuple[list[tuple[Any, str, Any]], dict[str, Any], set[str]]] = {
    "all": ([], {}, set()),
    "inlets": (INLETS_OFF, {}, set()),
    "recorded graphs": ([(recorded._Recording, "on", True)], {"graphs": False}, set()),
    "recorded graphs, and the kernels that need them": ([], {"graphs": False}, set()),
    "BatchNorm kernels": ([(batch_norm, "_fits", no)], {}, {"deeplab", "segformer"}),
    "stem kernel": ([(backbones, "norm_relu_pool", plain_pool)], {}, {"deeplab"}),
    "pooled branch repeated": ([(aspp.ASPP, "forward", plain_cat_pool)], {}, {"deeplab"}),
    "row norms": ([(norms, "kernels", _NoKernels)], {}, {"segformer"}),
    "bias kernels": ([(biases, "by_kernels", no)], {}, {"segformer"}),
    "decoder's upsampling kernel": ([(mlp_decoder, "kernels", _NoKernels)], {}, {"segformer"}),
    "stochastic depth": ([(segformer, "speed_up_depth", lambda blocks: None)], {}, {"segformer"}),
    "stages in channels_last": ([(segformer, "is_heard", yes)], {}, {"segformer"}),
    "all (again)": ([], {}, set()),
    "16-bit logits in losses": (SHORT_OFF, {}, set()),
    "stages left out of graphs": ([(graphs, "_record", record_stages)], {}, set()),
    "values read one update late": ([(bench, "one_behind", lambda updates: updates)], {}, set()),
    "cluster kernel": ([(cluster, "kernels", _NoKernels), *INLETS_OFF], {}, set()),
    "consistency kernel": ([(consistency, "kernels", _NoKernels), *INLETS_OFF], {}, set()),
    "cross-entropy kernel": ([(scores, "kernels", _NoKernels), (binary, "kernels", _NoKernels)], {}, set()),
    "all (last)": ([], {}, set()),
    "hand-written network kernels": (KERNELS_OFF, {}, set()),
    "compile on top": ([], {"compile": True}, set()),
    "compile in the place of network kernels": (KERNELS_OFF, {"compile": True}, set()),
    "compile, no kernels, no inlets": ([*KERNELS_OFF, *INLETS_OFF], {"compile": True}, set()),
}


@contextmanager
def patched(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
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
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    size = bench.BenchSize(options.classes * 2 // 3, options.classes, options.iterations, 1)
    rows: list[dict[str, Any]] = []
    for name, (changes, train, models) in VARIANTS.items():
        if (models and options.model not in models) or (options.only and name not in options.only):
            continue
        config = parse_config(
            {
                "data": {"name": "scenes"},
                "scenario": {"task": "6-4"},
                "model": MODELS[options.model],
                "method": {"name": "faircl"},
                "train": {"batch": options.batch, "crop": options.size, "precision": options.precision, **train},
            }
        )
        try:
            with patched(changes), process_settings(config.train):
                fabric = make_fabric(config.train)
                network = build_model(config, pretrained=False)
                timed = bench._time_method(config, "faircl", network, fabric, size, ConsoleReporter())
            row = {"off": name, "milliseconds": 1e3 * timed.seconds, "peak_gib": timed.peak / 2**30}
        except Exception as error:
            row = {"off": name, "error": " ".join(str(error).split())[:300]}
        bench._let_go(fabric.device)
        rows.append(row)
        print(json.dumps(row), flush=True)
        found = {"model": options.model, "environment": environment(), "rows": rows}
        (options.out / f"{options.model}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
