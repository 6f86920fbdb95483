"""Segmenting image files into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.api.opening import RunSource, run_folder, version_folder
from faircl.api.predicting import load, prediction_options
from faircl.errors import UserError

if TYPE_CHECKING:
    import torch

    from faircl.progress import Reporter
    from faircl.runs.folder import RunFolder


def predict(
    run: RunSource,
    images: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    step: int = -1,
    version: int | None = None,
    device: str | torch.device = "auto",
    batch: int | None = None,
    tile: int | None = None,
    overlap: int | None = None,
    flip: bool = False,
    half: bool = False,
    probabilities: bool = False,
    unknown: bool | str = False,
    overlay: bool = True,
    skip_broken: bool = False,
    resume: bool = False,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Segment image files with the network of a step into the folder ``out``, and return its predictions.json.

    ``images`` names files, folders with all images below them, and patterns such as ``"photos/*.jpg"``. For each there
    is an index mask under ``masks/``, with ``overlay`` a picture of its classes under ``overlays/``, and an entry with
    the area of every class; `Predictor.predict_many` has the other options. ``out`` must be new or empty; ``resume``
    continues a prediction there that was interrupted. Images that cannot be read are an error unless ``skip_broken``
    leaves them out.
    """
    from faircl.deploy.input_files import find_images
    from faircl.deploy.prediction.image_headers import check_headers
    from faircl.deploy.prediction.journal import Journal
    from faircl.deploy.prediction.options import STEP

    options = prediction_options(tile, overlap, batch, flip, half, probabilities, unknown)
    folder, place = version_folder(run, version), Path(out).expanduser()
    journal = Journal(place, resume)
    found = find_images([images] if isinstance(images, str | Path) else list(images), place)
    readable, skipped = check_headers(journal.remaining(found), options.tile is not None, skip_broken)
    if not readable and not journal.done:
        raise UserError(f"None of the {len(found)} images can be read; the first: {skipped[0].reason}")

    from faircl.checksums import sha256
    from faircl.deploy.prediction.image_outputs import ImageOutputs, KnownClasses
    from faircl.deploy.prediction.predict_files import FilePredictor, document
    from faircl.progress import ConsoleReporter

    predictor, reporter = load(run, step, device, version=version), reporter or ConsoleReporter()
    inference = predictor.inference
    inference.check(options)
    if note := folder.unfinished_note(predictor.step):
        reporter.say(note)
    crop = 0 if options.tile is None else _training_window(run_folder(run), folder, predictor.step)
    if options.tile is not None and options.tile < crop:
        reporter.say(
            f"note: tiles of {options.tile} pixels are smaller than the windows that the network was trained on; "
            f"larger ones, from --tile {-(-crop // STEP) * STEP} on, may be more accurate."
        )
    chosen = {key: value for key, value in asdict(options).items() if key != "batch"}
    chosen |= {"overlap": options.shared, "overlay": overlay}
    weights = sha256(folder.step_path(predictor.step) / "model.safetensors")
    journal.begin({"run": str(folder.path), "step": predictor.step, "weights": weights, "options": chosen})
    classes = KnownClasses(predictor.names, predictor.colours, predictor.background, inference.small)
    outputs = ImageOutputs(place, classes, options, overlay)
    files = FilePredictor(inference, predictor.reading.read, outputs, journal, reporter, skip_broken)
    made = document(journal, outputs, found, [*skipped, *files.run(readable)])
    journal.finish(made)
    return made


def _training_window(run: RunFolder, version: RunFolder, step: int) -> int:
    """Return the side of the windows that a network was trained on; 0 where that is not known.

    It is not for an adopted network that has learned nothing here. A version whose classes were renamed, merged or
    dropped has no images of its own: its network is the one that the run trained.
    """
    steps = (*version.load_scenario().steps[: step + 1], *run.load_scenario().steps)
    return version.config().train.crop if any(one.images for one in steps) else 0
