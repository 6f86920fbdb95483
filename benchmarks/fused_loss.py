"""Cross-entropy of upsampled logits: kernel, image by image, and interpolate + cross_entropy, forward and backward.

    python benchmarks/fused_loss.py --classes 151 --batch 24 --size 512 --strides 16 4

Prints milliseconds, peak memory, the ratio to interpolate + cross_entropy of the same run, and the error of loss and
gradient against float64 on the same rounded logits. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.data.sample import IGNORE
from faircl.engine.environment import environment
from faircl.kernels import upsampled
from faircl.losses import scores

Loss = Callable[[Tensor, Tensor], Tensor]


def peer(logits: Tensor, target: Tensor) -> Tensor:
    up = F.interpolate(logits.float(), target.shape[-2:], mode="bilinear", align_corners=False)
    return F.cross_entropy(up, target, ignore_index=IGNORE)


def of_scores(pixel_scores: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Loss:
    def loss(logits: Tensor, target: Tensor) -> Tensor:
        lse, own = pixel_scores(logits, target)
        valid = target != IGNORE
        return ((lse - own) * valid).sum() / valid.sum()

    return loss


LOSSES: dict[str, Loss] = {
    "interpolate + cross_entropy": peer,
    "image by image": of_scores(scores.pixel_scores),
    "kernel": of_scores(upsampled.pixel_scores),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=151)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--strides", type=int, nargs="+", default=[16, 4])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/fused_loss.py needs a GPU; torch sees none.", file=sys.stderr)
        return 2
    rows = [row for stride in options.strides for row in compare(options, stride)]
    print(json.dumps({"environment": environment(), **vars(options), "rows": rows}, indent=1))
    return 0


def compare(options: argparse.Namespace, stride: int) -> list[dict[str, object]]:
    gen = torch.Generator("cuda").manual_seed(0)
    side = options.size // stride
    shape = (options.batch, options.classes, side, side)
    logits = (3 * torch.randn(shape, generator=gen, device="cuda")).to(getattr(torch, options.dtype)).requires_grad_()
    target = torch.randint(options.classes, (options.batch, options.size, options.size), generator=gen, device="cuda")
    target[torch.rand(target.shape, generator=gen, device="cuda") < 0.05] = IGNORE
    exact, exact_grad = reference(logits, target)
    rows: list[dict[str, object]] = []
    for name, loss in LOSSES.items():
        times, peak, value, grad = measure(loss, logits, target, options.rounds)
        again = measure(loss, logits, target, 1)[3]
        rows.append(
            {
                "stride": stride,
                "loss": name,
                "ms": statistics.median(times),
                "extra_gib": peak / 2**30,
                "loss_error": abs(value - exact),
                "grad_error": float((grad.double() - exact_grad).norm() / exact_grad.norm()),
                "repeatable": bool(torch.equal(grad, again)),
            }
        )
    for row in rows:
        row["ratio"] = rows[0]["ms"] / row["ms"]  # type: ignore[operator]
    return rows


def measure(loss: Loss, logits: Tensor, target: Tensor, rounds: int) -> tuple[list[float], int, float, Tensor]:
    """Milliseconds of each round, bytes beyond inputs and gradient, the loss and the gradient."""
    times = []
    for number in range(rounds + 2):
        logits.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        value = loss(logits, target)
        value.backward()
        stop.record()
        torch.cuda.synchronize()
        if number >= 2:
            times.append(start.elapsed_time(stop))
    peak = torch.cuda.max_memory_allocated() - before
    assert logits.grad is not None
    return times, peak, float(value.detach()), logits.grad.detach().clone()


def reference(logits: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Loss and gradient in float64, image by image."""
    valid = (target != IGNORE).sum()
    total, parts = 0.0, []
    for k in range(len(logits)):
        one = logits[k : k + 1].detach().double().requires_grad_()
        up = F.interpolate(one, target.shape[-2:], mode="bilinear", align_corners=False)
        loss = F.cross_entropy(up, target[k : k + 1], ignore_index=IGNORE, reduction="sum") / valid
        loss.backward()
        total += float(loss.detach())
        parts.append(one.grad)
    return total, torch.cat(parts)


if __name__ == "__main__":
    sys.exit(main())
