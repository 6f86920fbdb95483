"""The table of logging services, and whether they can be used."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from faircl.engine.loggers.mlflow_run import MlflowRun
from faircl.engine.loggers.service import Service
from faircl.engine.loggers.tensorboard_files import TensorBoardFiles
from faircl.engine.loggers.wandb_run import WandbRun
from faircl.errors import UserError

SERVICES: dict[str, type[Service]] = {"tensorboard": TensorBoardFiles, "wandb": WandbRun, "mlflow": MlflowRun}


def check_installed(names: Iterable[str]) -> None:
    """Raise a UserError if a package is missing that a service needs; nothing is imported."""
    for name in names:
        service = SERVICES[name]
        missing = [package for package in service.packages() if not _is_installed(package)]
        if missing:
            raise UserError(
                f"train.loggers names {name}, but {' and '.join(missing)} cannot be imported; install what it needs "
                f"with: pip install 'faircl[{service.extra}]', or leave it out with: --set train.loggers=[]."
            )


def check_services(names: Iterable[str]) -> None:
    """Raise a UserError if a service cannot be used: a package or a login is missing."""
    names = list(names)
    check_installed(names)
    for name in names:
        SERVICES[name].check()


def _is_installed(package: str) -> bool:
    """Whether a package can be imported; a folder of that name, such as wandb's own, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None
