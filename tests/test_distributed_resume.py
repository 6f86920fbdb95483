"""Two processes that are stopped within a step and resumed equal two that were not."""

from pathlib import Path

import pytest
import torch.distributed as dist
from processes import start
from run_files import records, states

from faircl.config.run import load_config
from faircl.engine.trainer import train
from faircl.progress import SilentReporter
from faircl.runs.folder import RunFolder

pytestmark = [
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
    pytest.mark.slow,
]

# Dropout draws from each process's own generator, and BatchNorm counts each process's share of a batch alone.
SETTINGS = (
    *("data.images=24", "data.test_images=7", "data.size=32", "data.validation=0.2", "train.batch=5", "train.crop=32"),
    *("train.log_every=1", "train.epochs=1.5", "train.later_epochs=1.5", "train.validate_every=0.5", "train.keep=best"),
    *("model.width=8", "model.embedding=8", "model.dropout=0.3", "eval.batch=4", "eval.examples=3", "method.period=2"),
)


def run(root):
    """Train undisturbed; then stop at both steps, by a signal that one process alone receives, and resume."""
    from faircl.distributed import rank
    from faircl.engine.in_step_checkpoints import InStepCheckpoints
    from faircl.errors import Interrupted

    config, due, stopped = load_config("demo", list(SETTINGS)), InStepCheckpoints.due, []
    train(config, Path(root, "whole"), SilentReporter())
    for process, updates in ((1, 3), (0, 7)):
        seen = []

        def watched(self, seen=seen, process=process, updates=updates):
            seen.append(1)
            if rank() == process and len(seen) == updates:
                self.signals.received = 15
            return due(self)

        InStepCheckpoints.due = watched
        try:
            train(config, Path(root, "parts"), SilentReporter(), resume=bool(stopped))
        except Interrupted as stop:
            stopped.append(str(stop))
    InStepCheckpoints.due = due
    train(config, Path(root, "parts"), SilentReporter(), resume=True)
    return stopped


def test_one_signal_stops_all_and_the_run_goes_on(tmp_path):
    first, second = start(2, run, str(tmp_path))
    assert first == second
    assert [text.partition(", which")[0] for text in first] == [
        "stopped by SIGTERM at step 0 after update 3 of 6",
        "stopped by SIGTERM at step 1 after update 4 of 6",
    ]
    whole, parts = (RunFolder(tmp_path / name) for name in ("whole", "parts"))
    assert states(parts) == states(whole)
    assert records(parts) == records(whole)
