"""What a run folder keeps of its logging services, loggers.json: ids of runs, and what a service that failed has got.

    {"wandb": {"id": "3f2a9c1d", "sent": null}, "mlflow": {"id": "…", "sent": [340, 0]}}

``sent`` is null as long as a service gets every record; then it has all that metrics.jsonl has. Otherwise it is the
place of the last record that it got.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from faircl.engine.loggers.points import Position
from faircl.errors import UserError
from faircl.files import write_text
from faircl.runs.reading import read_json

FILE = "loggers.json"


class State(NamedTuple):
    """A service's id of the run, and the last record it got; None: all of them."""

    id: str
    sent: Position | None = None


class States:
    """The states of a run's services; a file that cannot be read or written stops nothing."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._states: dict[str, State] = {}
        if not self._path.is_file():
            return
        with suppress(UserError, KeyError, TypeError, ValueError):
            for name, saved in read_json(self._path).items():
                sent = saved["sent"]
                self._states[name] = State(str(saved["id"]), None if sent is None else Position(*map(int, sent)))

    def get(self, name: str) -> State | None:
        """Return the state of a service; None if it has never begun."""
        return self._states.get(name)

    def set(self, name: str, state: State) -> None:
        """Change the state of a service and write the file."""
        if self._states.get(name) == state:
            return
        self._states[name] = state
        with suppress(UserError):
            write_text(
                self._path, json.dumps({name: state._asdict() for name, state in self._states.items()}, indent=1)
            )

    def close_all_but(self, names: tuple[str, ...], last: Position) -> None:
        """Note for services that are no longer used that they have the records up to now."""
        for name, state in list(self._states.items()):
            if name not in names and state.sent is None:
                self.set(name, State(state.id, last))
