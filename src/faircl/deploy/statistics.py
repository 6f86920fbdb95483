"""What FairCL must know of the classes of a network that it has not trained: features, prototypes, class distribution.

One pass over images, labelled or not, leaves the method in the state in which a first step of training would leave it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from faircl.acceleration.evaluation import evaluation_mode
from faircl.deploy.class_sample import ClassSample
from faircl.labels import UNLABELLED
from faircl.losses.soft_cross_entropy import marked_pixels
from faircl.methods.faircl import FairCL
from faircl.methods.faircl.take_up import take_up
from faircl.methods.feature_grid import to_stride
from faircl.models.segmenter import Segmenter
from faircl.precision import at_least_float32

CONFIDENCE = 0.5
"""Probability above which a prediction is certain: the class is likelier than all others together."""
FLOOR = 1e-3
"""Part of the class distribution that is shared out evenly, so that no class has p = 0."""


class ClassDescription(NamedTuple):
    """What was found.

    Shapes: features (K,), those drawn of each class; doubtful (K,) bool, whether they are of doubtful cells alone;
    pixels (K,), labelled or expected. ``images`` were looked at.
    """

    features: Tensor
    doubtful: Tensor
    pixels: Tensor
    images: int


def describe_classes(
    method: FairCL,
    network: Segmenter,
    batches: Iterable[tuple[Tensor, Tensor | None]],
    *,
    background: bool,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> ClassDescription:
    r"""Set the state of a fresh FairCL method as a first step leaves it, for all K classes of a network.

    A batch is images (B, 3, H, W) uint8 of one size and their labels (B, H, W): a channel, IGNORE where nothing is to
    be learned, or UNLABELLED where the network's own prediction counts. Labels of None are all UNLABELLED. Images of
    different batches may differ in size.

    - Features: at labelled cells (nearest label at network stride) and at unlabelled ones whose most probable class has
      a probability above ``confidence``; for a class that has no such cell, at those below. Up to ``queue`` per class,
      drawn evenly from the images (`ClassSample`). The method keeps up to ``replay`` of them, and as the prototype the
      mean of all.
    - Class distribution: p_c = (1 − ε)·n_c / Σ n + ε / K with ε = 0.001, n_c the labelled pixels of c, and of
      unlabelled ones the sum of the network's probabilities of c. Without any pixel p is uniform.

    A class that no image shows has no feature and no prototype: it is not replayed. ``background`` says whether channel
    0 is a background class. The network is left in the mode in which it was; method and result are on its device. Under
    several processes each must be given all images.
    """
    if method.bank.classes:
        raise ValueError("describe_classes needs a fresh method; this one knows classes already")
    classes, like = network.classifier.classes, network.mean
    sample = ClassSample(classes, method.config.queue, method.bank.width, like, seed)
    pixels = torch.zeros(classes, dtype=torch.float64, device=like.device)
    with evaluation_mode(network):
        for images, labels in batches:
            pixels += _add_batch(method, network, sample, images, labels, confidence)
    total = pixels.sum().clamp_min(torch.finfo(pixels.dtype).tiny)
    share = (1 - FLOOR) * pixels / total + FLOOR / classes if pixels.any() else torch.full_like(pixels, 1 / classes)
    method.to(like.device)
    take_up(method, sample.rows, sample.filled, share, round(pixels.sum().item()), background)
    return ClassDescription(sample.filled, sample.doubtful, pixels, sample.images)


@torch.no_grad()
def _add_batch(
    method: FairCL, network: Segmenter, sample: ClassSample, images: Tensor, labels: Tensor | None, confidence: float
) -> Tensor:
    """Add the features of a batch to the sample; return the pixels of every class (K,) in float64."""
    out = network(images.to(network.mean.device).to(network.mean.dtype) / 255)
    if labels is None:
        labels = torch.full((len(images), *images.shape[-2:]), UNLABELLED)
    labels = labels.to(network.mean.device).long()
    features, probabilities = method.features_of(out), at_least_float32(out.logits).softmax(1)
    sample.add(features, *_cell_labels(probabilities, labels, features.shape[-2:], confidence))
    return _pixels(probabilities, labels)


def _cell_labels(probabilities: Tensor, labels: Tensor, size: torch.Size, confidence: float) -> tuple[Tensor, Tensor]:
    """Return labels (B, h, w) of the cells of a feature map, given or predicted, and which are doubtful (B, h, w)."""
    largest, predicted = probabilities.max(1)
    given = to_stride(labels, size)
    unlabelled = given == UNLABELLED
    doubtful = unlabelled & to_stride((largest <= confidence).long(), size).bool()
    return to_stride(predicted, size).where(unlabelled, given), doubtful


def _pixels(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Count labelled pixels, and sum the network's probabilities over unlabelled ones: (K,) float64."""
    classes, height, width = probabilities.shape[1:]
    counted = torch.bincount(labels[labels < classes], minlength=classes).double()
    cells = marked_pixels(labels == UNLABELLED, (height, width)).to(probabilities)
    expected = probabilities.flatten(2) @ cells.flatten(1)[:, :, None]
    return counted + expected.double().sum((0, 2))
