"""Export of a trained network, checked against it before the output appears."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faircl.deploy.exporting.agreement import Agreement, agreement, check_agreement
from faircl.deploy.exporting.contract import Source
from faircl.deploy.exporting.destination import written_whole
from faircl.deploy.exporting.huggingface_folder import transformers_masks, write_huggingface
from faircl.deploy.exporting.onnx_file import onnx_masks, write_onnx
from faircl.deploy.exporting.slim_run import slim_run_masks
from faircl.deploy.exporting.torch_file import torch_masks, write_torch
from faircl.progress import Reporter
from faircl.runs.reading import EXPORTED_RUN


@dataclass(frozen=True)
class Export:
    """A network that was exported.

    ``path`` is what was written, ``to`` its format, ``step`` the step whose network it is, ``classes`` their names by
    ascending class id. ``agreement`` is the share of ``pixels`` on which it gives the same class as
    `Predictor.predict`. ``note`` says what the format lacks, if anything.
    """

    path: Path
    to: str
    step: int
    classes: tuple[str, ...]
    agreement: float
    pixels: int
    note: str = ""


def export_network(source: Source, to: str, out: Path, opset: int | None, reporter: Reporter) -> Export:
    """Write the network to ``out`` in a format, run what was written, and keep it if its masks are the network's."""
    with written_whole(out) as part:
        reporter.say(f"exporting step {source.step} to {to}")
        found, note = _write_and_run(source, to, part, opset, reporter)
        check_agreement(found, to)
    return Export(out, to, source.step, tuple(source.names.values()), found.share, found.pixels, note)


def _write_and_run(source: Source, to: str, part: Path, opset: int | None, reporter: Reporter) -> tuple[Agreement, str]:
    if to == "onnx":
        write_onnx(source, part, opset)
        return agreement(source.predict, onnx_masks(part), reporter), ""
    if to == "torch":
        write_torch(source, part)
        return agreement(source.predict, torch_masks(part), reporter), ""
    obstacle = write_huggingface(source, part)
    found = agreement(source.predict, slim_run_masks(part / EXPORTED_RUN, source), reporter)
    if obstacle:
        return found, f"{obstacle}; the folder is for faircl.load alone"
    return min(found, agreement(source.predict, transformers_masks(part), reporter), key=lambda one: one.share), ""
