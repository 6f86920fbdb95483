"""``faircl train --logger``."""

import sys

import pytest
from logged_runs import expected, tensorboard_points


@pytest.mark.slow
def test_a_service_is_named_by_an_option(cli, tiny_flags, tmp_path):
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, "--logger", "tensorboard", "--json")
    assert result.code == 0
    assert f"logging to TensorBoard: {tmp_path / 'run/tensorboard'}" in result.err
    assert tensorboard_points(tmp_path / "run").keys() == expected(tmp_path / "run").keys()
    assert "loggers:\n  - tensorboard\n" in (tmp_path / "run/config.yaml").read_text()


def test_torchrun_passes_the_option_on():
    """It takes ``--log`` for one of its own, though it stands after the module."""
    from torch.distributed.run import parse_args

    given = ["train", "demo", "--logger", "wandb"]
    assert parse_args(["--nproc-per-node", "2", "-m", "faircl", *given]).training_script_args == given


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (
            "Setting train.loggers.0: input should be 'tensorboard', 'wandb' or 'mlflow', found 'wand'",
            ["--logger", "wand"],
        ),
        (
            "Setting train.loggers is given twice, by --logger mlflow and by --set train.loggers=[wandb]; give one.",
            ["--logger", "tensorboard", "--logger", "mlflow", "--set", "train.loggers=[wandb]"],
        ),
        ("pip install 'faircl[wandb]', or leave it out with: --set train.loggers=[].", ["--logger", "wandb"]),
    ],
)
def test_mistakes(cli, tiny_flags, tmp_path, monkeypatch, words, given):
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, *given)
    assert result.code == 2
    assert words in result.err
    assert not (tmp_path / "run").exists()
