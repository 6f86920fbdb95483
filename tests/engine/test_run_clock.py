"""The time left of a whole run, against a run whose every second is known."""

import pytest

from faircl.engine.run_clock import ENOUGH_UPDATES, RunClock

UPDATES = (100, 40, 60)


class Run:
    """A run on a clock of its own: 9 s before a step's first update, seconds per update, seconds of evaluation."""

    def __init__(self, updates=UPDATES):
        self.now = 0.0
        self.clock = RunClock(updates, lambda: self.now)

    def update(self, step, iterations, seconds):
        for iteration in iterations:
            self.now += seconds
            self.clock.tick(step, iteration)

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture
def run():
    return Run()


def test_nothing_is_known_before_some_updates(run):
    assert run.clock.seconds_left() is None
    run.update(0, range(1, ENOUGH_UPDATES + 1), 2)
    assert run.clock.seconds_left() is None
    run.update(0, [ENOUGH_UPDATES + 1], 2)
    assert run.clock.seconds_left() == pytest.approx((100 - ENOUGH_UPDATES - 1 + 40 + 60) * 2)


def test_the_first_update_is_not_what_others_take(run):
    run.wait(300)  # compiling
    run.update(0, range(1, 51), 2)
    assert run.clock.seconds_left() == pytest.approx((50 + 40 + 60) * 2)


def test_pauses_seen_so_far_are_expected_after_every_step_left(run):
    run.update(0, range(1, 101), 2)
    assert run.clock.seconds_left() == pytest.approx((40 + 60) * 2)  # no pause seen yet
    run.wait(30)
    run.update(1, [1], 2)
    # The pause of 32 s is expected after this step and the last; updates are still those of step 0.
    assert run.clock.seconds_left() == pytest.approx((39 + 60) * 2 + 2 * 32)
    run.update(1, range(2, 41), 5)
    assert run.clock.seconds_left() == pytest.approx(60 * 5 + 2 * 32)
    run.wait(43)
    run.update(2, range(1, 61), 5)
    assert run.clock.seconds_left() == pytest.approx((32 + 48) / 2)  # the last evaluation


def test_a_resumed_run_does_not_wait_for_finished_steps(run):
    run.update(1, range(1, 21), 3)
    assert run.clock.seconds_left() == pytest.approx((20 + 60) * 3)


def test_a_step_resumed_within_counts_from_where_it_was(run):
    run.update(1, range(31, 39), 3)
    assert run.clock.seconds_left() == pytest.approx((2 + 60) * 3)


def test_a_single_step_has_no_more_than_its_own_time():
    run = Run((50,))
    run.update(0, range(1, 31), 2)
    assert run.clock.seconds_left() is None


def test_notes(run):
    assert run.clock.note(0, 1, 0.51234) == "loss 0.512"
    run.update(0, range(2, 40), 6)
    run.wait(6)
    assert run.clock.note(0, 40, 0.5) == "whole run at least 16 min 00 s left, loss 0.500"


def test_the_expected_time_is_told_once(run):
    run.update(0, range(1, ENOUGH_UPDATES + 1), 2)
    assert run.clock.first_estimate() is None
    run.update(0, [ENOUGH_UPDATES + 1], 2)
    left = sum(UPDATES) - ENOUGH_UPDATES - 1
    minutes, seconds = divmod(2 * left, 60)
    assert run.clock.first_estimate() == f"about {minutes} min {seconds:02d} s for the {left} updates left"
    run.update(0, [ENOUGH_UPDATES + 2], 2)
    assert run.clock.first_estimate() is None
