"""ONNX files: written by torch's exporter, run by ONNX Runtime."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from faircl.deploy.exporting.contract import INPUT, LOGITS, MASK, Masks, Source, metadata, one_line, traceable
from faircl.errors import UserError

AXES = {0: "batch", 2: "height", 3: "width"}
"""Axes of the image whose lengths are free."""


def write_onnx(source: Source, path: Path, opset: int | None = None) -> None:
    """Write the network with free batch, height and width; weights above 2 GB go to a file beside it."""
    with traceable(source) as (module, example), _quiet():
        try:
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                dynamic_shapes=(AXES,),
                input_names=[INPUT],
                output_names=[MASK, LOGITS],
                opset_version=opset,
                verbose=False,
            )
        except Exception as error:  # whatever the forward pass of any network may raise while it is traced
            raise UserError(
                f"torch cannot export network '{source.network.name}' to ONNX: {one_line(error)}; "
                "--to huggingface works for every network."
            ) from None
        assert program is not None
        for key, value in metadata(source).items():
            program.model.metadata_props[key] = value if isinstance(value, str) else json.dumps(value)
        program.save(path)


def onnx_masks(path: Path) -> Masks:
    """Return a function that runs the file in ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised; printed too, they would be more than one sentence
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise UserError(
            f"ONNX Runtime cannot load the exported network: {one_line(error)}; nothing was written."
        ) from None

    def run(images: NDArray[Any]) -> NDArray[Any]:
        masks: NDArray[Any] = session.run([MASK], {INPUT: images})[0]
        return masks

    return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's warnings and log lines, which are about its inside, off the terminal."""
    names = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    levels = [(logger, logger.level) for logger in map(logging.getLogger, names)]
    for logger, _ in levels:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)
