"""Updates are read one iteration late: all, in order, and a non-finite loss is reported at its own iteration."""

import math

import pytest
import torch
from grids import grid

from faircl.engine.update import Update, copy_to_host_async, delay_by_one
from faircl.errors import UserError
from faircl.methods.finetune import FineTune

OFFLINE = ("scenario.task=offline", "method.name=finetune", "train.epochs=2")
FIRST_FILES = ["config.yaml", "data.json", "environment.json", "scenario.json"]


def updates(made, *values):
    for number, value in enumerate(values, 1):
        made.append(number)
        yield Update(0, number, 0.1 * number, ("seg", "cons"), torch.tensor([value, 1.0]))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_update_once_and_in_order(count):
    given = list(updates([], *range(count)))
    read = list(delay_by_one(given))
    assert len(read) == count
    assert all(one is other for one, other in zip(read, given, strict=True))


def test_an_update_is_read_once_the_next_is_made():
    made: list[int] = []
    assert [(update.iteration, made[-1]) for update in delay_by_one(updates(made, *range(4)))] == [
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 4),
    ]


def test_none_is_made_before_it_is_asked_for():
    made: list[int] = []
    stream = delay_by_one(updates(made, *range(5)))
    assert made == []
    next(stream)
    assert made == [1, 2]
    stream.close()
    assert made == [1, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_reading_stops_at_the_update_that_is_not_finite(at, bad):
    made, read = [], []
    values = [bad if number == at else 2.0 for number in (1, 2, 3)]

    def read_all():
        for update in delay_by_one(updates(made, *values)):
            read.append(update.terms())

    with pytest.raises(UserError, match=rf"step 0, iteration {at}: seg = (nan|-?inf), cons = 1;"):
        read_all()
    assert read == [{"seg": 2.0, "cons": 1.0}] * (at - 1)
    assert made == list(range(1, min(at + 1, 3) + 1))


def test_values_are_waited_for_and_nothing_else():
    class Event:
        waited = 0

        def synchronize(self):
            self.waited += 1

    values = torch.tensor([2.0, 1.0])
    assert copy_to_host_async(values) == (values, None)  # on a CPU there is nothing to copy
    event = Event()
    assert Update(0, 1, 0.1, ("seg",), values, ("bound",), event).read() == ({"seg": 2.0}, {"bound": 1.0})
    assert event.waited == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="runs ahead of a GPU: needs one")
def test_the_host_runs_ahead_of_the_device():
    values, arrived = copy_to_host_async(torch.tensor([2.0, 1.0], device="cuda"))
    assert values.is_pinned()
    torch.cuda._sleep(2_000_000_000)  # about a second
    after = torch.cuda.Event()
    after.record()
    assert Update(0, 1, 0.1, ("seg", "cons"), values, (), arrived).terms() == {"seg": 2.0, "cons": 1.0}
    assert not after.query()


# ---- in a run


@grid("bad", [1, 3, 5, 6], quick=lambda bad: bad == 3)
def test_a_run_stops_at_its_own_iteration_and_leaves_no_step(bad, tiny_train, silent, tmp_path, monkeypatch):
    losses, calls, reporter = FineTune.losses, [], silent()

    def broken(self, batch, out, old, targets):
        calls.append(1)
        terms = losses(self, batch, out, old, targets)
        return {"seg": terms["seg"] * math.nan} if len(calls) == bad else terms

    with monkeypatch.context() as patch:
        patch.setattr(FineTune, "losses", broken)
        with pytest.raises(UserError, match=f"The loss is not finite at step 0, iteration {bad}: seg = nan;"):
            tiny_train(tmp_path / "run", *OFFLINE, reporter=reporter)
    assert len(calls) == min(bad + 1, 6)  # the next update had been issued, unless it was the last
    assert "step 0 evaluate" not in reporter.tasks
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FIRST_FILES
    folder = tiny_train(tmp_path / "run", *OFFLINE, resume=True)
    assert [record["iteration"] for record in folder.records("train")] == [1, 2, 3, 4, 5, 6]
    assert folder.finished_steps() == 1


def test_records_carry_their_own_terms_and_rates(tiny_train, tmp_path, monkeypatch):
    losses, seen = FineTune.losses, []

    def watched(self, batch, out, old, targets):
        terms = losses(self, batch, out, old, targets)
        seen.append(terms["seg"].item())
        return terms

    monkeypatch.setattr(FineTune, "losses", watched)
    linear = ("optim.schedule=poly", "optim.power=1", "optim.lr=0.06")
    folder = tiny_train(tmp_path / "run", *OFFLINE, *linear)
    records = folder.records("train")
    assert [record["terms"]["seg"] for record in records] == pytest.approx(seen)
    assert [record["lr"] for record in records] == pytest.approx([0.06, 0.05, 0.04, 0.03, 0.02, 0.01])
    assert [record["iteration"] for record in records] == [1, 2, 3, 4, 5, 6]
