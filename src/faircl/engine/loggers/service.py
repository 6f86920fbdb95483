"""The contract of a logging service: one class per service, which knows no training and may raise anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from faircl.engine.loggers.points import Point

Status = Literal["finished", "failed", "interrupted"]


@dataclass(frozen=True)
class RunInfo:
    """What a service is told of a run: folder, settings as plain values, and after how many updates it continues."""

    folder: Path
    settings: dict[str, Any]
    done: int = 0

    @property
    def title(self) -> str:
        """Name of the run: that of its folder; of a version, name of the run and number."""
        path = self.folder.resolve()
        return f"{path.parent.parent.name} version {int(path.name)}" if _is_version(path) else path.name


class Begun(NamedTuple):
    """A service that has begun: the id by which it knows the run, and where a person finds it."""

    id: str
    where: str


class Service(Protocol):
    """A logging service. Its methods are called in the order in which they stand here, ``log`` many times."""

    title: ClassVar[str]
    """Name for people."""
    extra: ClassVar[str]
    """Extra of faircl that installs it."""
    rewinds: ClassVar[bool]
    """Whether a resumed run drops the points after the update that it continues from, so that they are sent again."""

    @staticmethod
    def packages() -> tuple[str, ...]:
        """Return the packages that must be importable."""
        ...

    @staticmethod
    def check() -> None:
        """Raise a UserError if the service cannot be used as the environment is set, without a trace on disk."""
        ...

    def begin(self, run: RunInfo, id: str | None) -> Begun:
        """Open the run, or continue the one of that id."""
        ...

    def log(self, point: Point) -> None:
        """Take the numbers of one record."""
        ...

    def end(self, status: Status, report: Path | None) -> None:
        """Say how training ended, keep the report page where the service keeps files, and close."""
        ...


def _is_version(path: Path) -> bool:
    return path.parent.name == "versions" and path.name.isdecimal()
