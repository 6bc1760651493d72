"""What is fetched of a remote Parquet file, and when: whole ranges, once per pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offpolicy.data.sources import segments
from offpolicy.data.sources.parts import row_group_runs
from offpolicy.data.sources.segments import FetchedFile, FetchedRanges, Segments, column_chunks


class File:
    """A file in memory that counts how often it is opened."""

    def __init__(self, data: bytes) -> None:
        self.data, self.opened, self.size = data, 0, len(data)

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.opened += 1
        yield pa.BufferReader(self.data)


@pytest.fixture
def file() -> File:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": np.arange(4_000), "a.b": np.arange(4_000) * 2, "c": [[k] for k in range(4_000)]})
    pq.write_table(table, sink, row_group_size=1_000, compression="none", use_dictionary=False)
    return File(sink.getvalue().to_pybytes())


def metadata(file: File) -> Any:
    return pq.ParquetFile(pa.BufferReader(file.data)).metadata


def test_neighbours_are_one_request_and_none_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "HOLE_BYTES", 10)
    monkeypatch.setattr(segments, "REQUEST_BYTES", 100)
    assert list(segments._requests([(50, 60), (0, 45), (200, 420)])) == [(0, 60), (200, 300), (300, 400), (400, 420)]


def test_bytes_come_from_the_ranges_and_from_the_file_where_there_are_none() -> None:
    file = File(bytes(range(100)))
    fetched = FetchedRanges(file, 100, [(10, pa.py_buffer(bytes(range(10, 20)))), (20, pa.py_buffer(bytes(range(20, 30))))])  # type: ignore[arg-type]
    reader = FetchedFile(fetched)
    for start, count in ((12, 5), (18, 4)):
        reader.seek(start)
        assert bytes(reader.read(count)) == bytes(range(start, start + count))
    assert file.opened == 0
    reader.seek(95)
    assert (bytes(reader.read(50)), reader.tell(), file.opened) == (bytes(range(95, 100)), 100, 1)


def test_chunks_of_a_column_include_its_inner_columns(file: File) -> None:
    known = metadata(file)
    sizes = {name: len(list(column_chunks(known, [0, 1], [name]))) for name in ("a", "a.b", "c", "d")}
    assert sizes == {"a": 4, "a.b": 2, "c": 2, "d": 0}  # "a.b" may be an inner column of "a", and is fetched with it


def test_a_segment_is_fetched_once_per_pass_and_forgotten(file: File) -> None:
    known, log = metadata(file), Segments()
    groups = [(0, 1), (2, 3)]
    assert [log.add(file, known, each, ["a"]) for each in groups] == [0, 0]  # type: ignore[arg-type]
    for passes in (1, 2):
        for first, each in zip((0, 2_000), groups, strict=True):
            fetched = pa.PythonFile(log.fetched(0, each, ["a"]), "rb")
            read = pq.ParquetFile(fetched, metadata=known).read_row_groups(list(each), ["a"])
            assert read.column("a").to_pylist() == list(range(first, first + 2_000))
        assert file.opened == passes
    assert list(row_group_runs(known)) == [((0, 1, 2, 3), 0, 4_000)]
