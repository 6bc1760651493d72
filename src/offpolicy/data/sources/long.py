"""Logs of lists in long form, one row per slot, read as one row per list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.hashing import hash_values
from offpolicy.data.sources.parts import RowRange
from offpolicy.data.sources.streams import Opened

COUNTED_ROWS = 65_536
MOST_CHECKED = 1 << 24
"""How many lists are checked for rows that are not next to each other: 8 bytes each."""


@dataclass(frozen=True)
class LongForm:
    """The columns that make lists of rows.

    Attributes
    ----------
    list_id : str
        The list of each row; the rows of a list are next to each other.
    slot : str | None
        The slot of each row, from 0 or from 1; None if rows are in the order of the slots.
    once : frozenset[str]
        Columns with one value per list, such as the context. All others become lists.
    """

    list_id: str
    slot: str | None
    once: frozenset[str]

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.list_id,) if self.slot is None else (self.list_id, self.slot)

    def single(self, field: pa.Field) -> bool:
        """Whether a column has one value per list."""
        return field.name in self.once or field.name == self.list_id or pt.is_nested(field.type)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of lists."""
        return pa.schema([each if self.single(each) else pa.field(each.name, pa.list_(each.type)) for each in schema])


def grouped(opened: Opened, form: LongForm) -> Opened:
    """The parts of a log in long form as parts of lists: one per file, because a list may continue in the next part."""
    parts, schema = opened
    for name in form.keys:
        if name not in schema.names:
            raise InputError(f"there is no column {name!r}, which `list_id=` or `slot=` names.")
    lists: list[RowRange] = []
    seen: list[UInt64Array] = []
    start = 0
    for name, of_file in groupby(parts, key=lambda part: part.name):
        together = GroupedPart(tuple(of_file), form, schema, rows=0, name=name, start=start)
        ids = together.ids()
        lists.append(replace(together, rows=len(ids)))
        start += len(ids)
        seen.append(ids)
    _refuse_scattered(np.concatenate(seen)[:MOST_CHECKED] if seen else np.empty(0, np.uint64), form)
    return tuple(lists), form.schema(schema)


def _refuse_scattered(ids: UInt64Array, form: LongForm) -> None:
    """Raise if the rows of a list are not next to each other."""
    distinct, first = np.unique(ids, return_index=True)
    if len(distinct) < len(ids):
        again = np.setdiff1d(np.arange(len(ids)), first)
        raise RowsError(
            form.list_id, "are part of a list that began elsewhere", again,
            f"The rows of a list must be next to each other, in one file: sort by {form.list_id!r}, or write lists.",
        )  # fmt: skip


@dataclass(frozen=True)
class GroupedPart(RowRange):
    """The lists of one file, put together while its rows are read."""

    parts: tuple[RowRange, ...]
    form: LongForm
    raw: pa.Schema

    def ids(self) -> UInt64Array:
        """The hash of each list's id."""
        found: list[UInt64Array] = []
        last: UInt64Array | None = None
        for part in self.parts:
            for batch in part.read([self.form.list_id], COUNTED_ROWS):
                ids = self._hashed(batch.column(0))
                if len(ids):
                    found.append(ids[np.flatnonzero(np.diff(ids, prepend=~ids[:1] if last is None else last))])
                    last = ids[-1:]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys((*self.form.keys, *columns)))
        waiting: pa.Table | None = None  # the rows of the last list, which may go on
        for part in self.parts:
            for batch in part.read(names, max(rows, COUNTED_ROWS)):
                table = pa.Table.from_batches([batch])
                table = table if waiting is None else pa.concat_tables([waiting, table]).combine_chunks()
                ids = self._hashed(table.column(self.form.list_id).combine_chunks())
                last = int(np.flatnonzero(np.diff(ids, prepend=~ids[:1]))[-1]) if len(ids) else 0
                if last:
                    yield from self._lists(table.slice(0, last), columns, rows)
                waiting = table.slice(last)
        if waiting is not None and len(waiting):
            yield from self._lists(waiting, columns, rows)

    def _hashed(self, ids: pa.Array) -> UInt64Array:
        if ids.null_count:
            raise InputError(
                f"{self.form.list_id}: {ids.null_count:,} rows are missing (null); every row belongs to a list."
            )
        return hash_values(ids)

    def _lists(self, table: pa.Table, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Rows as lists, at most `rows` lists at a time."""
        ids = self._hashed(table.column(self.form.list_id).combine_chunks())
        starts = np.flatnonzero(np.diff(ids, prepend=~ids[:1]))
        ends = np.append(starts[1:], len(ids))
        order = None if self.form.slot is None else self._order(table, starts, ends)
        arrays = {name: self._column(table, name, starts, order) for name in columns}
        batch = pa.RecordBatch.from_pydict(arrays) if arrays else pa.RecordBatch.from_pydict({"": pa.nulls(len(starts))})
        for start in range(0, len(starts), rows):
            yield batch.slice(start, rows)

    def _column(self, table: pa.Table, name: str, starts: IntArray, order: IntArray | None) -> pa.Array:
        column = table.column(name).combine_chunks()
        if self.form.single(self.raw.field(name)):
            first = column.take(pa.array(starts))
            self._refuse_changing(name, column, first, starts)
            return first
        column = column if order is None else column.take(pa.array(order))
        offsets = pa.array(np.append(starts, len(column)), pa.int32())
        return pa.ListArray.from_arrays(offsets, column)

    def _refuse_changing(self, name: str, column: pa.Array, first: pa.Array, starts: IntArray) -> None:
        """Raise if a column with one value per list has several."""
        if pt.is_nested(column.type) or name == self.form.list_id:
            return
        lengths = np.diff(np.append(starts, len(column)))
        if column.null_count:
            return  # missing values are reported where the column is read
        changed = np.flatnonzero(hash_values(column) != np.repeat(hash_values(first), lengths))
        if len(changed):
            raise InputError(
                f"{name}: {len(changed):,} rows differ from the first row of their list. It belongs to the whole list, so "
                "that all rows of a list have the same value."
            )

    def _order(self, table: pa.Table, starts: IntArray, ends: IntArray) -> IntArray:
        """The rows in the order of their slots, list by list."""
        assert self.form.slot is not None
        slot: FloatArray = table.column(self.form.slot).combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)
        lengths = ends - starts
        run = np.repeat(np.arange(len(starts)), lengths)
        order = np.lexsort((slot, run))
        place = np.arange(len(slot)) - np.repeat(starts, lengths)
        first = slot[order][starts]
        wrong = (slot[order] != place + np.repeat(first, lengths)) | ~np.isin(np.repeat(first, lengths), (0.0, 1.0))
        if wrong.any():
            at = int(np.argmax(wrong))
            shown = slot[order][starts[run[at]] : ends[run[at]]][:10].tolist()
            raise InputError(
                f"{self.form.slot}: the slots of {len(np.unique(run[wrong])):,} lists are not 1, 2, 3, … (nor 0, 1, 2, …); "
                f"the first has {', '.join(f'{each:g}' for each in shown)}. Log every slot of a list once, or leave out "
                "`slot=` if rows are in the order of the slots."
            )
        return order
