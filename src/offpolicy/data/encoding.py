"""How the columns of a table become numbers: quantities are used as they are, categories are one-hot encoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_values
from offpolicy.data.checks import Check, decoded, failed_check
from offpolicy.data.schema import Dimension, dimensions

MOST_CATEGORIES = 1_000


@dataclass(frozen=True)
class Encoding(ABC):
    """How one column becomes one or several numbers per row."""

    name: str
    categorical: ClassVar[bool] = False

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """One per encoded column."""

    @property
    def note(self) -> str | None:
        """What was done to the column, if it is more than the default."""
        return None

    @abstractmethod
    def encode(self, column: pa.Array) -> FloatArray:
        """One number per row, or rows × encoded columns."""

    def failed_check(self, role: str, values: FloatArray) -> Check | None:  # noqa: ARG002
        """The first check that an encoded value fails."""
        return None


@final
@dataclass(frozen=True)
class Quantity(Encoding):
    """Numbers as they are."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, column: pa.Array) -> FloatArray:
        return as_floats(column)

    def failed_check(self, role: str, values: FloatArray) -> Check | None:
        return failed_check(role, values)


@final
@dataclass(frozen=True)
class Flag(Encoding):
    """A category with the two values 0 and 1, for which one column is enough."""

    categorical = True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, column: pa.Array) -> FloatArray:
        return as_floats(column)


@final
@dataclass(frozen=True)
class OneHot(Encoding):
    """A column of 0 and 1 for each of the sorted values."""

    values: pa.Array
    categorical = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={value}" for value in self.values.to_pylist())

    def encode(self, column: pa.Array) -> FloatArray:
        codes = pc.index_in(plain_text(column), value_set=self.values).fill_null(-1)
        return indicators(codes.to_numpy(zero_copy_only=False), len(self.values))


@final
@dataclass(frozen=True)
class Hashed(Encoding):
    """A column of 0 and 1 for each bucket that values are hashed into, for text with very many values."""

    buckets: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}=hash {bucket}" for bucket in range(self.buckets))

    @property
    def note(self) -> str:
        return f"{self.name}: more than {self.buckets:,} different values, hashed into {self.buckets:,} columns"

    def encode(self, column: pa.Array) -> FloatArray:
        text = plain_text(column)
        codes = (hash_values(text.fill_null("")) % np.uint64(self.buckets)).astype(np.int64)
        return indicators(np.where(np.asarray(text.is_null()), -1, codes), self.buckets)


Catalog = tuple[FloatArray, tuple[Encoding, ...]]
"""Actions × encoded columns, and where each column comes from."""


def indicators(codes: IntArray, count: int) -> FloatArray:
    """A column of 0 and 1 per code from 0 to `count` − 1; other codes are 0 in all of them."""
    encoded: FloatArray = np.equal.outer(codes, np.arange(count)).astype(np.float64)
    return encoded


def as_columns(values: FloatArray) -> FloatArray:
    """Rows × columns, also of a single column."""
    return values[:, None] if values.ndim == 1 else values


def encoded_notes(encodings: Sequence[Encoding]) -> tuple[str, ...]:
    """What was done to the columns, where it is more than the default."""
    return tuple(encoding.note for encoding in encodings if encoding.note is not None)


def encoded_names(encodings: Sequence[Encoding]) -> tuple[str, ...]:
    """The names of all encoded columns, in their order."""
    return tuple(name for encoding in encodings for name in encoding.names)


def encoded_dimensions(encodings: Sequence[Encoding]) -> tuple[Dimension, ...]:
    """Which encoded columns belong to which column of the table."""
    return dimensions([(e.name, len(e.names), e.categorical) for e in encodings])


def too_many_categories(name: str, count: int) -> None:
    """Raise if a column has too many values for categories."""
    if count > MOST_CATEGORIES:
        raise InputError(
            f"{name}: {count:,} different values are too many for one-hot encoding (at most {MOST_CATEGORIES:,}). Integers "
            "and text are categories among features: convert a quantity to float, or group rare values."
        )


def kind_of(type_: pa.DataType) -> str:
    """The kind of a type: number, text, list or other."""
    if pt.is_dictionary(type_):
        return kind_of(type_.value_type) if kind_of(type_.value_type) == "text" else "other"
    if pt.is_integer(type_) or pt.is_floating(type_) or pt.is_boolean(type_) or pt.is_decimal(type_):
        return "number"
    if pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_):
        return "text"
    return "list" if pt.is_list(type_) or pt.is_large_list(type_) else "other"


def is_category(type_: pa.DataType) -> bool:
    """Whether a feature of actions is a category: text, integers and booleans are. (In a context, only text is.)"""
    return bool(kind_of(type_) == "text" or pt.is_integer(type_) or pt.is_boolean(type_))


def is_flag(values: FloatArray) -> bool:
    """Whether all numbers are 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


def as_floats(column: pa.Array) -> FloatArray:
    """A column of numbers as float64, with nulls as NaN."""
    if pt.is_decimal(column.type) or pt.is_boolean(column.type):
        column = column.cast(pa.float64())
    values: FloatArray = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return values


def plain_text(column: pa.Array) -> pa.Array:
    """Dictionary-encoded and other text as plain strings."""
    return column if pt.is_string(column.type) else decoded(column).cast(pa.string())
