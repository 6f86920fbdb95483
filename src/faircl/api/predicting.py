"""Segmenting images with a network that a run has trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, version_folder
from faircl.errors import UserError

if TYPE_CHECKING:
    import torch
    from PIL import Image as Pillow

    from faircl.api.pixels import ImageSource
    from faircl.config.run import RunConfig
    from faircl.data.images import ImageReading
    from faircl.data.masks import Colour, Palette
    from faircl.data.sample import Image
    from faircl.labels import Mask
    from faircl.models.segmenter import Segmenter
    from faircl.runs.folder import RunFolder
    from faircl.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Prediction:
    """A segmented image.

    ``mask`` (H, W) holds the data set's class ids at the image's own size; ``names`` and ``colours`` say what they
    mean, by class id, for all classes that the network knows; ``image`` (H, W, 3) uint8 is what it has seen.
    """

    mask: Mask = field(repr=False)
    names: dict[int, str]
    colours: dict[int, Colour] = field(repr=False)
    image: Image = field(repr=False)
    background: int | None = field(default=None, repr=False)
    """Class id of the background, where the data has one."""

    def areas(self) -> dict[str, float]:
        """Return the share of the image that every class covers, largest first; classes that do not occur are left out.

        Shares sum to 1.
        """
        import numpy as np

        ids, counts = np.unique(self.mask, return_counts=True)
        ranked = sorted(zip(counts.tolist(), ids.tolist(), strict=True), key=lambda pair: -pair[0])
        return {self.names[id]: count / self.mask.size for count, id in ranked}

    def colour_image(self) -> Pillow.Image:
        """Return the mask painted in the colours of its classes."""
        from PIL import Image as Pillow

        return Pillow.fromarray(self._painted())

    def overlay(self, opacity: float = 0.5) -> Pillow.Image:
        """Return the image with its classes painted over it; the background stays as it is."""
        import numpy as np
        from PIL import Image as Pillow

        if not 0 <= opacity <= 1:
            raise UserError(f"The opacity of an overlay lies between 0 and 1; found {opacity}.")
        mixed = np.rint((1 - opacity) * self.image + opacity * self._painted()).astype(np.uint8)
        kept = np.zeros_like(self.mask, bool) if self.background is None else self.mask == self.background
        return Pillow.fromarray(np.where(kept[..., None], self.image, mixed))

    def _painted(self) -> Image:
        from faircl.data.masks import colour_mask

        return colour_mask(self.mask, _palette(self.colours))


class Predictor:
    """The network of one step of a run, ready to segment images; made by `load`.

    ``names`` and ``colours`` are those of the classes that the network knows, by class id; ``step`` is the step whose
    network this is, ``network`` the torch module and ``device`` where it runs.
    """

    def __init__(
        self, network: Segmenter, scenario: Scenario, step: int, device: torch.device, reading: ImageReading
    ) -> None:
        from faircl.api.colours import class_colours

        self.network, self.step, self.device = network, step, device
        self._scenario, self._reading = scenario, reading
        known = scenario.channel_ids[: scenario.channels(step)]
        colours = class_colours(scenario.classes, scenario.colours)
        self.names = {id: scenario.classes.names[id] for id in sorted(known)}
        self.colours = {id: colours[id] for id in self.names}

    def predict(self, image: ImageSource) -> Prediction:
        """Segment one image.

        ``image`` is a path, a Pillow image of any mode, an array (H, W, 3) of uint8, or a tensor (3, H, W) of uint8 or
        of floats in [0, 1] (rounded to 8 bits). A file is read as the run's training images were: its ``data.bands``
        and ``data.value_range`` hold, an EXIF orientation is left alone. So is a Pillow image, as far as Pillow keeps
        what the file holds: give the path of a file with more than 8 bits per colour.
        """
        import torch

        from faircl.api.pixels import to_pixels
        from faircl.engine.evaluate import channels_to_class_ids, evaluation_mode, predict
        from faircl.labels import BACKGROUND

        pixels = to_pixels(image, self._reading)
        with evaluation_mode(self.network):
            channels = predict(self.network, torch.from_numpy(pixels).permute(2, 0, 1)[None])[0]
        mask = channels_to_class_ids(channels.cpu().numpy(), self._scenario)
        background = BACKGROUND if self._scenario.background else None
        return Prediction(mask, dict(self.names), dict(self.colours), pixels, background)

    def __repr__(self) -> str:
        return f"Predictor(step={self.step}, device={str(self.device)!r}, classes={list(self.names.values())})"


def load(
    run: RunSource, step: int = -1, device: str | torch.device = "auto", *, version: int | None = None
) -> Predictor:
    """Load the network of a finished step, by default the last, for `Predictor.predict`.

    Of a run with several versions (`versions`) it is the newest accepted one, or ``version``: 0 is the run as it was
    trained. ``device`` is auto (a GPU where there is one), cpu, cuda or any other that torch knows. The data that the
    run was trained on are not needed.
    """
    from faircl.engine.network import move_to_device
    from faircl.engine.reevaluate import load_network
    from faircl.engine.runtime import process_settings

    folder = version_folder(run, version)
    config, scenario = folder.config(), folder.load_scenario()
    saved, where = _saved_step(folder, step), _device(device)
    with process_settings(config.train):
        network = load_network(folder, config, saved)
    placed = move_to_device(network.eval().requires_grad_(False), where)
    return Predictor(placed, scenario, saved, where, _reading(config))


def _saved_step(folder: RunFolder, step: int) -> int:
    """Return a step's number on disk; negative numbers count from the last finished step."""
    from faircl.engine.reevaluate import saved_steps

    if not isinstance(step, int) or isinstance(step, bool):
        raise UserError(f"A step is a whole number, -1 for the last; found {step!r}.")
    if step >= 0:
        return saved_steps(folder, step)[0]
    finished = saved_steps(folder, None)
    if -step > len(finished):
        raise UserError(f"The run {folder.path} has {len(finished)} finished steps; step {step} is before the first.")
    return finished[step]


def _device(name: str | torch.device) -> torch.device:
    import torch

    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise UserError(f"Unknown device {name!r}; expected auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and not (cuda and (device.index or 0) < torch.cuda.device_count()):
        raise UserError(
            f"The device {name} is not there: torch sees {torch.cuda.device_count()} GPUs; use device='cpu' or 'auto'."
        )
    return device


def _reading(config: RunConfig) -> ImageReading:
    """Return how the run's images are read."""
    from faircl.data.images import RGB
    from faircl.readers.base import FileConfig

    return config.data.image_reading() if isinstance(config.data, FileConfig) else RGB


def _palette(colours: dict[int, Colour]) -> Palette:
    """Return colours (N, 3) by class id; ids without one are black."""
    import numpy as np

    palette = np.zeros((max(colours) + 1, 3), np.uint8)
    palette[list(colours)] = list(colours.values())
    return palette
