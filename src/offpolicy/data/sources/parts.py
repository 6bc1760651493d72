"""Raw parts of a table: a run of Parquet row groups, a CSV file, a slice of a table, a stream. They yield Arrow batches.

A log is read more than once. Files that are not the same each time are noticed, and named.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from offpolicy.core.errors import InputError
from offpolicy.data.batch import CHUNK_ROWS

TAIL_BYTES = 4096
"""The end of a Parquet file is its footer, and that of a compressed CSV file its checksum."""

PARQUET_BUFFER_BYTES = 1 << 18
"""Of each column. (Not a memory map: a file that is cut short while it is mapped ends the process without a word.)"""

CSV_BLOCK_BYTES = 4 << 20
CSV_NULLS = ["", "NaN", "nan", "NULL", "null"]
"""Empty cells are missing values, in text too. (Not NA: it is a country.)"""


@dataclass(frozen=True)
class Stamp:
    """By what a file is known again. Times are only ever compared for being the same: clocks may jump."""

    size: int
    changed: int
    inode: tuple[int, int]
    tail: bytes

    @classmethod
    def of(cls, path: Path) -> Stamp:
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
                tail = hashlib.blake2b(file.read(), digest_size=16).digest()
            found = path.stat()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None
        return cls(found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino), tail)

    @contextmanager
    def holds(self, path: Path) -> Iterator[None]:
        """Raise where the file is another one before or after what is read from it, whatever that made of it."""
        self._check(path)
        try:
            yield
        except InputError:
            self._check(path)  # the better reason, where it is one
            raise
        self._check(path)

    def _check(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f"{path}: has vanished since the log was opened. Put it back, and open the log again.")
        now = Stamp.of(path)
        if now != self:
            raise InputError(
                f"{path}: changed since the log was opened ({self._difference(now)}). An evaluation reads a log more than "
                "once, and must find the same each time: open the log again when nobody writes to it, or copy it first."
            )

    def _difference(self, now: Stamp) -> str:
        if now.size != self.size:
            return f"it had {self.size:,} bytes, and has {now.size:,}"
        if now.inode != self.inode:
            return "another file stands under its name"
        if now.changed != self.changed:
            return f"it was written to at {datetime.fromtimestamp(now.changed / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return "its end is another"


@dataclass(frozen=True, kw_only=True)
class RowRange(ABC):
    """Rows `first`..`first + rows` of the file called `name`, which start at row `start` of the whole log."""

    rows: int
    name: str = ""
    first: int = 0
    start: int = 0

    @abstractmethod
    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Some columns, at most `rows` rows at a time."""


CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid value '(.*)'")
TAB = "\t"
READ_IT_YOURSELF = "Save it as CSV with commas and UTF-8, or read it with pandas and give the frame: "


def not_utf8(path: Path) -> InputError:
    return InputError(f"{path}: is not UTF-8 text. {READ_IT_YOURSELF}op.read_log(pd.read_csv(path, encoding='utf-16'), …).")


def unreadable(path: Path, kind: str, error: Exception, columns: Sequence[str] = ()) -> InputError:
    """The error for a file that is not what its name says, or that ends too early."""
    reason = str(error).splitlines()[0]
    if "\x00" in reason:
        return not_utf8(path)
    cell = CONVERSION.search(reason)
    if cell is not None and int(cell[1]) < len(columns):
        where = "" if cell[2] is None else f" row {int(cell[2]) - 2}"  # counted from 0, without the header
        return InputError(
            f"{columns[int(cell[1])]}: {path.name}{where} holds {cell[4]!r}, but the column began with {cell[3]} values. "
            "Write values of one kind, and leave cells empty where there is none."
        )
    if "Expected 1 columns" in reason and ";" in reason:
        return InputError(
            f"{path}: cells seem to be separated by semicolons. {READ_IT_YOURSELF}"
            "op.read_log(pd.read_csv(path, sep=';', decimal=','), …)."
        )
    return InputError(f"{path}: cannot be read as {kind} (truncated, damaged or of another kind?): {reason}")


@dataclass(frozen=True)
class ParquetPart(RowRange):
    """Some row groups of a Parquet file, decoded a batch at a time."""

    path: Path
    stamp: Stamp
    metadata: pq.FileMetaData
    row_groups: tuple[int, ...]

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        with self.stamp.holds(self.path):
            try:
                with self._open() as file:
                    yield from file.iter_batches(rows, list(self.row_groups), list(columns), use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise self._damaged(list(columns), error) from error

    def _open(self) -> pq.ParquetFile:
        return pq.ParquetFile(
            self.path, metadata=self.metadata, buffer_size=PARQUET_BUFFER_BYTES, page_checksum_verification=True
        )

    def _damaged(self, columns: list[str], error: Exception) -> InputError:
        """The error, with the first row group that cannot be read."""
        for group in self.row_groups:
            try:
                with self._open() as file:
                    for _ in file.iter_batches(row_groups=[group], columns=columns, use_threads=False):
                        pass
            except (pa.ArrowException, OSError) as found:
                reason = str(found).splitlines()[0]
                return InputError(
                    f"{self.path}: row group {group} (of {self.metadata.num_row_groups}, counted from 0) cannot be read: "
                    f"its bytes are damaged ({reason.rstrip('.')}). Write or copy the file anew."
                )
        return unreadable(self.path, "Parquet", error)


def parquet_parts(path: Path, name: str, start: int) -> tuple[pa.Schema, list[ParquetPart]]:
    """The file's schema, and its row groups gathered into parts of about `CHUNK_ROWS` rows."""
    stamp = Stamp.of(path)
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "Parquet", error) from error
    parts: list[ParquetPart] = []
    first, gathered, rows = 0, [], 0
    for group in range(metadata.num_row_groups):
        gathered.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= CHUNK_ROWS or group == metadata.num_row_groups - 1:
            place = {"name": name, "first": first, "start": start + first, "rows": rows}
            parts.append(ParquetPart(path, stamp, metadata, tuple(gathered), **place))
            first, gathered, rows = first + rows, [], 0
    return schema, parts


@dataclass(frozen=True)
class CsvPart(RowRange):
    """A CSV file, parsed a block at a time. `types` holds each column to one type from first row to last.

    `header` has the columns in the order of this file.
    """

    path: Path
    stamp: Stamp
    types: pa.Schema
    header: tuple[str, ...]

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        convert = pa_csv.ConvertOptions(
            column_types=self.types, include_columns=list(columns), strings_can_be_null=True, null_values=CSV_NULLS
        )
        reading = pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False)
        with self.stamp.holds(self.path):
            try:
                with pa_csv.open_csv(self.path, reading, convert_options=convert) as reader:
                    for batch in reader:
                        yield from sliced(batch, rows)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(self.path, "CSV", error, self.header) from error


def csv_schema(path: Path) -> pa.Schema:
    """Column types from the first block: numbers as float64 unless all are whole, dates as text."""
    try:
        with pa_csv.open_csv(path, pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES)) as reader:
            inferred = reader.schema
            inferred.names  # noqa: B018  (decoded only when asked for)
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "CSV", error) from error

    if len(inferred) == 1 and (";" in inferred.names[0] or "\t" in inferred.names[0]):
        raise InputError(
            f"{path}: one column called {inferred.names[0]!r}. Cells must be separated by commas. {READ_IT_YOURSELF}"
            f"op.read_log(pd.read_csv(path, sep={(';' if ';' in inferred.names[0] else TAB)!r}), …)."
        )

    def settle(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_null(kind):
            return pa.float64()
        return pa.string() if pa.types.is_temporal(kind) else kind

    return pa.schema([pa.field(f.name, settle(f.type)) for f in inferred])


@dataclass(frozen=True)
class TablePart(RowRange):
    """The rows of a table in memory."""

    table: pa.Table

    @classmethod
    def of(cls, table: pa.Table, first: int = 0) -> TablePart:
        """A table whose first row is row `first` of the log."""
        return cls(table, rows=len(table), first=first, start=first)

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=rows)


@dataclass(frozen=True)
class StreamPart(RowRange):
    """Anything with `__arrow_c_stream__` that gives its rows anew, in the same order, each time it is asked."""

    stream: Any

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in pa.RecordBatchReader.from_stream(self.stream):
            seen += len(batch)
            yield from sliced(batch.select(list(columns)), rows)
        if seen != self.rows:
            raise InputError(
                f"the stream gave {self.rows:,} rows at first and {seen:,} now. It must give the same rows each time it is "
                "read: pass a table or write it to Parquet."
            )


def sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most `rows`."""
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)
