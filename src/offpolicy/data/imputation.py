"""`Imputed`: a column with missing values, each replaced, and one more column that is 1 where a value was missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray
from offpolicy.data.checks import Check, decoded
from offpolicy.data.encoding import Encoding, as_columns


@final
@dataclass(frozen=True)
class Imputed(Encoding):
    """Another encoding for a column of which `count` values are missing.

    With `means` they become the mean of each encoded column. Without, they are 0 in all of them: with the additional column,
    that is a level of their own.
    """

    inner: Encoding
    count: int
    means: tuple[float, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.inner.names, f"{self.name} is missing")

    @property
    def note(self) -> str:
        values = "1 missing value" if self.count == 1 else f"{self.count:,} missing values"
        if self.means is None:
            how = f"{values} as a level of {'its' if self.count == 1 else 'their'} own"
        elif len(self.means) == 1:
            how = f"{values} replaced by the mean, {self.means[0]:.6g}"
        else:
            how = f"{values} replaced by the means"
        return f"{self.name}: {how}" if self.inner.note is None else f"{self.inner.note}, with {how}"

    def encode(self, column: pa.Array) -> FloatArray:
        values = as_columns(self.inner.encode(column))
        missing = np.asarray(decoded(column).is_null(nan_is_null=True))
        fill = np.zeros(values.shape[1]) if self.means is None else np.array(self.means)
        return np.column_stack([np.where(missing[:, None], fill, values), missing])

    def failed_check(self, role: str, values: FloatArray) -> Check | None:  # noqa: ARG002
        return self.inner.failed_check("observed", values[:, :-1])
