"""Gradient norms of classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, run_folder

if TYPE_CHECKING:
    from faircl.deploy.gradient_norms import GradientNorms
    from faircl.progress import Reporter


def gradient_norms(
    run: RunSource,
    step: int = -1,
    images: int = 50,
    root: str | Path | None = None,
    *,
    reporter: Reporter | None = None,
) -> GradientNorms:
    """Return the gradient norm of every class after a step, by default the last, with and without fairness terms.

    For every class the gradient norms of the segmentation loss at the logits are added up over its pixels in training
    images of the step and given as a share of all: once with the class weights, logit offsets and balanced loss of the
    run, once without. ``root`` says where the data folder is now, if it has moved.
    """
    folder = run_folder(run)
    from faircl.deploy.gradient_norms import gradient_norms as measure
    from faircl.progress import ConsoleReporter

    return measure(
        folder,
        reporter or ConsoleReporter(),
        step,
        images,
        None if root is None else Path(root),
    )
