"""The types of arrays, and the limits within which their products and quotients stay numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
LARGEST_NUMBER = 1e30
NEXT_TO_NOTHING = 1e-100
"""What is smaller is 0 to anything that would be divided by it."""


def sums_by(key: IntArray, values: FloatArray, keys: int) -> FloatArray:
    """The sum of the values of each key, from 0 to `keys` − 1."""
    return np.asarray(np.bincount(key, values, keys), dtype=np.float64)


def finite_or_none(value: float) -> float | None:
    """A number as JSON has it."""
    return float(value) if np.isfinite(value) else None
