"""Tables that are not files and not in memory: Arrow datasets, polars queries, and streams that can be read only once."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from offpolicy.core.errors import InputError, first_line
from offpolicy.data.batch import CHUNK_ROWS
from offpolicy.data.sources.parts import RowRange, parquet_file, sliced

Opened = tuple[tuple[RowRange, ...], pa.Schema]


def open_stream(source: Any) -> Opened | None:
    """The parts and the schema of a dataset, a query or a reader; None for anything else."""
    if isinstance(source, ds.Dataset):
        return _dataset_parts(source)
    if isinstance(source, pa.RecordBatchReader):
        return _stored(source)
    if type(source).__name__ == "LazyFrame" and type(source).__module__.startswith("polars."):
        with _query_errors():
            schema = pa.table(source.head(0).collect()).schema
            return (QueryPart(source, rows=_count(source)),), schema
    return None


@dataclass(frozen=True)
class DatasetPart(RowRange):
    """A file of an Arrow dataset, or a whole dataset whose files cannot be read one by one."""

    data: Any
    schema: pa.Schema | None

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        whole = {} if self.schema is None else {"schema": self.schema}
        try:
            for batch in self.data.to_batches(**whole, columns=list(columns), batch_size=rows, use_threads=False):
                yield from sliced(batch, rows)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.name or 'the dataset'}: cannot be read: {first_line(error)}.") from error


def _dataset_parts(dataset: ds.Dataset) -> Opened:
    """One part per file. A filtered dataset, whose filter the files do not know, is one part."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:
        return (DatasetPart(dataset, None, rows=dataset.count_rows()),), dataset.schema
    paths = [str(getattr(fragment, "path", "")) for fragment in fragments]
    root = os.path.commonpath([os.path.dirname(path) for path in paths]) if all(paths) and paths else ""  # noqa: PTH120
    parts: list[RowRange] = []
    start = 0
    for fragment, path in zip(fragments, paths, strict=True):
        name = os.path.relpath(path, root or None) if path else ""
        part = DatasetPart(fragment, dataset.schema, rows=fragment.count_rows(), name=name, start=start)
        parts.append(part if path else replace(part, first=start))
        start += part.rows
    return tuple(parts), dataset.schema


@dataclass(frozen=True)
class QueryPart(RowRange):
    """A polars query, which runs each time it is read, for the columns in use."""

    query: Any

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        with _query_errors():
            query = self.query.select(list(columns))
            if hasattr(query, "collect_batches"):
                frames = query.collect_batches(chunk_size=rows, maintain_order=True)
            else:
                frames = query.collect(engine="streaming").iter_slices(rows)
            for frame in frames:
                yield from pa.table(frame).to_batches(max_chunksize=rows)


@contextmanager
def _query_errors() -> Iterator[None]:
    """Turn the errors of a query into ours; those of its reader pass."""
    import polars

    try:
        yield
    except (polars.exceptions.PolarsError, OSError) as error:
        reason = first_line(error)
        raise InputError(f"the LazyFrame cannot be read: {reason}.") from error


def _count(query: Any) -> int:
    import polars

    return int(query.select(polars.len()).collect().item())


class TemporaryFolder:
    """A folder that is deleted with the object, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="offpolicy-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class StoredPart(RowRange):
    """A part of a stream that was written to a temporary folder, which lives as long as the parts."""

    part: RowRange
    folder: TemporaryFolder

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        return self.part.read(columns, rows)


def _stored(reader: pa.RecordBatchReader) -> Opened:
    """A stream that can be read only once, as a temporary Parquet file: an evaluation reads a log more than once."""
    folder = TemporaryFolder()
    path = folder.path / "stream.parquet"
    try:
        with pq.ParquetWriter(path, reader.schema) as writer:
            for table in _gathered(reader):
                writer.write_table(table)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"the RecordBatchReader cannot be stored in {folder.path}, and an evaluation reads a log more than once: "
            f"{first_line(error)}. Pass `reader.read_all()`, or the table or query behind it."
        ) from error
    file = parquet_file(path, "")
    return tuple(StoredPart(part, folder, **part.place) for part in file.parts(file.schema, "")), file.schema


def _gathered(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The batches of a reader, combined into tables of at least `CHUNK_ROWS` rows but for the last."""
    batches: list[pa.RecordBatch] = []
    for batch in reader:
        batches.append(batch)
        if sum(map(len, batches)) >= CHUNK_ROWS:
            yield pa.Table.from_batches(batches)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches)
