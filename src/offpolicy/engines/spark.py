"""The engine for Spark: rows are folded where they are stored, and states are merged by key before the driver sees them.

It uses only DataFrame operations, so that it also runs on Spark Connect. PySpark is imported when a pass runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from offpolicy.core.errors import InputError
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.sources.spark import Decoder, SparkSource
from offpolicy.data.sources.spark_session import spark_errors
from offpolicy.data.subset import ALL
from offpolicy.engines.base import BATCH_ROWS, Engine, Progress
from offpolicy.engines.spark_errors import folded, pickled, traced, words
from offpolicy.statistics.base import Joint, State, Statistic
from offpolicy.statistics.wire import Leaf, Pieces

ROWS = "piece string, leaf int, dtype string, shape array<bigint>, data binary, part int, block int, error string"
FAN = 32  # the states of so many partitions are merged at a time, so that no worker has to hold all of them


@dataclass(frozen=True)
class Spark(Engine):
    """The engine for Spark: it runs on the cluster that the DataFrame of the log belongs to.

    The result does not depend on how the DataFrame is partitioned.

    Parameters
    ----------
    batch_rows : int, optional
        How many rows a worker processes at a time; by default, what the statistic prefers.

    Raises
    ------
    InputError
        If `batch_rows` is less than 1.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.Spark(batch_rows=10_000)
    Spark(batch_rows=10000)
    """

    batch_rows: int | None = None
    threads: ClassVar[int] = 1  # each worker has its own process
    packages: ClassVar[tuple[str, ...]] = ("pyspark",)

    def __post_init__(self) -> None:
        if self.batch_rows is not None and self.batch_rows < 1:
            raise InputError("Spark: batch_rows must be at least 1.")

    def check(self, log: Log) -> None:
        """Raise if this engine cannot read the log.

        Parameters
        ----------
        log : Log
            The log to read.

        Raises
        ------
        InputError
            If the log is not a Spark DataFrame.
        """
        if not isinstance(log.source, SparkSource):
            raise InputError("Spark: the log is not a Spark DataFrame; read it as one, or omit `engine`.")

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold a statistic over the whole log.

        Parameters
        ----------
        log : Log
            The log to read.
        statistic : Statistic
            What to compute.
        progress : callable, optional
            Called with the number of rows once they are read.

        Returns
        -------
        object
            What `statistic.finish` returns.

        Raises
        ------
        InputError
            If the log is not a Spark DataFrame, a worker fails, or the DataFrame does not return the same rows as before.
        """
        self.check(log)
        assert isinstance(log.source, SparkSource)
        counted = Joint({"rows": _RowCount(), "pass": statistic})
        rows = self.batch_rows or statistic.batch_rows or BATCH_ROWS
        decoder = replace(log.source.decoder(statistic.columns), subset=log.subset or ALL)
        work = _Work(pickled(statistic, (counted, decoder, rows)))

        def merge(table: pa.Table) -> pa.Table:  # PySpark counts the arguments of a method wrongly
            return work.merge(table)

        use_this_python(log.source.frame.sparkSession)
        with spark_errors():
            states = log.source.selected(statistic.columns).mapInArrow(work.fold, ROWS)
            blocks = states.groupBy("piece", "block").applyInArrow(merge, ROWS)
            table = blocks.groupBy("piece").applyInArrow(merge, ROWS).toArrow()
        for row in _rows(table):
            if row["error"].is_valid:
                raise InputError(row["error"].as_py()) from RuntimeError(row["data"].as_py().decode())
        state = Pieces(counted).joined(Leaf.of(row) for row in _rows(table))
        if (seen := int(state["rows"]["n"])) != len(log):
            raise InputError(
                f"the DataFrame had {len(log):,} rows at first and has {seen:,} now. It must return the same rows each "
                "time: write it to Parquet and read that file instead."
            )
        if progress is not None:
            progress(seen)
        return statistic.finish(state["pass"])


def use_this_python(session: Any) -> None:
    """Let workers on this machine use this Python, which has offpolicy, unless PYSPARK_PYTHON names another.

    By default PySpark uses the `python3` of the path: another one if the virtual environment is not activated.
    """
    context = getattr(session, "sparkContext", None)  # a Connect server has none: it chooses the Python itself
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


@dataclass(frozen=True)
class _Work:
    """The work of the workers. It stays pickled until errors in the user's own code can be reported."""

    payload: bytes

    @cached_property
    def _loaded(self) -> tuple[Joint, Decoder, int]:
        from pyspark import cloudpickle

        loaded: tuple[Joint, Decoder, int] = cloudpickle.loads(self.payload)
        return loaded

    def fold(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The state of one partition, as rows; or one row with the error, which Spark would hide in its own."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        try:
            statistic, decoder, rows = self._loaded
            state: State | None = None
            with one_blas_thread():  # Spark runs a task on every core
                for chunk in decoder.chunks(batches, partition, rows):
                    state = folded(statistic, statistic.zero() if state is None else state, chunk, rows)
            leaves = [] if state is None else Pieces(statistic).cut(state)
            yield from (_row(leaf, partition, partition // FAN) for leaf in leaves)
        except Exception as error:
            trace = np.frombuffer(traced(error), np.uint8)
            yield _row(Leaf("error", 0, trace), partition, 0, f"{words(error)} [partition {partition}]")

    def merge(self, table: pa.Table) -> pa.Table:
        """One piece of the state, merged from several partitions in order."""
        table = table.sort_by([("part", "ascending"), ("leaf", "ascending")])
        if table["error"].null_count < len(table):
            return table.slice(0, 1)
        states: dict[int, list[Any]] = {}
        for row in _rows(table):
            states.setdefault(row["part"].as_py(), []).append(Leaf.of(row).array)
        with one_blas_thread():
            leaves = Pieces(self._loaded[0]).merged(table["piece"][0].as_py(), states.values())
            return pa.Table.from_batches([_row(leaf, min(states), 0) for leaf in leaves])


@dataclass(frozen=True)
class _RowCount:
    """The number of rows of a pass."""

    columns: tuple[str, ...] = ()
    batch_rows: int | None = None

    def zero(self) -> State:
        return {"n": np.zeros((), np.int64)}

    def fold(self, state: State, batch: Batch) -> State:
        return {"n": state["n"] + len(batch)}

    def merge(self, a: State, b: State) -> State:
        return {"n": a["n"] + b["n"]}

    def finish(self, state: State) -> int:
        return int(state["n"])


def _row(leaf: Leaf, part: int, block: int, error: str | None = None) -> pa.RecordBatch:
    numbers = {"part": pa.array([part], pa.int32()), "block": pa.array([block], pa.int32())}
    return pa.RecordBatch.from_pydict({**leaf.row(), **numbers, "error": pa.array([error], pa.string())})


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    return ({name: table[name][i] for name in table.column_names} for i in range(len(table)))
