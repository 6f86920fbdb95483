"""Threads of this process."""

import threading

import pytest

from faircl.parallel import available_cores, thread_pool


def test_an_error_cancels_work_that_has_not_begun():
    futures, release = [], threading.Event()

    def fail():
        with thread_pool() as pool:
            futures.extend(pool.submit(release.wait, 10) for _ in range(3 * available_cores()))
            threading.Timer(0.2, release.set).start()  # after the error, while the pool shuts down
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) == 2 * available_cores()


def test_results_keep_their_order():
    with thread_pool() as pool:
        assert list(pool.map(lambda item: item * item, range(100))) == [item * item for item in range(100)]
