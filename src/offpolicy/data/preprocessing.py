"""`Preprocessing`: what to do with missing values, dates and many levels in the context. By default they are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, RowsError, unknown_name
from offpolicy.data.checks import decoded, whole
from offpolicy.data.contents import ColumnSums, Contents, Levels
from offpolicy.data.dates import PARTS, DateParts, Part, date_type
from offpolicy.data.encoding import (
    MOST_CATEGORIES,
    Encoding,
    Hashed,
    OneHot,
    Quantity,
    as_columns,
    encoded_names,
    encoded_notes,
    kind_of,
)
from offpolicy.data.imputation import Imputed

Missing = Literal["level", "mean"]
MISSING_TEXT = 'pass missing="level" (--missing level) to make them a level of their own'
MISSING_NUMBER = 'pass missing="mean" (--missing mean) to replace them by the mean of the column'
PARTS_OF_DATES = f'Pass dates=("hour", "weekday") (--dates hour,weekday) to use parts of them ({", ".join(PARTS)})'
HASHED_LEVELS = "pass levels=64 (--levels 64) to hash the values into 64 columns"


@dataclass(frozen=True)
class Preprocessing:
    """How columns of the context are prepared, as requested by the user."""

    missing: Missing | None = None
    dates: tuple[Part, ...] = ()
    levels: int | None = None

    @classmethod
    def of(cls, missing: Any = None, dates: Any = (), levels: Any = None) -> Preprocessing:
        """Validate the three options of `op.Log` and `op.read_log`."""
        known = (type(None), str)  # an array cannot be looked up in a tuple
        if type(missing) not in known or missing not in (None, *get_args(Missing)):
            raise InputError(
                f'missing is {missing!r}; give "level" (missing text is a level of its own) or "mean" (missing numbers and '
                "dates are replaced by the mean as well)."
            )
        several = () if dates is None else dates
        named: Sequence[Any] = tuple(several) if isinstance(several, (list, tuple)) else (several,)
        for part in named:
            if not isinstance(part, str) or part not in PARTS:
                raise unknown_name("part of dates", str(part), PARTS)
        count = None if levels is None else whole("levels", levels, 2, MOST_CATEGORIES)
        return cls(missing, tuple(dict.fromkeys(named)), count)

    @property
    def settings(self) -> dict[str, Any]:
        """The options that were given, as plain values."""
        given = {"missing": self.missing, "dates": list(self.dates) or None, "levels": self.levels}
        return {name: value for name, value in given.items() if value is not None}

    def kind(self, field: pa.Field) -> str:
        """What a column of the context is: a number, text, a date of which parts are used, or something else."""
        return "date" if self.dates and date_type(field) is not None else kind_of(field.type)

    def fills(self, kind: str) -> bool:
        """Whether missing values of a kind of column are replaced."""
        return self.missing is not None if kind == "text" else self.missing == "mean"

    @property
    def most_levels(self) -> int:
        """How many levels a text column may have and still be one-hot encoded."""
        return MOST_CATEGORIES if self.levels is None else self.levels

    def check_dates(self, fields: Mapping[str, pa.Field]) -> None:
        """Raise if parts of dates are requested and no column of the context has dates."""
        if self.dates and "date" not in map(self.kind, fields.values()):
            types = ", ".join(f"{name} ({field.type})" for name, field in fields.items()) or "none"
            raise InputError(
                f"dates: no column of the context has dates or timestamps: {types}. Convert text to dates first (in "
                "CSV, write 2026-01-31 18:30:00), or leave out `dates` (--dates)."
            )

    def plain(self, field: pa.Field) -> Encoding:
        """How numbers and dates are encoded, without missing values."""
        type_ = date_type(field)
        if self.kind(field) != "date" or type_ is None:
            return Quantity(field.name)
        parts = tuple(part for part in self.dates if part != "hour" or pa.types.is_timestamp(type_))
        if not parts:
            raise InputError(f"{field.name} has dates without a time of day; dates= needs a part other than the hour.")
        return DateParts(field.name, parts, type_)

    def encoding(self, field: pa.Field, contents: Contents) -> Encoding:
        """How a column of the context is encoded, given what a pass over the log found in it."""
        name = field.name
        if self.kind(field) == "text":
            levels = contents.levels[name]
            hashed = self.levels is not None and len(levels.values) > self.levels
            encoding: Encoding = Hashed(name, self.most_levels) if hashed else OneHot(name, levels.values)
            return Imputed(name, encoding, levels.missing) if levels.missing else encoding
        sums = contents.sums.get(name)
        if sums is None or not sums.missing:
            return self.plain(field)
        if np.isnan(sums.means).any():
            raise InputError(f"{name}: all {sums.missing:,} values are missing, so that there is no mean; leave it out.")
        return Imputed(name, self.plain(field), sums.missing, sums.means)

    def encodings(self, fields: Sequence[pa.Field], contents: Contents) -> tuple[Encoding, ...]:
        """How all columns of the context are encoded."""
        encodings = tuple(self.encoding(field, contents) for field in fields)
        names = encoded_names(encodings)
        twice = next((name for name in names if names.count(name) > 1), None) if self.settings else None
        if twice is not None:
            raise InputError(f"{twice}: two columns of the prepared context have this name; rename the one in the table.")
        return encodings


AS_THEY_ARE = Preprocessing()
"""Missing values, dates and many levels are refused."""


@dataclass(frozen=True)
class EncodedContext:
    """The context of a log in memory as numbers, with the name of each column and the notes on them."""

    matrix: FloatArray
    names: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, context: Any, rows: int, preprocessing: Preprocessing) -> EncodedContext:
        """Encode rounds × columns of any plain type, as `read_log` encodes the columns x0, x1, … of a table."""
        columns = {f"x{j}": column for j, column in enumerate(_columns(context, rows))}
        fields = {name: pa.field(name, column.type) for name, column in columns.items()}
        _check_kinds(fields, preprocessing)
        contents = Contents(
            {name: _levels(name, columns[name], preprocessing) for name in columns if kind_of(columns[name].type) == "text"},
            {
                name: ColumnSums.of(preprocessing.plain(fields[name]), columns[name])
                for name in columns
                if (kind := preprocessing.kind(fields[name])) in ("number", "date") and preprocessing.fills(kind)
            },
        )
        encodings = preprocessing.encodings(list(fields.values()), contents)
        parts = [_encoded(encoding, columns[encoding.name]) for encoding in encodings]
        matrix = np.hstack(parts) if parts else np.empty((rows, 0))
        return cls(matrix, encoded_names(encodings), encoded_notes(encodings))


def _check_kinds(fields: Mapping[str, pa.Field], preprocessing: Preprocessing) -> None:
    """Raise if a column cannot be encoded."""
    for name, field in fields.items():
        if preprocessing.kind(field) not in ("number", "text", "date"):
            remedy = f" {PARTS_OF_DATES}." if date_type(field) is not None else ""
            raise InputError(f"context {name} has type {field.type}, but numbers or text are needed here.{remedy}")
    preprocessing.check_dates(fields)


def _columns(context: Any, rows: int) -> list[pa.Array]:
    """The columns of an array as Arrow arrays, each with its own type."""
    read = np.array(context, dtype=object) if isinstance(context, (list, tuple)) else np.asarray(context)
    read = read[:, None] if read.ndim == 1 else read
    if read.ndim != 2 or len(read) != rows:
        raise InputError(f"context has shape {read.shape}, which does not fit {rows} rounds.")
    return [_column(column, f"context x{j}") for j, column in enumerate(read.T)]


def _column(values: Any, name: str) -> pa.Array:
    """Values of one plain type; None and NaN among objects are missing values."""
    try:
        return decoded(pa.array(values, from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: values have mixed or unsupported types; use one plain type, such as text.") from None


def _levels(name: str, column: pa.Array, preprocessing: Preprocessing) -> Levels:
    found = Levels.merged([Levels.of(column.cast(pa.string()))])
    if found.missing and not preprocessing.fills("text"):
        rows = np.flatnonzero(np.asarray(column.is_null()))
        raise RowsError(f"context {name}", "are missing", rows, f"Fill them in or remove those rows, or {MISSING_TEXT}.")
    if preprocessing.levels is None and len(found.values) > MOST_CATEGORIES:
        raise InputError(
            f"context {name}: {len(found.values):,} different values are too many for one-hot encoding (at most "
            f"{MOST_CATEGORIES:,}). Group rare values, or {HASHED_LEVELS}."
        )
    return found


def _encoded(encoding: Encoding, column: pa.Array) -> FloatArray:
    values = as_columns(encoding.encode(column))
    check = encoding.failed_check("context", values)
    if check is not None:
        rows = np.flatnonzero(check.bad(values).any(axis=1))
        raise RowsError(f"context {encoding.name}", check.what, rows, check.advice)
    return values
