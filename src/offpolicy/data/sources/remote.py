"""Files in object stores and on web servers: found, read with retries, and continued where a connection broke."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from offpolicy.core.errors import InputError
from offpolicy.data.batch import CHUNK_ROWS
from offpolicy.data.sources.files import CSV, PARQUET, URL
from offpolicy.data.sources.parts import (
    COUNT_ROWS,
    CSV_NULLS,
    CsvFormat,
    OpenedFile,
    RowRange,
    csv_schema,
    sliced,
    unreadable,
)

OF_ARROW = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
OF_FSSPEC = ("http", "https")
SCHEMES = (*OF_ARROW, *OF_FSSPEC)
WAITS = (0.2, 1.0, 3.0)
"""Seconds before each further attempt, after those of the store's own client."""
S3_ATTEMPTS, S3_SECONDS, GS_SECONDS = 3, 30, 30


def is_remote(source: Any) -> bool:
    """Whether a log is given as one or several addresses of remote files."""
    several = source if isinstance(source, (list, tuple)) else [source]
    schemes = [URL.match(each) for each in several if isinstance(each, str)]
    return len(schemes) == len(several) > 0 and all(found is not None and found[1].lower() in SCHEMES for found in schemes)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store, with its state when it was found."""

    filesystem: pa_fs.FileSystem = field(compare=False)
    key: str
    url: str
    size: int | None
    changed: int | None

    @property
    def path(self) -> PurePosixPath:
        """Its name and its folders. (The key itself may have empty parts.)"""
        return PurePosixPath("/" + self.key)

    def check(self) -> None:
        """Raise if the file is another one than when it was found."""
        now = self.filesystem.get_file_info(self.key)
        if now.type is pa_fs.FileType.NotFound:
            raise InputError(f"{self.url} was deleted or moved after the log was opened. Restore it and open the log again.")
        if (now.size, now.mtime_ns) != (self.size, self.changed):
            raise InputError(f"{self.url} changed after the log was opened. Open the log again.")

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The file for reading at any place."""
        with self.filesystem.open_input_file(self.key) as file:
            yield file


def find_remote(source: Any) -> list[RemoteFile]:
    """The files of an address, a folder, a glob or a list of them, sorted and without repeats."""
    several = source if isinstance(source, (list, tuple)) else [source]
    found = {file.url: file for each in several for file in _found(str(each))}
    return [found[url] for url in sorted(found)]


def _found(url: str) -> list[RemoteFile]:
    scheme = url.partition(":")[0].lower()
    filesystem, path = _filesystem(url, scheme)
    prefix = url[: len(url) - len(path)] if url.endswith(path) else f"{scheme}://"

    def listed(info: pa_fs.FileInfo) -> RemoteFile:
        return RemoteFile(filesystem, info.path, prefix + info.path, info.size, info.mtime_ns)

    try:
        folder = re.split(r"/[^/]*[*?\[]", path)[0]
        if folder == path:
            info = filesystem.get_file_info(path)
            if info.type is pa_fs.FileType.File:
                return [listed(info)]
            pattern = None if info.type is pa_fs.FileType.Directory else ""
        else:
            pattern = path
        if pattern == "":
            raise InputError(f"{url}: no such file or folder.")
        infos = filesystem.get_file_info(pa_fs.FileSelector(folder, recursive=True))
    except OSError as error:
        raise InputError(
            f"{url}: cannot be listed: {str(error).splitlines()[0]} Check the address, the network and the credentials (the "
            "store's usual environment variables or files)."
        ) from error
    files = [info for info in infos if info.type is pa_fs.FileType.File and _wanted(info.path, folder, pattern)]
    if not files:
        what = "the folder contains no Parquet or CSV files" if pattern is None else "no file matches this pattern"
        raise InputError(f"{url}: {what}.")
    lakes = [info.path for info in infos if "/_delta_log/" in info.path or info.path.endswith(".metadata.json")]
    if lakes and pattern is None:
        raise InputError(
            f"{url} is a Delta or Iceberg table ({lakes[0]}), whose Parquet files also contain deleted rows. Pass the table "
            f"itself: op.read_log(deltalake.DeltaTable({url!r}), …), or a table of a pyiceberg catalog."
        )
    return [listed(info) for info in files]


def _wanted(path: str, folder: str, pattern: str | None) -> bool:
    """Whether a file belongs to a folder, or matches a glob, in which `**` stands for any folders."""
    if pattern is None:
        rest = PurePosixPath(path).relative_to(folder).parts
        return path.lower().endswith((*PARQUET, *CSV)) and not any(part.startswith((".", "_")) for part in rest)
    pieces = (".*" if piece == "**" else re.sub(r"\.\*", "[^/]*", translate(piece)[4:-3]) for piece in pattern.split("/"))
    return re.fullmatch("/".join(pieces).replace("/.*/", "/(?:.*/)?"), path, re.DOTALL) is not None


def _filesystem(url: str, scheme: str) -> tuple[pa_fs.FileSystem, str]:
    """The store of an address, and the path in it. Credentials come from the usual environment."""
    try:
        if scheme in ("s3", "s3a"):
            return _s3(), unquote(url.partition("://")[2])
        if scheme in OF_ARROW:
            limited = f"{url}?retry_limit_seconds={GS_SECONDS}" if scheme in ("gs", "gcs") and "?" not in url else url
            filesystem, path = pa_fs.FileSystem.from_uri(limited)
            return filesystem, path
        import fsspec  # type: ignore[import-untyped]

        return pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fsspec.filesystem(scheme))), url
    except ImportError as error:
        raise InputError(f"{url}: needs {error.name or 'fsspec'}; pip install 'offpolicy[remote]'.") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{url}: cannot be opened: {str(error).splitlines()[0]}") from error


def _s3() -> pa_fs.S3FileSystem:
    """S3 with the endpoint and the region of the environment, as the tools of AWS read them."""
    settings: dict[str, Any] = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.rpartition("://")
        settings |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["region"] = region
    return pa_fs.S3FileSystem(
        retry_strategy=pa_fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS), connect_timeout=S3_SECONDS,
        request_timeout=S3_SECONDS, **settings,
    )  # fmt: skip


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
            return InputError(f"{self.file.url}: cannot be read (is it truncated or damaged?): {str(error).splitlines()[0]}")
        return InputError(
            f"{self.file.url}: the connection was lost {done:,} rows into the part from row {self.first:,} to row "
            f"{self.first + self.rows:,} (row {self.start + done:,} of the log), and {len(WAITS)} more attempts failed: "
            f"{str(error).splitlines()[0]} Run it again when the store can be reached."
        )

    def checked(self) -> None:
        """Raise if the file changed; a store that does not answer is found by reading."""
        try:
            self.file.check()
        except OSError as error:
            raise self.lost(0, error) from error


@dataclass(frozen=True, kw_only=True)
class RemoteParquet(RemotePart):
    """Some row groups of a remote Parquet file, whose columns in use are fetched in large ranges."""

    metadata: pq.FileMetaData
    row_groups: tuple[int, ...]

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        self.checked()
        yield from resumed(partial(self._attempt, list(columns), rows), self.lost)

    def _attempt(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with self.file.open() as opened, pq.ParquetFile(opened, metadata=self.metadata, pre_buffer=True) as file:
            yield from file.iter_batches(rows, list(self.row_groups), columns, use_threads=False)


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


def remote_file(file: RemoteFile, name: str, csv: CsvFormat | None) -> OpenedFile:
    """A remote file, as Parquet or as CSV."""
    try:
        return _parquet(file, name) if csv is None else _csv(file, name, csv)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file.url, "Parquet" if csv is None else "CSV", error) from error


def _parquet(file: RemoteFile, name: str) -> OpenedFile:
    with file.open() as opened, pq.ParquetFile(opened) as parquet:
        metadata, schema = parquet.metadata, parquet.schema_arrow
    parts: list[RemoteParquet] = []
    first, gathered, rows = 0, [], 0
    for group in range(metadata.num_row_groups):
        gathered.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= CHUNK_ROWS or group == metadata.num_row_groups - 1:
            place: Mapping[str, Any] = {"name": name, "first": first, "start": first, "rows": rows}
            parts.append(RemoteParquet(file=file, metadata=metadata, row_groups=tuple(gathered), **place))
            first, gathered, rows = first + rows, [], 0
    return OpenedFile(schema, lambda _types, _column: parts)


def _csv(file: RemoteFile, name: str, csv: CsvFormat) -> OpenedFile:
    with file.filesystem.open_input_stream(file.key) as stream:
        schema = csv_schema(stream, csv, file.url)

    def parts(types: pa.Schema, column: str) -> Sequence[RowRange]:
        part = RemoteCsv(file=file, types=types, csv=csv, name=name, rows=0)
        return [replace(part, rows=sum(len(batch) for batch in part.read([column], COUNT_ROWS)))]

    return OpenedFile(schema, parts)
