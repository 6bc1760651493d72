"""Raw parts of a table, which yield Arrow batches: Parquet row groups, a CSV file, a slice of a table, or a stream.

A log is read more than once. A file that changes in between raises an error that names it.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from offpolicy.core.errors import InputError, first_line
from offpolicy.data.batch import CHUNK_ROWS
from offpolicy.data.dates import as_text

TAIL_BYTES = 4096
"""Enough for the footer of a Parquet file or the checksum of a compressed CSV file."""

PARQUET_BUFFER_BYTES = 1 << 18
"""Per column. (Not a memory map: if a mapped file is truncated, the process is killed without a message.)"""

CSV_BLOCK_BYTES = 4 << 20
COUNT_ROWS = 65_536
CSV_NULLS = ["", "NaN", "nan", "NULL", "null"]
"""Empty cells are missing values, also in text. (NA is not: it is a country code.)"""


@dataclass(frozen=True)
class Stamp:
    """Identifies the state of a file. Times are only compared for equality, since clocks may jump."""

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
            status = path.stat()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None
        return cls(status.st_size, status.st_mtime_ns, (status.st_dev, status.st_ino), tail)

    @contextmanager
    def holds(self, path: Path) -> Iterator[None]:
        """Raise if the file differs before or after it is read."""
        self._check(path)
        try:
            yield
        except InputError:
            self._check(path)  # the better explanation, if the file changed
            raise
        self._check(path)

    def _check(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f"{path} was deleted or moved after the log was opened. Restore it and open the log again.")
        now = Stamp.of(path)
        if now != self:
            raise InputError(
                f"{path} has changed since the log was opened ({self._difference(now)}). An evaluation reads a log more "
                "than once, so it must not change: open the log again when nothing writes to it, or copy it first."
            )

    def _difference(self, now: Stamp) -> str:
        if now.size != self.size:
            return f"it had {self.size:,} bytes, and now has {now.size:,}"
        if now.inode != self.inode:
            return "it was replaced by another file"
        if now.changed != self.changed:
            return f"it was written to at {datetime.fromtimestamp(now.changed / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return "its last bytes differ"


@dataclass(frozen=True, kw_only=True)
class RowRange(ABC):
    """Rows `first`..`first + rows` of the file called `name`, which start at row `start` of the whole log."""

    rows: int
    name: str = ""
    first: int = 0
    start: int = 0

    @property
    def place(self) -> dict[str, Any]:
        """The fields that say which rows these are, for a part around this one."""
        return {"rows": self.rows, "name": self.name, "first": self.first, "start": self.start}

    @abstractmethod
    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Some columns, at most `rows` rows at a time."""


@dataclass(frozen=True)
class PartitionedPart(RowRange):
    """A part of a file, with the columns that the names of its folders give."""

    part: RowRange
    values: Mapping[str, pa.Scalar]

    @classmethod
    def of(cls, part: RowRange, values: Mapping[str, pa.Scalar]) -> RowRange:
        """The part with some columns; the part itself if there are none."""
        return cls(part, values, **part.place) if values else part

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        stored = [name for name in columns if name not in self.values]
        lengths = ((None, min(rows, self.rows - start)) for start in range(0, self.rows, rows))
        for batch, length in ((b, len(b)) for b in self.part.read(stored, rows)) if stored else lengths:
            arrays = {name: pa.repeat(self.values[name], length) for name in columns if name in self.values}
            arrays |= {name: batch.column(name) for name in stored if batch is not None}
            yield pa.RecordBatch.from_pydict({name: arrays[name] for name in columns})


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written."""

    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    decimal: str = "."

    def __post_init__(self) -> None:
        if self.delimiter == "\\t":  # as it is typed on a command line
            object.__setattr__(self, "delimiter", "\t")
        for name in ("delimiter", "quote", "decimal"):
            value = getattr(self, name)
            if not (isinstance(value, str) and len(value) == 1 and value.isascii()):
                raise InputError(f"{name} is {value!r}; give one ASCII character.")
        if self.decimal == self.delimiter:
            raise InputError(f"decimal and delimiter are both {self.decimal!r}; they must differ.")
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError):
            raise InputError(
                f"encoding is {self.encoding!r}; give an encoding that Python supports, such as latin-1."
            ) from None

    def open(self, path: Any, convert: pa_csv.ConvertOptions | None = None) -> pa_csv.CSVStreamingReader:
        """Open a path or a stream for reading block by block."""
        reading = pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=convert is None, encoding=self.encoding)
        parsing = pa_csv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote)
        convert = convert or pa_csv.ConvertOptions(decimal_point=self.decimal)
        return pa_csv.open_csv(path, reading, parsing, convert)


CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid value '(.*)'")
DELIMITERS = (";", "\t", "|", ",")


def _not_encoded(path: str | Path, encoding: str) -> InputError:
    """The error for text in another encoding."""
    return InputError(
        f"{path} is not {encoding.upper()} text. Give its encoding, such as encoding='utf-16' or 'latin-1' (--encoding), "
        "or save it as UTF-8."
    )


def unreadable(path: str | Path, kind: str, error: Exception, columns: Sequence[str] = ()) -> InputError:
    """The error for a file that does not match its extension, is truncated, or has values of mixed types."""
    reason = first_line(error)
    if "\x00" in reason:
        return _not_encoded(path, "UTF-8")
    cell = CONVERSION.search(reason)
    if cell is not None and int(cell[1]) < len(columns):
        where = "" if cell[2] is None else f" row {int(cell[2]) - 2}"  # counted from 0, without the header
        return InputError(
            f"{columns[int(cell[1])]}: {Path(path).name}{where} contains {cell[4]!r}, but the column starts with {cell[3]} "
            "values. Write values of one type, and leave cells empty if there is no value."
        )
    if "Expected 1 columns" in reason and ";" in reason:
        return InputError(
            f"{path}: cells seem to be separated by semicolons. Give delimiter=';' (--delimiter ';'), and decimal=',' "
            "(--decimal ,) if numbers have decimal commas."
        )
    return InputError(f"{path}: cannot be read as {kind} (is it truncated, damaged or of another format?): {reason}")


@dataclass(frozen=True)
class ParquetPart(RowRange):
    """Some row groups of a Parquet file, decoded batch by batch."""

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
        return pq.ParquetFile(  # pre-buffering would hold whole row groups in memory
            self.path, metadata=self.metadata, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False,
            page_checksum_verification=True,
        )  # fmt: skip

    def _damaged(self, columns: list[str], error: Exception) -> InputError:
        """The error for damaged bytes, with the first row group that cannot be read."""
        for group in self.row_groups:
            try:
                with self._open() as file:
                    for _ in file.iter_batches(row_groups=[group], columns=columns, use_threads=False):
                        pass
            except (pa.ArrowException, OSError) as cause:
                reason = first_line(cause)
                return InputError(
                    f"{self.path}: row group {group} (of {self.metadata.num_row_groups}, counted from 0) cannot be read: "
                    f"its bytes are damaged ({reason.rstrip('.')}). Write or copy the file again."
                )
        return unreadable(self.path, "Parquet", error)


@dataclass(frozen=True)
class OpenedFile:
    """The schema of a file, and its parts once the types of its columns are decided. One column is read to count rows."""

    schema: pa.Schema
    parts: Callable[[pa.Schema, str], Sequence[RowRange]]


def parquet_file(path: Path, name: str) -> OpenedFile:
    """A Parquet file, with row groups grouped into parts of about `CHUNK_ROWS` rows."""
    stamp = Stamp.of(path)
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, "Parquet", error) from error
    parts = [
        ParquetPart(path, stamp, metadata, groups, name=name, first=first, start=first, rows=rows)
        for groups, first, rows in row_group_runs(metadata)
    ]
    return OpenedFile(schema, lambda _types, _column: parts)


def row_group_runs(metadata: pq.FileMetaData) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Row groups gathered into runs of about `CHUNK_ROWS` rows: their numbers, the first row, and the number of rows."""
    first, gathered, rows = 0, [], 0
    for group in range(metadata.num_row_groups):
        gathered.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= CHUNK_ROWS or group == metadata.num_row_groups - 1:
            yield tuple(gathered), first, rows
            first, gathered, rows = first + rows, [], 0


@dataclass(frozen=True)
class CsvPart(RowRange):
    """A CSV file, parsed block by block. `types` fixes the type of each column; `header` has the columns in file order."""

    path: Path
    stamp: Stamp
    types: pa.Schema
    header: tuple[str, ...]
    csv: CsvFormat

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        convert = pa_csv.ConvertOptions(
            column_types=self.types, include_columns=list(columns), strings_can_be_null=True, null_values=CSV_NULLS,
            decimal_point=self.csv.decimal,
        )  # fmt: skip
        with self.stamp.holds(self.path):
            try:
                with self.csv.open(self.path, convert) as reader:
                    for batch in reader:
                        yield from sliced(batch, rows)
            except UnicodeDecodeError:
                raise _not_encoded(self.path, self.csv.encoding) from None
            except (pa.ArrowException, OSError) as error:
                raise unreadable(self.path, "CSV", error, self.header) from error


def csv_file(path: Path, name: str, csv: CsvFormat) -> OpenedFile:
    """A CSV file, which is one part. Its rows are counted once the types are decided."""
    stamp, schema = Stamp.of(path), csv_schema(path, csv, path)

    def parts(types: pa.Schema, column: str) -> Sequence[RowRange]:
        part = CsvPart(path, stamp, types, tuple(schema.names), csv, name=name, rows=0)
        return [replace(part, rows=sum(len(batch) for batch in part.read([column], COUNT_ROWS)))]

    return OpenedFile(schema, parts)


def csv_schema(path: Any, csv: CsvFormat, name: str | Path) -> pa.Schema:
    """Column types from the first block; dates are read as text, and empty columns as numbers."""
    try:
        with csv.open(path) as reader:
            inferred = reader.schema
            inferred.names  # noqa: B018  (decoded on access)
    except UnicodeDecodeError:
        raise _not_encoded(name, csv.encoding) from None
    except (pa.ArrowException, OSError) as error:
        raise unreadable(name, "CSV", error) from error

    other = [sign for sign in DELIMITERS if len(inferred) == 1 and sign != csv.delimiter and sign in inferred.names[0]]
    if other:
        raise InputError(
            f"{name} has one column, called {inferred.names[0]!r}. If cells are separated by {other[0]!r}, give "
            f"delimiter={other[0]!r} (--delimiter)."
        )

    def settled(field: pa.Field) -> pa.Field:
        if pa.types.is_null(field.type):
            return pa.field(field.name, pa.float64())
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            return as_text(field)
        return pa.field(field.name, pa.string()) if pa.types.is_temporal(field.type) else pa.field(field.name, field.type)

    return pa.schema([settled(field) for field in inferred])


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
    """Anything with `__arrow_c_stream__` that yields the same rows, in the same order, each time it is read."""

    stream: Any

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in pa.RecordBatchReader.from_stream(self.stream):
            seen += len(batch)
            yield from sliced(batch.select(list(columns)), rows)
        if seen != self.rows:
            raise InputError(
                f"the stream had {self.rows:,} rows at first and {seen:,} now. It must yield the same rows each time it is "
                "read: pass a table, or write it to Parquet."
            )


def sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most `rows`."""
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)
