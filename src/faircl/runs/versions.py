"""The versions of a run: what a model has become since it was trained.

    RUN/…                      version 0: the run as 'faircl train' or 'faircl adopt' wrote it, never changed
    RUN/versions/01/…          a run folder of its own: steps/00 is the network of its parent, the last step its own
    RUN/versions/01/version.json

version.json is written last: a version without it is unfinished. The current version is the newest accepted one.
Other files in RUN/versions are ignored and stay, unless their name is a number: that is an error.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from faircl.errors import UserError
from faircl.files import check_new_folder, write_text, writing
from faircl.runs.begun import is_begun
from faircl.runs.last_network import lost_file
from faircl.runs.lock import LOCK, RunLock
from faircl.runs.reading import CONFIG, EXPORTED_RUN, SCENARIO, read_json

VERSIONS, VERSION = "versions", "version.json"
AGREEMENT, REQUEST = "agreement", "request.json"
"""What an unfinished version has besides; they are written before its configuration."""
_BEFORE_CONFIG = {AGREEMENT, REQUEST, f".{REQUEST}.part", f".{CONFIG}.part", LOCK, ".DS_Store"}
"""Names in a folder whose version has not begun; the last is a file browser's."""
_LEFT_OVER = re.compile(r"\.\d{2,}\.(removed|part)")
FORMAT = 1
Status = Literal["accepted", "rejected"]


@dataclass(frozen=True)
class ClassChange:
    """IoU of a class in percent, before and after; None where it is not known."""

    id: int
    name: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """Points gained, negative if lost; None where one of both is not known."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True)
class Version:
    """One version of a run.

    ``parent`` is the version it was made from, ``kind`` the command that made it and ``what`` its effect in words.
    ``data`` describes the images (reader, root, number, sha256), ``code`` the version of faircl, ``model_sha256`` the
    weights. ``measured`` says what ``changes`` were measured on. On a holdout ``drop`` is the mean loss of old classes
    in points; without one ``agreement`` is the mean IoU of their predictions, before and after, on the new images.
    """

    number: int
    parent: int
    status: Status
    kind: str
    what: str
    made: str
    code: str
    model_sha256: str
    parent_sha256: str
    data: dict[str, Any] = field(default_factory=dict)
    measured: str = ""
    drop: float | None = None
    agreement: float | None = None
    reason: str = ""
    changes: tuple[ClassChange, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the version may be used."""
        return self.status == "accepted"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, saved: dict[str, Any], path: Path) -> Version:
        """Return the version of `to_json`; a UserError if the file is damaged."""
        try:
            values = {key: value for key, value in saved.items() if key != "format"}
            changes = tuple(ClassChange(**change) for change in values.pop("changes"))
            if saved["format"] != FORMAT:
                raise ValueError(f"its format is {saved['format']}, expected {FORMAT}")
            return cls(**values, changes=changes)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"Cannot read {path}: {error}; the file is damaged, or of a newer faircl.") from None


class VersionChain:
    """The versions of a run folder, in order."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @classmethod
    def open(cls, run: Path) -> VersionChain:
        """Open the chain of a run, or of one in a Hugging Face folder; a UserError if the folder is none of both."""
        if not is_begun(run) and is_begun(run / EXPORTED_RUN):
            run = run / EXPORTED_RUN
        if not (run / CONFIG).is_file():
            raise UserError(
                f"{run} is not a run folder: it has no {CONFIG}; give a folder that 'faircl train' or 'faircl adopt' "
                "wrote."
            )
        if run.parent.name == VERSIONS and run.name.isdecimal():
            raise UserError(f"{run} is one version of {run.parent.parent}; give that folder.")
        return cls(run)

    def folder(self, number: int) -> Path:
        """Return the folder of a version."""
        return self.run if number == 0 else self.run / VERSIONS / f"{number:02d}"

    def finished(self) -> list[Version]:
        """Return the finished versions after version 0, rejected ones too."""
        return self._read(self._numbers())

    def _read(self, numbers: list[int]) -> list[Version]:
        files = {number: self.folder(number) / VERSION for number in numbers}
        found = {n: Version.from_json(read_json(file), file) for n, file in files.items() if file.is_file()}
        if moved := [number for number, version in found.items() if version.number != number]:
            number = moved[0]
            raise UserError(
                f"{self.folder(number)} holds version {found[number].number}; give the folder its own number again."
            )
        return list(found.values())

    def unfinished(self) -> int | None:
        """Return the number of a version that was begun and not finished, if there is one."""
        left = [number for number in self._numbers() if not (self.folder(number) / VERSION).is_file()]
        return left[-1] if left else None

    def check_finished(self) -> None:
        """Raise a UserError if a version is unfinished: nothing is built on it, and nothing beside it."""
        if (unfinished := self.unfinished()) is not None:
            raise UserError(
                f"Version {unfinished} of {self.run} is unfinished; continue it with 'faircl add-classes {self.run} "
                f"--resume', or remove it with 'faircl versions undo {self.run}'."
            )

    def current(self) -> int:
        """Return the number of the newest accepted version."""
        return max((one.number for one in self.finished() if one.accepted), default=0)

    def next(self) -> int:
        """Return the number of the next version."""
        return max(self._numbers(), default=0) + 1

    def find(self, number: int | None) -> Path:
        """Return the folder of a version, by default the current one."""
        if number is None:
            number = self.current()
        known = [0, *(one.number for one in self.finished())]
        if number not in known:
            raise UserError(f"{self.run} has no version {number}; it has: {', '.join(map(str, known))}.")
        self._check_whole(number)
        return self.folder(number)

    def _check_whole(self, number: int) -> None:
        """Raise a UserError if the network of a version after version 0 is not there."""
        folder = self.folder(number)
        if number == 0:
            return
        last = folder / "steps" / f"{len(read_json(folder / SCENARIO).get('steps', [])) - 1:02d}"
        if not last.is_dir():
            raise UserError(
                f"Version {number} of {self.run} has lost its network, {last}; restore it from a copy, or remove the "
                f"version with 'faircl versions undo {self.run}'."
            )

    def check_undo(self, removed: int) -> None:
        """Raise a UserError unless the version that is in use once another one is removed can be used."""
        others = self._read([number for number in self._numbers() if number != removed])
        left = max((one.number for one in others if one.accepted), default=0)
        if (lost := lost_file(self.folder(left))) is not None:
            raise UserError(
                f"Version {removed} of {self.run} is not undone, since version {left}, which would then be in use, is "
                f"not whole: {lost} is missing or does not have its sha256; restore it from a copy and undo again, or "
                f"delete {self.folder(removed)} yourself to do without both."
            )

    def write(self, version: Version) -> None:
        """Finish a version: from now on it counts."""
        write_text(self.folder(version.number) / VERSION, json.dumps(version.to_json(), indent=1, ensure_ascii=False))

    def remove(self, number: int) -> None:
        """Remove a version that no other one was made from."""
        folder = self.folder(number)
        removed = folder.with_name(f".{folder.name}.removed")
        with writing(folder):
            os.replace(folder, removed)  # at once: a killed process leaves a version whole or none
        shutil.rmtree(removed, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time change the versions; a folder for the lock alone goes with it."""
        place = self.run / VERSIONS
        with writing(place):
            place.mkdir(exist_ok=True)
        with RunLock(place) as lock:
            lock.acquire()
            for left in self._left_over():
                shutil.rmtree(left, ignore_errors=True)
            try:
                yield
            finally:
                if not self._numbers():
                    with suppress(OSError):
                        (place / LOCK).unlink(missing_ok=True)
                        place.rmdir()

    def _left_over(self) -> list[Path]:
        """Return folders that killed processes left: half removed, or of versions that had not begun."""
        folders = (path for path in (self.run / VERSIONS).iterdir() if path.is_dir())
        return [f for f in folders if _LEFT_OVER.fullmatch(f.name) or (f.name.isdecimal() and _is_before_begin(f))]

    def _numbers(self) -> list[int]:
        """Return the numbers of all versions; a UserError if a number is the name of something else."""
        place = self.run / VERSIONS
        if not place.is_dir():
            return []
        found = [place / name for name in sorted(os.listdir(place)) if name.isdecimal()]
        numbers = []
        for path in found:
            if _is_before_begin(path):
                continue
            if not is_begun(path):
                if not os.path.lexists(path):  # removed since the names were listed
                    continue
                raise UserError(
                    f"{path} is no version: expected a folder with {CONFIG}; restore it from a copy, or move it out of "
                    f"{place}."
                )
            numbers.append(int(path.name))
            if numbers[-1] == 0 or path != self.folder(numbers[-1]):
                expected = f"{max(numbers[-1], 1):02d}"
                raise UserError(
                    f"{path} is not named as a version is: expected {expected}; rename it, or move it out of {place}."
                )
        return sorted(numbers)


def _is_before_begin(folder: Path) -> bool:
    """Whether a folder has nothing but what is written before a version begins: a killed process left it."""
    try:
        return folder.is_dir() and _BEFORE_CONFIG.issuperset(os.listdir(folder))
    except FileNotFoundError:  # removed in between
        return True


def copy_run(run: Path, out: Path) -> None:
    """Copy a run with its finished versions to a new folder; unfinished work stays behind."""
    check_new_folder(out)
    if run.resolve() in out.resolve().parents:
        raise UserError(f"Output {out} lies inside the run {run} itself; choose a folder elsewhere with --out.")
    chain = VersionChain.open(run)
    done = {chain.folder(version.number) for version in chain.finished()}
    unfinished = {chain.folder(number) for number in chain._numbers()} - done

    def left_out(folder: str, names: list[str]) -> set[str]:
        here = Path(folder)
        return {n for n in names if n == LOCK or (here == run and n == "checkpoints") or here / n in unfinished}

    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with writing(out, lambda: shutil.rmtree(part, ignore_errors=True)):
        out.parent.mkdir(parents=True, exist_ok=True)
        # Weights & Biases leaves links to its log in the user's cache.
        shutil.copytree(run, part, ignore=left_out, ignore_dangling_symlinks=True)
        if out.is_dir():
            out.rmdir()
        os.replace(part, out)
