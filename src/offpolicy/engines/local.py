"""The engine for one machine: threads over partitions, merged in the order of the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.threads import cores, one_blas_thread
from offpolicy.data.batch import Partition, in_blocks
from offpolicy.data.log import Log
from offpolicy.engines.base import BATCH_ROWS, Progress
from offpolicy.statistics.base import State, Statistic


@dataclass(frozen=True)
class Local:
    """Streams a log through `threads` threads, `batch_rows` rows read at a time. The answer depends on neither, to the bit:
    rows are folded in blocks that only the log and the statistic set, and parts are merged in their order."""

    threads: int | None = None
    batch_rows: int | None = None

    def __post_init__(self) -> None:
        if (self.batch_rows is not None and self.batch_rows < 1) or (self.threads is not None and self.threads < 1):
            raise InputError("Local: threads and batch_rows must be at least 1.")

    def check(self, log: Log) -> None:
        if not log.source.ordered:
            log.partitions()  # says what to do

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold the statistic over the whole log."""
        state = statistic.zero()
        for part in self._states(log.partitions(statistic.columns), statistic, progress):
            state = statistic.merge(state, part)
        return statistic.finish(state)

    def _states(self, partitions: Any, statistic: Statistic, progress: Progress | None) -> Iterator[State]:
        """The state of each partition, in order, with only a few of them alive at a time."""

        rows = statistic.batch_rows or BATCH_ROWS

        def run(partition: Partition) -> State:
            state = statistic.zero()
            for batch in in_blocks(partition.batches(self.batch_rows or rows), rows):
                state = statistic.fold(state, batch)
                if progress is not None:
                    progress(len(batch))
            return state

        threads = self.threads or cores()
        if threads == 1:
            with one_blas_thread():
                yield from map(run, partitions)
            return
        # One BLAS thread each: the partitions already keep every core busy.
        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            waiting: deque[Future[State]] = deque()
            try:
                for partition in partitions:
                    waiting.append(pool.submit(run, partition))
                    if len(waiting) > threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
