"""The number of cores, and work on all of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
WAIT_SECONDS = 0.2
"""How long to wait for a task before looking for Ctrl-C again."""
_share: list[int] = []


def share_cores(processes: int) -> None:
    """Limit this process to its share of the cores, when `processes` processes share the machine."""
    _share[:] = [max(1, cores() // processes)]


def cores() -> int:
    """The number of cores that this process may use."""
    if _share:
        return _share[0]
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel(function: Callable[..., T], *items: Iterable[Any], threads: int | None = None) -> list[T]:
    """`map`, in threads if there is more than one core, or in a number of threads."""
    threads = cores() if threads is None else threads
    if threads == 1:
        return list(map(function, *items))
    with task_pool(threads) as pool:
        return [result(task) for task in [pool.submit(function, *each) for each in zip(*items, strict=False)]]


def result(task: Future[T]) -> T:
    """The result of a task, waited for in short spells: Ctrl-C just before a wait is only seen when that wait ends."""
    while not wait([task], timeout=WAIT_SECONDS).done:
        pass
    return task.result()


class TaskStoppedError(BaseException):
    """Ends a task whose result is no longer needed. Not an `Exception`, so that no handler takes it for an error."""


class _Stop:
    """Whether the tasks of a pool should end; those of a pool inside a task end with it."""

    def __init__(self, outer: _Stop | None) -> None:
        self._outer, self.requested = outer, False

    def check(self) -> None:
        if self.requested:
            raise TaskStoppedError
        if self._outer is not None:
            self._outer.check()


_task = threading.local()


def checkpoint() -> None:
    """End the task of this thread if its pool was interrupted. Call it in loops that may take longer than a second."""
    stop: _Stop | None = getattr(_task, "stop", None)
    if stop is not None:
        stop.check()


@contextmanager
def task_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads whose tasks end at their next `checkpoint` once the block fails or is interrupted.

    After an error it waits for them. After Ctrl-C, or anything else that is not an `Exception`, it does not.
    """
    stop = _Stop(getattr(_task, "stop", None))
    pool = ThreadPoolExecutor(threads, initializer=setattr, initargs=(_task, "stop", stop))
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        stop.requested = True
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run each matrix product on one thread, for many small products in threads that already use all cores."""
    import scipy.linalg  # noqa: F401  (loads its own BLAS, which would not be limited if it came later)

    _limited.enter("torch" in sys.modules)
    try:
        yield
    finally:
        _limited.leave()


class _Limited:
    """The limit applies to the whole process: the first user sets it, and the last one restores it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limits = threading.Lock(), 0, dict[bool, Any]()

    def enter(self, torch: bool) -> None:
        with self._lock:
            self._inside += 1
            if torch not in self._limits:
                self._limits[torch] = _controller(torch).limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            while not self._inside and self._limits:
                self._limits.popitem()[1].restore_original_limits()  # in reverse order


_limited = _Limited()


@cache
def _controller(torch: bool) -> ThreadpoolController:  # noqa: ARG001
    """The loaded libraries: searched once, and again after PyTorch has loaded its own."""
    return ThreadpoolController()
