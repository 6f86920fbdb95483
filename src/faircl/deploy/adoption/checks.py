"""Mistakes that can be told before torch is imported: what is read from, what is written to."""

from __future__ import annotations

import os
from pathlib import Path

from faircl.errors import UserError

KINDS = (
    "a Hugging Face SegFormer folder, a state dict of torchvision's DeepLabV3 (.pth, .pt or .safetensors), or one of "
    "faircl's own networks"
)


def check_source(path: Path) -> None:
    """Raise a UserError if there is nothing to adopt at a path, or a run of faircl; reads no weights."""
    if not path.exists():
        raise UserError(f"There is no network at {path}; give {KINDS}.")
    if path.is_dir() and ((path / "config.yaml").is_file() or (path / "model.json").is_file()):
        raise UserError(
            f"{path} is a run of faircl already, or a step of one; use it as it is: nothing has to be adopted."
        )
    if path.is_dir() and not (path / "config.json").is_file():
        raise UserError(f"The folder {path} has no config.json; give {KINDS}.")


def check_output(out: Path) -> None:
    """Raise a UserError if a run cannot be written to a path: something is there already."""
    if os.path.abspath(out) == os.getcwd():  # it would be replaced
        raise UserError("The output is the folder that the command runs in; choose a new one in it, as in --out run.")
    if out.is_dir():
        try:
            used = any(out.iterdir())
        except OSError as error:
            raise UserError(
                f"Cannot look into the output folder {out}: {error.strerror}; choose another with --out."
            ) from None
        if used:
            raise UserError(f"Output folder {out} is not empty; choose an empty or new folder with --out.")
    elif out.exists():
        raise UserError(f"Output {out} is a file; choose a folder with --out.")
    parent = next(parent for parent in Path(os.path.abspath(out)).parents if os.path.exists(parent))
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK):
        raise UserError(f"Cannot make the output folder {out} in {parent}; choose another with --out.")
