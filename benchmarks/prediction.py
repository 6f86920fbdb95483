"""Time `Predictor.predict_many` beside plain inference by torchvision and transformers with the same weights.

    OMP_NUM_THREADS=2 python benchmarks/prediction.py --size 256 --size 512      # two CPU cores
    python benchmarks/prediction.py --device cuda --half --batch 8 --images 200 --size 512 --variant b3

Images are arrays (H, W, 3) of uint8 in memory; results are masks (H, W) of class ids in memory. The plain way is what
the libraries document: normalise, run torchvision's DeepLabV3 (which resizes its logits itself) or transformers'
SegFormer and `interpolate`, take the `argmax`, copy the masks back; in batches of the same size, on a GPU under the
same autocast. Both take turns, round by round; the table shows the best round of each, which other work on the machine
disturbs least. ``--clock cpu`` counts the processor time of this process instead: with OMP_NUM_THREADS=1 that compares
the work of both on a machine that is busy with something else. Prints the table, then JSON; exits with 1 where ours is
slower than --least times the plain way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.api.predicting import Predictor
from faircl.config.components import ModelConfig
from faircl.data.images import RGB
from faircl.data.sample import Classes
from faircl.deploy.prediction.options import PredictOptions
from faircl.engine.network import move_to_device
from faircl.models.segformer import SIZES
from faircl.models.segmenter import IMAGENET_MEAN, IMAGENET_STD, Segmenter
from faircl.registry import MODELS
from faircl.scenario import Scenario
from faircl.scenario.scenario import Step
from faircl.tables import Column, Table

Images = list[np.ndarray]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, action="append", help="side of the images; may be repeated")
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--batch", type=int, default=None, help="default: that of predict_many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--half", action="store_true", help="float16 autocast, for both")
    parser.add_argument("--variant", default="b0", help="variant of SegFormer")
    parser.add_argument("--backbone", default="resnet50", help="backbone of DeepLabV3")
    parser.add_argument("--network", action="append", choices=["segformer", "deeplabv3"], help="default: both")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--least", type=float, default=1.0, help="least speed over the plain way")
    options = parser.parse_args()
    rows = []
    for kind in options.network or ["segformer", "deeplabv3"]:
        network, plain = pair(kind, options)
        for size in options.size or [256, 512]:
            rows.append(measure(kind, network, plain, size, options))
    columns = [Column("network"), Column("size"), Column("plain, images/s", 2), Column("faircl, images/s", 2)]
    columns += [Column("speed", 2), Column("equal pixels, %", 3)]
    cells = [[row[key] for key in ("network", "size", "plain", "ours", "speed", "equal")] for row in rows]
    print(Table(columns, cells).text("markdown"))
    where = torch.cuda.get_device_name() if options.device != "cpu" else f"{torch.get_num_threads()} CPU threads"
    print(
        json.dumps(
            {"device": where, "torch": torch.__version__, "half": options.half, "clock": options.clock, "rows": rows},
            indent=1,
        )
    )
    return 0 if all(row["speed"] >= options.least for row in rows) else 1


def pair(kind: str, options: argparse.Namespace) -> tuple[Predictor, Callable[[Tensor], Tensor]]:
    """Return our predictor, and the other library's network with the same weights, as images to resized logits."""
    torch.manual_seed(0)
    special = {"variant": options.variant} if kind == "segformer" else {"backbone": options.backbone, "stride": 8}
    config: ModelConfig = MODELS.get(kind).Config(name=kind, weights="none", **special)
    network: Segmenter = MODELS.get(kind)(config)
    network.classifier.grow(options.classes)
    nn.init.normal_(network.classifier.heads[0].weight, std=0.1)
    device = torch.device(options.device)
    other = _library_network(kind, network, options).eval().to(device)
    placed = move_to_device(network.eval().requires_grad_(False), device)
    return Predictor(placed, _scenario(options.classes), 0, device, RGB, Path()), other


def _library_network(kind: str, network: Segmenter, options: argparse.Namespace) -> nn.Module:
    state = network.export_state_dict()
    if kind == "segformer":
        from transformers import SegformerConfig, SegformerForSemanticSegmentation

        size = SIZES[options.variant]
        config = SegformerConfig(
            depths=list(size.depths),
            hidden_sizes=list(size.widths),
            decoder_hidden_size=size.decoder,
            num_labels=options.classes,
        )
        other: nn.Module = SegformerForSemanticSegmentation(config)
    else:
        from torchvision.models import segmentation

        make = getattr(segmentation, f"deeplabv3_{options.backbone}")
        other = make(weights=None, weights_backbone=None, num_classes=options.classes, aux_loss=False)
    missing, unexpected = other.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert not missing, missing
    return other


def _scenario(classes: int) -> Scenario:
    names = ("background", *(f"class {k}" for k in range(1, classes)))
    step = Step(classes=tuple(range(1, classes)), images=(), test_images=())
    zeros = (0,) * classes
    return Scenario(
        Classes(names, True), "offline", "overlapped", (step,), learned_at=zeros, pixels=zeros, labels_sha256=""
    )


def measure(
    kind: str, predictor: Predictor, plain: Callable[[Tensor], Tensor], size: int, options: argparse.Namespace
) -> dict[str, object]:
    random = np.random.default_rng(0)
    images: Images = [random.integers(0, 256, (size, size, 3), np.uint8) for _ in range(options.images)]
    batch = options.batch or predictor.inference.batch(PredictOptions())

    def ours() -> Images:
        return [one.mask for one in predictor.predict_many(images, batch=batch, half=options.half)]

    def theirs() -> Images:
        return list(plain_masks(plain, kind, images, batch, torch.device(options.device), options.half))

    pairs = list(zip(ours(), theirs(), strict=True))  # the first round is not timed
    equal = 100 * statistics.mean(float((a == b).mean()) for a, b in pairs)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    times: dict[Callable[[], Images], list[float]] = {ours: [], theirs: []}
    for _ in range(options.rounds):
        for way in (ours, theirs):
            started = clock()
            way()
            times[way].append(clock() - started)
    rates = {way: options.images / min(found) for way, found in times.items()}
    return {
        "network": kind,
        "size": size,
        "batch": batch,
        "plain": rates[theirs],
        "ours": rates[ours],
        "speed": rates[ours] / rates[theirs],
        "equal": equal,
        "seconds": {"plain": times[theirs], "ours": times[ours]},
    }


@torch.no_grad()
def plain_masks(
    network: Callable[..., object], kind: str, images: Images, batch: int, device: torch.device, half: bool
) -> Iterator[np.ndarray]:
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    for k in range(0, len(images), batch):
        stored = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image in images[k : k + batch]])
        normalised = (stored.to(device).float() / 255 - mean) / std
        with torch.autocast(device.type, torch.float16, enabled=half):
            if kind == "segformer":
                logits = network(pixel_values=normalised).logits
                logits = F.interpolate(logits, stored.shape[-2:], mode="bilinear", align_corners=False)
            else:
                logits = network(normalised)["out"]
        yield from logits.argmax(1).to(torch.uint8).cpu().numpy()


if __name__ == "__main__":
    sys.exit(main())
