"""`ExactSum`: a sum of floats without rounding, so that it depends neither on order nor on partitioning."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from offpolicy.core.arrays import FloatArray

SCALE = 1126
"""Every float64 is a whole multiple of 2 to the power of −1126, with room for its 53 bits."""
DIGITS, LOW = 53, 26
BLOCK = 1 << 20
"""So many numbers of 27 bits add up without rounding."""


@dataclass(frozen=True)
class ExactSum:
    """How many numbers there were, and their sum times 2 to the power of `SCALE`, as a whole number.

    >>> parts = [ExactSum.of(np.array([1e16, 1.0])), ExactSum.of(np.array([-1e16, 1.0]))]
    >>> (parts[0] + parts[1]).mean
    0.5
    """

    count: int = 0
    scaled: int = 0

    @classmethod
    def of(cls, values: FloatArray) -> ExactSum:
        """The sum of finite numbers."""
        total = sum(_scaled(values[start : start + BLOCK]) for start in range(0, len(values), BLOCK))
        return cls(len(values), total)

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.count + other.count, self.scaled + other.scaled)

    @property
    def mean(self) -> float:
        """The mean, rounded once; NaN if there were no numbers."""
        return float(Fraction(self.scaled, self.count << SCALE)) if self.count else float("nan")


def _scaled(values: FloatArray) -> int:
    """Sum the digits of all numbers that have the same exponent, in two halves that float64 adds exactly."""
    fraction, exponent = np.frexp(values)
    digits = np.ldexp(fraction, DIGITS).astype(np.int64)
    place = exponent.astype(np.int64) + (SCALE - DIGITS)
    high, low = (np.bincount(place, half) for half in (digits >> LOW, digits & ((1 << LOW) - 1)))
    used = np.flatnonzero((high != 0) | (low != 0))
    return sum(((int(high[k]) << LOW) + int(low[k])) << int(k) for k in used)
