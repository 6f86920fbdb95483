"""What a service gets: every record once, over resumed runs and failures, and training never hears of a failure."""

import json
from pathlib import Path

import pytest
from tiny_runs import Silent

from faircl.engine.loggers import publishing
from faircl.engine.loggers.publishing import Publishing
from faircl.engine.loggers.service import Begun, RunInfo
from faircl.engine.loggers.states import States
from faircl.errors import Interrupted

UPDATES = [3, 3]


def train(step, iteration):
    return {"kind": "train", "step": step, "iteration": iteration, "lr": 0.1, "loss": 1.0, "terms": {"seg": 1.0}}


def evaluated(step):
    return {"kind": "eval", "step": step, "miou": {"all": 5.0}, "worst": None, "classes": []}


class Kept:
    """A service that keeps calls, and fails where told."""

    title, extra, rewinds = "Kept", "kept", False
    fails_at: object = None
    calls: list[object]

    def begin(self, run, id):
        self._do("begin", run.done, id)
        return Begun(id or "new", "here")

    def log(self, point):
        self._do(tuple(point.position))

    def end(self, status, report):
        self._do("end", status, report and report.name)

    def _do(self, *call):
        call = call[0] if len(call) == 1 else call
        if self.fails_at in (call, call[0]):
            raise OSError("no\nnetwork.")
        type(self).calls.append(call)


@pytest.fixture
def service(monkeypatch):
    kept = type("Fresh", (Kept,), {"calls": []})
    monkeypatch.setattr(publishing, "SERVICES", {"kept": kept, "other": type("Other", (Kept,), {"calls": []})})
    return kept


def run(folder, records, kept=(), last=None, done=0, names=("kept",), error=None):
    """Send records; return what was said."""
    reporter = Silent()
    log = Publishing(names, RunInfo(folder, {}, done), UPDATES, reporter)
    with log.opened(list(kept), last):
        for record in records:
            log.send(record)
        if error is not None:
            raise error
    return reporter.said


FIRST = [train(0, 1), train(0, 2), train(0, 3), evaluated(0)]
PLACES = [(1, 0), (2, 0), (3, 0), (3, 2)]


def test_a_whole_run(service, tmp_path):
    (tmp_path / "report.html").write_text("page")
    said = run(tmp_path, [*FIRST, {"kind": "note", "step": 0}])  # a kind that is not charted
    assert service.calls == [("begin", 0, None), *PLACES, ("end", "finished", "report.html")]
    assert said == ["logging to Kept: here"]
    assert json.loads((tmp_path / "loggers.json").read_text()) == {"kept": {"id": "new", "sent": None}}


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError(), "failed"), (Interrupted("", 15), "interrupted"), (SystemExit(), "failed")]
)
def test_how_it_ended(service, tmp_path, error, status):
    (tmp_path / "report.html").write_text("page")
    with pytest.raises(type(error)):
        run(tmp_path, FIRST[:1], error=error)
    assert service.calls[-1] == ("end", status, None)


@pytest.mark.parametrize("rewinds", [False, True])
def test_a_resumed_run_goes_on_without_a_point_twice(service, tmp_path, rewinds):
    """Killed after update 2 of the second step, resumed after its first."""
    service.rewinds = rewinds
    run(tmp_path, [*FIRST, train(1, 1), train(1, 2)])
    service.calls.clear()
    run(tmp_path, [train(1, 2), train(1, 3), evaluated(1)], [*FIRST, train(1, 1)], train(1, 2), done=4)
    again = [(5, 0)] if rewinds else []
    assert service.calls == [("begin", 4, "new"), *again, (6, 0), (6, 2), ("end", "finished", None)]


@pytest.mark.parametrize("rewinds", [False, True])
def test_an_evaluation_after_the_checkpoint_of_the_last_update(service, tmp_path, rewinds):
    service.rewinds = rewinds
    run(tmp_path, FIRST[:3])
    service.calls.clear()
    run(tmp_path, [evaluated(0), train(1, 1)], FIRST[:3], train(0, 3), done=3)
    assert service.calls[1:-1] == [(3, 2), (4, 0)]


def test_a_service_that_is_named_later_gets_what_was_before(service, tmp_path):
    run(tmp_path, FIRST, names=())
    assert not (tmp_path / "loggers.json").exists()
    run(tmp_path, [train(1, 1)], FIRST, FIRST[-1], done=3)
    assert service.calls[1:-1] == [*PLACES, (4, 0)]


def test_a_service_that_was_left_out_for_a_while(service, tmp_path):
    run(tmp_path, FIRST[:2])
    run(tmp_path, FIRST[2:], FIRST[:2], FIRST[1], done=2, names=("other",))
    service.calls.clear()
    run(tmp_path, [train(1, 1)], FIRST, FIRST[-1], done=3)
    assert service.calls == [("begin", 3, "new"), *PLACES[2:], (4, 0), ("end", "finished", None)]


@pytest.mark.parametrize("place", [(2, 0), "begin", "end"])
def test_a_service_that_fails_is_noted_once_and_called_no_more(service, tmp_path, place):
    service.fails_at = place
    said = run(tmp_path, FIRST, names=("kept", "other"))
    notes = [text for text in said if text.startswith("note: ")]
    assert notes == ["note: Kept failed: no network; training goes on without it, and metrics.jsonl has all records"]
    closed = ("end", "finished", None)  # it is told the end
    assert service.calls == {(2, 0): [("begin", 0, None), (1, 0), closed], "begin": []}.get(
        place, [("begin", 0, None), *PLACES]
    )
    assert publishing.SERVICES["other"].calls == [("begin", 0, None), *PLACES, ("end", "finished", None)]


def test_what_a_failed_service_missed_is_sent_when_the_run_is_resumed(service, tmp_path):
    service.fails_at = (2, 0)
    run(tmp_path, FIRST)
    service.fails_at = None
    service.calls.clear()
    run(tmp_path, [train(1, 1)], FIRST, FIRST[-1], done=3)
    assert service.calls == [("begin", 3, "new"), *PLACES[1:], (4, 0), ("end", "finished", None)]


def test_a_service_that_cannot_be_opened_again_has_what_it_had(service, tmp_path):
    run(tmp_path, FIRST[:2])
    service.fails_at = "begin"
    run(tmp_path, FIRST[2:], FIRST[:2], FIRST[1], done=2)
    service.fails_at = None
    service.calls.clear()
    run(tmp_path, [train(1, 1)], FIRST, FIRST[-1], done=3)
    assert service.calls[1:-1] == [*PLACES[2:], (4, 0)]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"kept": 3}', '{"kept": {"id": "x"}}', '{"kept": {"id": "x", "sent": ["a", 1]}}']
)
def test_a_damaged_file_of_states_is_as_none(tmp_path, text):
    (tmp_path / "loggers.json").write_text(text)
    assert States(tmp_path).get("kept") is None


def test_a_file_of_states_that_cannot_be_written_stops_nothing(service, tmp_path):
    (tmp_path / "loggers.json").mkdir()
    run(tmp_path, FIRST)
    assert service.calls[1:-1] == PLACES


@pytest.mark.parametrize(
    ("folder", "title"),
    [("runs/first", "first"), ("runs/first/versions/02", "first version 2"), ("a/versions", "versions")],
)
def test_the_title_of_a_run(folder, title):
    assert RunInfo(Path(folder), {}).title == title
