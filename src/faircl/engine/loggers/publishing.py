"""Everything that a run sends to its logging services, from its first record to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from faircl.engine.loggers.channel import Channel
from faircl.engine.loggers.points import BEFORE_ALL, KINDS, point, position
from faircl.engine.loggers.service import RunInfo, Status
from faircl.engine.loggers.services import SERVICES
from faircl.engine.loggers.states import States
from faircl.progress import Reporter
from faircl.runs.reading import Record

REPORT = "report.html"


class Publishing:
    """The channels to the services of a run.

    ``updates`` has the planned number of updates of every step: charts run over the updates of the whole run.
    """

    def __init__(self, names: Sequence[str], run: RunInfo, updates: Sequence[int], reporter: Reporter) -> None:
        self.run, self.updates = run, updates
        self._states = States(run.folder)
        self._channels = [Channel(name, SERVICES[name](), self._states, reporter) for name in names]

    @contextmanager
    def opened(self, kept: Sequence[Record], last: Record | None) -> Iterator[None]:
        """Open all services, and close them with the status by which the block ends.

        ``kept`` are the records that a resumed run continues with, ``last`` is the last one before it was resumed.
        """
        status: Status = "failed"
        try:
            self._begin(kept, last)
            yield
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            report = self.run.folder / REPORT
            self._end(status, report if status == "finished" and report.is_file() else None)

    def send(self, record: Record) -> None:
        """Send a record to all services, if it is of a kind that is charted."""
        if self._channels and record["kind"] in KINDS:
            made = point(record, self.updates)
            for channel in self._channels:
                channel.send(made)

    def _begin(self, kept: Sequence[Record], last: Record | None) -> None:
        end = BEFORE_ALL if last is None or last["kind"] not in KINDS else position(last, self.updates)
        self._states.close_all_but(tuple(channel.name for channel in self._channels), end)
        points = [point(record, self.updates) for record in kept if record["kind"] in KINDS] if self._channels else []
        for channel in self._channels:
            channel.begin(self.run, points, end)

    def _end(self, status: Status, report: Path | None) -> None:
        for channel in self._channels:
            channel.end(status, report)
