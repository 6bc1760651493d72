"""A histogram of numbers of either sign, with a count and a sum per bin that do not depend on the order of the numbers.

Numbers are rounded to 24 significant bits. All numbers of a bin then have the same exponent, so that their sum needs no
rounding as long as there are fewer than 2²⁹ of them: the sums are the same bytes for any order and any partitioning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import LARGEST_SINGLE, FloatArray, IntArray, rounded_to_24_bits
from offpolicy.statistics.base import State, added
from offpolicy.statistics.histogram import FINE, LOWEST, OCTAVES

_SHIFT = np.uint32(20)  # retains the sign, the exponent and 3 bits of the fraction of a float32: bins at most 12.5% wide
BINS = 1 << 12
_PER_OCTAVE = 8
_LEAST = (127 + LOWEST) * _PER_OCTAVE  # the first and the last bin of a `LogHistogram`
_MOST = _LEAST + OCTAVES * _PER_OCTAVE - 1
ROWS = 16_384  # at a time: larger intermediate arrays would leave the cache


@dataclass(frozen=True)
class Bins:
    """The bins that contain anything: their ends, how many numbers they contain, and the sum of these.

    Counts and sums may have a first dimension, for several looks at a growing set of numbers.

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
    def of(cls, values: FloatArray) -> State:
        """The histogram of some numbers."""
        rounded, place = cls.placed(values)
        return {"count": np.bincount(place, minlength=BINS), "sum": np.bincount(place, rounded, BINS)}

    @classmethod
    def fold(cls, state: State, values: FloatArray) -> State:
        count, sums = state["count"].copy(), state["sum"].copy()
        for start in range(0, len(values), ROWS):
            part = cls.of(values[start : start + ROWS])
            count += part["count"]
            sums += part["sum"]
        return {"count": count, "sum": sums}

    @staticmethod
    def placed(values: FloatArray) -> tuple[npt.NDArray[np.float32], IntArray]:
        """The numbers as they are summed, and the bin of each."""
        rounded = rounded_to_24_bits(values)
        return rounded, (rounded.view(np.uint32) >> _SHIFT).astype(np.intp)

    @staticmethod
    def merge(a: State, b: State) -> State:
        return added(a, b)

    @staticmethod
    def with_weights(state: State, weights: State) -> State:
        """Add the numbers of a fine `LogHistogram`, whose bins subdivide those of this one.

        Positive numbers outside the range of that histogram are counted as 0, or in its last bin.
        """
        place = np.concatenate([[0], _LEAST + np.arange(FINE * OCTAVES) // (FINE // _PER_OCTAVE)])
        out = {}
        for name, part in state.items():
            both = part + np.bincount(place, weights[name], BINS).astype(part.dtype)
            both[0], both[_MOST] = both[:_LEAST].sum(), both[_MOST : BINS // 2].sum()
            both[1:_LEAST] = both[_MOST + 1 : BINS // 2] = 0
            out[name] = both
        out["sum"][0] = 0.0
        return out


def _first(bins: npt.NDArray[np.int64]) -> FloatArray:
    """The smallest number, in absolute value, of a bin; the end of the last bin is that of the bin after it."""
    bits = (bins.astype(np.uint64) << np.uint64(int(_SHIFT))).astype(np.uint32)
    ends = bits.view(np.float32).astype(np.float64)
    return np.where(np.isfinite(ends), ends, np.sign(ends) * LARGEST_SINGLE)
