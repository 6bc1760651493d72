"""`read_log`: a log from files, a folder, a glob, or anything that streams Arrow."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.threads import parallel
from offpolicy.data.batch import chunks
from offpolicy.data.checks import whole
from offpolicy.data.encoding import (
    Catalog,
    Encoding,
    Flag,
    OneHot,
    Quantity,
    as_floats,
    is_category,
    is_flag,
    kind_of,
    plain_text,
    too_many_categories,
)
from offpolicy.data.log import Log
from offpolicy.data.monte_carlo import MonteCarlo
from offpolicy.data.preprocessing import Missing, Preprocessing
from offpolicy.data.slate import Gain
from offpolicy.data.sources.files import CSV, PARQUET, find_files, is_path, partition_columns
from offpolicy.data.sources.lakes import Moment, open_lake
from offpolicy.data.sources.long import LongForm, grouped
from offpolicy.data.sources.parts import (
    CsvFormat,
    OpenedFile,
    PartitionedPart,
    RowRange,
    StreamPart,
    TablePart,
    csv_file,
    parquet_file,
)
from offpolicy.data.sources.remote import remote_csv, remote_parquet
from offpolicy.data.sources.segments import Segments
from offpolicy.data.sources.spark import SparkSource, collected, is_spark
from offpolicy.data.sources.stores import RemoteFile, find_remote, is_remote
from offpolicy.data.sources.streams import Opened, open_stream
from offpolicy.data.sources.table import SCAN_ROWS, ColumnRoles, TableSource, check_names
from offpolicy.data.spaces import ActionSpace, Discrete, named_space

IN_MEMORY = ("pyarrow", "pandas", "polars")
REMOTE_THREADS = 16
"""How many remote files are opened at a time, which is mostly waiting."""


def read_log(  # noqa: PLR0913
    source: Any,
    *,
    context: str | Sequence[str],
    action: str | Sequence[str],
    reward: str | Sequence[str],
    propensity: str | MonteCarlo | None = None,
    position_propensity: str | None = None,
    logging: Any = None,
    actions: ActionSpace | Sequence[Any] | str | None = None,
    n_actions: int | None = None,
    action_features: str | Sequence[str] = (),
    catalog: Any = None,
    cluster: str | None = None,
    row_id: str | None = None,
    weight: str | None = None,
    by: str | None = None,
    reward_range: tuple[float, float] | None = None,
    gain: Gain = "sum",
    list_id: str | None = None,
    slot: str | None = None,
    logger: str | None = None,
    loggers: str | None = None,
    version: int | None = None,
    as_of: Any = None,
    delimiter: str = ",",
    quote: str = '"',
    encoding: str = "utf-8",
    decimal: str = ".",
    missing: Missing | None = None,
    dates: str | Sequence[str] = (),
    levels: int | None = None,
) -> Log:
    """Read a log from a table with named columns. Files are streamed and never loaded as a whole.

    Parameters
    ----------
    source : path, list of paths, data frame or stream
        A path, a folder, a glob or a list of them (Parquet or CSV), a pandas or polars data frame, an Arrow table, a
        `pyarrow.dataset.Dataset`, a polars `LazyFrame`, a Spark DataFrame, or anything with `__arrow_c_stream__` that can be
        read more than once, such as a DuckDB relation. A `RecordBatchReader` is stored in a temporary file. Hive partitions,
        folders such as `country=de`, become columns.
    context : str or sequence of str
        The columns that were known before the action was taken. Text is one-hot encoded. Missing values, dates and text
        with more than 1,000 values are refused, unless `missing`, `dates` or `levels` say what to do with them.
    action : str or sequence of str
        The column of the logged action; for vectors (an `op.Box` of several dimensions), also one column per dimension.
    reward : str or sequence of str
        The column of the reward, or several.
    propensity : str or MonteCarlo, optional
        The column with the probability (or density) of the logged action under the logging policy, or the columns with the
        draws that estimate it. For lists: a list of the probabilities of each item given the items above it, or the
        probability of the whole list.
    position_propensity : str, optional
        For lists: the column with a list of the probabilities of each item in its slot, whatever stands above it.
    logging : policy, EstimatedLogging or dict, optional
        The whole logging policy, or how to estimate it. With it, `propensity` is not needed. With `logger`, a dict of
        policies by logger.
    actions : ActionSpace, sequence or "labels", optional
        The action space, or all labels in order. "labels" treats integers as labels instead of codes.
    n_actions : int, optional
        The number of actions, if they are codes and not all of them occur.
    action_features : str or sequence of str, default ()
        Columns with features of the logged action. Text and integers are categories.
    catalog : path, data frame or table, optional
        Features of each action: a table with one row per action, whose column `action` has the label. Text and
        integers are categories, and flags (0 and 1) take a single column.
    cluster : str, optional
        The column of the unit, such as the user, if rounds of one unit are dependent.
    row_id : str, optional
        A column with a unique id per round, which makes folds and resamples independent of files and their order.
    weight : str, optional
        The column with the weight of each round.
    by : str, optional
        A column of slices, such as the country; results are also given per slice.
    reward_range : tuple of float, optional
        The smallest and the largest possible reward, for intervals that need them.
    gain : {"sum", "dcg"} or sequence of float, default "sum"
        For lists with rewards per slot: how much the reward of each slot counts. "dcg" is 1 / log2(1 + slot).
    list_id : str, optional
        For lists in long form, one row per slot: the column that says which list a row belongs to. The rows of a list are
        next to each other. Columns of the context and of the round have one value per list.
    slot : str, optional
        For lists in long form: the column with the slot of each row, from 1 (or 0) at the top; by default, rows are in the
        order of the slots.
    logger : str, optional
        The column with the logger of each round, such as a version, if several policies collected the log. The loggers are
        the strata of the standard errors, and are compared with each other.
    loggers : {"balanced", "own", "weighted"}, optional
        How the weights of several loggers are combined. "balanced" (the default if `logging` has the policy of each logger)
        divides by the probability under all loggers together, "own" by that under the logger of the round, and "weighted"
        weights the loggers' estimates by their precision.
    version : int, optional
        Which version of a Delta table, or which snapshot of an Iceberg table, to read; by default the current one.
    as_of : datetime or str, optional
        The time whose version of the table is read, such as "2026-03-01T12:00:00" (in UTC, unless it has an offset).
    delimiter, quote, encoding, decimal : str
        How CSV files are written: what separates cells, the quotation mark, the encoding of the text, and the decimal point.
        By default `,`, `"`, UTF-8 and `.`.
    missing : {"level", "mean"}, optional
        What to do with missing values in the context. "level": missing text is a level of its own. "mean": in addition,
        missing numbers and dates are replaced by the mean of the column. A column `NAME is missing` shows where.
    dates : str or sequence of str, default ()
        Which parts of the dates and timestamps in the context to use: "hour" and "month" (each as sine and cosine),
        "weekday" (one-hot encoded), "weekend" (0 or 1), "days" (since 1970-01-01, with fractions). Timestamps with a time
        zone are taken in UTC.
    levels : int, optional
        Text columns of the context with more than this number of different values (2 to 1,000) are hashed into this number
        of columns.

    Returns
    -------
    Log
        The log; rows are read when it is evaluated.

    Raises
    ------
    InputError
        If a file cannot be read, a column does not exist, or values are invalid.

    Examples
    --------
    >>> import pandas as pd
    >>> import offpolicy as op
    >>> frame = pd.DataFrame({"age": [30, 40], "item": ["a", "b"], "click": [1, 0], "p": [0.5, 0.5]})
    >>> op.read_log(frame, context="age", action="item", reward="click", propensity="p")
    Log(2 rounds, 2 actions, context 1, rewards ['click'])
    """
    named = named_space(actions)
    action, several = _action_columns(action, named)
    columns = ColumnRoles(
        _names(context), action, _names(reward), propensity, position_propensity, gain, cluster, row_id, weight, by, logger,
        _names(action_features), several, preprocessing=Preprocessing.of(missing, dates, levels),
        numeric_action=named is not None and named.likelihood == "density",
    )  # fmt: skip
    if not columns.reward:
        raise InputError("name at least one reward column.")
    csv = CsvFormat(delimiter, quote, encoding, decimal)
    long = _long_form(columns, named, list_id, slot)
    columns = columns if long is None or columns.row_id is not None else replace(columns, row_id=list_id)
    moment = Moment.of(version, as_of)
    opened = None if is_spark(source) else open_lake(source, moment)
    if opened is None and moment.chosen:
        raise InputError(
            "version= and as_of= are for Delta and Iceberg tables, read by their own libraries (pip install "
            "'offpolicy[lake]')."
        )
    opened = opened if opened is not None or is_spark(source) else _open(source, columns, csv)
    if long is not None:
        source, opened = (collected(source, long), None) if opened is None else (source, grouped(opened, long))
    features, listed = _read_catalog(catalog, action, csv) if catalog is not None else (None, None)
    if isinstance(named, Discrete) and listed is not None and named != listed:
        raise InputError(
            "`actions` and the catalog list different actions, or the same ones in a different order; give only one of "
            "the two."
        )
    space = listed if named is None else named
    if space is None and n_actions is not None:
        space = Discrete(whole("n_actions", n_actions, 1))
    labels = isinstance(actions, str)
    if opened is None:
        frame = SparkSource.of(source, columns, space, labels, features)
        return Log.from_source(frame, logging=logging, reward_range=reward_range, loggers=loggers)
    table = TableSource(*opened, columns, space, labels, features)
    return Log.from_source(table, logging=logging, reward_range=reward_range, loggers=loggers)


def _long_form(columns: ColumnRoles, space: ActionSpace | None, list_id: str | None, slot: str | None) -> LongForm | None:
    """How rows become lists; None if each row is a round."""
    if list_id is None:
        if slot is not None:
            raise InputError("slot= is for lists in long form; name the list of each row with list_id=.")
        return None
    if space is None or space.slots is None:
        raise InputError("list_id= is for lists; give actions=op.Slate(…) as well.")
    single = (columns.cluster, columns.row_id, columns.weight, columns.by, columns.logger)
    return LongForm(list_id, slot, frozenset([*columns.context, *filter(None, single)]))


def _action_columns(action: str | Sequence[str], space: ActionSpace | None) -> tuple[str, tuple[str, ...]]:
    """What messages call the action, and its columns if there is one per dimension of a vector."""
    names = _names(action)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"action is {action!r}; name the column of the logged action.")
    vector = space is not None and space.shape == (1,) and not isinstance(action, str)
    return ", ".join(names), names if len(names) > 1 or vector else ()


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _open(source: Any, columns: ColumnRoles, csv: CsvFormat, catalog: bool = False) -> Opened:
    if is_remote(source):
        return open_remote(find_remote(source), columns, csv, catalog)
    if is_path(source):
        return open_files(find_files(source), columns, csv, catalog)
    if (opened := open_stream(source)) is not None:
        return opened
    if not hasattr(source, "__arrow_c_stream__"):
        raise InputError(f"cannot read a log from {type(source).__name__}; give a path, a data frame or an Arrow table.")
    if type(source).__module__.split(".")[0] in IN_MEMORY:
        table = _in_memory(source)
        slices = ((table.slice(start, stop - start), start) for start, stop in chunks(len(table)))
        return tuple(TablePart.of(*each) for each in slices), table.schema
    reader = pa.RecordBatchReader.from_stream(source)
    schema = reader.schema
    return (StreamPart(source, rows=sum(len(batch) for batch in reader)),), schema


def _in_memory(source: Any) -> pa.Table:
    """A data frame as an Arrow table."""
    try:
        return pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(part) for part in error.args)
        raise InputError(f"the data frame cannot be read: {reason}. A column must have values of one type.") from None


def open_files(files: Sequence[Path], columns: ColumnRoles, csv: CsvFormat, catalog: bool = False) -> Opened:
    """The parts and the common schema of files on this machine."""
    places = [file.resolve() for file in files]
    names, kind = _names_in_log(places)
    pairs = zip(files, names, strict=True)
    opened = [csv_file(file, name, csv) if kind == "csv" else parquet_file(file, name) for file, name in pairs]
    return _together(files, places, opened, columns, catalog)


def open_remote(files: Sequence[RemoteFile], columns: ColumnRoles, csv: CsvFormat, catalog: bool = False) -> Opened:
    """The parts and the common schema of files elsewhere."""
    places = [file.path for file in files]
    names, kind = _names_in_log(places)
    segments = Segments()

    def opened(file: RemoteFile, name: str) -> OpenedFile:
        return remote_csv(file, name, csv) if kind == "csv" else remote_parquet(file, name, columns.names(), segments)

    each = parallel(opened, files, names, threads=REMOTE_THREADS)
    return _together([file.url for file in files], places, each, columns, catalog)


def _names_in_log(places: Sequence[PurePath]) -> tuple[list[str], str]:
    """The name of each file in the log, and the format of all of them."""
    root = os.path.commonpath([place.parent for place in places])
    kinds = {_kind(place) for place in places}
    if len(kinds) > 1:
        raise InputError("the files are a mix of Parquet and CSV; give one format at a time.")
    return [str(place.relative_to(root)) for place in places], kinds.pop()


def _together(
    files: Sequence[str | Path],
    places: Sequence[PurePath],
    opened: Sequence[OpenedFile],
    columns: ColumnRoles,
    catalog: bool,
) -> Opened:
    """The parts and the common schema of files, which must agree on every column in use."""
    # What a catalog has is features: no folder adds to them.
    partitions = [{} for _ in places] if catalog else partition_columns(places)
    partitions = [
        {name: value for name, value in values.items() if name not in file.schema.names}
        for file, values in zip(opened, partitions, strict=True)
    ]
    schemas = [_with_columns(file.schema, values) for file, values in zip(opened, partitions, strict=True)]
    for file, schema in zip(files, schemas, strict=True):
        _same_columns(schemas[0], files[0], schema, file, columns)
    types = schemas[0]
    if _kind(places[0]) == "csv" and not catalog:
        types = _as_floats(types, columns.identifiers)
    parts: list[RowRange] = []
    start = 0
    for each, values in zip(opened, partitions, strict=True):
        counted = next(
            name for name in (*columns.actions, *columns.names(), *each.schema.names) if name in each.schema.names
        )
        for part in each.parts(types, counted):
            parts.append(PartitionedPart.of(replace(part, start=start), values))
            start += part.rows
    return tuple(parts), types


def _with_columns(schema: pa.Schema, values: Mapping[str, pa.Scalar]) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, value.type) for name, value in values.items())])


def _as_floats(schema: pa.Schema, but: Collection[str | None]) -> pa.Schema:
    """Integers in the first block of a CSV file may be fractions later: float64 wherever only the number matters."""
    whole = {field.name for field in schema if pa.types.is_integer(field.type)}.difference(but)
    return pa.schema([field.with_type(pa.float64()) if field.name in whole else field for field in schema])


def _kind(file: PurePath) -> str:
    name = file.name.lower()
    if name.endswith(CSV):
        return "csv"
    if name.endswith(PARQUET):
        return "parquet"
    raise InputError(f"{file}: expected a name that ends in {', '.join((*PARQUET, *CSV))}.")


def _same_columns(
    first: pa.Schema, first_file: str | Path, other: pa.Schema, file: str | Path, columns: ColumnRoles
) -> None:
    try:
        check_names(columns.names(), other.names)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    for name in columns.names():
        if name in first.names and kind_of(first.field(name).type) != kind_of(other.field(name).type):
            raise InputError(
                f"{name}: the type differs between files, {first.field(name).type} in {first_file} and "
                f"{other.field(name).type} in {file}. Write all files with the same schema."
            )


def _read_catalog(catalog: Any, action: str, csv: CsvFormat) -> tuple[Catalog, Discrete]:
    """The features of each action and the labels, in the order of the catalog."""
    catalog = catalog.toArrow() if is_spark(catalog) else catalog
    parts, schema = _open(catalog, ColumnRoles((), action, ()), csv, catalog=True)
    if action not in schema.names:
        raise unknown_name("catalog column", action, schema.names)
    names = [name for name in schema.names if name != action]
    read = ["" if name is None else name for name in (action, *names)]
    table = pa.Table.from_batches([batch for part in parts for batch in part.read(read, SCAN_ROWS)])
    columns = {name: table.column(name).combine_chunks() for name in names}
    encodings = tuple(_catalog_encoding(name, column) for name, column in columns.items())
    features = [encoding.encode(columns[encoding.name]) for encoding in encodings]
    matrix = np.column_stack(features) if features else np.empty((len(table), 0))
    if not np.isfinite(matrix).all():
        raise InputError(
            f"catalog: {int((~np.isfinite(matrix)).any(axis=1).sum())} rows have a missing or infinite feature."
        )
    return (matrix, encodings), Discrete(table.column(action).combine_chunks())


def _catalog_encoding(name: str, column: pa.Array) -> Encoding:
    """Text and integers are categories, which are one-hot encoded unless they are 0 and 1; other numbers are quantities."""
    if not is_category(column.type):
        if kind_of(column.type) != "number":
            raise InputError(f"catalog column {name} has type {column.type}; give numbers or text.")
        return Quantity(name)
    if column.null_count:
        raise InputError(f"catalog column {name}: {column.null_count} rows are missing (null); fill them in first.")
    if kind_of(column.type) == "number" and is_flag(as_floats(column)):
        return Flag(name)
    values = pc.unique(plain_text(column))
    too_many_categories(f"catalog column {name}", len(values))
    return OneHot(name, values.take(pc.sort_indices(values)))
