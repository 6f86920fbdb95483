"""Segmenting images with a network that a run has trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, version_folder
from faircl.api.prediction import Prediction
from faircl.deploy.prediction.options import DEFAULT_SCORE, PredictOptions
from faircl.devices import torch_device
from faircl.errors import UserError

if TYPE_CHECKING:
    import torch

    from faircl.api.pixels import ImageSource
    from faircl.config.run import RunConfig
    from faircl.data.images import ImageReading
    from faircl.data.sample import Image
    from faircl.models.segmenter import Segmenter
    from faircl.runs.folder import RunFolder
    from faircl.scenario import Scenario


class Predictor:
    """The network of one step of a run, ready to segment images; made by `load`.

    ``names`` and ``colours`` are those of the classes that the network knows, by class id; ``step`` is the step whose
    network this is, ``network`` the torch module and ``device`` where it runs; ``background`` is the class id of the
    background, where the data has one. ``scenario`` says which classes the channels stand for, ``reading`` how image
    files are read.
    """

    def __init__(
        self,
        network: Segmenter,
        scenario: Scenario,
        step: int,
        device: torch.device,
        reading: ImageReading,
        folder: Path,
    ) -> None:
        from faircl.api.colours import class_colours
        from faircl.deploy.prediction.inference import Inference
        from faircl.labels import BACKGROUND

        self.network, self.scenario, self.step, self.device = network, scenario, step, device
        self.reading, self.background = reading, BACKGROUND if scenario.background else None
        self.inference = Inference(network, scenario, step, device, folder)
        known = scenario.channel_ids[: scenario.channels(step)]
        colours = class_colours(scenario.classes, scenario.colours)
        self.names = {id: scenario.classes.names[id] for id in sorted(known)}
        self.colours = {id: colours[id] for id in self.names}

    def predict(
        self,
        image: ImageSource,
        *,
        tile: int | None = None,
        overlap: int | None = None,
        flip: bool = False,
        half: bool = False,
        probabilities: bool = False,
        unknown: bool | str = False,
    ) -> Prediction:
        """Segment one image.

        ``image`` is a path, a Pillow image of any mode, an array (H, W, 3) of uint8, or a tensor (3, H, W) of uint8 or
        of floats in [0, 1] (rounded to 8 bits). A file is read as the run's training images were: its ``data.bands``
        and ``data.value_range`` hold, an EXIF orientation is left alone. So is a Pillow image, as far as Pillow keeps
        what the file holds: give the path of a file with more than 8 bits per colour.

        ``tile`` segments a large image in windows of so many pixels that share ``overlap`` (by default a quarter) with
        each neighbour, both multiples of 32; files may then have any size. ``flip`` averages the logits with those of
        the mirrored image. ``half`` computes in half precision, on a GPU. ``probabilities`` and ``unknown`` (True, or
        the name of a score) ask for more than the mask.
        """
        options = prediction_options(tile, overlap, None, flip, half, probabilities, unknown)
        return next(self._predictions([image], options))

    def predict_many(
        self,
        images: Iterable[ImageSource],
        *,
        batch: int | None = None,
        tile: int | None = None,
        overlap: int | None = None,
        flip: bool = False,
        half: bool = False,
        probabilities: bool = False,
        unknown: bool | str = False,
    ) -> Iterator[Prediction]:
        """Segment images one after the other, as `predict` does, and yield their predictions in order.

        Up to ``batch`` consecutive images of one size pass the network together, by default 8 on a GPU and 1 on a CPU;
        files are read ahead in threads.
        """
        return self._predictions(images, prediction_options(tile, overlap, batch, flip, half, probabilities, unknown))

    def _predictions(self, images: Iterable[ImageSource], options: PredictOptions) -> Iterator[Prediction]:
        from faircl.deploy.prediction.stripes import joined, segmented
        from faircl.parallel import read_ahead

        self.inference.check(options)
        ahead = 0 if options.tile is not None else 2 * self.inference.batch(options)
        loaded = read_ahead(images, lambda image: self._pixels(image, options), ahead)
        numbered = ((number, pixels) for number, pixels in enumerate(loaded))
        for _, pixels, stripes in segmented(self.inference, numbered, options):
            mask, unknown, probabilities = joined(list(stripes))
            names, colours = dict(self.names), dict(self.colours)
            yield Prediction(mask, names, colours, pixels, self.background, probabilities, unknown)

    def _pixels(self, image: ImageSource, options: PredictOptions) -> Image:
        from faircl.api.pixels import to_pixels
        from faircl.deploy.prediction.image_headers import any_size

        with any_size() if options.tile is not None else nullcontext():
            return to_pixels(image, self.reading)

    def __repr__(self) -> str:
        return f"Predictor(step={self.step}, device={str(self.device)!r}, classes={list(self.names.values())})"


def load(
    run: RunSource, step: int = -1, device: str | torch.device = "auto", *, version: int | None = None
) -> Predictor:
    """Load the network of a finished step, by default -1, the last, for `Predictor.predict`.

    Of a run with several versions (`versions`) it is the newest accepted one, or ``version``: 0 is the run as it was
    trained. ``device`` is auto (a GPU where there is one), cpu, cuda or any other that torch knows. The data that the
    run was trained on are not needed.
    """
    from faircl.engine.network import move_to_device
    from faircl.engine.reevaluate import load_network
    from faircl.engine.runtime import process_settings

    folder = version_folder(run, version)
    config, scenario = folder.config(), folder.load_scenario()
    saved, where = _saved_step(folder, step), torch_device(device)
    with process_settings(config.train):
        network = load_network(folder, config, saved)
    placed = move_to_device(network.eval().requires_grad_(False), where)
    return Predictor(placed, scenario, saved, where, _reading(config), folder.step_path(saved))


def _saved_step(folder: RunFolder, step: int) -> int:
    """Return a step's number on disk."""
    from faircl.engine.reevaluate import saved_steps

    if not isinstance(step, int) or isinstance(step, bool):
        raise UserError(f"A step is a whole number, -1 for the last; found {step!r}.")
    return saved_steps(folder, step)[0]


def _reading(config: RunConfig) -> ImageReading:
    """Return how the run's images are read."""
    from faircl.data.images import RGB
    from faircl.readers.base import FileConfig

    return config.data.image_reading() if isinstance(config.data, FileConfig) else RGB


def prediction_options(
    tile: int | None,
    overlap: int | None,
    batch: int | None,
    flip: bool,
    half: bool,
    probabilities: bool,
    unknown: bool | str,
) -> PredictOptions:
    """Return checked options; ``unknown`` is True for the step's default score."""
    score = unknown if isinstance(unknown, str) else (DEFAULT_SCORE if unknown else None)
    return PredictOptions(tile, overlap, batch, flip, half, probabilities, score)
