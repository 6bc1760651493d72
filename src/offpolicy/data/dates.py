"""Parts of dates as numbers: the time of day and the month as points on a circle, the weekday one-hot encoded.

Times with a time zone are taken in UTC, which is the same on every engine; others are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.checks import Check, failed_check
from offpolicy.data.encoding import Encoding, plain_text

Part = Literal["hour", "weekday", "weekend", "month", "days"]
PARTS: tuple[Part, ...] = get_args(Part)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SUFFIXES: Mapping[Part, tuple[str, ...]] = {
    "hour": ("hour sin", "hour cos"),
    "weekday": tuple(f"weekday={day}" for day in WEEKDAYS),
    "weekend": ("weekend",),
    "month": ("month sin", "month cos"),
    "days": ("days",),
}
DAY_SECONDS = 86_400
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TEXT_DATE = b"date"
"""The key of a field's metadata that marks text as dates, as in CSV files; the value is the type to read them as."""
TEXT_TYPES = {b"date": pa.date32(), b"time": pa.timestamp("us"), b"UTC": pa.timestamp("us", "UTC")}
A_DATE = Check(np.isinf, "do not contain a date", "Write dates as 2026-01-31, and times as 2026-01-31 18:30:00.")


def as_text(field: pa.Field) -> pa.Field:
    """A field of dates as text that is marked as dates."""
    mark = b"date" if pt.is_date(field.type) else b"UTC" if getattr(field.type, "tz", None) else b"time"
    return pa.field(field.name, pa.string(), metadata={TEXT_DATE: mark})


def date_type(field: pa.Field) -> pa.DataType | None:
    """The type of a column of dates, with or without a time of day; None if it has other values."""
    marked = (field.metadata or {}).get(TEXT_DATE)
    if marked is not None and pt.is_string(field.type):
        return TEXT_TYPES[marked]
    return field.type if pt.is_date(field.type) or pt.is_timestamp(field.type) else None


@final
@dataclass(frozen=True)
class DateParts(Encoding):
    """Some parts of each date. A missing date is NaN in all of them; text that is not a date is infinite."""

    parts: tuple[Part, ...]
    type: pa.DataType

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} {suffix}" for part in self.parts for suffix in SUFFIXES[part])

    @property
    def note(self) -> str:
        return f"{self.name}: {', '.join(self.parts)}"

    def encode(self, column: pa.Array) -> FloatArray:
        dates, bad = (column, None) if pt.is_temporal(column.type) else _parsed(plain_text(column), self.type)
        days, seconds = _days_and_seconds(dates)
        encoded = np.column_stack([FORMULAS[part](days, seconds) for part in self.parts]).astype(np.float64)
        encoded[np.asarray(dates.is_null())] = np.nan
        if bad is not None:
            encoded[bad] = np.inf
        return encoded

    def failed_check(self, role: str, values: FloatArray) -> Check | None:
        return A_DATE if A_DATE.bad(values).any() else failed_check(role, values)


def _parsed(text: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Any]:
    """Text as dates, and which rows are not dates (None if all are)."""
    try:
        return text.cast(type_), None
    except pa.ArrowInvalid:
        bad = np.array([not _is_date(value, type_) for value in text])
        return pa.array(np.where(bad, None, text.to_numpy(zero_copy_only=False)), pa.string()).cast(type_), bad


def _is_date(value: pa.Scalar, type_: pa.DataType) -> bool:
    try:
        value.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


def _days_and_seconds(dates: pa.Array) -> tuple[IntArray, FloatArray]:
    """Whole days since 1970-01-01, and seconds since midnight. Missing dates are 0."""
    if pt.is_date32(dates.type):
        days = dates.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return days, np.zeros(len(days))
    per_second = UNITS["ms" if pt.is_date64(dates.type) else dates.type.unit]
    count = dates.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, rest = np.divmod(count, DAY_SECONDS * per_second)
    return days, rest / per_second


def _weekday(days: IntArray) -> IntArray:
    """From 0 (Monday) to 6. (1970-01-01 was a Thursday.)"""
    return (days + 3) % 7


def _circle(turn: FloatArray) -> FloatArray:
    """Points on the unit circle, so that the end of a period is next to its start."""
    return np.column_stack([np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)])


def _month(days: IntArray) -> FloatArray:
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return np.asarray((months % 12) / 12)


FORMULAS: Mapping[Part, Callable[[IntArray, FloatArray], Any]] = {
    "hour": lambda _, seconds: _circle(seconds / DAY_SECONDS),
    "weekday": lambda days, _: np.equal.outer(_weekday(days), np.arange(7)),
    "weekend": lambda days, _: _weekday(days) >= 5,
    "month": lambda days, _: _circle(_month(days)),
    "days": lambda days, seconds: days + seconds / DAY_SECONDS,
}
