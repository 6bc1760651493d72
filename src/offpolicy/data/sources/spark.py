"""A log in a Spark DataFrame: what the driver must know about it, and how a worker turns its rows into batches.

Only DataFrame operations are used, so that it also works on Spark Connect. PySpark is not imported before a DataFrame is
passed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.errors import InputError, RowsError, unknown_name
from offpolicy.core.exact_sum import ExactSum
from offpolicy.data.batch import Batch, Partition
from offpolicy.data.contents import ColumnSums, Contents, Levels
from offpolicy.data.encoding import MOST_CATEGORIES, Catalog, Encoding
from offpolicy.data.schema import Schema
from offpolicy.data.sources.long import LongForm
from offpolicy.data.sources.parts import TablePart
from offpolicy.data.sources.spark_session import spark_errors
from offpolicy.data.sources.table import ColumnRoles, Place, TableSource, fill_in
from offpolicy.data.spaces import ActionSpace, Discrete, items_seen
from offpolicy.data.subset import ALL, Subset

FILE, ROW = "_offpolicy_file", "_offpolicy_row"
HEAD_ROWS = 1024


def is_spark(source: Any) -> bool:
    """Whether an object is a Spark DataFrame, classic or Connect."""
    return type(source).__module__.startswith("pyspark.") and hasattr(source, "mapInArrow")


@dataclass(frozen=True)
class SparkSource:
    """A log over a DataFrame. `table` has its first rows, and everything that is needed to decode the others."""

    frame: Any
    table: TableSource
    rows: int
    ordered: bool = False
    described: str = "a Spark data frame"

    @classmethod
    @spark_errors()
    def of(
        cls, frame: Any, columns: ColumnRoles, space: ActionSpace | None, integer_labels: bool, catalog: Catalog | None
    ) -> SparkSource:
        """Count the rows, and find the actions and the categories that were not given, with one pass for each."""
        for name in columns.names():
            if name not in frame.columns:
                raise unknown_name("column", name, frame.columns)
        by_file = columns.cluster is None and columns.row_id is None
        placed = _with_paths(frame) if by_file else frame
        whole = pt.is_integer(selected(frame, columns.actions[:1]).limit(0).toArrow().schema.types[0])
        codes = space is None and whole and not integer_labels
        if space is not None and not space.found:
            space = space.over(_items(frame, columns.action, integer_labels))
        rows, largest, files = _counted(frame, columns.action if codes else None, by_file)
        if not rows:
            raise InputError("the log is empty: the DataFrame has no rows.")
        if by_file:
            columns = replace(columns, place=Place(FILE, ROW, _relative(files, frame.inputFiles())))
        first = selected(_of_first_file(placed, files), columns.names()).limit(HEAD_ROWS).toArrow()
        table = TableSource((TablePart.of(first),), first.schema, columns, space, integer_labels, catalog)
        if codes:
            space = Discrete.codes(largest, rows, columns.action)
        elif space is None:
            space = Discrete(_labels(frame, columns.action))
        known = _contents(frame, table)
        return cls(frame, replace(table, given_space=space, known=known), rows)

    @property
    def schema(self) -> Schema:
        return self.table.schema

    @property
    def roles(self) -> Mapping[str, str]:
        return self.table.roles

    def where(self, row: int) -> str:
        return str(row)

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        table = self.table
        if columns:
            first = self.selected(columns).limit(rows).toArrow()
            table = replace(table, parts=(TablePart.of(first),), arrow_schema=first.schema)
        try:
            return table.head(rows, columns)
        except RowsError as error:
            raise InputError(f"{error} (These are among the first {HEAD_ROWS:,} rows; there may be more.)") from None

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:  # noqa: ARG002
        raise InputError(
            "the log is a Spark DataFrame, whose rows stay on the cluster and are read by op.Spark() only. Leave out "
            "`engine`; for what reads row by row (scores, batches), read the files without Spark."
        )

    def check_columns(self, columns: Sequence[str]) -> None:
        there = self.frame.columns
        for name in columns:
            if name not in there and name not in self.schema.context:
                raise unknown_name("column", name, there)

    def selected(self, columns: tuple[str, ...]) -> Any:
        """The columns of the log and some others, as a DataFrame."""
        self.check_columns(columns)
        extra = [name for name in columns if name in self.frame.columns]
        frame = self.frame if self.table.columns.place is None else _with_paths(self.frame)
        return selected(frame, tuple(dict.fromkeys((*self.table.columns.names(), *extra))))

    def decoder(self, extra: tuple[str, ...]) -> Decoder:
        """What a worker needs to decode rows."""
        template = self.table.parts[0]
        assert isinstance(template, TablePart)
        return Decoder(replace(self.table, parts=(TablePart.of(template.table.slice(0, 1)),)), extra)


@dataclass(frozen=True)
class Decoder:
    """Turns the rows of one Spark partition into batches of the log. It is sent to the workers."""

    template: TableSource
    extra: tuple[str, ...]
    subset: Subset = ALL

    def chunks(self, batches: Iterator[pa.RecordBatch], partition: int, rows: int) -> Iterator[Chunk]:
        """Spark's small batches, combined into chunks of about `rows` rows."""
        first, count, gathered = 0, 0, list[pa.RecordBatch]()

        def chunk() -> Chunk:
            table = pa.Table.from_batches(gathered).combine_chunks()
            return Chunk(table, self, name=f"partition {partition}", rows=count, first=first, start=first)

        for batch in batches:
            if gathered and count + len(batch) > rows:
                yield chunk()
                first, count, gathered = first + count, 0, []
            if len(batch):
                gathered.append(batch)
                count += len(batch)
        if gathered:
            yield chunk()


@dataclass(frozen=True)
class Chunk(TablePart):
    """Some rows of a Spark partition, as a part of a table source."""

    decoder: Decoder

    def batches(self, rows: int) -> Iterator[Batch]:
        source = replace(self.decoder.template, parts=(self,), arrow_schema=self.table.schema)
        for part in source.partitions(self.decoder.extra):
            yield from self.decoder.subset.select(part.batches(rows))

    def where(self, row: int) -> str:
        """The place of a row for messages: its partition, and its id or file if there is one."""
        columns = self.decoder.template.columns
        here = f"{self.name} row {row}"
        if not 0 <= row - self.first < len(self.table):
            return here
        value = {name: self.table.column(name)[row - self.first].as_py() for name in columns.names()}
        if columns.row_id is not None:
            return f"{here} ({columns.row_id} {value[columns.row_id]!r})"
        if columns.place is not None:
            return f"{here} ({columns.place.names[value[FILE]]} row {value[ROW]})"
        return here


def collected(frame: Any, form: LongForm) -> Any:
    """A frame in long form as a frame with one row per list."""
    from pyspark.sql import functions as f

    once = [field.name for field in frame.schema if field.name in form.once and field.name != form.list_id]
    lists = [name for name in frame.columns if name not in (*once, form.list_id)]
    if form.slot is None:
        raise InputError("slot: the rows of a Spark DataFrame have no order; name the column with the slot of each row.")
    ordered = [form.slot, *(name for name in lists if name != form.slot)]
    rows = f.sort_array(f.collect_list(f.struct(*(_quoted(name) for name in ordered)))).alias("_offpolicy_rows")
    firsts = [f.first(_quoted(name)).alias(name) for name in once]
    gathered = frame.groupBy(_quoted(form.list_id)).agg(*firsts, rows)
    return gathered.select(
        _quoted(form.list_id), *(_quoted(name) for name in once),
        *(f.col("_offpolicy_rows").getField(name).alias(name) for name in ordered),
    )  # fmt: skip


def selected(frame: Any, names: Sequence[str]) -> Any:
    """Select columns by their exact names, which may contain any characters."""
    return frame.select(*(_quoted(name) for name in names))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _with_paths(frame: Any) -> Any:
    """The frame with the number of the file of each row, and its row there. (Paths would be long to send.)"""
    from pyspark.errors import AnalysisException

    try:
        placed = frame.selectExpr("*", f"xxhash64(_metadata.file_path) AS {FILE}", f"_metadata.row_index AS {ROW}")
        _ = placed.schema  # Connect analyses it only now
    except AnalysisException:
        raise InputError(
            "row_id: folds and resampling must identify each row, but this DataFrame does not have the file and row of each "
            "(one that is read directly from Parquet has). Name a column that identifies rows with `row_id=`, or units with "
            "`cluster=`."
        ) from None
    return placed


def _counted(frame: Any, codes: str | None, by_file: bool) -> tuple[int, int, dict[int, str]]:
    """The number of rows, the largest code, and the path of each file by its number, in one pass."""
    largest = "-1" if codes is None else _quoted(codes)
    keys = (
        ["xxhash64(_metadata.file_path) AS file", "_metadata.file_path AS path"] if by_file else ["0 AS file", "'' AS path"]
    )
    each = frame.selectExpr(*keys, f"{largest} AS code", "1 AS row")
    files = each.groupBy("file", "path").agg({"row": "sum", "code": "max"}).toArrow().to_pylist()
    top = max((file["max(code)"] for file in files if file["max(code)"] is not None), default=-1)
    return sum(file["sum(row)"] for file in files), top, {file["file"]: file["path"] for file in files if by_file}


def _of_first_file(placed: Any, files: Mapping[int, str]) -> Any:
    """The rows of the first file, which `read_log` without Spark would read first as well."""
    return placed.filter(f"{FILE} = {min(files, key=lambda file: Path(_plain(files[file])))}") if files else placed


def _relative(paths: Mapping[int, str], every: Sequence[str]) -> dict[int, str]:
    """Names as `read_log` gives them to files: relative to the common folder, including files without rows."""
    plain = {key: _plain(path) for key, path in paths.items()}
    folders = [os.path.dirname(path) for path in (*plain.values(), *map(_plain, every))]  # noqa: PTH120  (paths of another machine)
    root = os.path.commonpath(folders)
    return {key: os.path.relpath(path, root) for key, path in plain.items()}


def _plain(uri: str) -> str:
    """The path of a file from its URI, with the host or bucket first and without escapes."""
    address = urlparse(uri)
    return unquote((f"/{address.netloc}" if address.netloc else "") + address.path)


def _items(frame: Any, name: str, labels: bool) -> Discrete:
    """The items that occur in the lists of a column."""
    each = frame.selectExpr(f"explode({_quoted(name)}) AS item").distinct().toArrow().column(0).combine_chunks()
    return items_seen(each.drop_null(), frame.count(), name, labels)


def _labels(frame: Any, name: str) -> pa.Array:
    """The sorted values of the action column."""
    distinct = selected(frame, [name]).distinct().toArrow().column(0).combine_chunks()
    if distinct.null_count:
        raise _missing(name, frame.filter(f"{_quoted(name)} IS NULL").count())
    return distinct.take(pc.sort_indices(distinct))


def _contents(frame: Any, table: TableSource) -> Contents:
    """What the driver must know about the columns before rows are decoded."""
    names = table.category_names()
    empty = _missing_counts(frame, names)
    levels = {name: Levels(_values(frame, name, table), empty[name]) for name in names}
    contents = Contents(levels, _sums(frame, table.averaged()))
    table.check_contents(contents, lambda name, instead: _missing(name, empty[name], instead))
    return contents


def _missing(name: str, count: int, instead: str = "") -> InputError:
    return InputError(f"{name}: {count:,} rows are missing (null). {fill_in(instead)}")


def _missing_counts(frame: Any, names: Sequence[str]) -> dict[str, int]:
    """The number of missing values of each column, in one pass."""
    if not names:
        return {}
    counts = frame.selectExpr(*(f"count_if({_quoted(name)} IS NULL) AS n{k}" for k, name in enumerate(names))).toArrow()
    return {name: counts.column(f"n{k}")[0].as_py() for k, name in enumerate(names)}


def _values(frame: Any, name: str, table: TableSource) -> pa.Array:
    """The sorted values of a column of categories, as text; not all of them if there are too many."""
    most = table.most_levels(name)
    values = selected(frame, [name]).distinct().filter(f"{_quoted(name)} IS NOT NULL")
    found = values.limit((MOST_CATEGORIES if most is None else most) + 1).toArrow().column(0).combine_chunks()
    if most is None and len(found) > MOST_CATEGORIES:
        raise table.too_many_levels(name, values.count())
    text = found.cast(pa.string())
    return text.take(pc.sort_indices(text))


SUMS = "place int, missing bigint, counts array<bigint>, sums array<string>"
"""The sums of one column of one batch. They are whole numbers of many digits, in hexadecimal form."""
SUMS_SCHEMA = pa.schema({
    "place": pa.int32(), "missing": pa.int64(), "counts": pa.list_(pa.int64()), "sums": pa.list_(pa.string()),
})  # fmt: skip


def _sums(frame: Any, encodings: Sequence[Encoding]) -> dict[str, ColumnSums]:
    """The sums of the columns whose missing values become the mean, in one pass on the workers."""
    if not encodings:
        return {}
    names = [encoding.name for encoding in encodings]

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place, encoding in enumerate(encodings):
                found = ColumnSums.of(encoding, batch.column(place))
                row = {
                    "place": place,
                    "missing": found.missing,
                    "counts": [each.count for each in found.sums],
                    "sums": [hex(each.scaled) for each in found.sums],
                }
                yield pa.RecordBatch.from_pylist([row], SUMS_SCHEMA)

    total: dict[str, ColumnSums] = {}
    for row in selected(frame, names).mapInArrow(fold, SUMS).toArrow().to_pylist():
        sums = tuple(ExactSum(count, int(scaled, 16)) for count, scaled in zip(row["counts"], row["sums"], strict=True))
        name, part = names[row["place"]], ColumnSums(sums, row["missing"])
        total[name] = total[name] + part if name in total else part
    return total
