"""Exporting a trained network to formats of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, version_folder
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.deploy.exporting.export import Export
    from faircl.progress import Reporter


def export(
    run: RunSource,
    to: str,
    out: str | Path,
    step: int = -1,
    *,
    opset: int | None = None,
    version: int | None = None,
    reporter: Reporter | None = None,
) -> Export:
    """Write the network of a finished step, by default the last, for use elsewhere.

    ``to`` is ``"onnx"`` (a .onnx file), ``"torch"`` (a .pt2 file of torch.export) or ``"huggingface"`` (a folder that
    `load` and, for SegFormer, plain transformers open). The files take images (B, 3, H, W) of uint8, RGB, of any size
    and number, and return masks (B, H, W) of class ids. What was written is run and compared with `Predictor.predict`;
    below 99.99 % of equal pixels it is refused and nothing is left. ``opset`` chooses ONNX's version of operators,
    ``version`` a version of the run other than the newest accepted one.
    """
    from faircl.deploy.exporting.destination import check_request

    if not isinstance(out, str | Path):
        raise UserError(f"Expected the path of the output; found {out!r}.")
    target = Path(out).expanduser()
    check_request(to, target, opset)
    folder = version_folder(run, version)

    from faircl.api.predicting import load
    from faircl.deploy.exporting.contract import Source
    from faircl.deploy.exporting.export import export_network
    from faircl.progress import ConsoleReporter

    predictor, reporter = load(run, step, device="cpu", version=version), reporter or ConsoleReporter()
    if note := folder.unfinished_note(predictor.step):
        reporter.say(note)
    source = Source(
        folder=folder,
        config=folder.config(),
        network=predictor.network,
        scenario=predictor.scenario,
        step=predictor.step,
        names=predictor.names,
        colours=predictor.colours,
        reading=predictor.reading,
        predict=lambda image: predictor.predict(image).mask,
    )
    return export_network(source, to, target, opset, reporter)
