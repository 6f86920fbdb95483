"""Runs that log to a service: a whole one, and one that failed after a checkpoint and was resumed."""

import os
from pathlib import Path

import pytest

from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.engine.loggers.train_log import TrainLog

SETTINGS = (
    "train.epochs=1",
    "train.later_epochs=2",
    "train.validate_every=1",
    "data.validation=0.2",
    "method.bound=true",
    "train.batch=6",
)


@pytest.fixture(scope="session")
def hermetic(tmp_path_factory):
    """Nothing of the user's, and no network: an own home folder, no variables of the services, offline."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
            patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(home))
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield home


@pytest.fixture(scope="session")
def logged(hermetic, tiny_train, tmp_path_factory):
    """Return a function that trains a run with a service; ``broken``: in two parts, the first of which fails."""

    def train(name: str, broken: bool = False, **options) -> Path:
        out = tmp_path_factory.mktemp(name) / "run"
        settings = (*SETTINGS, f"train.loggers=[{name}]")
        if broken:
            with pytest.MonkeyPatch.context() as patch:
                _break(patch)
                with pytest.raises(RuntimeError, match="power cut"):
                    tiny_train(out, *settings)
            assert len((out / "metrics.jsonl").read_text().splitlines()) > 8
        tiny_train(out, *settings, resume=broken, **options)
        return out

    return train


def _break(patch):
    """Save update 3 of step 1, and fail when update 6 is to be recorded: 4 and 5 will be computed twice."""
    add, calls = TrainLog.add, []

    def failing(self, step, iteration, *rest):
        if (step, iteration) == (1, 6):
            raise RuntimeError("power cut")
        add(self, step, iteration, *rest)

    def due(self):
        calls.append(0)
        return len(calls) == 4 + 3

    patch.setattr(TrainLog, "add", failing)
    patch.setattr(InStepCheckpoints, "due", due)
