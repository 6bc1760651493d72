"""Confidence intervals of a functional: Student, normal, bootstrap, empirical Bernstein, Cressie–Read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
    mean_weight,
    sampling_variance,
    std_error,
    unresampled_variance,
    variance,
)
from offpolicy.scoring.plan import Terms

Method = Literal["auto", "student", "normal", "bootstrap", "bernstein", "cressie-read", "smoothing"]
REFITTED = "bootstrap, refitted"  # the method of an interval for which everything was refitted in each draw
FINITE_SAMPLE = (
    "bernstein",
    "cressie-read",
    "smoothing",
)  # intervals that hold for any number of rounds, given the range of rewards
LACKING = 4.0
"""Standard errors by which the mean weight must fall short of 1 before "auto" no longer moves it to 1."""
KNOWN = 0.1
"""The largest relative standard error of such a mean weight: about 100 effective rounds."""
normal_quantile = NormalDist().inv_cdf


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    `value` is the point estimate that belongs to it: the estimate itself, except that a Cressie–Read interval belongs to the
    estimate adjusted to a mean weight of 1. None for intervals saved before there was one.
    """

    low: float
    high: float
    level: float
    method: str
    value: float | None = None

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Range:
    """What finite-sample intervals need: the range of one row. `exact_weights`: their mean is 1 under the logging policy.

    `smoothing` is the λ of an estimate by logarithmic smoothing.
    """

    reward_low: float
    reward_high: float
    largest_weight: float
    exact_weights: bool
    terms: Terms
    smoothing: float | None = None

    def has(self, method: str) -> bool:
        """Whether a finite-sample interval by this method exists."""
        return method != "smoothing" or self.smoothing is not None

    @property
    def weighs_rewards(self) -> bool:
        """Whether the estimate is a mean of rewards with weights of mean 1, and no model has a part in it."""
        return self.exact_weights and self.terms.weight is not None and self.terms.baseline is None

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
    return Interval(value - half, value + half, level, "normal", value)


def best_method(bounds: Range | None) -> Method:
    """What "auto" stands for: the method whose intervals held best for their width.

    Weights that must have mean 1 make Cressie–Read intervals both narrow and safe. With a reward model, the unseen row that
    they allow for makes them two to three times as wide as they need to be.
    """
    if bounds is not None and bounds.smoothing is not None:
        return "smoothing" if bounds.smoothing > 0 else "student"
    return "cressie-read" if bounds is not None and bounds.weighs_rewards else "student"


def interval(f: Functional, sums: ScoreSums, level: float, method: str, bounds: Range | None) -> Interval:
    """A confidence interval by one of the methods."""
    if method == "auto":
        method = "student" if bounds is not None and _lacks_weight(sums, bounds) else best_method(bounds)
    if method == "normal":
        return normal_interval(f.value, std_error(f, sums), level)
    if method == "student":
        return _student(f, sums, level)
    if method == "bootstrap":
        return Interval(*_bootstrap(f, sums, level), level, method, f.value)
    if bounds is None:
        raise InputError(
            f"a {method} interval exists for the value of one policy by one estimator, not for a difference or a blend; use "
            "student or bootstrap."
        )
    if method == "bernstein":
        return Interval(*_bernstein(f, sums, level, bounds), level, method, f.value)
    if method == "smoothing":
        return Interval(*_smoothing(sums, level, bounds), level, method, f.value)
    return _cressie_read(f, sums, level, bounds)


def _lacks_weight(sums: ScoreSums, bounds: Range) -> bool:
    """Whether the mean weight is well known, and so far below 1 that the log must lack actions of the policy.

    In a log without the largest weights, the mean weight is low and its error seems small; Cressie–Read allows for that.
    """
    if not bounds.exact_weights or bounds.terms.weight is None:
        return False
    mean = mean_weight(bounds.terms.weight, sums)
    error = std_error(mean, sums)
    return bool(mean.value < 1 - LACKING * error and error < KNOWN * mean.value)


def _smoothing(sums: ScoreSums, level: float, bounds: Range) -> tuple[float, float]:
    """Logarithmic smoothing, two-sided: a bound on V from w·r, and one on 1 − V from w·(1 − r) (Sakhi et al. 2024).

    E[1 + λφ] = 1 + λV, so that by Markov's inequality, Π (1 + λφ)/(1 + λV) < 2/α with probability 1 − α/2.
    """
    amount, terms = bounds.smoothing, bounds.terms
    if amount is None or terms.misses is None or terms.correction is None:
        raise InputError(
            "a smoothing interval exists for op.LogSmoothing; use cressie-read for IPS and SNIPS, or student for others."
        )
    if not amount > 0:
        raise InputError("a smoothing interval needs shrinkage above 0, and this estimate has shrinkage=0.")
    if sums.clustered or sums.moments["m2"][0, 0] > 0:
        raise InputError(
            "a smoothing interval is for independent rounds: it supports neither clusters nor row weights; use student or "
            "bootstrap."
        )
    means, low, width = (
        sums.moments["mean"] / sums.moments["mean"][0],
        bounds.reward_low,
        bounds.reward_high - bounds.reward_low,
    )
    smoothed = (float(means[terms.correction] - low) / width, float(means[terms.misses]))
    log = np.log(2 / (1 - level)) / sums.n
    at_least, at_most = (float(np.expm1(amount * mean - log)) / amount for mean in smoothed)
    return low + width * max(at_least, 0.0), low + width * (1 - max(at_most, 0.0))


def _student(f: Functional, sums: ScoreSums, level: float) -> Interval:
    from scipy.special import stdtrit  # here, so that importing stays light

    error = std_error(f, sums)
    half = float(stdtrit(degrees_of_freedom(f, sums), 0.5 + level / 2)) * error if error > 0 else error
    return Interval(f.value - half, f.value + half, level, "student", f.value)


def degrees_of_freedom(f: Functional, sums: ScoreSums) -> float:
    """How well the variance of an estimate is known: of k normal influences, k − 1; of one that dominates all others, 2.

    The relative variance of a variance is proportional to κ − 1, where κ is the kurtosis of the influences, and that of a χ²
    to 1/ν: the degrees of freedom ν follow from those of a normal sample (Satterthwaite's rule). Its κ is 3(k − 1)/(k + 1).
    """
    influence = sums.filled @ f.gradient
    influence = influence - influence.mean() if len(influence) else influence
    second = float((influence**2).sum())
    if len(influence) < 2 or not second > 0:
        return 1.0
    k = len(influence)
    kurtosis, of_normal = k * float((influence**4).sum()) / second**2, 3 * (k - 1) / (k + 1)
    return (k - 1) * (of_normal - 1) / max(kurtosis - 1, of_normal - 1) if k > 2 else 1.0


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
    return Interval(*_percentiles(draws, level), level, REFITTED, f.value)


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


def _cressie_read(f: Functional, sums: ScoreSums, level: float, bounds: Range) -> Interval:
    """Empirical likelihood with the quadratic Cressie–Read divergence (after Karampatziakis et al. 2020).

    Among reweightings of the rows, and of one unseen row with the most extreme weight and reward, find the smallest and the
    largest value within the χ² radius whose mean weight is 1. Without the positivity constraint there is a closed form:
    regress the row's value y on its weight w, move w to its known mean, and go √(χ²/n) residual deviations each way. The
    variance of the rows is scaled to that of the estimate (clusters, fit), so that the interval includes the same errors.
    """
    if not np.isfinite(f.value):  # in a slice whose rows all have weight 0
        return Interval(np.nan, np.nan, level, "cressie-read", f.value)
    n, m2, g = sums.n, sums.moments["m2"], f.gradient
    by_rows = float(g @ m2 @ g) / (n * max(n - 1, 1))
    inflation = variance(f, sums) / by_rows if by_rows > 0 else 1.0
    radius = normal_quantile(0.5 + level / 2) ** 2 / (n + 1) * inflation  # χ² with one degree of freedom
    low, high = bounds.extremes()
    ball = _LikelihoodBall(f, sums, bounds, radius)
    return Interval(ball.end(-1, low), ball.end(1, high), level, "cressie-read", ball.value())


@dataclass(frozen=True)
class _LikelihoodBall:
    """The reweightings of the rows, and of one unseen row, within a χ² radius."""

    f: Functional
    sums: ScoreSums
    bounds: Range
    radius: float

    @cached_property
    def _mean_weight(self) -> float:
        k, means = self.bounds.terms.weight, self.sums.moments["mean"]
        return 1.0 if k is None else float(means[k] / means[0])

    @cached_property
    def _weight_gradient(self) -> FloatArray:
        """The gradient of the mean weight; 0 if its expectation is not known to be 1."""
        h: FloatArray = np.zeros_like(self.f.gradient)
        if self.bounds.exact_weights and self.bounds.terms.weight is not None:
            h[self.bounds.terms.weight], h[0] = 1.0, -self._mean_weight
            h /= self.sums.moments["mean"][0]
        return h

    def value(self) -> float:
        """The value of the rows alone once their mean weight is moved to 1."""
        g, h, m2 = self.f.gradient, self._weight_gradient, self.sums.moments["m2"]
        ww = float(h @ m2 @ h)
        return self.f.value + (float(g @ m2 @ h) / ww * (1 - self._mean_weight) if ww > 0 else 0.0)

    def end(self, sign: int, extreme: float) -> float:
        """One end of the interval; the unseen row may also have weight 0."""
        return sign * max(sign * self._end(w, y, sign) for w, y in ((0.0, 0.0), (self.bounds.largest_weight, extreme)))

    def _end(self, w: float, y: float, sign: int) -> float:
        """One end of the interval with an unseen row of weight w, correction y and the mean baseline."""
        f, terms, means = self.f, self.bounds.terms, self.sums.moments["mean"]
        n, m2, g, h = self.sums.n, self.sums.moments["m2"], f.gradient, self._weight_gradient
        baseline = 0.0 if terms.baseline is None else float(means[terms.baseline] / means[0])
        corrected = f.value - baseline - (f.origin if terms.shifted_baseline else 0.0)
        step = (y - w * corrected) / self._mean_weight if terms.normalised else y - corrected
        dw = w - self._mean_weight if h.any() else 0.0
        share = n / (n + 1)
        yy = (float(g @ m2 @ g) + share * step**2) / (n + 1)
        ww = (float(h @ m2 @ h) + share * dw**2) / (n + 1)
        yw = (float(g @ m2 @ h) + share * step * dw) / (n + 1)
        slope = yw / ww if ww > 0 else 0.0
        moved = f.value + step / (n + 1) + slope * (1 - (self._mean_weight + dw / (n + 1)))
        return moved + sign * float(np.sqrt(self.radius * max(yy - slope * yw, 0.0)))
