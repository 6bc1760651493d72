"""Which files a path, a folder, a glob or a URL stands for, and the columns in the names of their folders."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from offpolicy.core.errors import InputError

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz")
URL = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
INTEGER = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True)
class TableFormat:
    """A format that keeps deleted and replaced rows in its Parquet files: how to recognise it, and what to write instead."""

    name: str
    marker: str
    instead: str


TABLE_FORMATS = (
    TableFormat("a Delta table", "_delta_log", "op.read_log(deltalake.DeltaTable({table!r}).to_pyarrow_dataset(), …)"),
    TableFormat("an Iceberg table", "metadata/*.metadata.json", "op.read_log(polars.scan_iceberg({marker!r}), …)"),
    TableFormat(
        "a Hudi table", ".hoodie",
        "op.read_log(pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri({table!r}).build().read_snapshot()), …)",
    ),
)  # fmt: skip


def is_path(source: Any) -> bool:
    """Whether a log is given as a path, a glob or a URL, or as several of them."""
    if isinstance(source, (list, tuple)):
        return all(isinstance(each, (str, os.PathLike)) for each in source)
    return isinstance(source, (str, os.PathLike))


def find_files(source: Any) -> list[Path]:
    """The files of a path, a folder, a glob or a list of them, sorted and without repeats."""
    files = sorted({file.resolve(): file for file in _listed(source)}.values())
    check_table_formats(files)
    return files


def check_table_formats(files: Iterable[Path]) -> None:
    """Raise if files belong to a Delta, Iceberg or Hudi table, where they also contain rows that were deleted since."""
    for folder in sorted({parent for file in files for parent in file.resolve().parents}):
        for known in TABLE_FORMATS:
            if markers := sorted(folder.glob(known.marker), key=lambda path: path.stat().st_mtime):
                line = known.instead.format(table=str(folder), marker=str(markers[-1]))
                raise InputError(
                    f"{folder} is {known.name}. Its Parquet files also contain rows that have been deleted or replaced, so "
                    f"they are not read directly. Write {line} instead."
                )


def _listed(source: Any) -> list[Path]:
    if isinstance(source, (list, tuple)):
        return [file for item in source for file in _listed(item)]
    try:
        return _matching(source)
    except OSError as error:  # a name that is too long, or a folder without permission
        raise InputError(f"{error.filename or source}: cannot be read: {error.strerror or error}.") from None


def _matching(source: str | os.PathLike[str]) -> list[Path]:
    """The files of one path, folder or glob."""
    path = Path(source)
    if path.is_dir():
        files = [f for f in path.rglob("*") if f.is_file() and f.name.lower().endswith((*PARQUET, *CSV))]
        files = [f for f in files if not any(p.startswith((".", "_")) for p in f.relative_to(path).parts)]
        if not files:
            raise InputError(f"{path}: the folder contains no Parquet or CSV files.")
        return sorted(files)
    if path.exists():
        return [path]
    if url := URL.match(os.fspath(source)):
        return _matching(_local(os.fspath(source), url[1].lower()))
    if glob.has_magic(os.fspath(source)):
        matches = sorted(Path(p) for p in glob.glob(os.fspath(source), recursive=True))
        if not matches:
            raise InputError(f"{source}: no file matches this pattern (working folder: {Path.cwd()}).")
        return [file for match in matches for file in (_listed(match) if match.is_dir() else [match])]
    raise InputError(f"{source}: no such file.")


def _local(url: str, scheme: str) -> str:
    """The path of a `file://` URL. Files elsewhere are refused, with what to do instead."""
    rest = url.partition(":")[2].lstrip("/")
    if scheme == "file":
        address = urlparse(url)
        if address.netloc not in ("", "localhost"):
            raise InputError(f"{url}: names the host {address.netloc!r}; a file on this machine is file:///{rest}.")
        return unquote(address.path)
    raise InputError(
        f"{url}: addresses of this kind are not read directly (file, s3, gs, abfss and https are). Write "
        "op.read_log(pyarrow.dataset.dataset(…), …), or use --engine spark."
    )


def partition_columns(files: Sequence[PurePath]) -> list[Mapping[str, pa.Scalar]]:
    """The Hive partition of each file, from folders such as `country=de`: integers if all values of a key are, else text."""
    texts = [_partition(file) for file in files]
    keys = {key for text in texts for key in text}
    whole = {key for key in keys if all(INTEGER.fullmatch(text.get(key) or "0") for text in texts)}
    return [
        {
            key: pa.scalar(None if value is None else int(value), pa.int64())
            if key in whole
            else pa.scalar(value, pa.string())
            for key, value in text.items()
        }
        for text in texts
    ]


def _partition(file: PurePath) -> dict[str, str | None]:
    pairs = (folder.partition("=") for folder in file.parts[:-1])
    return {unquote(key): None if value == HIVE_NULL else unquote(value) for key, equals, value in pairs if key and equals}
