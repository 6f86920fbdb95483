"""What the model before says of the new images: labels for review, and what a later model is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faircl.data.masks import decode_mask, palette_of, write_mask
from faircl.data.sample import Classes, Sample
from faircl.deploy.matched_data import TRAIN, MatchedData
from faircl.engine.evaluate import predict_masks
from faircl.files import writing
from faircl.labels import BACKGROUND, Mask
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.scenario import Scenario
from faircl.scenario.label_table import unlabelled_value

MOST_IMAGES = 200
"""New images that the agreement of two models is measured on, at most."""


class AgreementData:
    """New images with the labels that they have and, where they have none, the predictions of a model.

    The masks are files of a folder, ID.png, in the model's ids; a `SegmentationData`.
    """

    def __init__(self, data: MatchedData, folder: Path) -> None:
        self.data, self.folder, self.classes = data, folder, data.classes

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of the images that have a mask here."""
        return [id for id in self.data.ids(TRAIN) if mask_file(self.folder, id).is_file()]

    def read(self, split: str, id: str) -> Sample:
        """Return image and mask of one id."""
        return self.data.read(TRAIN, id)._replace(mask=self.read_mask(split, id))

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask alone."""
        return decode_mask(mask_file(self.folder, id))


def mask_file(folder: Path, id: str) -> Path:
    """Return the file of an image's mask."""
    return folder / f"{id}.png"


def chosen_images(ids: Sequence[str], most: int = MOST_IMAGES) -> list[str]:
    """Return at most so many ids, the same ones whenever the ids are the same, in their order."""
    drawn = sorted(ids, key=lambda id: hashlib.blake2b(id.encode(errors="surrogateescape")).digest())[:most]
    kept = set(drawn)
    return [id for id in ids if id in kept]


def write_labels(
    folder: Path, network: Segmenter, data: MatchedData, ids: Sequence[str], scenario: Scenario, reporter: Reporter
) -> None:
    """Write the labels of new images into a folder, completed by what the network predicts.

    ``scenario`` is the one that the network's channels belong to. Pixels that the masks label, or ignore, stay as they
    are.
    """
    with reporter.task("labels by the model before", len(ids)) as task:
        for id in ids:
            (predicted,) = predict_masks(network, data, TRAIN, [id], scenario)
            mask, _ = fill_in(data.read_mask(TRAIN, id), predicted, data.classes)
            path = mask_file(folder, id)
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_mask(path, mask, palette_of(scenario.colours))
            task.advance()


def fill_in(given: Mask | None, predicted: Mask, classes: Classes) -> tuple[Mask, NDArray[np.bool_]]:
    """Return a mask (H, W) with predictions where it has no label, and where (H, W) these are; None has no label.

    A pixel without a label is background or, in masks of classes without a background, unlabelled. Ignored pixels stay.
    """
    if given is None:
        return predicted.copy(), np.ones(predicted.shape, bool)
    rest = BACKGROUND if classes.background else unlabelled_value(len(classes.names))
    unlabelled = given == rest
    return np.where(unlabelled, predicted.astype(given.dtype), given), unlabelled
