"""Tasks in processes of their own. A process that dies is noticed, and its tasks are given to others."""

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
"""So many times workers may die before all is given up: what dies again and again does so for a reason."""


def finished(work: Callable[[T], R], todo: Sequence[T], processes: int, named: Callable[[T], str]) -> Iterator[tuple[T, R]]:
    """Tasks with their results, as they are finished. One process: here, without a pool."""
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
                    f"worker processes died {deaths} times, the last {died}, at work on: {lost}. What was finished is kept "
                    "in the folder of results (of a bench: where --out was given). Where memory ran out, run the same "
                    "command again with fewer --processes; --processes 1 shows what else went wrong."
                ) from None
            print(f"offpolicy: a worker process died {died}; its work is done again: {lost}.", file=sys.stderr)


class _DiedError(Exception):
    """Says how."""


def _pooled(work: Callable[[T], R], todo: Sequence[T], processes: int) -> Iterator[tuple[T, R]]:
    context, count = _Remembering(), min(processes, len(todo))
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(count,))
    try:
        waiting, running = iter(todo), dict[Future[R], T]()
        while True:
            # a pool that breaks here says so again below, after what is finished
            with _deaf(), suppress(BrokenProcessPool):
                while len(running) < 2 * processes and (task := next(waiting, None)) is not None:
                    running[pool.submit(work, task)] = task
            if not running:
                pool.shutdown()
                return
            done = wait(running, return_when=FIRST_COMPLETED).done
            # what is finished comes before what died beside it, so that it is kept
            for future in sorted(done, key=lambda future: isinstance(future.exception(), BrokenProcessPool)):
                yield running.pop(future), future.result()
    except BrokenProcessPool:
        pool.shutdown()  # its thread ends the other workers and reads exit codes, which two threads cannot do at once
        raise _DiedError(_how(context.started)) from None
    finally:
        for worker in context.started:  # those still at work when all is stopped: nothing waits for what they do
            worker.terminate()
        pool.shutdown(cancel_futures=True)


class _Remembering(SpawnContext):
    """Keeps the processes it starts: one that died at once must still be asked how. A fork with threads may hang."""

    def __init__(self) -> None:
        self._made: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self._made.append(SpawnProcess(*arguments, **options))
        return self._made[-1]

    @property
    def started(self) -> list[SpawnProcess]:
        return [process for process in self._made if process.pid is not None]


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here never hear Ctrl-C, which goes to all of a terminal: the parent ends them."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how(workers: Sequence[BaseProcess]) -> str:
    """What ended the worker that died first; the rest of them were then ended by SIGTERM."""
    codes = [worker.exitcode for worker in workers if worker.exitcode]
    code = next((code for code in codes if code != -signal.SIGTERM), -signal.SIGTERM)
    if code > 0:
        return f"with exit code {code}"
    return f"by {signal.Signals(-code).name}{' (perhaps out of memory)' if code == -signal.SIGKILL else ''}"


def _begin(processes: int) -> None:
    """What a worker does first."""
    share_cores(processes)
    _follow_parent()


def _follow_parent() -> None:
    """A worker whose parent was killed ends, too, instead of waiting for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
