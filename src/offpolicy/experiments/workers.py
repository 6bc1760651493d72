"""Tasks in worker processes. If a process dies, its tasks are given to others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from offpolicy.core.errors import InputError
from offpolicy.core.threads import share_cores

T = TypeVar("T")
R = TypeVar("R")

DEATHS = 3
"""The number of deaths after which the run ends: repeated deaths have a cause."""


def finished(work: Callable[[T], R], todo: Sequence[T], processes: int, named: Callable[[T], str]) -> Iterator[tuple[T, R]]:
    """Tasks with their results, as they finish. With one process, they run here, without a pool."""
    if processes == 1 or len(todo) < 2:
        yield from ((task, work(task)) for task in todo)
        return
    left, deaths = list(todo), 0
    while left:
        try:
            for task, result in _pooled(work, left, processes):
                left.remove(task)
                yield task, result
        except _DiedError as died:
            deaths += 1
            lost = "; ".join(named(task) for task in left[:processes])
            if deaths == DEATHS:
                raise InputError(
                    f"worker processes died {deaths} times, the last {died}, while working on: {lost}. Finished tasks are "
                    "in the folder of results (of a bench: if --out was given). If memory ran out, run the same command "
                    "again with fewer --processes; --processes 1 shows other causes."
                ) from None
            print(f"offpolicy: a worker process died {died}; its tasks are repeated: {lost}.", file=sys.stderr)


class _DiedError(Exception):
    """A worker process died; the message states how."""


def _pooled(work: Callable[[T], R], todo: Sequence[T], processes: int) -> Iterator[tuple[T, R]]:
    context, count = _Remembering(), min(processes, len(todo))
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(count,))
    try:
        waiting, running = iter(todo), dict[Future[R], T]()
        while True:
            # a pool that breaks here raises again below, after the finished tasks
            with _deaf(), suppress(BrokenProcessPool):
                while len(running) < 2 * processes and (task := next(waiting, None)) is not None:
                    running[pool.submit(work, task)] = task
            if not running:
                pool.shutdown()
                return
            done = wait(running, return_when=FIRST_COMPLETED).done
            # finished tasks come before those that died, so that they are stored
            for future in sorted(done, key=lambda future: isinstance(future.exception(), BrokenProcessPool)):
                yield running.pop(future), future.result()
    except BrokenProcessPool:
        pool.shutdown()  # its thread ends the other workers and reads exit codes, which only one thread can do
        raise _DiedError(_how(context.started)) from None
    finally:
        for worker in context.started:  # those still running when the run is stopped
            worker.terminate()
        pool.shutdown(cancel_futures=True)


class _Remembering(SpawnContext):
    """Remembers the processes it starts, to read the exit code of one that died. Spawns, since a fork may hang."""

    def __init__(self) -> None:
        self._processes: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self._processes.append(SpawnProcess(*arguments, **options))
        return self._processes[-1]

    @property
    def started(self) -> list[SpawnProcess]:
        return [process for process in self._processes if process.pid is not None]


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, which a terminal sends to all processes: the parent ends them."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how(workers: Sequence[BaseProcess]) -> str:
    """What ended the worker that died first; the others were then ended by SIGTERM."""
    codes = [worker.exitcode for worker in workers if worker.exitcode]
    code = next((code for code in codes if code != -signal.SIGTERM), -signal.SIGTERM)
    if code > 0:
        return f"with exit code {code}"
    return f"by {signal.Signals(-code).name}{' (perhaps out of memory)' if code == -signal.SIGKILL else ''}"


def _begin(processes: int) -> None:
    """Set up a worker."""
    share_cores(processes)
    _follow_parent()


def _follow_parent() -> None:
    """End the worker when its parent is killed, instead of waiting for tasks forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
