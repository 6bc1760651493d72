"""Results on disk: one Parquet part per finished task, written atomically, and merged when all are finished.

A run that is killed at any moment leaves every finished part; the next run reads them and continues.
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
        ("ok", pa.bool_()),
        ("std_error", pa.float64()),
        ("effective_rounds", pa.float64()),
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
        """Refuse a second run in the same folder, which would repeat the work and merge the parts of the first."""
        with _explained(self.folder):
            file = (self.folder / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the process ends, however it ends
            except OSError:
                raise InputError(
                    f"{self.folder}: another run is using this folder; wait for it, or choose another with --out."
                ) from None
            yield

    @classmethod
    def open(cls, folder: Path, experiment: Experiment) -> Store:
        """The folder, created if needed; a folder with results of other settings is refused and left unchanged."""
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder, experiment)
        if not store._note.exists():
            with store.alone():  # of two runs that start together, one writes it
                if not store._note.exists():
                    store._sign()
        store._check()
        return store

    @property
    def schema(self) -> pa.Schema:
        """The columns of a run, followed by those of a study."""
        study = self.experiment.study
        return pa.schema([*SCHEMA, *([] if study is None else study.fields())])

    @property
    def _note(self) -> Path:
        return self.folder / "settings.json"

    def _sign(self) -> None:
        """Write down whose results these are to be; it is never written again."""
        if self._parts():
            raise InputError(f"{self.folder}: holds results without their settings.json; choose another folder with --out.")
        note = {"experiment": self.experiment.name, "key": self.experiment.key, "settings": self.experiment.settings()}
        with _explained(self._note), whole_file(self._note) as draft:
            draft.write_text(json.dumps(note, indent=2, default=str) + "\n")

    def _check(self) -> None:
        """Raise if the results are those of other settings."""
        with _explained(self._note):
            content = self._note.read_bytes()
        try:
            note = json.loads(content)
            key, settings = note["key"], dict(note["settings"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self._note}: not a settings file of results; choose another folder with --out.") from None
        if key != self.experiment.key:
            difference = _difference(settings, self.experiment.settings())
            raise InputError(
                f"{self.folder}: contains results of other settings ({difference}), which are left unchanged: choose "
                "another folder with --out, or delete this one."
            )

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("runs*.parquet"))

    def read(self) -> pa.Table:
        """Every finished run, once and in order."""
        schema = self.schema
        parts = [_read_part(path, self.experiment.key, schema) for path in self._parts()]
        table = pa.concat_tables([schema.empty_table(), *parts])
        # rows are repeated if a merge was stopped before it deleted the merged parts
        keys = [name for name, _ in ORDER]
        rest = [name for name in schema.names if name not in keys]
        once = table.group_by(keys, use_threads=False).aggregate([(name, "first") for name in rest])
        return once.rename_columns([*keys, *rest]).select(schema.names).sort_by(ORDER)

    def write(self, task: Sequence[int], rows: Sequence[dict[str, Any]]) -> None:
        """Write the rows of one task as a part."""
        self._write(pa.Table.from_pylist(list(rows), self.schema), f"runs-{'-'.join(str(k) for k in task)}.parquet")

    def merge(self, least: int = MERGE_AT) -> None:
        """Merge the parts into one file, if there are more than `least`."""
        parts = self._parts()
        if len(parts) > least:
            self._write(self.read(), "runs.parquet")
            for path in parts:
                if path.name != "runs.parquet":
                    path.unlink()

    def _write(self, table: pa.Table, name: str) -> None:
        with _explained(self.folder / name), whole_file(self.folder / name) as draft:
            pq.write_table(table.replace_schema_metadata({KEY: self.experiment.key.encode()}), draft)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn system errors into messages."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read or written: {error.strerror or error}. Existing results are kept."
        ) from None
    except InputError as error:  # of a file that could not be written completely
        raise InputError(f"{error} Existing results are kept.") from None


def _read_part(path: Path, key: str, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}); delete it to repeat its runs.") from None
    if (table.schema.metadata or {}).get(KEY, b"").decode() != key:
        raise InputError(f"{path}: contains runs of other settings; choose another folder with --out, or delete it.")
    for each in (each for each in schema if each.name not in table.column_names):  # runs from before it was stored
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
