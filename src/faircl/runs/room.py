"""Whether a run folder can take what a run will write; asked before training, so that no step is trained in vain."""

from __future__ import annotations

import shutil

from faircl.errors import UserError
from faircl.files import flush, writing
from faircl.runs.folder import RunFolder
from faircl.runs.in_step import KEPT


def check_room(folder: RunFolder, model_bytes: int, checkpoint_bytes: int, steps: int) -> None:
    """Raise a UserError if the disk is too full for the networks of ``steps`` steps and the checkpoints within one.

    The folder need not exist yet. A run without a step left needs nothing.
    """
    if steps == 0:
        return
    # While the newest checkpoint is written, those before it are still there; those of now are replaced.
    there = sum(path.stat().st_size for path in folder.checkpoints.rglob("*") if path.is_file())
    needed = steps * model_bytes + max((KEPT + 1) * checkpoint_bytes - there, 0)
    exists = next(path for path in (folder.path.absolute(), *folder.path.absolute().parents) if path.exists())
    free = shutil.disk_usage(exists).free
    if needed > free:
        raise UserError(
            f"The run will write about {_size(needed)} into {folder.path}, where {_size(free)} are free; make room, or "
            "choose another folder with --out."
        )


def check_writable(folder: RunFolder) -> None:
    """Write files where networks and checkpoints will be, so that a missing permission is found before training."""
    for place in (folder.step_path(0).parent, folder.checkpoints):
        probe = place / ".probe"
        with writing(place):
            place.mkdir(exist_ok=True)
            probe.write_bytes(b"faircl")
            flush(probe)
            probe.unlink()


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"
