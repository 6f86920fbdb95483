"""Files of torch.export, which torch runs without faircl."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from faircl.deploy.exporting.contract import Masks, Source, metadata, one_line, traceable
from faircl.errors import UserError

METADATA = "metadata.json"
"""Name of the extra file that holds the metadata."""


def write_torch(source: Source, path: Path) -> None:
    """Write the network with free batch, height and width."""
    free = torch.export.Dim.DYNAMIC
    with traceable(source) as (module, example), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, (example,), dynamic_shapes=({0: free, 2: free, 3: free},))
        except Exception as error:  # whatever the forward pass of any network may raise while it is traced
            raise UserError(
                f"torch cannot export network '{source.network.name}': {one_line(error)}; "
                "--to huggingface works for every network."
            ) from None
        # Tracing notes how tensors of the example's size lay in memory, and would refuse sizes, such as a map of one
        # pixel, where they lie otherwise. The operations are the same for all sizes.
        program._guards_code = []
        torch.export.save(program, path, extra_files={METADATA: json.dumps(metadata(source), indent=1)})


def torch_masks(path: Path) -> Masks:
    """Return a function that loads and runs the file as any user of torch would."""
    module = torch.export.load(path).module()

    def run(images: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            masks: NDArray[Any] = module(torch.from_numpy(images))[0].numpy()
        return masks

    return run
