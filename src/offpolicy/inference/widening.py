"""The factor by which intervals must be widened to hold: the Birge ratio, with its interval by the Q-profile method."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from offpolicy.core.arrays import FloatArray

LEAST, LARGEST = 1e-6, 1e6
"""Between these, a factor is computed; beyond them, it is 0 or infinite."""


@dataclass(frozen=True)
class Widening:
    """A factor with its standard error and its confidence interval.

    Attributes
    ----------
    factor : float
        By how much intervals must be widened to hold at their level; 1 if they are right, below 1 if they are too wide.
    std_error : float
        Its standard error; NaN if the factor is 0 or infinite.
    low, high : float
        Its confidence interval, by the distribution χ², which also holds for a few pairs.
    """

    factor: float
    std_error: float
    low: float
    high: float


def widening(distances: FloatArray, errors: FloatArray, truth_errors: FloatArray, level: float) -> Widening:
    """The factor c for which Σ d² / (c²s² + t²) has its expectation, the number of pairs K.

    Only the estimate's own error s is widened, not that of the truth, t. If the distances d are normal, the sum at the right
    factor has the distribution χ² with K degrees of freedom, which gives the interval (Viechtbauer 2007).
    """
    count = len(distances)
    if not count:
        return Widening(math.nan, math.nan, math.nan, math.nan)

    def total(c: float) -> float:
        variance = c**2 * errors**2 + truth_errors**2
        return float(np.divide(distances**2, variance, out=np.where(distances == 0, 0.0, np.inf), where=variance > 0).sum())

    def solved(target: float) -> float:
        if total(LEAST) <= target:
            return 0.0
        if total(LARGEST) >= target:
            return math.inf
        return math.exp(optimize.bisect(lambda x: total(math.exp(x)) - target, math.log(LEAST), math.log(LARGEST)))

    factor = solved(count)
    low, high = (solved(float(stats.chi2.ppf(p, count))) for p in (0.5 + level / 2, 0.5 - level / 2))
    return Widening(factor, _std_error(factor, errors, truth_errors), low, high)


def _std_error(factor: float, errors: FloatArray, truth_errors: FloatArray) -> float:
    """By the delta method: √(2K) over the expected slope of the sum, Σ 2cs² / (c²s² + t²)."""
    if not 0 < factor < math.inf:
        return math.nan
    slope = float((2 * factor * errors**2 / (factor**2 * errors**2 + truth_errors**2)).sum())
    return math.sqrt(2 * len(errors)) / slope


def share_interval(hits: int, count: int, level: float) -> tuple[float, float]:
    """The exact binomial interval of a share (Clopper and Pearson 1934)."""
    if not count:
        return math.nan, math.nan
    exact = stats.binomtest(hits, count).proportion_ci(level, method="exact")
    return float(exact.low), float(exact.high)
