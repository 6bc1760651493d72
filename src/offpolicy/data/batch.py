"""How a log is read: a `Source` has `Partition`s, one per thread at a time, and each yields `Batch`es of rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import decoded
from offpolicy.data.schema import Schema
from offpolicy.data.slots import SlotColumns
from offpolicy.data.spaces import ActionSpace, discrete

BY_ROUND = ("row", "unit", "action", "reward", "propensity", "weight", "slice_code", "logger_code", "wins", "row_id")
"""Fields with one value or one row per round, or None."""
CHUNK_ROWS = 262_144
"""Rows that one thread reads at a time; fixed, so that results do not depend on the number of threads."""
FEW_ROWS = 4_096
FEW_CHUNKS = 8


@dataclass(frozen=True)
class Batch:
    """Some rounds of a log as arrays of equal length, the input of policies, models, ratios and diagnostics.

    Parameters
    ----------
    row : array of int
        The number of each row in the log, from 0.
    unit : array of uint64
        The hash of each row's unit: its cluster, else its row id, else its file and row.
    action : array
        The action of each round as the space encodes it: codes (int64) for discrete actions; for lists, rounds × slots, with
        −1 where a list is too short.
    reward : array of float
        Rounds × rewards.
    context_parts : tuple of arrays
        The columns of the context, each with one value or one row per round.
    space : ActionSpace
        The actions of the log.
    propensity : array of float, optional
        The probability (or density) of each logged action under the logging policy.
    weight : array of float, optional
        The weight of each row.
    slice_code : array of int, optional
        The slice of each row.
    logger_code : array of int, optional
        The logger of each row, as its position in `log.schema.loggers`.
    wins : array of float, optional
        How often the action of each row won among the draws of `op.MonteCarlo`.
    feature_parts : tuple of arrays, default ()
        The columns of the action features that were logged with each round.
    extra : dict of Arrow arrays
        Further columns that policies, models or diagnostics read by name.
    row_id : array of uint64, optional
        The hash of each row's id, if the log has ids.
    slots : SlotColumns, optional
        Rewards and propensities per slot, if actions are lists.
    memo : dict
        Results that policies reading the same column share.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.1], [0.2]], action=["b", "a"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> batch = next(iter(log.batches()))
    >>> len(batch), batch.codes.tolist(), batch.context.tolist()
    (2, [1, 0], [[0.1], [0.2]])
    """

    row: IntArray
    unit: UInt64Array
    action: npt.NDArray[Any]
    reward: FloatArray
    context_parts: tuple[FloatArray, ...]
    space: ActionSpace
    propensity: FloatArray | None = None
    weight: FloatArray | None = None
    slice_code: IntArray | None = None
    feature_parts: tuple[FloatArray, ...] = ()
    extra: Mapping[str, pa.Array] = field(default_factory=dict)
    row_id: UInt64Array | None = None
    slots: SlotColumns | None = None
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    logger_code: IntArray | None = None
    wins: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.action)

    @property
    def n_actions(self) -> int:
        """The number of actions; only for discrete actions."""
        return discrete(self.space, "batch.n_actions").n_actions

    @property
    def codes(self) -> IntArray:
        """The action code of each round; only for discrete actions."""
        discrete(self.space, "batch.codes")
        return self.action

    @cached_property
    def context(self) -> FloatArray:
        """Rounds × context columns, assembled on first use."""
        return _stack(self.context_parts, len(self))

    @cached_property
    def features(self) -> FloatArray:
        """Rounds × features of the logged action."""
        return _stack(self.feature_parts, len(self))

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of the log that its reader names in `columns`.

        Parameters
        ----------
        name : str
            The column.

        Returns
        -------
        array
            One value per round, read-only. Missing numbers are NaN, other missing values None.
        """
        if name not in self.extra:
            raise InputError(
                f"column {name!r} was not read; name it in the `columns` of the policy, model or diagnostic that uses it."
            )
        values = decoded(self.extra[name])
        values = values.cast(pa.float64()) if pa.types.is_decimal(values.type) else values
        array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array

    def with_columns(self, names: Sequence[str], context: Sequence[str]) -> Batch:
        """The batch with some columns of its context available by name.

        Parameters
        ----------
        names : sequence of str
            The columns to add.
        context : sequence of str
            The names of all context columns, in order.

        Returns
        -------
        Batch
            The same rounds.
        """
        columns = {name: pa.array(self.context[:, context_place(name, context)]) for name in names}
        return replace(self, extra={**self.extra, **columns}) if columns else self

    def take(self, rows: slice | IntArray) -> Batch:
        """Some rounds of the batch.

        Parameters
        ----------
        rows : slice or array of int
            Positions in the batch.

        Returns
        -------
        Batch
            Those rounds, in that order.
        """

        def pick(values: Any) -> Any:
            return None if values is None else values[rows]

        def pick_arrow(values: pa.Array) -> pa.Array:
            if isinstance(rows, slice):
                start, stop, _ = rows.indices(len(values))
                return values.slice(start, stop - start)
            return values.take(pa.array(rows))

        # Slices of an assembled context are views; rows in another order are picked column by column.
        context = self.__dict__.get("context") if isinstance(rows, slice) else None
        return replace(
            self,
            row=self.row[rows],
            unit=self.unit[rows],
            action=self.action[rows],
            reward=self.reward[rows],
            context_parts=tuple(map(pick, self.context_parts if context is None else (context,))),
            propensity=pick(self.propensity),
            weight=pick(self.weight),
            slice_code=pick(self.slice_code),
            logger_code=pick(self.logger_code),
            wins=pick(self.wins),
            row_id=pick(self.row_id),
            slots=None if self.slots is None else self.slots.take(rows),
            feature_parts=tuple(map(pick, self.feature_parts)),
            extra={name: pick_arrow(values) for name, values in self.extra.items()},
            memo={},
        )


def numbered(letter: str, matrix: FloatArray | None) -> tuple[str, ...]:
    """Names for the columns of an array, which has none."""
    return () if matrix is None else tuple(f"{letter}{j}" for j in range(matrix.shape[1]))


def context_place(name: str, context: Sequence[str]) -> int:
    """The position of a column in the encoded context."""
    if name not in context:
        advice = "The log was made from arrays: give the policy the array itself, or read the table with `read_log`."
        raise InputError(f"{unknown_name('column', name, context)} {advice}")
    return context.index(name)


def in_blocks(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """Regroup batches into blocks of `rows` rounds, so that sums do not depend on the batches they come in.

    A batch of that size is passed on unchanged.
    """
    pending: list[Batch] = []
    missing = rows
    for batch in batches:
        start = 0
        while len(batch) - start >= missing:
            pending.append(batch if missing == len(batch) else batch.take(slice(start, start + missing)))
            yield _joined(pending)
            start, pending, missing = start + missing, [], rows
        if start < len(batch):
            pending.append(batch.take(slice(start, len(batch))) if start else batch)
            missing -= len(batch) - start
    if pending:
        yield _joined(pending)


def _joined(batches: Sequence[Batch]) -> Batch:
    """The rounds of several batches of one log, in their order."""
    first = batches[0]
    if len(batches) == 1:
        return first

    def join(values: Sequence[Any]) -> Any:
        return None if values[0] is None else np.concatenate(values)

    return replace(
        first,
        **{name: join([getattr(b, name) for b in batches]) for name in BY_ROUND},
        context_parts=tuple(map(join, zip(*(b.context_parts for b in batches), strict=True))),
        feature_parts=tuple(map(join, zip(*(b.feature_parts for b in batches), strict=True))),
        extra={name: pa.concat_arrays([b.extra[name] for b in batches]) for name in first.extra},
        slots=None if first.slots is None else SlotColumns.joined([b.slots for b in batches if b.slots is not None]),
        memo={},
    )


def _stack(parts: Sequence[FloatArray], rows: int) -> FloatArray:
    """Columns side by side, each contiguous in memory, which makes work by column fast."""
    if len(parts) == 1 and parts[0].ndim == 2:
        return parts[0]
    columns = np.empty((sum(1 if part.ndim == 1 else part.shape[1] for part in parts), rows))
    at = 0
    for part in parts:
        width = 1 if part.ndim == 1 else part.shape[1]
        columns[at : at + width] = part.T
        at += width
    return columns.T


def chunks(rows: int) -> Iterator[tuple[int, int]]:
    """The start and stop of each chunk of a table in memory; small tables also have several, to use all cores."""
    size = min(CHUNK_ROWS, max(FEW_ROWS, -(-rows // FEW_CHUNKS)))
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


class Partition(Protocol):
    """A part of the log that one thread reads from start to end."""

    def batches(self, rows: int) -> Iterator[Batch]:
        """The rounds, at most `rows` at a time."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """A partition whose parts can be read without the rows before them."""

    def pieces(self, rows: int) -> Sequence[Partition]:
        """Partitions of at most `rows` rounds, in order."""
        ...


def pieces(partitions: Iterable[Partition], rows: int) -> Iterator[Partition]:
    """The partitions, cut into smaller ones where that costs nothing."""
    for partition in partitions:
        yield from partition.pieces(rows) if isinstance(partition, Divisible) else (partition,)


class Source(Protocol):
    """Where a log comes from."""

    @property
    def described(self) -> str:
        """A short description for reports."""
        ...

    @property
    def roles(self) -> Mapping[str, str]:
        """The column of each role that has one column, such as the action; empty if columns have no names."""
        ...

    def where(self, row: int) -> str:
        """The place of a row for messages: its file and its number there, from 0."""
        ...

    @property
    def schema(self) -> Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def ordered(self) -> bool:
        """Whether rows have an order, so that row i of an array can belong to row i of the log."""
        ...

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        """At most `rows` of the first rows, without a pass over the log."""
        ...

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise if a column does not exist. Reads no row."""
        ...

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        """The parts of the log; batches also have the named `columns`, of the encoded context or of the table."""
        ...
