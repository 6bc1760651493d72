"""The engine for one machine: threads over partitions, merged in the order of the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from offpolicy.core.threads import checkpoint, cores, one_blas_thread, result, task_pool
from offpolicy.data.batch import Partition, in_blocks
from offpolicy.data.checks import whole
from offpolicy.data.log import Log
from offpolicy.engines.base import BATCH_ROWS, Engine, Progress
from offpolicy.statistics.base import State, Statistic

MOST_THREADS = 1_024  # more than any machine has cores; each thread holds the state of a partition


@dataclass(frozen=True)
class Local(Engine):
    """The engine for one machine: it streams a log through threads.

    The result does not depend on the settings, to the last bit: rows are folded in blocks that depend only on the log and
    the statistic, and the parts of the log are merged in order.

    Parameters
    ----------
    threads : int, optional
        How many threads to use; one per core by default.
    batch_rows : int, optional
        How many rows to read at a time; by default, what the statistic prefers.

    Raises
    ------
    InputError
        If `threads` is not a whole number from 1 to 1,024, or `batch_rows` not one from 1.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.0], [1.0]], [0, 1], [1.0, 0.0], propensity=[0.5, 0.5])
    >>> op.evaluate(log, [[1.0, 0.0], [1.0, 0.0]], [op.IPS()], engine=op.Local(threads=1))["IPS"].value
    1.0
    """

    threads: int | None = None
    batch_rows: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            whole("threads", self.threads, 1, MOST_THREADS)
        if self.batch_rows is not None:
            whole("batch_rows", self.batch_rows, 1)

    def on_one_thread(self) -> Local:
        return replace(self, threads=1)

    def check(self, log: Log) -> None:
        """Raise if this engine cannot read the log.

        Parameters
        ----------
        log : Log
            The log to read.

        Raises
        ------
        InputError
            If the log is a Spark DataFrame.
        """
        if not log.source.ordered:
            log.partitions()  # raises, and names the remedy

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold a statistic over the whole log.

        Parameters
        ----------
        log : Log
            The log to read.
        statistic : Statistic
            What to compute.
        progress : callable, optional
            Called with the number of rows read since the last call.

        Returns
        -------
        object
            What `statistic.finish` returns.
        """
        return self.reduce_partitions(log.partitions(statistic.columns), statistic, progress)

    def reduce_partitions(self, partitions: Iterable[Partition], statistic: Statistic, progress: Progress | None) -> Any:
        """Fold a statistic over partitions, each with a state of its own until it is merged.

        Parameters
        ----------
        partitions : iterable of Partition
            In the order in which their states are merged.
        statistic : Statistic
            What to compute.
        progress : callable, optional
            Called with the number of rows read since the last call.

        Returns
        -------
        object
            What `statistic.finish` returns.
        """
        state = statistic.zero()
        with closing(self._states(partitions, statistic, progress)) as parts:
            for part in parts:
                state = statistic.merge(state, part)
        return statistic.finish(state)

    def _states(self, partitions: Any, statistic: Statistic, progress: Progress | None) -> Generator[State]:
        """The state of each partition, in order, with only a few of them in memory at a time."""
        rows = statistic.batch_rows or BATCH_ROWS

        def run(partition: Partition) -> State:
            state = statistic.zero()
            for batch in in_blocks(partition.batches(self.batch_rows or rows), rows):
                checkpoint()
                state = statistic.fold(state, batch)
                if progress is not None:
                    progress(len(batch))
            return state

        threads = self.threads or cores()
        if threads == 1:
            with one_blas_thread():
                yield from map(run, partitions)
            return
        # One BLAS thread each: the partitions already use every core.
        with one_blas_thread(), task_pool(threads) as pool:
            waiting: deque[Future[State]] = deque()
            for partition in partitions:
                waiting.append(pool.submit(run, partition))
                if len(waiting) > threads:
                    yield result(waiting.popleft())
            while waiting:
                yield result(waiting.popleft())
