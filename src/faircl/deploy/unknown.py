"""The unknown map: how little every pixel resembles what a network has learned.

Scores of the logits work with every run. Scores of features compare a pixel with the features and prototypes that
FairCL keeps of every class, so they need a run of that method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from faircl.deploy import unknown_logits
from faircl.deploy.known_features import KnownFeatures, has_background, load_known_features
from faircl.deploy.unknown_calibration import Calibration
from faircl.deploy.unknown_features import (
    FeatureScore,
    Mahalanobis,
    MeanAngle,
    MeanDistance,
    NearestFeatures,
    PrototypeDistance,
    RelativeMahalanobis,
    in_parts,
)
from faircl.errors import UserError, listed, unknown_name
from faircl.models.segmenter import Segmenter, SegOutput

_LOGITS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "max-softmax": unknown_logits.max_softmax,
    "entropy": unknown_logits.entropy,
    "energy": unknown_logits.energy,
    "max-logit": unknown_logits.max_logit,
}
_FEATURES: dict[str, Callable[[KnownFeatures], FeatureScore]] = {
    "prototype": PrototypeDistance,
    "class-mean": MeanDistance,
    "class-mean-angle": MeanAngle,
    "mahalanobis": Mahalanobis,
    "relative-mahalanobis": RelativeMahalanobis,
    "nearest": NearestFeatures,
}
_COMBINED = {
    "mahalanobis+entropy": ("mahalanobis", "entropy"),
    "relative-mahalanobis+entropy": ("relative-mahalanobis", "entropy"),
    "nearest+entropy": ("nearest", "entropy"),
}
LOGIT_SCORES: tuple[str, ...] = tuple(_LOGITS)
"""Scores that need no remembered features."""
SCORES: tuple[str, ...] = (*_LOGITS, *_FEATURES, *_COMBINED)
"""Names of all scores."""
DEFAULT: str = "relative-mahalanobis+entropy"
"""The best mean AUROC on the validation images of benchmarks/unknown.py."""
DEFAULT_WITHOUT_FEATURES: str = "entropy"
"""The best among the scores of the logits there."""
_UNBOUNDED = ("energy", "max-logit")

Score = Callable[[Tensor, Tensor], Tensor]
"""Features (n, D) and logits (n, C) to scores (n,), all float32."""


@dataclass(frozen=True)
class UnknownScorer:
    """A score of how unknown every pixel is, from 0 (known) to 1.

    Scores of features are shares: 0.95 means less known than 95 % of the remembered features, of which every class has
    as many. ``max-softmax`` and ``entropy`` are as their formulas say. ``energy`` and ``max-logit`` are the probability
    of one more class whose logit is 0, beside all classes or beside the likeliest one.
    """

    score: str
    _compute: Score

    @classmethod
    def from_step(
        cls, step_folder: Path, network: Segmenter, score: str = DEFAULT, background: bool = True
    ) -> UnknownScorer:
        """Make a scorer for the network of a saved step, ``steps/NN`` of a run.

        ``background`` false: the background class, where there is one, does not count as known.
        """
        if score not in SCORES:
            raise unknown_name("score", score, SCORES)
        counts = background or not has_background(step_folder)
        if score in _LOGITS:
            return cls(score, _of_logits(score, counts))
        known = load_known_features(step_folder, counts, network.mean.device)
        if known is None:
            _raise_without_features(step_folder, score)
        if known.features.shape[1] != network.embedding_width:
            raise UserError(
                f"The features that {step_folder} remembers have {known.features.shape[1]} channels, but the network's "
                f"embedding has {network.embedding_width}; choose one of {listed(LOGIT_SCORES)}."
            )
        with _float32(network.mean.device):
            return cls(score, _of_features(score, known, network, counts))

    def __call__(self, output: SegOutput) -> Tensor:
        """Score every pixel of a network's output: (B, h, w) in [0, 1], float32, at network stride."""
        _, classes, h, w = output.logits.shape
        width = max(output.embedding.shape[1], classes)
        with _float32(output.logits.device):
            maps = [
                in_parts(self._rows, embedding.flatten(1).T, logits.flatten(1).T, width=width)
                for embedding, logits in zip(output.embedding, output.logits, strict=True)
            ]
            return torch.stack(maps).view(-1, h, w)

    def _rows(self, features: Tensor, logits: Tensor) -> Tensor:
        """Score pixels: features (n, D) and logits (n, C) of any precision to (n,)."""
        return self._compute(features.float(), logits.float())


def default_score(step_folder: Path) -> str:
    """Return the default score of a saved step: DEFAULT, or the best of its logits if it remembers no features."""
    known = load_known_features(step_folder, True, torch.device("cpu"))
    return DEFAULT_WITHOUT_FEATURES if known is None else DEFAULT


def _of_logits(name: str, background: bool) -> Score:
    """Return a score of the logits, in [0, 1]."""
    formula = _LOGITS[name]
    if name in _UNBOUNDED:
        return lambda features, logits: formula(logits, background).sigmoid()
    return lambda features, logits: formula(logits, background).clamp(0, 1)


def _of_features(name: str, known: KnownFeatures, network: Segmenter, background: bool) -> Score:
    """Return a score of the features, or of features and logits together, as a share of the remembered features."""
    if name in _FEATURES:
        raw = _FEATURES[name](known)
        share = Calibration.of(raw.of_known())
        return lambda features, logits: share(raw(features))
    by_features, by_logits = _COMBINED[name]
    raw, formula = _FEATURES[by_features](known), _LOGITS[by_logits]
    known_raw = raw.of_known(), formula(network.classifier.classify(known.features).float(), background)
    shares = [Calibration.of(values) for values in known_raw]

    def both(of_features: Tensor, of_logits: Tensor) -> Tensor:
        """−log(1 − u_1) − log(1 − u_2), Fisher's way to combine two shares u."""
        return shares[0].surprise(of_features) + shares[1].surprise(of_logits)

    share = Calibration.of(both(*known_raw))
    return lambda features, logits: share(both(raw(features), formula(logits, background)))


@contextmanager
def _float32(device: torch.device) -> Iterator[None]:
    """Compute without gradients, and in float32 also inside an autocast region."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def _raise_without_features(step_folder: Path, score: str) -> NoReturn:
    raise UserError(
        f"The unknown score '{score}' compares pixels with remembered features of the classes, and {step_folder} has "
        f"none, as its method keeps none; choose one of {listed(LOGIT_SCORES)}, or train with method faircl."
    )
