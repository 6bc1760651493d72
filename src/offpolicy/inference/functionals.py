"""From the sums of a scoring pass to values and standard errors, for every estimator.

An estimate is a smooth function V of the columns' means m that does not change if all means are scaled by one factor (every
mean is a ratio to the mean row weight). With g = ∇V(m), a row's influence is g·z, a bucket's is g·Σz, and g·m = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import BoolArray, FloatArray
from offpolicy.core.threads import one_blas_thread
from offpolicy.estimators.selection import standardised
from offpolicy.scoring.plan import Terms
from offpolicy.statistics.base import State

DRAWS, BLOCK = 2_000, 50  # of the bootstrap, and how many are made at a time
DOUBT = 0.5  # the share of the variance of a blend's distance that counts even if the distance is small by chance


@dataclass(frozen=True)
class ScoreSums:
    """What inference reads: the moments and bucket sums of all columns.

    `nonzero` is the number of rows whose reward is not 0, for each reward; `slice_` is the number of the slice, as text, or
    None for the whole log. With loggers, rows are centred within each of them; `squares` are the sums of squares around the
    mean of all rows, for effective sample sizes (None after loading).
    """

    moments: State
    buckets: FloatArray
    nonzero: FloatArray
    clustered: bool
    seed: int
    slice_: str | None = None
    squares: FloatArray | None = None

    @property
    def n(self) -> int:
        return int(self.moments["n"])

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: filled buckets only, and nothing that can be recomputed."""
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        occupied = self.occupied
        return {**state, "buckets": self.buckets[occupied], "occupied": np.packbits(occupied), "all": len(occupied)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        count = state.pop("all")
        buckets = np.zeros((count, state["buckets"].shape[1]))
        buckets[np.unpackbits(state.pop("occupied"), count=count).astype(bool)] = state["buckets"]
        self.__dict__.update(state, buckets=buckets)

    @property
    def occupied(self) -> BoolArray:
        """Whether each bucket holds anything but zeros."""
        held: BoolArray = (self.buckets != 0).any(axis=1)
        return held

    @cached_property
    def filled(self) -> FloatArray:
        """The buckets that contain any unit."""
        present = self.buckets[:, 0] > 0
        return self.buckets if present.all() else self.buckets[present]

    @cached_property
    def resampled(self) -> tuple[FloatArray, FloatArray]:
        """Draws × columns: sums over resampled buckets, and a normal number per draw; the same for every estimate."""
        rng = np.random.default_rng([self.seed % 2**64, 0xB007])
        filled = self.filled
        if not len(filled):  # a slice whose rows all have weight 0
            return np.full((DRAWS, self.buckets.shape[1]), np.nan), rng.standard_normal(DRAWS)
        k, drawn = len(filled), np.empty((DRAWS, self.buckets.shape[1]))
        with one_blas_thread():  # otherwise the last digits depend on the number of cores
            for start in range(0, DRAWS, BLOCK):  # a draw takes k buckets with replacement
                taken = rng.integers(k, size=(BLOCK, k), dtype=np.uint16) + np.arange(BLOCK)[:, None] * k
                counts = np.bincount(taken.ravel(), minlength=BLOCK * k).reshape(BLOCK, k)
                drawn[start : start + BLOCK] = counts.astype(np.float64) @ filled
        return drawn, rng.standard_normal(DRAWS)

    def by_group(self, groups: int) -> FloatArray:
        """The sums of each of `groups` runs of neighbouring buckets; computed once, as every estimate needs them."""
        if groups not in self._by_group:
            group = np.arange(len(self.buckets)) * groups // len(self.buckets)
            self._by_group[groups] = np.add.reduceat(self.buckets, np.searchsorted(group, np.arange(groups)), axis=0)
        return self._by_group[groups]

    @cached_property
    def _by_group(self) -> dict[int, FloatArray]:
        return {}


class Expression(ABC):
    """A value as a function of the columns' means, or of their sums, in the last axis of an array."""

    @abstractmethod
    def __call__(self, m: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class Formula(Expression):
    """The one formula: mean[baseline] + mean[correction] / (mean[weight] or 1)."""

    terms: Terms
    origin: float

    @property
    def _origins(self) -> tuple[float, float]:
        """The origins subtracted from the baseline and from the correction."""
        return self.terms.origins(self.origin)

    def __call__(self, m: FloatArray) -> FloatArray:
        terms, (base_origin, correction_origin) = self.terms, self._origins
        b, u, w = terms.baseline, terms.correction, terms.weight
        unit = m[..., 0]
        value = np.full(unit.shape, base_origin)
        with np.errstate(divide="ignore", invalid="ignore"):
            if b is not None:
                value = value + m[..., b] / unit
            if u is not None and w is not None:
                if terms.scaling is not None:
                    value = value + m[..., u] / unit * terms.scaling.factor(m)
                elif terms.normalised:
                    value = value + m[..., u] / m[..., w] + correction_origin
                else:
                    value = value + (m[..., u] + correction_origin * m[..., w]) / unit
            for column, beta in terms.variates:
                value = value - beta * (m[..., column] / unit - 1)
        return value

    def gradient(self, means: FloatArray) -> FloatArray:
        """At the given means."""
        terms, (_, correction_origin) = self.terms, self._origins
        b, u, w = terms.baseline, terms.correction, terms.weight
        g = np.zeros_like(means)
        unit = means[0] or np.nan  # in a slice whose rows all have weight 0, nothing is defined
        with np.errstate(divide="ignore", invalid="ignore"):
            if b is not None:
                g[b] += 1 / unit
                g[0] -= means[b] / unit**2
            if u is not None and w is not None:
                if terms.scaling is not None:
                    columns, factor = terms.scaling, terms.scaling.factor(means) / unit
                    g[u] += factor
                    below = 0 if columns.weight is None else columns.weight
                    for column, sign in ((columns.product, 1), (columns.square, -1), (below, -1)):
                        g[column] += sign * means[u] * factor / means[column]
                elif terms.normalised:
                    g[u] += 1 / means[w]
                    g[w] -= means[u] / means[w] ** 2
                else:
                    g[u] += 1 / unit
                    g[w] += correction_origin / unit
                    g[0] -= (means[u] + correction_origin * means[w]) / unit**2
            for column, beta in terms.variates:
                g[column] -= beta / unit
                g[0] += beta * means[column] / unit**2
        return g


@dataclass(frozen=True)
class Minus(Expression):
    """a − b."""

    a: Expression
    b: Expression

    @np.errstate(invalid="ignore")
    def __call__(self, m: FloatArray) -> FloatArray:
        return self.a(m) - self.b(m)


@dataclass(frozen=True)
class Relative(Expression):
    """(a − b) / |b|, with the sign of the estimated b."""

    a: Expression
    b: Expression
    sign: float

    def __call__(self, m: FloatArray) -> FloatArray:
        return self.sign * (quotient(self.a(m), self.b(m)) - 1)


@dataclass(frozen=True)
class Divided(Expression):
    """a / number."""

    a: Expression
    number: float

    def __call__(self, m: FloatArray) -> FloatArray:
        return self.a(m) / self.number


@dataclass(frozen=True)
class Blended(Expression):
    """Σ weight·part."""

    parts: tuple[Expression, ...]
    weights: tuple[float, ...]

    def __call__(self, m: FloatArray) -> FloatArray:
        return np.asarray(sum(w * part(m) for part, w in zip(self.parts, self.weights, strict=True)))


@dataclass(frozen=True)
class ColumnMean(Expression):
    """The mean of one column, as a ratio to the mean row weight."""

    column: int

    def __call__(self, m: FloatArray) -> FloatArray:
        return np.asarray(m[..., self.column] / m[..., 0])


@dataclass(frozen=True)
class Undefined(Expression):
    """No value, whatever the means."""

    def __call__(self, m: FloatArray) -> FloatArray:
        return np.full(m.shape[:-1], np.nan)


@dataclass(frozen=True)
class Unresampled(Expression):
    """A value that is known for the log itself, but not for resamples of it."""

    value: float

    def __call__(self, m: FloatArray) -> FloatArray:
        return np.asarray(self.value) if m.ndim == 1 else np.full(m.shape[:-1], np.nan)


@dataclass(frozen=True)
class Functional:
    """A value with its gradient in the columns' means. Differences of functionals are functionals: paired by design.

    `fit` and `sampling` are, for each group of the jackknife, the change of the value if that group is left out of the fit,
    and of the scoring; `fit` is None if there is no error of a fit to include. `extra` is variance that the delta method
    misses. `way` is the distance of a blend from a nearly unbiased estimate; it could all be bias, and counts as error.
    `hedge` is an estimate whose variance is added, for biases too small for any difference to show.
    """

    value: float
    gradient: FloatArray
    evaluate: Expression
    origin: float = 0.0
    fit: FloatArray | None = None
    sampling: FloatArray | None = None
    extra: float = 0.0
    way: Functional | None = None
    hedge: Functional | None = None

    @np.errstate(invalid="ignore")  # if nothing is left without a group, there is no difference
    def minus(self, other: Functional) -> Functional:
        def both(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
            if a is None:
                return None if b is None else -b
            return a if b is None else a - b

        return Functional(
            self.value - other.value,
            self.gradient - other.gradient,
            Minus(self.evaluate, other.evaluate),
            fit=both(self.fit, other.fit),
            sampling=both(self.sampling, other.sampling),
            extra=abs(self.extra - other.extra),  # mostly from the same rows, so that adding them would be wrong
            way=_less(self.way, other.way),
            hedge=_less(self.hedge, other.hedge),
        )

    @np.errstate(invalid="ignore")
    def relative_to(self, other: Functional) -> Functional:
        """(this − other) / |other|, including the error of the other."""
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
            Relative(self.evaluate, other.evaluate, float(sign)),
            fit=both(self.fit, other.fit),
            sampling=both(self.sampling, other.sampling),
            extra=(self.extra + ratio**2 * other.extra) / size**2,
            way=None if self.way is None else self.way.divided_by(size),
            hedge=None if self.hedge is None else self.hedge.divided_by(size),
        )

    def divided_by(self, number: float) -> Functional:
        return replace(
            self,
            value=self.value / number,
            gradient=self.gradient / number,
            evaluate=Divided(self.evaluate, number),
            fit=None if self.fit is None else self.fit / number,
            sampling=None if self.sampling is None else self.sampling / number,
            extra=self.extra / number**2,
            way=None if self.way is None else self.way.divided_by(number),
            hedge=None if self.hedge is None else self.hedge.divided_by(number),
        )

    @property
    def error_covers(self) -> str:
        return "sampling" if self.fit is None else "sampling+fit"


def quotient(a: FloatArray, b: FloatArray) -> FloatArray:
    """a / b; not finite if a draw has nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def _less(a: Functional | None, b: Functional | None) -> Functional | None:
    """The distance of a difference: blends at the same distance do not differ by it."""
    if a is None:
        return b
    return a if b is None else a.minus(b)


def functional(terms: Terms, means: FloatArray, origin: float) -> Functional:
    """The one formula and its gradient at the given means."""
    formula = Formula(replace(terms, tables=(None, None)), origin)
    return Functional(float(formula(means)), formula.gradient(means), formula, origin)


def controlled(terms: Terms, moments: State, origin: float) -> Terms:
    """The terms with the coefficients of their control variates that leave the least variance.

    They are those of a regression of the estimate's influence on the variates. Their own error does not count to first
    order, since the variates are 0 on average.
    """
    if not terms.variates:
        return terms
    means, m2 = moments["mean"], moments["m2"]
    gradients = np.array([_of_mean(column, means) for column, _ in terms.variates])
    plain = Formula(replace(terms, tables=(None, None), variates=()), origin).gradient(means)
    if not np.isfinite(plain).all() or not np.isfinite(gradients).all():
        return replace(terms, variates=())
    betas = np.linalg.lstsq(gradients @ m2 @ gradients.T, gradients @ m2 @ plain, rcond=1e-10)[0]
    return replace(terms, variates=tuple((c, float(b)) for (c, _), b in zip(terms.variates, betas, strict=True)))


def _of_mean(column: int, means: FloatArray) -> FloatArray:
    """The gradient of the mean of a column, as a ratio to the mean row weight."""
    unit, g = means[0] or np.nan, np.zeros_like(means)
    g[column], g[0] = 1 / unit, -means[column] / unit**2
    return g


def added(parts: Sequence[tuple[float, Functional]]) -> Functional:
    """Σ weight·part: the value of a list from those of its slots."""
    weights, functionals = zip(*parts, strict=True)
    if weights == (1.0,):
        alone: Functional = functionals[0]
        return alone
    value = sum(weight * f.value for weight, f in parts)
    gradient = np.sum([weight * f.gradient for weight, f in parts], axis=0)
    return Functional(float(value), gradient, Blended(tuple(f.evaluate for f in functionals), weights))


def sampling_variance(f: Functional, sums: ScoreSums) -> float:
    """The delta method on rows; on buckets where units are clusters of rows."""
    n = sums.n
    if n < 2 or not np.isfinite(f.gradient).all():
        return float("nan")
    if not sums.clustered:
        return max(float(f.gradient @ sums.moments["m2"] @ f.gradient), 0.0) / (n * max(n - 1, 1))
    influence = sums.buckets @ f.gradient / n
    filled = int((sums.buckets[:, 0] > 0).sum())
    return float(influence @ influence) * filled / max(filled - 1, 1)


def unresampled_variance(f: Functional, sums: ScoreSums) -> float:
    """Variance, or squared bias, that resampling does not reveal."""
    hedge = 0.0 if f.hedge is None else variance(f.hedge, sums)
    return f.extra + hedge + (0.0 if f.way is None else distance_variance(f.way, sums))


def distance_variance(way: Functional, sums: ScoreSums) -> float:
    """What the distance of a blend from a nearly unbiased estimate adds to its variance."""
    return max(way.value**2, DOUBT * variance(way, sums))


def variance(f: Functional, sums: ScoreSums) -> float:
    """Sampling variance and, if a fit is included, its variance and its covariance with sampling, by the jackknife."""
    sampled = sampling_variance(f, sums)
    unresampled = unresampled_variance(f, sums)
    if f.fit is None or f.sampling is None:
        return sampled + unresampled
    fit, sampling = f.fit - f.fit.mean(), f.sampling - f.sampling.mean()
    scale = (len(fit) - 1) / len(fit)
    both, alone = scale * float((fit + sampling) @ (fit + sampling)), scale * float(sampling @ sampling)
    return float(joined(*(np.asarray(part) for part in (sampled, alone, both)))) + unresampled


def joined(sampled: FloatArray, alone: FloatArray, both: FloatArray) -> FloatArray:
    """The variance of sampling and fit, from three: of sampling by rows, of sampling by groups, of both by groups.

    A few groups estimate the sampling variance poorly, and the rows estimate it well: replace the one by the other, but by
    no more than the share of it that remains if fit and sampling cancel, as in the difference of DM and DR.
    """
    share = np.where(alone > 0, np.minimum(1.0, both / np.where(alone > 0, alone, 1.0)), 1.0)
    variances: FloatArray = both + (sampled - alone) * share
    return variances


def std_error(f: Functional, sums: ScoreSums) -> float:
    return float(np.sqrt(variance(f, sums)))


def std_error_from_whole(part: Functional, part_sums: ScoreSums, whole: Functional, whole_sums: ScoreSums) -> float:
    """The standard error of the value of a slice minus that of the whole log, paired by buckets of units.

    The slice is a part of the log, so that the two share rounds. Errors other than sampling are added as if independent.
    """
    values = (part.value, whole.value)
    if whole_sums.n < 2 or not np.isfinite([*values, *part.gradient, *whole.gradient]).all():
        return float("nan")
    buckets = whole_sums.by_group(len(part_sums.buckets))  # slices have fewer
    influence = part_sums.buckets @ part.gradient / part_sums.n - buckets @ whole.gradient / whole_sums.n
    filled = int((buckets[:, 0] > 0).sum())
    sampled = float(influence @ influence) * filled / max(filled - 1, 1)
    others = sum(
        max(variance(f, sums) - sampling_variance(f, sums), 0.0) for f, sums in ((part, part_sums), (whole, whole_sums))
    )
    return float(np.sqrt(sampled + others))


def mean_weight(column: int, sums: ScoreSums) -> Functional:
    """The mean of a column of weights, as a ratio to the mean row weight."""
    means = sums.moments["mean"]
    unit = means[0] or np.nan  # in a slice whose rows all have weight 0, nothing is defined
    return Functional(float(means[column] / unit), _of_mean(column, means), ColumnMean(column))


def in_errors(f: Functional, sums: ScoreSums) -> float:
    """The value divided by its standard error."""
    return standardised(f.value, std_error(f, sums))
