"""Remote files as parts of a log: read with retries, and continued where a connection broke."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from offpolicy.core.errors import InputError, first_line
from offpolicy.data.sources.parts import (
    COUNT_ROWS,
    CSV_NULLS,
    CsvFormat,
    OpenedFile,
    RowRange,
    csv_schema,
    row_group_runs,
    sliced,
    unreadable,
)
from offpolicy.data.sources.segments import Segments
from offpolicy.data.sources.stores import RemoteFile

WAITS = (0.2, 1.0, 3.0)
"""Seconds before each further attempt, after those of the store's own client."""


def resumed(
    attempt: Callable[[], Iterator[pa.RecordBatch]], lost: Callable[[int, Exception], InputError]
) -> Iterator[pa.RecordBatch]:
    """All batches of a stream that can be opened again: after a failure, the rows that were read are skipped.

    `lost` makes the error once every attempt without progress has failed, from the number of rows that were read.
    """
    done, failures = 0, 0
    while True:
        skipped = 0
        try:
            for batch in attempt():
                rest = batch.slice(min(done - skipped, len(batch))) if skipped < done else batch
                skipped += len(batch) - len(rest)
                if len(rest):
                    done, skipped, failures = done + len(rest), skipped + len(rest), 0
                    yield rest
            return
        except (pa.ArrowException, OSError) as error:
            if failures == len(WAITS) or isinstance(error, pa.ArrowInvalid):
                raise lost(done, error) from error
            time.sleep(WAITS[failures])
            failures += 1


@dataclass(frozen=True)
class RemotePart(RowRange):
    """Rows of a remote file."""

    file: RemoteFile

    def lost(self, done: int, error: Exception) -> InputError:
        """The error if the store stopped answering."""
        if isinstance(error, pa.ArrowInvalid):
            return self.damaged(error)
        return InputError(
            f"{self.file.url}: the connection was lost {done:,} rows into the part from row {self.first:,} to row "
            f"{self.first + self.rows:,} (row {self.start + done:,} of the log), and {len(WAITS)} more attempts failed: "
            f"{first_line(error)}. Run it again when the store can be reached."
        )

    def damaged(self, error: Exception) -> InputError:
        """The error if the bytes arrived, and cannot be decoded."""
        self.file.check()  # the better explanation, if the file changed
        return InputError(f"{self.file.url}: cannot be read (is it truncated or damaged?): {first_line(error)}.")

    def checked(self) -> None:
        """Raise if the file changed; a store that does not answer is found by reading."""
        try:
            self.file.check()
        except OSError as error:
            raise self.lost(0, error) from error


@dataclass(frozen=True, kw_only=True)
class RemoteParquet(RemotePart):
    """Some row groups of a remote Parquet file, in the segment of the file that is fetched with them."""

    metadata: pq.FileMetaData
    row_groups: tuple[int, ...]
    segments: Segments
    segment: int

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from resumed(partial(self._attempt, list(columns), rows), self.lost)

    def _attempt(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        fetched = self.segments.fetched(self.segment, self.row_groups, columns)
        try:
            with pq.ParquetFile(
                pa.PythonFile(fetched, "rb"), metadata=self.metadata, page_checksum_verification=True
            ) as file:
                yield from file.iter_batches(rows, list(self.row_groups), columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(error) from error


@dataclass(frozen=True, kw_only=True)
class RemoteCsv(RemotePart):
    """A remote CSV file."""

    types: pa.Schema
    csv: CsvFormat

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        self.checked()
        convert = pa_csv.ConvertOptions(
            column_types=self.types, include_columns=list(columns), strings_can_be_null=True, null_values=CSV_NULLS,
            decimal_point=self.csv.decimal,
        )  # fmt: skip

        def attempt() -> Iterator[pa.RecordBatch]:
            with (
                self.file.filesystem.open_input_stream(self.file.key) as stream,
                self.csv.open(stream, convert) as reader,
            ):
                for batch in reader:
                    yield from sliced(batch, rows)

        yield from resumed(attempt, self.lost)


def remote_parquet(file: RemoteFile, name: str, columns: Collection[str], segments: Segments) -> OpenedFile:
    """A remote Parquet file, whose parts are added to the segments; of its columns, some are usually read."""
    fragment = ds.ParquetFileFormat().make_fragment(file.key, file.filesystem, file_size=file.size)
    with _opening(file, "Parquet"):
        metadata, schema = fragment.metadata, fragment.physical_schema

    def parts(_types: pa.Schema, _column: str) -> Sequence[RowRange]:
        return [
            RemoteParquet(
                file=file, metadata=metadata, row_groups=groups, segments=segments,
                segment=segments.add(file, metadata, groups, columns), name=name, first=first, start=first, rows=rows,
            )
            for groups, first, rows in row_group_runs(metadata)
        ]  # fmt: skip

    return OpenedFile(schema, parts)


def remote_csv(file: RemoteFile, name: str, csv: CsvFormat) -> OpenedFile:
    """A remote CSV file, which is one part. Its rows are counted once the types are decided."""
    with _opening(file, "CSV"), file.filesystem.open_input_stream(file.key) as stream:
        schema = csv_schema(stream, csv, file.url)

    def parts(types: pa.Schema, column: str) -> Sequence[RowRange]:
        part = RemoteCsv(file=file, types=types, csv=csv, name=name, rows=0)
        return [replace(part, rows=sum(len(batch) for batch in part.read([column], COUNT_ROWS)))]

    return OpenedFile(schema, parts)


@contextmanager
def _opening(file: RemoteFile, kind: str) -> Iterator[None]:
    """Turn the errors of Arrow into ours: those of the format, and those of the connection."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{file.url}: cannot be opened: {first_line(error)}. Run it again when the store can be reached."
        ) from error
    except pa.ArrowException as error:
        raise unreadable(file.url, kind, error) from error
