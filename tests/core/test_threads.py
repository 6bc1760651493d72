"""Pools of threads: how tasks end when the work is interrupted or fails, and how soon."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core.threads import checkpoint, parallel, task_pool

SOON = 1.0
"""Seconds within which Ctrl-C must end the work."""


class Task:
    """Works until it is stopped, for a minute at most."""

    def __init__(self) -> None:
        self.started, self.ended = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.started.set()
        try:
            for _ in range(6_000):
                checkpoint()
                time.sleep(0.01)
        finally:
            self.ended.set()


def nested(task: Task) -> None:
    parallel(task, range(2))


@pytest.mark.parametrize("work", [Task.__call__, nested], ids=["plain", "nested"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_tasks_end_once_the_work_is_interrupted_or_fails(
    kind: type[BaseException], work: Callable[[Task], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offpolicy.core.threads.cores", lambda: 2)
    task = Task()

    def interrupted() -> None:
        with task_pool(2) as pool:
            pool.submit(work, task)
            assert task.started.wait(10)
            raise kind

    start = time.monotonic()
    with pytest.raises(kind):
        interrupted()
    assert time.monotonic() - start < SOON
    assert task.ended.wait(SOON)


def test_a_checkpoint_outside_of_a_pool_does_nothing() -> None:
    checkpoint()


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where a shell started the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize("estimator", [op.MRDR(), op.IPS(), op.DR()], ids=["fitting", "logged actions", "all actions"])
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_an_evaluation_within_a_second(estimator: op.Estimator, threads: int) -> None:
    """The policy takes a minute in all, a fifth of a second for each block of rounds."""
    started, pressed = threading.Event(), []

    def policy(x: np.ndarray) -> np.ndarray:
        started.set()
        time.sleep(0.2)
        return np.full((len(x), 5_000), 1 / 5_000)

    def press() -> None:
        assert started.wait(30)
        pressed.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    rng = np.random.default_rng(0)
    log = op.Log(rng.normal(size=(15_000, 1)), rng.integers(0, 5_000, 15_000), rng.normal(size=15_000), logging=op.Uniform())
    before = set(threading.enumerate())
    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        op.evaluate(log, policy, estimator, engine=op.Local(threads=threads))
    assert time.monotonic() - pressed[0] < SOON
    while set(threading.enumerate()) - before:  # and no thread goes on in the background
        assert time.monotonic() - pressed[0] < 2 * SOON
        time.sleep(0.01)
