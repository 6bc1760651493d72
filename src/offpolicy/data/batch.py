"""How a log is read: `Source`, where it comes from; `Partition`, what one thread reads; `Batch`, some rounds as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import decoded
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import ActionSpace, discrete

BY_ROUND = ("row", "unit", "action", "reward", "propensity", "weight", "slice_code")
"""What a batch has one value, or one row, of for each round (or none at all)."""
CHUNK_ROWS = 262_144
"""Rows of a log that one thread takes at a time; fixed, so that results do not depend on the number of threads."""
FEW_ROWS = 4_096
FEW_CHUNKS = 8


@dataclass(frozen=True)
class Batch:
    """Some rounds of a log, as arrays of equal length: what policies, models, ratios and diagnostics are given."""

    row: IntArray
    unit: UInt64Array
    action: npt.NDArray[Any]
    """As the space encodes it: codes (int64) where actions are discrete."""
    reward: FloatArray
    context_parts: tuple[FloatArray, ...]
    space: ActionSpace
    propensity: FloatArray | None = None
    weight: FloatArray | None = None
    slice_code: IntArray | None = None
    feature_parts: tuple[FloatArray, ...] = ()
    extra: Mapping[str, pa.Array] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What policies that read the same column need work out only once."""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def n_actions(self) -> int:
        """For code that serves discrete actions alone, as `codes` is."""
        return discrete(self.space, "batch.n_actions").n_actions

    @property
    def codes(self) -> IntArray:
        """The action of each round, to look it up in a table by action."""
        discrete(self.space, "batch.codes")
        return self.action

    @cached_property
    def context(self) -> FloatArray:
        """Rounds × context features; put together only when somebody asks."""
        return _stack(self.context_parts, len(self))

    @cached_property
    def features(self) -> FloatArray:
        """Rounds × features of the action seen in that round."""
        return _stack(self.feature_parts, len(self))

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of the log that its reader names in `columns`, read-only; missing numbers are NaN, others None."""
        if name not in self.extra:
            raise InputError(f"column {name!r} was not read; name it in the `columns` of what reads it.")
        values = decoded(self.extra[name])
        values = values.cast(pa.float64()) if pa.types.is_decimal(values.type) else values
        array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array

    def with_columns(self, names: Sequence[str], context: Sequence[str]) -> Batch:
        """The same with some columns of its context by name, as policies read them."""
        columns = {name: pa.array(self.context[:, context_place(name, context)]) for name in names}
        return replace(self, extra={**self.extra, **columns}) if columns else self

    def take(self, rows: slice | IntArray) -> Batch:
        """The same columns for some of the rows, in the given order."""

        def pick(values: Any) -> Any:
            return None if values is None else values[rows]

        def pick_arrow(values: pa.Array) -> pa.Array:
            if isinstance(rows, slice):
                start, stop, _ = rows.indices(len(values))
                return values.slice(start, stop - start)
            return values.take(pa.array(rows))

        # Views of what was put together stay cheap; rows in another order are picked column by column.
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
            feature_parts=tuple(map(pick, self.feature_parts)),
            extra={name: pick_arrow(values) for name, values in self.extra.items()},
            memo={},
        )


def numbered(letter: str, matrix: FloatArray | None) -> tuple[str, ...]:
    """Names for the columns of an array, which has none."""
    return () if matrix is None else tuple(f"{letter}{j}" for j in range(matrix.shape[1]))


def context_place(name: str, context: Sequence[str]) -> int:
    """Where a column stands in the encoded context."""
    if name not in context:
        advice = "The log is of arrays: give the policy the array itself, or read the table with `read_log`."
        raise InputError(f"{unknown_name('column', name, context)} {advice}")
    return context.index(name)


def in_blocks(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """The same rounds, `rows` at a time whatever the batches they come in: what is summed together is then always the same.

    A batch that is a block already passes as it is.
    """
    held: list[Batch] = []
    missing = rows
    for batch in batches:
        start = 0
        while len(batch) - start >= missing:
            held.append(batch if missing == len(batch) else batch.take(slice(start, start + missing)))
            yield _joined(held)
            start, held, missing = start + missing, [], rows
        if start < len(batch):
            held.append(batch.take(slice(start, len(batch))) if start else batch)
            missing -= len(batch) - start
    if held:
        yield _joined(held)


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
        memo={},
    )


def _stack(parts: Sequence[FloatArray], rows: int) -> FloatArray:
    """Columns side by side. Each stays in one piece of memory, so that work column by column is fast."""
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
    """Where each chunk of a table in memory starts and stops: several also of a small one, so that no core stands idle."""
    size = min(CHUNK_ROWS, max(FEW_ROWS, -(-rows // FEW_CHUNKS)))
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


class Partition(Protocol):
    """A part of the log that one thread reads from its start to its end."""

    def batches(self, rows: int) -> Iterator[Batch]:
        """The rounds, at most `rows` at a time."""
        ...


class Source(Protocol):
    """Where a log comes from."""

    @property
    def described(self) -> str:
        """In a few words, for reports."""
        ...

    @property
    def roles(self) -> Mapping[str, str]:
        """The columns that play a role alone, such as the action; none where there are no names."""
        ...

    def where(self, row: int) -> str:
        """A row's place in words: its file and its number there, from 0."""
        ...

    @property
    def schema(self) -> Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def ordered(self) -> bool:
        """Whether rows stand in one order, so that row i of an array can belong to row i of the log."""
        ...

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        """Some first rows, at most so many: any will do that come without a pass over the log."""
        ...

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise where one of the columns that a policy names is not there. Reads no row."""
        ...

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        """The parts of the log, each batch with the extra named `columns`, of the encoded context or of the table."""
        ...
