"""A histogram of numbers of either sign, with a count and a sum per bin that do not depend on the order of the numbers.

Numbers are rounded to 24 significant bits. All numbers of a bin then have the same exponent, so that their sum needs no
rounding as long as there are fewer than 2²⁹ of them: the sums are the same bytes for any order and any partitioning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.statistics.base import State, added

_SHIFT = np.uint32(20)  # retains the sign, the exponent and 3 bits of the fraction of a float32: bins at most 12.5% wide
BINS = 1 << 12
ROWS = 16_384  # at a time: larger intermediate arrays would leave the cache
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Bins:
    """The bins that contain anything: their ends, how many numbers they contain, and the sum of these.

    >>> bins = Bins.of(SignedHistogram.fold(SignedHistogram.zero(), np.array([1.0, 1.0, -3.0])))
    >>> bins.count.tolist(), bins.total.tolist()
    ([2.0, 1.0], [2.0, -3.0])
    """

    low: FloatArray
    high: FloatArray
    count: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, state: State) -> Bins:
        used = np.flatnonzero(state["count"])
        ends = np.stack([_first(used), _first(used + 1)])
        return cls(ends.min(axis=0), ends.max(axis=0), state["count"][used].astype(np.float64), state["sum"][used])

    @property
    def n(self) -> float:
        return float(self.count.sum())

    def affine(self, factor: float, shift: float) -> Bins:
        """The bins of factor·x + shift."""
        ends = factor * np.stack([self.low, self.high]) + shift
        return Bins(ends.min(axis=0), ends.max(axis=0), self.count, factor * self.total + shift * self.count)


class SignedHistogram:
    """Counts and sums by bin; positive bins first, each half in the order of the size."""

    @staticmethod
    def zero() -> State:
        return {"count": np.zeros(BINS, np.int64), "sum": np.zeros(BINS)}

    @classmethod
    def fold(cls, state: State, values: FloatArray) -> State:
        count, sums = state["count"].copy(), state["sum"].copy()
        for start in range(0, len(values), ROWS):
            rounded = _rounded(values[start : start + ROWS])
            place = (rounded.view(np.uint32) >> _SHIFT).astype(np.intp)
            count += np.bincount(place, minlength=BINS)
            sums += np.bincount(place, rounded, BINS)
        return {"count": count, "sum": sums}

    @staticmethod
    def repeated(state: State, value: float, times: int) -> State:
        """Add the same number several times."""
        one = SignedHistogram.fold(SignedHistogram.zero(), np.array([value]))
        return {name: state[name] + times * one[name] for name in state}

    @staticmethod
    def merge(a: State, b: State) -> State:
        return added(a, b)

    @staticmethod
    def halves(state: State) -> tuple[State, State]:
        """The histograms of max(x, 0) and of max(−x, 0), without the numbers of the other sign."""
        half = BINS // 2
        positive, negative = SignedHistogram.zero(), SignedHistogram.zero()
        for part, own, sign in ((positive, slice(0, half), 1), (negative, slice(half, BINS), -1)):
            part["count"][:half] = state["count"][own]
            part["sum"][:half] = sign * state["sum"][own] + 0.0
        return positive, negative


def _rounded(values: FloatArray) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        rounded: npt.NDArray[np.float32] = values.astype(np.float32)
    return np.clip(rounded, -LARGEST, LARGEST) if not np.isfinite(rounded.sum()) else rounded


def _first(bins: npt.NDArray[np.int64]) -> FloatArray:
    """The smallest number, in absolute value, of a bin; the end of the last bin is that of the bin after it."""
    bits = (bins.astype(np.uint64) << np.uint64(int(_SHIFT))).astype(np.uint32)
    ends = bits.view(np.float32).astype(np.float64)
    return np.where(np.isfinite(ends), ends, np.sign(ends) * LARGEST)
