"""The values of an experiment's runs, and their mean squared error, bias², variance and medians."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray
from offpolicy.experiments.experiment import Experiment

MEASURES = ("mse", "bias2", "variance")
DRAWS = 2_000


@dataclass(frozen=True)
class Results:
    """Values as estimators × points × worlds × logs, NaN if missing; true values and their errors as points × worlds."""

    experiment: Experiment
    values: FloatArray
    truth: FloatArray
    truth_error: FloatArray
    failures: dict[str, Counter[str]]
    covered: FloatArray = field(default_factory=lambda: np.empty(0))
    """1 if the interval of a run contains the true value, 0 if not, NaN if none was stored; shaped as `values`."""
    widths: FloatArray = field(default_factory=lambda: np.empty(0))
    ok: FloatArray = field(default_factory=lambda: np.empty(0))
    """1 if the verdict of a run is OK, 0 if not, NaN if none was stored; shaped as `values`."""

    @classmethod
    def of(cls, experiment: Experiment, table: pa.Table) -> Results:
        """From the rows of runs, in any order."""
        shape = len(experiment.points), experiment.worlds, experiment.logs
        values = np.full((len(experiment.entries), *shape), np.nan)
        truth, truth_error = np.full(shape[:2], np.nan), np.full(shape[:2], np.nan)
        failures: dict[str, Counter[str]] = {}
        columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
        inside = columns["world"] < experiment.worlds
        point, world, log = (columns[name][inside] for name in ("point", "world", "log"))
        label, order = columns["estimator"][inside], {label: k for k, label in enumerate(experiment.labels)}
        at = [order[name] for name in label], point, world, log
        covered, widths, ok = (np.full(values.shape, np.nan) for _ in range(3))
        value, low, high, true = (columns[name][inside].astype(np.float64) for name in ("value", "low", "high", "truth"))
        values[at] = value
        covered[at] = np.where(np.isfinite(low), (low <= true) & (true <= high), np.nan)
        widths[at] = high - low
        ok[at] = columns["ok"][inside].astype(np.float64)  # None becomes NaN
        truth[point, world], truth_error[point, world] = columns["truth"][inside], columns["truth_error"][inside]
        for name, why in zip(label, columns["failure"][inside], strict=True):
            if why is not None:
                failures.setdefault(name, Counter())[why] += 1
        return cls(experiment, values, truth, truth_error, failures, covered, widths, ok)

    @cached_property
    def errors(self) -> FloatArray:
        """Values less the true values; as a share of these if the experiment asks for it."""
        truth = self.truth[None, :, :, None]
        return (self.values - truth) / (truth if self.experiment.normalised else 1.0)

    @property
    def labels(self) -> list[str]:
        return self.experiment.labels

    @property
    def places(self) -> list[str | int | float]:
        """The label of each point."""
        return [point.label for point in self.experiment.points]

    def at(self, place: int) -> str:
        """A point in words, if there are several."""
        points = self.experiment.points
        return f"{self.experiment.axis} {points[place].name}: " if len(points) > 1 else ""

    @property
    def runs(self) -> int:
        return self.experiment.worlds * self.experiment.logs

    def units(self, measure: str) -> FloatArray:
        """Estimators × points × units whose mean is the measure. Units are worlds, or the logs of a single world."""
        e = self.errors
        rounds = np.array([point.rounds for point in self.experiment.points])[None, :, None]
        if measure.startswith("median"):
            squared = e[..., : int(measure[6:])] ** 2
            missing = np.asarray(np.isnan(squared).all(axis=3))
            medians: FloatArray = np.nanmedian(np.where(missing[..., None], 0.0, squared), axis=3)
            return rounds * np.where(missing, np.nan, medians)
        if measure.startswith("scaled "):
            return rounds * self.units(measure.removeprefix("scaled "))
        one_world = e.shape[2] == 1
        if measure == "mse":
            return e[:, :, 0] ** 2 if one_world else finite_mean(e**2)
        spreads = np.array([[_spread(cell, one_world) for cell in row] for row in e])
        return spreads[..., 0, :] if measure == "bias2" else spreads[..., 1, :]

    def summary(self, measure: str) -> tuple[FloatArray, FloatArray]:
        """The mean over units and its standard error: estimators × points each."""
        if measure == "ratio":
            return self._relative()
        units = self.units(measure)
        count = np.isfinite(units).sum(axis=2)
        mean = finite_mean(units)
        centred = np.where(np.isfinite(units), units - mean[..., None], 0.0)
        error = np.sqrt((centred**2).sum(axis=2) / np.maximum(count - 1, 1) / np.maximum(count, 1))
        if len(self.truth[0]) == 1 and measure in ("mse", "bias2"):
            error = np.hypot(error, self._truth_share())
        return mean, np.where(count > 1, error, np.nan)

    def _relative(self) -> tuple[FloatArray, FloatArray]:
        """Mean squared errors divided by that of the reference, and standard errors of these ratios from paired units."""
        units = self.units("mse")
        of_reference = units[self.labels.index(self.experiment.reference)]
        ratios = finite_mean(units) / finite_mean(of_reference)
        residuals = units - ratios[..., None] * of_reference
        count = np.isfinite(residuals).sum(axis=2)
        error = np.sqrt(finite_mean(residuals**2) / np.maximum(count - 1, 1)) / finite_mean(of_reference)
        return ratios, np.where(count > 1, error, np.nan)

    def _truth_share(self) -> FloatArray:
        """What an uncertain true value adds to the error of a squared distance to it, if all runs share that value.

        (e + δ)² with δ ~ N(0, τ²) has the variance 4e²τ² + 2τ⁴.
        """
        unit = np.abs(self.truth[:, 0]) if self.experiment.normalised else 1.0
        tau, bias = self.truth_error[:, 0] / unit, finite_mean(self.errors.reshape(*self.errors.shape[:2], -1))
        share: FloatArray = np.sqrt(4 * bias**2 * tau**2 + 2 * tau**4)
        return share

    def shares(self, label: str, other: str) -> tuple[float, float, float, int]:
        """How often `label` is nearer to the true value than `other`, its 95% interval, and the number of runs.

        With several worlds, worlds are resampled. With one world, its logs are samples of one data set at each point, so
        the data set is perturbed as well, by as much as a sample deviates from it; and so is the true value, by its error.
        """
        a, b = (self.values[self.experiment.labels.index(name)] for name in (label, other))
        known = np.isfinite(a) & np.isfinite(b)
        if not known.any():
            return np.nan, np.nan, np.nan, 0
        nearer = np.where(known, _nearer(a - self.truth[..., None], b - self.truth[..., None]), np.nan)
        rng = np.random.default_rng(0)
        if a.shape[1] > 1:
            drawn = rng.integers(a.shape[1], size=(DRAWS, a.shape[1]))
            each = finite_mean(finite_mean(nearer.transpose(1, 0, 2).reshape(a.shape[1], -1))[drawn])
        else:
            there = [p for p in range(len(a)) if known[p].any()]
            shares = [self._perturbed(p, a[p][known[p]], b[p][known[p]], rng) for p in there]
            each = np.average(shares, axis=0, weights=[known[p].sum() for p in there])
        low, high = np.quantile(each, [0.025, 0.975])
        return float(np.nanmean(nearer)), float(low), float(high), int(known.sum())

    def _perturbed(self, point: int, a: FloatArray, b: FloatArray, rng: np.random.Generator) -> FloatArray:
        """How often the first is nearer in each perturbation of the data and of the true value of a point."""
        drawn, z = rng.integers(len(a), size=DRAWS), rng.normal(size=DRAWS) * float(self.truth_error[point].max())
        off = [x + (x[drawn] - x.mean())[:, None] - self.truth[point, 0] - z[:, None] for x in (a, b)]
        shares: FloatArray = _nearer(*off).mean(axis=1)
        return shares


def _nearer(a: FloatArray, b: FloatArray) -> FloatArray:
    """1 where a is nearer to 0 than b, 0 where it is farther, 0.5 where the two are equal up to rounding."""
    one, two = np.abs(a), np.abs(b)
    nearer: FloatArray = np.where(np.isclose(one, two, rtol=1e-9, atol=0), 0.5, (one < two).astype(np.float64))
    return nearer


def finite_mean(values: FloatArray) -> FloatArray:
    """The mean of the finite values along the last axis; NaN if there are none."""
    there = np.isfinite(values)
    count = there.sum(axis=-1)
    total = np.where(there, values, 0.0).sum(axis=-1)
    mean: FloatArray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _spread(errors: FloatArray, one_world: bool) -> FloatArray:
    """Bias² and variance of each world (2 × worlds); for a single world, jackknife values of its logs.

    The square of a mean error is too large on average, by the variance divided by the number of logs, which is subtracted:
    so the bias² of an unbiased estimator is about 0, and may be negative.
    """
    if not one_world:
        return np.array([_bias_variance(world) for world in errors]).T
    logs = errors[0]
    known = logs[np.isfinite(logs)]
    whole, n = _bias_variance(known), len(known)
    without = np.array([_bias_variance(np.delete(known, k)) for k in range(n)]).reshape(n, 2)
    values = np.full((len(logs), 2), np.nan)
    values[np.isfinite(logs)] = n * whole - (n - 1) * without
    return values.T


def _bias_variance(errors: FloatArray) -> FloatArray:
    known = errors[np.isfinite(errors)]
    if len(known) < 2:
        return np.array([np.nan, np.nan])
    variance = known.var(ddof=1)
    return np.array([known.mean() ** 2 - variance / len(known), variance])
