"""Presets for GPUs with little memory: smaller batches with accumulated gradients, bf16, checkpointing.

A preset keeps the number of images per update. It does not keep the number of images that BatchNorm sees at a time; a
note says so.
"""

from __future__ import annotations

from typing import NamedTuple

from faircl.config.run import RunConfig
from faircl.errors import unknown_name


class Preset(NamedTuple):
    """Windows of 512×512 per process that fit on a card: with activations kept, and with activations computed twice.

    From peaks measured with FairCL in bf16 at 151 classes, larger of DeepLabV3-ResNet101 and SegFormer-B3: 1.1 GiB per
    window and 0.8 GiB beside them where activations are kept, 0.7 and 0.6 where they are computed twice.
    """

    kept: int
    twice: int


PRESETS = {"8gb": Preset(4, 8), "12gb": Preset(8, 12), "24gb": Preset(16, 24)}


class Change(NamedTuple):
    """A setting that a preset changes."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.key}: {_word(self.before)} → {_word(self.after)}"


def fit(config: RunConfig, name: str, processes: int = 1) -> tuple[RunConfig, list[Change], list[str]]:
    """Return a configuration that fits on cards of a size, what was changed for it, and what else changes with that."""
    if name.lower() not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    preset = PRESETS[name.lower()]
    kept, most = (max(1, int(windows * (512 / config.train.crop) ** 2)) * processes for windows in preset)
    update = config.train.batch * config.optim.accumulate
    batch = config.train.batch
    if batch > most:
        batch = _largest_share(update, most, processes) or batch
    wanted: dict[str, dict[str, object]] = {
        "train": {
            "batch": batch,
            "precision": "bf16" if config.train.precision in ("fp32", "fp64") else config.train.precision,
            "checkpointing": config.train.checkpointing or batch > kept,
        },
        "optim": {"accumulate": update // batch},
        "eval": {"batch": min(config.eval.batch, 2)},
    }
    changes = [
        Change(f"{section}.{key}", before, after)
        for section, settings in wanted.items()
        for key, after in settings.items()
        if (before := getattr(getattr(config, section), key)) != after
    ]
    fitted = config.model_copy(
        update={part: getattr(config, part).model_copy(update=values) for part, values in wanted.items()}
    )
    return fitted, changes, _notes(config, fitted, update, most)


def _largest_share(update: int, most: int, processes: int) -> int | None:
    """Return the largest batch up to a limit that divides an update; None where none does.

    Batches that give all processes alike are preferred, and no process is left with a single image where the limit
    allows two: BatchNorm could not use it.
    """
    least = processes * (2 if most >= 2 * processes else 1)
    fitting = [size for size in range(least, most + 1) if update % size == 0]
    even = [size for size in fitting if size % processes == 0]
    return max(even or fitting, default=None)


def _notes(config: RunConfig, fitted: RunConfig, update: int, most: int) -> list[str]:
    before, after = config.train.batch, fitted.train.batch
    if after > most:
        return [f"an update of {update} images cannot be split to fit; choose a train.batch with small divisors"]
    if after < before and config.train.frozen_norm == "never":
        images = "1 image" if after == 1 else f"{after} images"
        return [
            f"BatchNorm, where the network has it, now sees {images} at a time instead of {before}; train.frozen_norm "
            "keeps its statistics"
        ]
    return []


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
