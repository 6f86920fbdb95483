"""Suggesting labels of new images, for people to correct."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.api.opening import DataSource, RunSource, run_folder, version_folder
from faircl.errors import UserError, unknown_name

if TYPE_CHECKING:
    import torch

    from faircl.progress import Reporter
    from faircl.runs.folder import RunFolder

FORMATS = ("folder", "cvat", "label-studio")


def suggest_labels(
    run: RunSource,
    images: str | Path | Sequence[str | Path] | None,
    out: str | Path,
    *,
    data: DataSource | None = None,
    root: str | Path | None = None,
    to: str = "folder",
    min_confidence: float = 0.0,
    version: int | None = None,
    device: str | torch.device = "auto",
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Label new images by the current version of a run, or another ``version``, and write them for review.

    ``images`` are files and folders; with ``data`` and ``root``, as of `add_classes`, the labels that a data set has
    stay and its other pixels are labelled. ``to`` is ``"folder"`` (images/train, masks/train and classes.txt in the
    model's ids), ``"cvat"`` (a task's images, labels and annotations) or ``"label-studio"`` (tasks with predictions).
    Where the largest softmax probability of a pixel is below ``min_confidence``, it is ignored in a folder and has no
    label elsewhere. The corrected files are new data for `add_classes`.

    Returns ``out``, ``to``, ``images`` (their number) and shares of all pixels: ``suggested``, ``doubtful``, and
    ``areas`` by class.
    """
    folder, output = run_folder(run).path, Path(out).expanduser()
    if to not in FORMATS:
        raise unknown_name("format for review", str(to), FORMATS)
    if not 0 <= min_confidence <= 1:
        raise UserError(f"min_confidence is {min_confidence}; expected a probability from 0 to 1.")
    paths = [images] if isinstance(images, str | Path) else list(images or ())
    if bool(paths) == (data is not None):
        found = "both are given" if paths else "none is given"
        raise UserError(f"Labels are suggested for images (files, folders) or for a data set (--data); {found}.")
    from faircl.files import check_new_folder

    check_new_folder(output)
    from faircl.api.colours import class_colours
    from faircl.api.predicting import load
    from faircl.deploy.reader_settings import reader_settings
    from faircl.deploy.review.classes import ReviewClasses
    from faircl.deploy.review.images import data_source, file_source
    from faircl.deploy.review.suggesting import Labeller, write_suggestions
    from faircl.progress import ConsoleReporter
    from faircl.runs.versions import VersionChain

    if min_confidence > 0:
        _check_softmax(version_folder(folder, version))
    settings = None if data is None else reader_settings(data, root)
    predictor = load(folder, device=device, version=version)
    scenario = predictor.scenario
    if settings is None:
        source = file_source([Path(path).expanduser() for path in paths], scenario.classes, predictor.reading, output)
    else:
        source = data_source(settings, scenario, predictor.step)
    gone = set(scenario.classes.foreground) - set(predictor.names) - set(source.new)
    number = VersionChain(folder).current() if version is None else version
    return write_suggestions(
        Labeller(predictor.network, scenario, min_confidence),
        source,
        ReviewClasses.of(source.classes, class_colours(scenario.classes, scenario.colours), gone),
        output,
        to,
        f"{folder.absolute().name} version {number}",
        reporter or ConsoleReporter(),
    )


def _check_softmax(folder: RunFolder) -> None:
    """Raise an error for a network whose outputs are not trained as a softmax."""
    from faircl.registry import METHODS

    method = folder.config().method.name
    if METHODS.get(method).needs.sigmoid:
        raise UserError(
            f"The model was trained by {method}, with one sigmoid per class, and has no softmax probabilities; leave "
            "--min-confidence out."
        )
