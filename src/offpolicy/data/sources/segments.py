"""Segments of remote Parquet files: neighbouring row groups whose bytes are fetched together, once for all that decode them.

A store answers a request only after a while, so that requests should be few and large, and the next one under way while the
last one is decoded.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offpolicy.core.threads import result
from offpolicy.data.sources.stores import RemoteFile

SEGMENT_BYTES = 16 << 20
"""The largest segment, unless a single part of the log is larger."""
AHEAD, AHEAD_BYTES = 4, 64 << 20
"""How many segments are fetched before they are needed, and how large they may be together."""
REQUEST_BYTES, REQUESTS = 16 << 20, 8
"""The largest request, and how many of one segment are under way at a time."""
HOLE_BYTES = 1 << 20
"""Columns that are not in use are fetched as well if they are smaller, instead of sending another request."""

Chunk = tuple[int, int]
"""The first byte of a column chunk and the one after its last."""


@dataclass(frozen=True)
class FetchedRanges:
    """A remote file with some ranges of bytes in memory, in order. Others are fetched when they are read."""

    file: RemoteFile
    size: int
    ranges: Sequence[tuple[int, pa.Buffer]]

    def read(self, start: int, count: int) -> Any:
        """Some bytes; without a copy if they are within one range."""
        pieces, at = [], start
        for first, data in self.ranges:
            if first <= at < first + data.size and at < start + count:
                pieces.append(data.slice(at - first, min(start + count - at, data.size - (at - first))))
                at += pieces[-1].size
        if at < start + count:
            with self.file.open() as opened:
                return opened.read_at(count, start)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class FetchedFile(io.RawIOBase):
    """Fetched ranges as a file, which Arrow reads."""

    def __init__(self, fetched: FetchedRanges) -> None:
        super().__init__()
        self._fetched, self._at = fetched, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._fetched.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> Any:
        left = max(self._fetched.size - self._at, 0)
        count = left if size < 0 else min(size, left)
        data = self._fetched.read(self._at, count)
        self._at += count
        return data


class Segment:
    """Neighbouring parts of a file. Each takes the bytes once per pass; with the last one, they are forgotten."""

    def __init__(self, file: RemoteFile, metadata: pq.FileMetaData) -> None:
        self.file, self.metadata, self.size = file, metadata, 0
        self._parts: list[tuple[int, ...]] = []
        self._lock, self._taken = threading.Lock(), set[tuple[int, ...]]()
        self._columns: tuple[str, ...] = ()
        self._fetch: Future[FetchedRanges] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "metadata": self.metadata, "size": self.size, "_parts": self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["file"], state["metadata"])  # type: ignore[misc]
        self.__dict__.update(state)

    def add(self, row_groups: tuple[int, ...], size: int) -> None:
        """Add the next part of the file."""
        self._parts.append(row_groups)
        self.size += size

    def begin(self, columns: Sequence[str]) -> bool:
        """Fetch the bytes, if that has not begun; whether it begins now."""
        with self._lock:
            if self._fetch is not None:
                return False
            self._start(tuple(columns))
            return True

    def take(self, row_groups: tuple[int, ...], columns: Sequence[str]) -> Future[FetchedRanges]:
        """The bytes for one part. A part that asks again, in the next pass or after a failure, gets new ones."""
        with self._lock:
            if self._fetch is None or row_groups in self._taken or self._columns != tuple(columns):
                self._start(tuple(columns))
            assert self._fetch is not None
            fetch = self._fetch
            self._taken.add(row_groups)
            if len(self._taken) == len(self._parts):
                self._fetch = None
        return fetch

    @property
    def shared(self) -> bool:
        """Whether more than one part has asked, so that this is not only a look at the first rows."""
        return len(self._taken) > 1 or len(self._parts) == 1

    def _start(self, columns: tuple[str, ...]) -> None:
        self._taken, self._columns = set(), columns
        thread = ThreadPoolExecutor(1)
        self._fetch = thread.submit(self._fetched, columns)
        thread.shutdown(wait=False)

    def _fetched(self, columns: tuple[str, ...]) -> FetchedRanges:
        wanted = [chunk for part in self._parts for chunk in column_chunks(self.metadata, part, columns)]
        requests = list(_requests(wanted))
        with self.file.open() as opened:
            size = opened.size() if self.file.size is None else self.file.size  # asking may block every thread

            def fetched(request: Chunk) -> tuple[int, pa.Buffer]:
                start, stop = request
                data = opened.get_stream(start, stop - start).read_buffer(stop - start)
                if data.size < stop - start:
                    raise OSError(f"{data.size:,} of {stop - start:,} bytes arrived.")
                return start, data

            with ThreadPoolExecutor(REQUESTS) as pool:
                ranges = list(map(fetched, requests) if len(requests) == 1 else pool.map(fetched, requests))
        return FetchedRanges(self.file, size, ranges)


class Segments:
    """The segments of a log, in the order in which a pass reads them."""

    def __init__(self) -> None:
        self._all: list[Segment] = []

    def add(self, file: RemoteFile, metadata: pq.FileMetaData, row_groups: tuple[int, ...], columns: Collection[str]) -> int:
        """Add the next part of the log, of which some columns are usually read; the number of its segment."""
        size = sum(stop - start for start, stop in column_chunks(metadata, row_groups, columns))
        if not self._all or self._all[-1].file is not file or self._all[-1].size + size > SEGMENT_BYTES:
            self._all.append(Segment(file, metadata))
        self._all[-1].add(row_groups, size)
        return len(self._all) - 1

    def fetched(self, number: int, row_groups: tuple[int, ...], columns: Sequence[str]) -> FetchedFile:
        """The file with the bytes of a part; meanwhile, those of the next segments are under way."""
        segment = self._all[number]
        fetch = segment.take(row_groups, columns)
        if segment.shared:  # one more each time: many at once would delay the one that is needed first
            any(following.begin(columns) for following in self._following(number))
        return FetchedFile(result(fetch))

    def _following(self, number: int) -> Iterator[Segment]:
        """The segments that are fetched before they are needed."""
        total = 0
        for segment in self._all[number + 1 : number + 1 + AHEAD]:
            total += segment.size
            if total > AHEAD_BYTES:
                return
            yield segment


def column_chunks(metadata: pq.FileMetaData, row_groups: Sequence[int], columns: Collection[str]) -> Iterator[Chunk]:
    """Where the bytes of some columns are."""
    for group in map(metadata.row_group, row_groups):
        for chunk in map(group.column, range(group.num_columns)):
            path = chunk.path_in_schema
            if any(path == name or path.startswith(f"{name}.") for name in columns):
                pages = (chunk.dictionary_page_offset, chunk.data_page_offset)
                start = min(offset for offset in pages if offset is not None)
                yield start, start + chunk.total_compressed_size


def _requests(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Neighbouring chunks as one request, and none that is too large."""
    merged: list[list[int]] = []
    for start, stop in sorted(chunks):
        if merged and start - merged[-1][1] < HOLE_BYTES:
            merged[-1][1] = max(stop, merged[-1][1])
        else:
            merged.append([start, stop])
    for start, stop in merged:
        yield from ((at, min(at + REQUEST_BYTES, stop)) for at in range(start, stop, REQUEST_BYTES))
