"""Threads of this process."""

import threading

import pytest

from faircl.parallel import available_cores, thread_pool


def test_an_error_cancels_work_that_has_not_begun():
    started, error = [], threading.Event()

    def work(item):
        started.append(item)
        error.wait(10)

    futures = []

    def fail():
        with thread_pool() as pool:
            futures.extend(pool.submit(work, item) for item in range(50 * available_cores()))
            error.set()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) == len(futures) - len(started)


def test_results_keep_their_order():
    with thread_pool() as pool:
        assert list(pool.map(lambda item: item * item, range(100))) == [item * item for item in range(100)]
