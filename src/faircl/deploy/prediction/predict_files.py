"""Segmenting image files into a folder of masks, overlays and one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from faircl import __version__
from faircl.data.sample import Image
from faircl.deploy.input_files import InputImage
from faircl.deploy.prediction.image_headers import Skipped, any_size
from faircl.deploy.prediction.image_outputs import ImageOutputs
from faircl.deploy.prediction.inference import Inference
from faircl.deploy.prediction.journal import Journal
from faircl.deploy.prediction.options import PredictOptions
from faircl.deploy.prediction.stripes import Stripe, segmented, stripe_count
from faircl.errors import UserError
from faircl.parallel import read_ahead
from faircl.progress import Reporter, Task


class FilePredictor(NamedTuple):
    """What segments files: the network, how files are read, and where results go."""

    inference: Inference
    read: Callable[[Path], Image]
    outputs: ImageOutputs
    journal: Journal
    reporter: Reporter
    skip_broken: bool

    def run(self, images: Sequence[InputImage]) -> list[Skipped]:
        """Segment files one after the other, note each that is finished, and return those that cannot be decoded."""
        skipped: list[Skipped] = []
        options = self.outputs.options
        readable = self._readable(images, options, skipped)
        try:
            self._run(images, readable, options)
        finally:
            self.journal.remove_empty_folders()
        if skipped and not self.skip_broken:
            kept = f"{len(self.journal.done)} images are finished" if self.journal.done else "Nothing was written"
            raise UserError(
                f"{skipped[0].reason} {kept}; --skip-broken leaves such images out"
                f"{', --resume continues' if self.journal.done else ''}."
            )
        return skipped

    def _run(
        self, images: Sequence[InputImage], readable: Iterator[tuple[InputImage, Image]], options: PredictOptions
    ) -> None:
        if options.tile is not None:
            for number, (item, image, stripes) in enumerate(segmented(self.inference, readable, options), 1):
                label = f"image {number} of {len(images)}"
                with self.reporter.task(label, stripe_count(len(image), options)) as task:
                    self._finish(item, image, _counted(stripes, task))
            return
        with self.reporter.task("predict", len(images)) as task:
            for item, image, stripes in segmented(self.inference, readable, options):
                self._finish(item, image, stripes)
                task.advance()

    def _finish(self, item: InputImage, image: Image, stripes: Iterator[Stripe]) -> None:
        self.journal.add(self.outputs.write(item, image, stripes))

    def _readable(
        self, images: Sequence[InputImage], options: PredictOptions, skipped: list[Skipped]
    ) -> Iterator[tuple[InputImage, Image]]:
        """Yield images as they are decoded; broken ones are added to ``skipped``, the last if they are not left out."""

        def read(item: InputImage) -> Image | UserError:
            try:
                with nullcontext() if options.tile is None else any_size():
                    return self.read(item.path)
            except UserError as error:
                return error

        ahead = 0 if options.tile is not None else 2 * self.inference.batch(options)
        for item, image in zip(images, read_ahead(images, read, ahead), strict=True):
            if not isinstance(image, UserError):
                yield item, image
                continue
            skipped.append(Skipped(item, str(image)))
            if not self.skip_broken:
                return  # what is on its way through the network is finished first


def _counted(stripes: Iterator[Stripe], task: Task) -> Iterator[Stripe]:
    for stripe in stripes:
        yield stripe
        task.advance()


def document(
    journal: Journal, outputs: ImageOutputs, images: Sequence[InputImage], skipped: Sequence[Skipped]
) -> dict[str, Any]:
    """Return what predictions.json holds: settings, classes, the entry of every image, and images left out."""
    return {
        "faircl": __version__,
        **journal.settings,
        "classes": outputs.classes.to_json(),
        "images": [journal.done[image.name] for image in images if image.name in journal.done],
        "skipped": [{"image": str(one.image.path), "reason": one.reason} for one in skipped],
    }
