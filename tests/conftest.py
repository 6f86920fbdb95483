"""Shared fixtures: tiny runs on street scenes, and the command line called in this process."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# Kernels run on the CPU, in Triton's interpreter. Triton reads this when it is first imported, which torch may do.
os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from tiny_runs import TINY, Silent

LONGEST = (
    "test_demo_claims.py",
    "test_wheel.py",
    "test_city_run.py",
    "test_networks.py",
    "test_all_methods.py",
    "test_distributed_runs.py",
    "test_examples.py",
    "test_durability.py",
    "test_real_runner.py",
)
"""Files to begin with: a worker that took one of them last would keep the other waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_collection_finish() -> None:
    """Keep imported modules and collected tests out of garbage collection: a run collects after every step."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let everything be collected at the end: Triton's bindings complain of what is not."""
    gc.unfreeze()


class Result(NamedTuple):
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory) -> Iterator[None]:
    """Keep what the tests count out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRCL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def silent() -> type[Silent]:
    return Silent


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., object]:
    """Return a loader of a recipe with TINY and further ``a.b=c`` settings.

    It is on scenes, on the folder ``root``, or on other ``data``.
    """
    from faircl.config.run import load_config

    def load(*settings: str, recipe: str = "demo", root: Path | None = None, data: str = ""):
        data = data or (f"data={{name: folder, root: '{root}'}}" if root else "")
        other_model = any(setting.startswith("model=") for setting in settings)
        replaced = (*(["data."] if data else []), *(["model."] if other_model else []))
        kept = [setting for setting in TINY if not setting.startswith(replaced)]
        return load_config(recipe, [*([data] if data else []), *kept, *settings])

    return load


@pytest.fixture(scope="session")
def tiny_train(tiny_config) -> Callable[..., object]:
    """Return a function that trains a tiny run into a folder and returns its RunFolder.

    Its report is written only with ``page=True``: drawing the plots takes longer than training.
    """
    from faircl.engine import step_results
    from faircl.engine.trainer import train

    def run(
        out: Path,
        *settings: str,
        resume: bool = False,
        reporter: Silent | None = None,
        page: bool = False,
        **config: object,
    ):
        with pytest.MonkeyPatch.context() as patch:
            if not page:
                patch.setattr(step_results, "write_run_page", lambda path: None)
            return train(tiny_config(*settings, **config), out, reporter or Silent(), resume)

    return run


@pytest.fixture(scope="session")
def tiny_run(tiny_train, tmp_path_factory):
    """One finished FairCL run of two steps; read only."""
    return tiny_train(tmp_path_factory.mktemp("tiny") / "run", page=True)


@pytest.fixture(scope="session")
def tiny_flags() -> list[str]:
    """TINY as command-line flags."""
    return [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture
def cli(monkeypatch, capfd) -> Callable[..., Result]:
    """Call the command line in this process as ``python -m faircl`` would."""
    from faircl.cli.app import run

    def call(*args: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["faircl", *map(str, args)])
        capfd.readouterr()
        code: object = 0
        try:
            run()
        except SystemExit as leave:
            code = leave.code or 0
        out, err = capfd.readouterr()
        return Result(int(str(code)), out, err)

    return call


@pytest.fixture(scope="session")
def _street(tmp_path_factory) -> Path:
    from faircl.readers.scenes import SceneData
    from faircl.readers.write_folder import write_folder

    root = tmp_path_factory.mktemp("street") / "data"
    write_folder(SceneData(24, 8, 32), ("train", "test"), root, Silent())
    return root


@pytest.fixture
def street(_street, tmp_path) -> Path:
    """A small folder data set of one's own, to be broken."""
    return Path(shutil.copytree(_street, tmp_path / "street"))
