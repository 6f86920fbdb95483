"""Where a run continues: after its last whole step, at the newest whole checkpoint within the next one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from faircl.checksums import damaged_file
from faircl.runs.folder import RunFolder
from faircl.runs.in_step import whole_in_step_checkpoints
from faircl.runs.reading import STEP_FILES


class ResumePoint(NamedTuple):
    """The first step to train, a checkpoint within it where there is one, and warnings of damaged files.

    ``begun`` says whether there is a run to continue.
    """

    step: int = 0
    checkpoint: Path | None = None
    warnings: tuple[str, ...] = ()
    begun: bool = False


def find_resume_point(folder: RunFolder) -> ResumePoint:
    """Find where a run continues; steps and checkpoints with damaged files are passed over."""
    step, warnings = folder.finished_steps(), []
    while step > 0 and (name := damaged_file(folder.step_path(step - 1), STEP_FILES)):
        step -= 1
        warnings.append(f"{folder.step_path(step) / name} is missing or damaged; step {step} is trained again")
    found = list(whole_in_step_checkpoints(folder.checkpoints, step))
    for number, (path, name) in enumerate(found, 1):
        if name is None:
            return ResumePoint(step, path, tuple(warnings), begun=True)
        then = "the checkpoint before it is used" if number < len(found) else f"step {step} is trained from its start"
        warnings.append(f"{path / name} is missing or damaged; {then}")
    return ResumePoint(step, None, tuple(warnings), begun=True)
