"""Taking up a network that was trained elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.api.configuring import Settings, as_overrides
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.progress import Reporter
    from faircl.runs.run import Run


def adopt(
    source: str | Path,
    out: str | Path,
    *,
    classes: str | Path | Sequence[str] | None = None,
    background: str | None = None,
    data: str | None = None,
    root: str | Path | None = None,
    images: str | Path | None = None,
    model: str | None = None,
    settings: Settings = None,
    reporter: Reporter | None = None,
) -> Run:
    """Make a network that was trained elsewhere the first step of a run in the folder ``out``, and return the run.

    ``source`` is a Hugging Face folder of a SegFormer, a state dict of torchvision's DeepLabV3 (.pth, .pt or
    .safetensors), or one of faircl's own networks, which ``model`` and ``settings`` such as ``{"model.backbone":
    "resnet50"}`` describe. Of the first two the outputs are compared with those of their own library.

    ``classes`` names the classes in the network's order: a file with one per line, a string with commas, or a sequence;
    by default the source's own names. ``background`` is the name of its background class, "none" for a network without
    one; by default its first class, if that is called background.

    Adding classes later goes better with features of the present ones. They come from labelled images, ``data`` and
    ``root`` as in `open_data` (its training images; the test images evaluate the network), or from unlabelled ones in
    the folder ``images``. Old training data are not needed.
    """
    from faircl.deploy.adoption.checks import check_output, check_source

    if data is not None and images is not None:
        raise UserError("Images are given twice, with labels (data) and without (images); give one of them.")
    if root is not None and data is None:
        raise UserError(f"The data in {root} are of no kind; say which with data (--data), such as folder.")
    path, place = Path(source).expanduser(), Path(out).expanduser()
    check_output(place)
    check_source(path)
    labelled = None if data is None else _data_settings(data, root)
    unlabelled = None if images is None else Path(images).expanduser()

    from faircl.deploy.adoption.adopt import Wanted, adopt_network  # imports torch, which mistakes need not wait for
    from faircl.progress import ConsoleReporter
    from faircl.runs.run import load_run

    wanted = Wanted(path, place, classes, background, labelled, unlabelled, model, as_overrides(settings))
    adopt_network(wanted, reporter or ConsoleReporter())
    return load_run(place)


def _data_settings(data: str, root: str | Path | None) -> dict[str, Any]:
    from faircl.registry import READERS

    if root is not None and "root" not in READERS.get(data).Config.model_fields:
        raise UserError(f"Data set '{data}' has no root, found root {root}; leave it out.")
    return {"name": data} | ({} if root is None else {"root": str(root)})
