"""A run of two processes that is stopped within a step, by a signal to one of them, equals one that was not."""

import pytest
import torch.distributed as dist
from processes import start
from run_files import records, states

from faircl.distributed import rank
from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.engine.trainer import train
from faircl.errors import Interrupted
from faircl.progress import SilentReporter
from faircl.runs.folder import RunFolder

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")

# Dropout and the statistics of BatchNorm differ between the processes.
SETTINGS = (
    *("model.dropout=0.3", "train.frozen_norm=never", "method.period=2"),
    *("data.validation=test", "train.validate_every=0.5", "train.keep=best"),
)
STOP = 8
"""Updates before the signal: six of the first step, two of the second, of three."""


def stopped_and_resumed(config, folder):
    """Train undisturbed, and again with a stop; return what the process said when it was stopped."""
    train(config, folder / "whole", SilentReporter())
    true, seen = InStepCheckpoints.due, []

    def due(self):
        seen.append(1)
        if rank() == 1 and len(seen) == STOP:
            self.signals.received = 15
        return true(self)

    InStepCheckpoints.due = due
    try:
        train(config, folder / "parts", SilentReporter())
    except Interrupted as stop:
        said = str(stop)
    InStepCheckpoints.due = true
    train(config, folder / "parts", SilentReporter(), resume=True)
    return said


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both(tiny_config, tmp_path):
    said = start(2, stopped_and_resumed, tiny_config(*SETTINGS), tmp_path)
    assert said[0] == said[1]
    assert said[0].startswith("stopped by SIGTERM at step 1 after update 2 of 3, which is saved; ")
    whole, parts = (RunFolder(tmp_path / name) for name in ("whole", "parts"))
    assert states(parts) == states(whole)
    assert records(parts) == records(whole)


def test_the_network_that_is_validated_is_the_one_that_is_kept(tiny_config, tmp_path):
    """Running statistics that differ between the processes are those of the first one, as in the saved network."""
    start(2, train, tiny_config(*SETTINGS), tmp_path / "run", SilentReporter())
    folder = RunFolder(tmp_path / "run")
    for step, evaluation in enumerate(folder.records("eval")):
        validations = [record for record in folder.records("validation") if record["step"] == step]
        best = max(validations, key=lambda record: record["miou"]["all"])  # of equal ones the first
        assert best["classes"] == evaluation["classes"]
