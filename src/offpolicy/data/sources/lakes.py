"""Delta and Iceberg tables, as their own libraries read them: one version, without the rows that were deleted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from offpolicy.core.errors import InputError, first_line
from offpolicy.data.sources.files import find_files
from offpolicy.data.sources.parts import RowRange, sliced
from offpolicy.data.sources.streams import Opened, open_stream

METADATA = re.compile(r"v?(\d+).*\.metadata\.json")


@dataclass(frozen=True)
class Moment:
    """Which version of a table is wanted: by its number or snapshot, by a time, or the current one."""

    version: int | None = None
    as_of: datetime | None = None

    @classmethod
    def of(cls, version: Any, as_of: Any) -> Moment:
        if version is not None and as_of is not None:
            raise InputError("version= and as_of= both say which version of the table to read; give one of the two.")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise InputError(f"version is {version!r}; give the number of a version, or the id of a snapshot.")
        if isinstance(as_of, str):
            try:
                as_of = datetime.fromisoformat(as_of)
            except ValueError:
                raise InputError(f"as_of is {as_of!r}; give a time such as 2026-03-01T12:00:00.") from None
        if as_of is not None and not isinstance(as_of, datetime):
            raise InputError(f"as_of is {as_of!r}; give a datetime, or text such as 2026-03-01T12:00:00.")
        return cls(version, as_of if as_of is None or as_of.tzinfo is not None else as_of.replace(tzinfo=UTC))

    @property
    def chosen(self) -> bool:
        return (self.version, self.as_of) != (None, None)


def open_lake(source: Any, moment: Moment) -> Opened | None:
    """The parts of a table; None for what is none, and for a folder that the library is missing for."""
    module = type(source).__module__.split(".")[0]
    try:
        if module == "deltalake":
            return _delta(source, moment)
        if module == "pyiceberg":
            return _iceberg(source, moment)
        if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
            return _folder(Path(source), moment)
    except ImportError:
        return None
    except (InputError, MemoryError):
        raise
    except Exception as error:  # each library has errors of its own
        reason = first_line(error)
        if not isinstance(source, (str, os.PathLike)):
            raise InputError(f"the {type(source).__name__} cannot be read: {reason}.") from error
        try:
            find_files(source)  # raises, as for a table whose library is missing
        except InputError as refusal:
            raise InputError(f"{refusal} (Its own library could not read it: {reason}.)") from error
    return None


def _folder(folder: Path, moment: Moment) -> Opened | None:
    if any((folder / "_delta_log").glob("*.json")):
        from deltalake import DeltaTable

        return _delta(DeltaTable(folder), moment)
    numbered = [(int(found[1]), path) for path in folder.glob("metadata/*") if (found := METADATA.fullmatch(path.name))]
    if numbered:
        from pyiceberg.table import StaticTable

        return _iceberg(StaticTable.from_metadata(str(max(numbered)[1])), moment)
    return None


def _delta(table: Any, moment: Moment) -> Opened | None:
    """A part per file. Tables with deletion vectors or renamed columns are read by the library's own engine."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaProtocolError

    if moment.chosen:
        table = DeltaTable(table.table_uri)
        if moment.version is not None:
            if not 0 <= moment.version <= table.version():  # the library would count up to it
                raise InputError(f"version is {moment.version}; the last version of the table is {table.version()}.")
            table = DeltaTable(table.table_uri, version=moment.version)
        if moment.as_of is not None:
            table.load_as_version(moment.as_of)
    try:
        return open_stream(table.to_pyarrow_dataset())
    except DeltaProtocolError:
        return open_stream(pa.RecordBatchReader.from_stream(table.scan()))


@dataclass(frozen=True)
class TaskPart(RowRange):
    """A data file of an Iceberg table, with the files that list its deleted rows."""

    scan: Any
    task: Any

    def read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        from pyiceberg.io.pyarrow import ArrowScan

        chosen = self.scan.select(*columns)
        scan = ArrowScan(chosen.table_metadata, chosen.io, chosen.projection(), chosen.row_filter)
        try:
            for batch in scan.to_record_batches([self.task]):
                yield from sliced(batch.select(list(columns)), rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{self.name}: cannot be read: {first_line(error)}.") from error


def _iceberg(table: Any, moment: Moment) -> Opened:
    snapshot = moment.version
    if moment.as_of is not None:
        found = table.snapshot_as_of_timestamp(int(moment.as_of.timestamp() * 1000))
        if found is None:
            raise InputError(f"as_of is {moment.as_of.isoformat()}, and the table has no snapshot from before that time.")
        snapshot = found.snapshot_id
    if snapshot is not None and table.snapshot_by_id(snapshot) is None:
        known = ", ".join(str(each.snapshot_id) for each in table.snapshots()[-3:])
        raise InputError(f"version is {snapshot}, but the table has no such snapshot; the latest are {known}.")
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    scan = table.scan(snapshot_id=snapshot)
    schema = pa.schema([field.remove_metadata() for field in schema_to_pyarrow(scan.projection())])
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    folders = os.path.commonpath([os.path.dirname(task.file.file_path) for task in tasks]) if tasks else ""  # noqa: PTH120
    parts: list[RowRange] = []
    start = 0
    for task in tasks:
        name = os.path.relpath(task.file.file_path, folders)
        part = TaskPart(scan, task, rows=task.file.record_count, name=name, start=start)
        if task.delete_files:
            part = replace(part, rows=sum(len(batch) for batch in part.read(schema.names[:1], 65_536)))
        parts.append(part)
        start += part.rows
    return tuple(parts), schema
