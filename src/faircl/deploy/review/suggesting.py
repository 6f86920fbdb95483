"""Labelling new images by a model, for people to correct."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from faircl.acceleration.evaluation import evaluation_mode
from faircl.data.sample import Image
from faircl.deploy.adding.agreement import fill_in
from faircl.deploy.output_folder import new_folder
from faircl.deploy.review.classes import ReviewClasses
from faircl.deploy.review.cvat import CvatReview
from faircl.deploy.review.folder import FolderReview
from faircl.deploy.review.images import NewImage, ReviewSource
from faircl.deploy.review.label_studio import LabelStudioReview
from faircl.engine.evaluate import channels_to_class_ids
from faircl.labels import Mask, ignore_value
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.scenario import Scenario
from faircl.upsampling import upsampled, upsampled_argmax


@dataclass(frozen=True)
class Labeller:
    """A network, the scenario that its channels belong to, and the least probability of a label that is kept.

    The probability of a pixel's label is the largest value of the softmax over the classes that the network knows, at
    the image's own size.
    """

    network: Segmenter
    scenario: Scenario
    min_confidence: float = 0.0

    @torch.no_grad()
    def label(self, image: Image) -> tuple[Mask, NDArray[np.bool_]]:
        """Return class ids (H, W) of an image (H, W, 3), and where (H, W) the label is less probable than wanted."""
        size, mean = image.shape[:2], self.network.mean
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None].to(mean.device).to(mean.dtype) / 255
        with evaluation_mode(self.network):
            logits = self.network(pixels).logits
        channels = upsampled_argmax(logits, (size[0], size[1]))[0].cpu().numpy()
        if self.min_confidence > 0:
            confidence = upsampled(logits, (size[0], size[1]))[0].softmax(0).amax(0)
            doubtful = (confidence < self.min_confidence).cpu().numpy()
        else:
            doubtful = np.zeros(size, bool)
        return channels_to_class_ids(channels, self.scenario), doubtful


class Review(Protocol):
    """Files for review that are being written."""

    def add(self, image: NewImage, mask: Mask) -> None:
        """Write an image and its mask (H, W)."""
        ...

    def finish(self) -> None:
        """Write what comes last."""
        ...


def write_suggestions(
    labeller: Labeller,
    source: ReviewSource,
    classes: ReviewClasses,
    out: Path,
    to: str,
    model: str,
    reporter: Reporter,
) -> dict[str, Any]:
    """Label images and write them for review; return counts of images and pixels.

    Labels that an image has stay, ignored pixels too; its other pixels get the model's labels, or become ignored where
    these are doubtful. ``classes`` may have new ones behind those of the model.
    """
    names = classes.classes.names
    counts = np.zeros(len(names) + 1, np.int64)
    suggested = doubted = 0
    with new_folder(out) as part:
        review = _make_review(to, part, classes, out, model)
        with reporter.task("suggesting labels", source.total) as task:
            for image in source.images:
                predicted, doubtful = labeller.label(image.pixels)
                mask, open_pixels = fill_in(image.mask, predicted, classes.classes)
                doubtful &= open_pixels
                mask[doubtful] = ignore_value(mask)
                review.add(image, mask)
                counts += np.bincount(np.minimum(mask, len(names)).ravel(), minlength=len(names) + 1)
                suggested, doubted = suggested + int(open_pixels.sum()), doubted + int(doubtful.sum())
                task.advance()
        review.finish()
    pixels = int(counts.sum())
    return {
        "out": str(out),
        "to": to,
        "images": source.total,
        "suggested": suggested / pixels,
        "doubtful": doubted / pixels,
        "areas": {name: int(counts[id]) / pixels for id, name in enumerate(names) if counts[id]},
    }


def _make_review(to: str, root: Path, classes: ReviewClasses, out: Path, model: str) -> Review:
    if to == "cvat":
        return CvatReview(root, classes)
    if to == "label-studio":
        return LabelStudioReview(root, classes, out.absolute().name, model)
    return FolderReview(root, classes)
