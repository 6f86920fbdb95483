"""Whether the network that a run folder has come to is whole on the disk."""

from __future__ import annotations

from pathlib import Path

from faircl.checksums import damaged_file
from faircl.runs.reading import CONFIG, METRICS, MODEL_FILES, SCENARIO, STEP_FILES, evaluations, read_records


def last_step(folder: Path) -> Path | None:
    """Return the folder of the step that was evaluated last, whether it is there or not; None before the first.

    Steps are counted by their evaluations, since joint training and exported runs have fewer folders than steps.
    """
    done = len(evaluations(read_records(folder)))
    return folder / "steps" / f"{done - 1:02d}" if done else None


def lost_file(folder: Path) -> Path | None:
    """Return the first file or folder that the last step needs and that is missing or damaged; None if all is whole."""
    for name in (CONFIG, SCENARIO, METRICS):
        if not (folder / name).is_file():
            return folder / name
    last = last_step(folder)
    if last is None:
        return folder / METRICS
    absent = (path for path in (last, *(last / name for name in MODEL_FILES)) if not path.exists())
    damaged = damaged_file(last, STEP_FILES)
    return next(absent, None if damaged is None else last / damaged)
