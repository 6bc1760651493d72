"""Confidence intervals of a functional: normal, bootstrap, empirical Bernstein, Cressie–Read."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number
from offpolicy.inference.functionals import (
    DRAWS,
    Functional,
    ScoreSums,
    sampling_variance,
    std_error,
    unresampled_variance,
    variance,
)
from offpolicy.scoring.plan import Terms

Method = Literal["normal", "bootstrap", "bernstein", "cressie-read"]
REFITTED = "bootstrap, refitted"  # the method of an interval for which everything was refitted in each draw
FINITE_SAMPLE = ("bernstein", "cressie-read")  # intervals that hold for any number of rounds, given the range of rewards
normal_quantile = NormalDist().inv_cdf


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float
    method: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Range:
    """What finite-sample intervals need: the range of one row. `exact_weights`: their mean is 1 under the logging policy."""

    reward_low: float
    reward_high: float
    largest_weight: float
    exact_weights: bool
    terms: Terms

    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest possible correction of one row."""
        low, high = self.reward_low, self.reward_high
        if self.terms.shifted_baseline:  # r − q(x, a), with q in the same range
            low, high = low - high, high - low
        return min(0.0, self.largest_weight * low), max(0.0, self.largest_weight * high)


def checked_level(level: Any) -> float:
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1; it is {level!r}.")
    return float(level)


def normal_interval(value: float, error: float, level: float) -> Interval:
    half = normal_quantile(0.5 + level / 2) * error
    return Interval(value - half, value + half, level, "normal")


def interval(f: Functional, sums: ScoreSums, level: float, method: str, bounds: Range | None) -> Interval:
    """A confidence interval by one of the four methods."""
    if method == "normal":
        return normal_interval(f.value, std_error(f, sums), level)
    if method == "bootstrap":
        return Interval(*_bootstrap(f, sums, level), level, method)
    if bounds is None:
        raise InputError(
            f"a {method} interval exists for the value of one policy by one estimator, not for a difference or a blend; use "
            "normal or bootstrap."
        )
    ends = _bernstein if method == "bernstein" else _cressie_read
    return Interval(*ends(f, sums, level, bounds), level, method)


def _bootstrap(f: Functional, sums: ScoreSums, level: float) -> tuple[float, float]:
    """Percentiles over resampled buckets; the error of the fit is added as a normal draw of its variance."""
    drawn, normal = sums.resampled
    draws = f.evaluate(drawn)
    extra = variance(f, sums) - sampling_variance(f, sums)
    if extra > 0:
        draws = draws + np.sqrt(extra) * normal
    return _percentiles(draws, level)


def _percentiles(draws: FloatArray, level: float) -> tuple[float, float]:
    if not np.isfinite(draws).all():
        return float("nan"), float("nan")
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def refitted_interval(f: Functional, sums: ScoreSums, level: float, draws: FloatArray) -> Interval:
    """Percentiles of the values on resampled logs, with everything refitted.

    What no draw shows (the possible bias of a blend) is added as a normal draw of its size.
    """
    spread = np.sqrt(unresampled_variance(f, sums))
    if spread > 0:
        further = np.random.default_rng([sums.seed % 2**64, 0xB007, 1]).standard_normal(max(0, len(draws) - DRAWS))
        draws = draws + spread * np.concatenate([sums.resampled[1], further])[: len(draws)]
    return Interval(*_percentiles(draws, level), level, REFITTED)


def _bernstein(f: Functional, sums: ScoreSums, level: float, bounds: Range) -> tuple[float, float]:
    """Empirical Bernstein (Maurer & Pontil 2009), two-sided, with the range of one unit.

    If units are clusters, a unit is a bucket of them, and its range is that of all its rows together.
    """
    if sums.moments["m2"][0, 0] > 0:
        raise InputError("a bernstein interval does not support row weights; use normal, bootstrap or cressie-read.")
    low, high = bounds.extremes()
    log = float(np.log(4 / (1 - level)))
    units, rows_of_largest = float(sums.n), 1.0
    if sums.clustered:
        rows = sums.buckets[:, 0] / float(sums.moments["mean"][0])
        units = float((rows > 0).sum())
        rows_of_largest = float(rows.max()) * units / sums.n  # relative to the mean unit
    half = np.sqrt(2 * log * variance(f, sums)) + 7 * (high - low) * rows_of_largest * log / (3 * max(units - 1, 1))
    return float(f.value - half), float(f.value + half)


def _cressie_read(f: Functional, sums: ScoreSums, level: float, bounds: Range) -> tuple[float, float]:
    """Empirical likelihood with the quadratic Cressie–Read divergence (after Karampatziakis et al. 2020).

    Among reweightings of the rows, and of one unseen row with the most extreme weight and reward, find the smallest and the
    largest value within the χ² radius whose mean weight is 1. Without the positivity constraint there is a closed form:
    regress the row's value y on its weight w, move w to its known mean, and go √(χ²/n) residual deviations each way. The
    variance of the rows is scaled to that of the estimate (clusters, fit), so that the interval includes the same errors.
    """
    n, m2, g = sums.n, sums.moments["m2"], f.gradient
    by_rows = float(g @ m2 @ g) / (n * max(n - 1, 1))
    inflation = variance(f, sums) / by_rows if by_rows > 0 else 1.0
    radius = normal_quantile(0.5 + level / 2) ** 2 / (n + 1) * inflation  # χ² with one degree of freedom
    low, high = bounds.extremes()
    ball = _LikelihoodBall(f, sums, bounds, radius)
    return ball.end(-1, low), ball.end(1, high)


@dataclass(frozen=True)
class _LikelihoodBall:
    """The reweightings of the rows, and of one unseen row, within a χ² radius."""

    f: Functional
    sums: ScoreSums
    bounds: Range
    radius: float

    def end(self, sign: int, extreme: float) -> float:
        """One end of the interval; the unseen row may also have weight 0."""
        return sign * max(sign * self._end(w, y, sign) for w, y in ((0.0, 0.0), (self.bounds.largest_weight, extreme)))

    def _end(self, w: float, y: float, sign: int) -> float:
        """One end of the interval with an unseen row of weight w, correction y and the mean baseline."""
        f, bounds, radius = self.f, self.bounds, self.radius
        n, m2, g = self.sums.n, self.sums.moments["m2"], f.gradient
        terms, means = bounds.terms, self.sums.moments["mean"]
        unit = float(means[0])
        baseline = 0.0 if terms.baseline is None else float(means[terms.baseline]) / unit
        corrected = f.value - baseline - (f.origin if terms.shifted_baseline else 0.0)
        k = terms.weight
        mean_weight = 1.0 if k is None else float(means[k]) / unit
        step = (y - w * corrected) / mean_weight if terms.normalised else y - corrected
        share = n / (n + 1)
        centre = f.value + step / (n + 1)
        yy = (float(g @ m2 @ g) + share * step**2) / (n + 1)
        if not bounds.exact_weights or k is None:
            return centre + sign * float(np.sqrt(radius * yy))
        h = np.zeros_like(g)  # the gradient of the mean weight
        h[k], h[0] = 1 / unit, -mean_weight / unit
        dw = w - mean_weight
        ww = (float(h @ m2 @ h) + share * dw**2) / (n + 1)
        yw = (float(g @ m2 @ h) + share * step * dw) / (n + 1)
        slope = yw / ww if ww > 0 else 0.0
        moved = 1 - (mean_weight + dw / (n + 1))
        return centre + slope * moved + sign * float(np.sqrt(radius * max(yy - slope * yw, 0.0)))
