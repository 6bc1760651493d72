"""Results on disk: Parquet parts that appear whole, one for each task that is done, merged when all are.

A run that is killed at any moment keeps every part that was written; the next one reads them and goes on.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.experiments.experiment import Experiment

SCHEMA = pa.schema(
    [
        ("point", pa.int32()),
        ("world", pa.int32()),
        ("log", pa.int32()),
        ("estimator", pa.string()),
        ("value", pa.float64()),
        ("truth", pa.float64()),
        ("truth_error", pa.float64()),
        ("failure", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
ORDER = [("point", "ascending"), ("world", "ascending"), ("log", "ascending"), ("estimator", "ascending")]
MERGE_AT = 200
KEY = b"offpolicy.settings"


@dataclass(frozen=True)
class Store:
    """The folder of one experiment's results."""

    folder: Path
    experiment: Experiment

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Two runs in one folder would do the same work and merge each other's parts away: the second is refused."""
        with _told(self.folder):
            file = (self.folder / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back when the process ends, however it ends
            except OSError:
                raise InputError(f"{self.folder}: another run is at work here; wait for it, or choose --out.") from None
            yield

    @classmethod
    def open(cls, folder: Path, experiment: Experiment) -> Store:
        """The folder, made if need be; one that holds results of other settings is refused, and left as it is."""
        with _told(folder):
            folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder, experiment)
        if not store._note.exists():
            with store.alone():  # of two that find none, one writes it; the other reads it, or is refused
                if not store._note.exists():
                    store._sign()
        store._check()
        return store

    @property
    def schema(self) -> pa.Schema:
        """The columns of a run; those of a study come last."""
        study = self.experiment.study
        return pa.schema([*SCHEMA, *([] if study is None else study.fields())])

    @property
    def _note(self) -> Path:
        return self.folder / "settings.json"

    def _sign(self) -> None:
        """Write down whose results these are to be; it is never written again."""
        if self._parts():
            raise InputError(f"{self.folder}: holds results without their settings.json; choose another folder with --out.")
        said = {"experiment": self.experiment.name, "key": self.experiment.key, "settings": self.experiment.settings()}
        with _told(self._note), whole_file(self._note) as draft:
            draft.write_text(json.dumps(said, indent=2, default=str) + "\n")

    def _check(self) -> None:
        """Raise where the results are those of other settings."""
        with _told(self._note):
            said = self._note.read_bytes()
        try:
            found = json.loads(said)
            key, settings = found["key"], dict(found["settings"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self._note}: not a settings file of results; choose another folder with --out.") from None
        if key != self.experiment.key:
            difference = _difference(settings, self.experiment.settings())
            raise InputError(
                f"{self.folder}: holds results of other settings ({difference}). They are left as they are: choose "
                "another folder with --out, or delete this one."
            )

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("runs*.parquet"))

    def read(self) -> pa.Table:
        """Every run that is done, each once, in order."""
        schema = self.schema
        found = [_read_part(path, self.experiment.key, schema) for path in self._parts()]
        table = pa.concat_tables([schema.empty_table(), *found])
        # the same rows stand twice where a merge was cut short before it deleted what it had merged
        keys = [name for name, _ in ORDER]
        rest = [name for name in schema.names if name not in keys]
        once = table.group_by(keys, use_threads=False).aggregate([(name, "first") for name in rest])
        return once.rename_columns([*keys, *rest]).select(schema.names).sort_by(ORDER)

    def write(self, task: Sequence[int], rows: Sequence[dict[str, Any]]) -> None:
        """The rows of one task, as a part of its own."""
        self._write(pa.Table.from_pylist(list(rows), self.schema), f"runs-{'-'.join(str(k) for k in task)}.parquet")

    def merge(self, least: int = MERGE_AT) -> None:
        """One file in place of many parts."""
        parts = self._parts()
        if len(parts) > least:
            self._write(self.read(), "runs.parquet")
            for path in parts:
                if path.name != "runs.parquet":
                    path.unlink()

    def _write(self, table: pa.Table, name: str) -> None:
        with _told(self.folder / name), whole_file(self.folder / name) as draft:
            pq.write_table(table.replace_schema_metadata({KEY: self.experiment.key.encode()}), draft)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses, in words."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read or written: {error.strerror or error}. What is there is kept.") from None
    except InputError as error:  # of a file that could not be written whole
        raise InputError(f"{error} What is there is kept.") from None


def _read_part(path: Path, key: str, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}); delete it, and its runs are made again.") from None
    if (table.schema.metadata or {}).get(KEY, b"").decode() != key:
        raise InputError(f"{path}: holds runs of other settings; choose another folder with --out, or delete it.")
    for each in (each for each in schema if each.name not in table.column_names):  # runs from before it was kept
        table = table.append_column(each.name, pa.nulls(len(table), each.type))
    return table.select(schema.names).replace_schema_metadata(None).cast(schema)


def _difference(there: Any, here: Any) -> str:
    """The names of the settings that differ."""
    plain = json.loads(json.dumps(here, default=str))
    names = sorted(name for name in {*there, *plain} if there.get(name) != plain.get(name))
    shown = [f"{n} {there.get(n)!r}, now {plain.get(n)!r}" if _short(there.get(n), plain.get(n)) else n for n in names]
    return "; ".join(shown) or "unknown"


def _short(*values: Any) -> bool:
    return all(len(repr(value)) < 60 for value in values)
