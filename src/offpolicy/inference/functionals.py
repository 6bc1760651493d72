"""From the sums of a scoring pass to values, standard errors and intervals. Written once for every estimator.

An estimate is a smooth function V of the columns' means m that does not change when all means are scaled alike (every mean
is a ratio to the mean row weight). With g = ∇V(m), a row's influence is g·z, a bucket's is g·Σz, and g·m = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.batch import FloatArray
from offpolicy.data.checks import is_number
from offpolicy.estimators.slope import standardised
from offpolicy.scoring.plan import Terms
from offpolicy.statistics import State

Method = Literal["normal", "bootstrap", "bernstein", "cressie-read"]
REFITTED = "bootstrap, refitted"
"""The method of an interval for which everything was fitted anew in each draw."""
DRAWS, BLOCK = 2_000, 50
"""Of the bootstrap, and how many of them are made at a time."""
DOUBT = 0.5
"""The part of the variance of a way that counts even where chance made the way short."""
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
class Sums:
    """What inference reads: the moments and bucket sums of all columns."""

    moments: State
    buckets: FloatArray
    nonzero: FloatArray
    """Rows whose reward is not 0, for each reward."""
    clustered: bool
    seed: int

    @property
    def n(self) -> int:
        return int(self.moments["n"])

    @cached_property
    def resampled(self) -> tuple[FloatArray, FloatArray]:
        """Draws × columns: the sums over buckets drawn anew, and a normal number a draw; the same for every estimate."""
        rng = np.random.default_rng([self.seed % 2**64, 0xB007])
        filled = self.buckets[self.buckets[:, 0] > 0]
        if not len(filled):  # a slice whose rows all weigh 0
            return np.full((DRAWS, self.buckets.shape[1]), np.nan), rng.standard_normal(DRAWS)
        k, drawn = len(filled), np.empty((DRAWS, self.buckets.shape[1]))
        for start in range(0, DRAWS, BLOCK):  # a draw takes k buckets with replacement
            taken = rng.integers(k, size=(BLOCK, k), dtype=np.uint16) + np.arange(BLOCK)[:, None] * k
            counts = np.bincount(taken.ravel(), minlength=BLOCK * k).reshape(BLOCK, k)
            drawn[start : start + BLOCK] = counts.astype(np.float64) @ filled
        return drawn, rng.standard_normal(DRAWS)

    def by_group(self, groups: int) -> FloatArray:
        """The sums of each of `groups` runs of neighbouring buckets; worked out once, for every estimate asks for them."""
        if groups not in self._by_group:
            group = np.arange(len(self.buckets)) * groups // len(self.buckets)
            self._by_group[groups] = np.add.reduceat(self.buckets, np.searchsorted(group, np.arange(groups)), axis=0)
        return self._by_group[groups]

    @cached_property
    def _by_group(self) -> dict[int, FloatArray]:
        return {}


@dataclass(frozen=True)
class Functional:
    """A value with its gradient in the columns' means. Differences of functionals are functionals: paired by design.

    `fit` and `sampling` hold, for each group of the jackknife, how the value moves when that group is left out of the fit,
    and of the scoring; `fit` is None where no fit's error is to be counted.
    """

    value: float
    gradient: FloatArray
    evaluate: Callable[[FloatArray], FloatArray]
    anchor: float = 0.0
    fit: FloatArray | None = None
    sampling: FloatArray | None = None
    extra: float = 0.0
    """Variance besides, that the delta method does not see."""
    way: Functional | None = None
    """From a nearly unbiased estimate to a blend. It might all be bias, and counts as error."""

    def minus(self, other: Functional) -> Functional:
        def both(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
            if a is None:
                return None if b is None else -b
            with np.errstate(invalid="ignore"):  # where nothing is left without a group, there is no difference
                return a if b is None else a - b

        return Functional(
            self.value - other.value,
            self.gradient - other.gradient,
            lambda sums: self.evaluate(sums) - other.evaluate(sums),
            fit=both(self.fit, other.fit),
            sampling=both(self.sampling, other.sampling),
            extra=abs(self.extra - other.extra),  # of much the same rows: it would be wrong to add them up
            way=_less(self.way, other.way),
        )

    def relative_to(self, other: Functional) -> Functional:
        """(this − other) / |other|, which knows that the other is an estimate, too."""
        sign, size = np.sign(other.value), abs(other.value)
        ratio = self.value / other.value

        def both(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
            if a is None and b is None:
                return None
            moved: FloatArray = ((0.0 if a is None else a) - ratio * (0.0 if b is None else b)) / size  # type: ignore[assignment]
            return moved

        gradient = both(self.gradient, other.gradient)
        assert gradient is not None
        return Functional(
            float(sign * (ratio - 1)),
            gradient,
            lambda sums: sign * (quotient(self.evaluate(sums), other.evaluate(sums)) - 1),
            fit=both(self.fit, other.fit),
            sampling=both(self.sampling, other.sampling),
            extra=(self.extra + ratio**2 * other.extra) / size**2,
            way=None if self.way is None else self.way.divided_by(size),
        )

    def divided_by(self, number: float) -> Functional:
        return replace(
            self,
            value=self.value / number,
            gradient=self.gradient / number,
            evaluate=lambda sums: self.evaluate(sums) / number,
            fit=None if self.fit is None else self.fit / number,
            sampling=None if self.sampling is None else self.sampling / number,
            extra=self.extra / number**2,
            way=None if self.way is None else self.way.divided_by(number),
        )

    @property
    def error_covers(self) -> str:
        return "sampling" if self.fit is None else "sampling+fit"


def quotient(a: FloatArray, b: FloatArray) -> FloatArray:
    """Not finite where a draw has nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def _less(a: Functional | None, b: Functional | None) -> Functional | None:
    """The way of a difference: blends that went the same way do not differ by it."""
    if a is None:
        return b
    return a if b is None else a.minus(b)


def functional(terms: Terms, means: FloatArray, anchor: float) -> Functional:
    """The one formula and its gradient at the given means."""
    b, u, w = terms.baseline, terms.correction, terms.weight
    base_anchor = anchor if terms.anchored_baseline else 0.0
    correction_anchor = 0.0 if terms.anchored_baseline else anchor

    def evaluate(m: FloatArray) -> FloatArray:
        """V of means, or of sums, in the last axis."""
        unit = m[..., 0]
        value = np.full(unit.shape, base_anchor)
        with np.errstate(divide="ignore", invalid="ignore"):
            if b is not None:
                value = value + m[..., b] / unit
            if u is not None and w is not None:
                if terms.scaling is not None:
                    product, square = terms.scaling
                    value = value + m[..., u] / m[..., square] * m[..., product] / unit
                elif terms.normalised:
                    value = value + m[..., u] / m[..., w] + correction_anchor
                else:
                    value = value + (m[..., u] + correction_anchor * m[..., w]) / unit
        return value

    g = np.zeros_like(means)
    unit = means[0] or np.nan  # of a slice whose rows all weigh 0, there is nothing to say
    with np.errstate(divide="ignore", invalid="ignore"):
        if b is not None:
            g[b] += 1 / unit
            g[0] -= means[b] / unit**2
        if u is not None and w is not None:
            if terms.scaling is not None:
                product, square = terms.scaling
                factor = means[product] / (means[square] * unit)
                g[u] += factor
                g[product] += means[u] / (means[square] * unit)
                g[square] -= means[u] * factor / means[square]
                g[0] -= means[u] * factor / unit
            elif terms.normalised:
                g[u] += 1 / means[w]
                g[w] -= means[u] / means[w] ** 2
            else:
                g[u] += 1 / unit
                g[w] += correction_anchor / unit
                g[0] -= (means[u] + correction_anchor * means[w]) / unit**2
    return Functional(float(evaluate(means)), g, evaluate, anchor)


def sampling_variance(f: Functional, sums: Sums) -> float:
    """The delta method on rows; on buckets where units are clusters of rows."""
    n = sums.n
    if n < 2 or not np.isfinite(f.gradient).all():
        return float("nan")
    if not sums.clustered:
        return max(float(f.gradient @ sums.moments["m2"] @ f.gradient), 0.0) / (n * max(n - 1, 1))
    influence = sums.buckets @ f.gradient / n
    filled = int((sums.buckets[:, 0] > 0).sum())
    return float(influence @ influence) * filled / max(filled - 1, 1)


def _besides(f: Functional, sums: Sums) -> float:
    """Variance, or squared bias, that resampling does not show."""
    return f.extra + (0.0 if f.way is None else max(f.way.value**2, DOUBT * variance(f.way, sums)))


def variance(f: Functional, sums: Sums) -> float:
    """Sampling variance and, where a fit counts, its own variance and its covariance with the sampling, by the jackknife."""
    sampled = sampling_variance(f, sums)
    besides = _besides(f, sums)
    if f.fit is None or f.sampling is None:
        return sampled + besides
    fit, sampling = f.fit - f.fit.mean(), f.sampling - f.sampling.mean()
    scale = (len(fit) - 1) / len(fit)
    both, alone = scale * float((fit + sampling) @ (fit + sampling)), scale * float(sampling @ sampling)
    return float(joined(*(np.asarray(part) for part in (sampled, alone, both)))) + besides


def joined(sampled: FloatArray, alone: FloatArray, both: FloatArray) -> FloatArray:
    """Variances of sampling and fit: by rows of the sampling, by groups of it and of the two together.

    A few groups know the sampling variance badly and the rows know it well: replace the one by the other, but never by more
    than the share of it that is left when fit and sampling cancel, as in the difference of DM and DR.
    """
    share = np.where(alone > 0, np.minimum(1.0, both / np.where(alone > 0, alone, 1.0)), 1.0)
    variances: FloatArray = both + (sampled - alone) * share
    return variances


def std_error(f: Functional, sums: Sums) -> float:
    return float(np.sqrt(variance(f, sums)))


def mean_weight(column: int, sums: Sums) -> Functional:
    """The mean of a column of weights, as a ratio to the mean row weight."""
    means = sums.moments["mean"]
    unit = means[0] or np.nan  # of a slice whose rows all weigh 0, there is nothing to say
    g = np.zeros_like(means)
    g[column], g[0] = 1 / unit, -means[column] / unit**2
    return Functional(float(means[column] / unit), g, lambda m: m[..., column] / m[..., 0])


def concentration(f: Functional, sums: Sums) -> float:
    """The part of the sampling variance that one bucket of units carries; 0 where there are few of them."""
    if not np.isfinite(f.gradient).all():
        return 0.0
    influence = sums.buckets @ f.gradient
    total = float(influence @ influence)
    if (sums.buckets[:, 0] > 0).sum() < 100 or not np.isfinite(total) or total <= 0:
        return 0.0
    return float((influence**2).max()) / total


def in_errors(f: Functional, sums: Sums) -> float:
    """The value in standard errors."""
    return standardised(f.value, std_error(f, sums))


@dataclass(frozen=True)
class Range:
    """What the finite-sample intervals need to know: the reach of one row."""

    reward_low: float
    reward_high: float
    largest_weight: float
    exact_weights: bool
    """Whether the weights have mean 1 under the logging policy."""
    terms: Terms

    def reach(self) -> tuple[float, float]:
        """The least and the most that one row's correction can be."""
        low, high = self.reward_low, self.reward_high
        if self.terms.anchored_baseline:  # r − q(x, a), with q in the same range
            low, high = low - high, high - low
        return min(0.0, self.largest_weight * low), max(0.0, self.largest_weight * high)


def checked_level(level: Any) -> float:
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, not {level!r}.")
    return float(level)


def interval(f: Functional, sums: Sums, level: float, method: str, bounds: Range | None) -> Interval:
    """A confidence interval by one of the four methods."""
    level = checked_level(level)
    if method not in get_args(Method):
        raise unknown_name("interval method", str(method), get_args(Method))
    if method == "bootstrap":
        low, high = _bootstrap(f, sums, level)
    elif method == "normal":
        half = normal_quantile(0.5 + level / 2) * std_error(f, sums)
        low, high = f.value - half, f.value + half
    else:
        if bounds is None:
            raise InputError(
                f"a {method} interval is for the value of one policy by one estimator, not for a difference or a blend; use "
                "normal or bootstrap."
            )
        low, high = (_bernstein if method == "bernstein" else _cressie_read)(f, sums, level, bounds)
    return Interval(low, high, level, method)


def _bootstrap(f: Functional, sums: Sums, level: float) -> tuple[float, float]:
    """Percentiles over resampled buckets; the fit's share of the error is added as a normal draw of its variance."""
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


def refitted_interval(f: Functional, sums: Sums, level: float, draws: FloatArray) -> Interval:
    """Percentiles of the values on logs drawn anew, all that was fitted with them; what no draw shows (the bias that a
    blend may have) is added as a normal draw of its size."""
    level, spread = checked_level(level), np.sqrt(_besides(f, sums))
    if spread > 0:
        further = np.random.default_rng([sums.seed % 2**64, 0xB007, 1]).standard_normal(max(0, len(draws) - DRAWS))
        draws = draws + spread * np.concatenate([sums.resampled[1], further])[: len(draws)]
    low, high = _percentiles(draws, level)
    return Interval(low, high, level, REFITTED)


def _bernstein(f: Functional, sums: Sums, level: float, bounds: Range) -> tuple[float, float]:
    """Empirical Bernstein (Maurer & Pontil 2009), two-sided, with the reach of one unit as the range.

    Where units are clusters, a unit is a bucket of them, and its reach is that of its rows together.
    """
    if sums.moments["m2"][0, 0] > 0:
        raise InputError("a bernstein interval knows no row weights; use normal, bootstrap or cressie-read.")
    low, high = bounds.reach()
    log = float(np.log(4 / (1 - level)))
    units, rows_of_largest = float(sums.n), 1.0
    if sums.clustered:
        rows = sums.buckets[:, 0] / float(sums.moments["mean"][0])
        units = float((rows > 0).sum())
        rows_of_largest = float(rows.max()) * units / sums.n  # against the mean unit
    half = np.sqrt(2 * log * variance(f, sums)) + 7 * (high - low) * rows_of_largest * log / (3 * max(units - 1, 1))
    return float(f.value - half), float(f.value + half)


def _cressie_read(f: Functional, sums: Sums, level: float, bounds: Range) -> tuple[float, float]:
    """Empirical likelihood with the quadratic Cressie–Read divergence (after Karampatziakis et al. 2020).

    Among reweightings of the rows, and of one row nobody has seen with the most extreme weight and reward, find the least
    and the most value within the χ² radius whose mean weight is 1. Without the positivity constraint this is closed:
    regress the row's value y on its weight w, move w to its known mean, and go √(χ²/n) residual deviations each way. The
    rows' own variance is scaled to the estimate's (clusters, fit), so that the interval covers what the error covers.
    """
    n, m2, g = sums.n, sums.moments["m2"], f.gradient
    by_rows = float(g @ m2 @ g) / (n * max(n - 1, 1))
    inflation = variance(f, sums) / by_rows if by_rows > 0 else 1.0
    radius = normal_quantile(0.5 + level / 2) ** 2 / (n + 1) * inflation  # χ² with one degree of freedom
    low, high = bounds.reach()

    def end(sign: int, reach: float) -> float:
        unseen = ((0.0, 0.0), (bounds.largest_weight, reach))
        return sign * max(sign * _end(f, sums, bounds, w, y, radius, sign) for w, y in unseen)

    return end(-1, low), end(1, high)


def _end(f: Functional, sums: Sums, bounds: Range, w: float, y: float, radius: float, sign: int) -> float:
    """One end of the interval with an unseen row of weight w whose correction is y, and whose baseline is the mean one."""
    n, m2, g = sums.n, sums.moments["m2"], f.gradient
    terms, means = bounds.terms, sums.moments["mean"]
    unit = float(means[0])
    baseline = 0.0 if terms.baseline is None else float(means[terms.baseline]) / unit
    corrected = f.value - baseline - (f.anchor if terms.anchored_baseline else 0.0)
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
