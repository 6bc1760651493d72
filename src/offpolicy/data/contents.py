"""What a pass over the log finds in its columns before they can be encoded: the levels of text, the means of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offpolicy.core.exact_sum import ExactSum
from offpolicy.data.encoding import Encoding, as_columns


@dataclass(frozen=True)
class Levels:
    """The different values of a column, sorted, and the number of rows without a value.

    If more than `most` values were found, only `most` + 1 of them are kept: the others are not needed.
    """

    values: pa.Array
    missing: int = 0

    @classmethod
    def of(cls, values: pa.Array, most: int | None = None) -> Levels:
        """The levels of some rows, not sorted yet."""
        distinct = pc.unique(values.drop_null())
        return cls(distinct if most is None else distinct.slice(0, most + 1), values.null_count)

    @classmethod
    def merged(cls, parts: Iterable[Levels], most: int | None = None) -> Levels:
        """The sorted levels of all rows, from those of some rows each."""
        found = list(parts)
        values = cls.of(pa.chunked_array([part.values for part in found]), most).values
        return cls(values.take(pc.sort_indices(values)), sum(part.missing for part in found))


@dataclass(frozen=True)
class ColumnSums:
    """The sums of the encoded columns of one column, over the rows that have a value, and the number of the others."""

    sums: tuple[ExactSum, ...]
    missing: int = 0

    @classmethod
    def of(cls, encoding: Encoding, column: pa.Array) -> ColumnSums:
        """The sums of some rows. Infinite values are left out: reading them as part of the log raises an error."""
        values = as_columns(encoding.encode(column))
        finite = np.isfinite(values).all(axis=1)
        return cls(tuple(ExactSum.of(each[finite]) for each in values.T), int(np.isnan(values).any(axis=1).sum()))

    def __add__(self, other: ColumnSums) -> ColumnSums:
        return ColumnSums(tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)), self.missing + other.missing)

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(each.mean for each in self.sums)


@dataclass(frozen=True)
class Contents:
    """The levels of each column of categories, and the sums of each column whose missing values become the mean."""

    levels: Mapping[str, Levels] = field(default_factory=dict)
    sums: Mapping[str, ColumnSums] = field(default_factory=dict)
