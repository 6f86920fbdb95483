"""Soft labels that do not fit into memory are found before training."""

import pytest

from faircl.engine import soft_memory
from faircl.errors import UserError

CELLS = (32 // 4) ** 2
"""Of a window of the tiny runs, at the stride of the small network."""
IMAGES, VISITS = 24, 24
"""Images of their second step, and windows that its one epoch shows."""


@pytest.fixture
def free(monkeypatch):
    """Return a function that sets the free memory in bytes, and the processes of this machine."""

    def set_to(size, processes=1):
        monkeypatch.setattr(soft_memory, "free_memory", lambda: size)
        monkeypatch.setattr(soft_memory, "local_world_size", lambda: processes)

    return set_to


def needed(windows, kept):
    return windows * CELLS * kept * 2


def test_one_byte_too_little(free, tiny_train, tmp_path):
    free(needed(VISITS, 4) - 1)
    with pytest.raises(UserError, match=r"The soft labels of a step need about 0\.0 GB .* lower method\.windows or"):
        tiny_train(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    free(needed(VISITS, 4))
    assert tiny_train(tmp_path / "run").finished_steps() == 2


@pytest.mark.parametrize(
    "settings",
    [
        ("train.later_epochs=9", "method.windows=3", "method.soft_classes=2"),
        ("train.later_epochs=9", "method={name: ewf, method: {name: faircl, windows: 3, soft_classes: 2}}"),
    ],
    ids=["faircl", "wrapped"],
)
def test_windows_and_kept_classes_count(settings, free, tiny_train, tmp_path):
    free(needed(3 * IMAGES, 2) - 1)
    with pytest.raises(UserError, match="soft labels of a step need"):
        tiny_train(tmp_path / "run", *settings)


def test_every_process_holds_them(free, tiny_train, tmp_path):
    free(2 * needed(VISITS, 4) - 1, processes=2)
    with pytest.raises(UserError, match="GB of memory, for 2 processes, and"):
        tiny_train(tmp_path / "run")


SEQUENTIAL = ("scenario.setting=sequential", "scenario.task=[[1, 2, 3, 4, 5, 6, 7, 8, 9], [10]]", "train.batch=3")


@pytest.mark.parametrize("settings", [("method=faircl-paper",), SEQUENTIAL], ids=["assigned", "sequential"])
def test_runs_without_soft_labels_need_nothing(settings, free, tiny_train, tmp_path):
    free(0)
    assert tiny_train(tmp_path / "run", *settings).finished_steps() == 2
