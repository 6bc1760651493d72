"""Statements about several estimates that hold together: simultaneous intervals, and which estimates may be the largest.

Of fifty intervals that each miss 5% of the time, at least one misses far more often. The largest of the standardised errors
has a distribution of its own (max-t), which is the narrower the more the estimates have in common. It is drawn from a normal
distribution with the covariances of the buckets of units (Chernozhukov, Chetverikov & Kato 2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.threads import one_blas_thread
from offpolicy.inference.functionals import Functional, ScoreSums, sampling_variance, std_error, variance
from offpolicy.inference.intervals import degrees_of_freedom

DRAWS = 10_000  # of the joint errors
normal = NormalDist()


@dataclass(frozen=True)
class Family:
    """Estimates on the same rounds, each of them a number with a standard error."""

    functionals: Sequence[Functional]
    sums: ScoreSums

    @cached_property
    def _covariance(self) -> FloatArray:
        """Of the sampling errors, from the buckets."""
        filled = self.sums.filled
        gradients = np.array([f.gradient for f in self.functionals]).reshape(-1, filled.shape[1])
        influences = filled @ gradients.T / self.sums.n
        covariance: FloatArray = influences.T @ influences
        return covariance

    @cached_property
    def _drawn(self) -> tuple[FloatArray, FloatArray]:
        """Joint draws of the sampling errors, and independent normal numbers: draws × estimates each.

        The symmetric root of the correlations changes continuously with them, so that last digits stay last digits.
        """
        rng = np.random.default_rng([self.sums.seed % 2**64, 0x3A7])
        with one_blas_thread():  # otherwise the last digits depend on the number of cores
            spread = np.sqrt(np.diag(self._covariance))
            scale = np.where(spread > 0, spread, np.inf)
            values, vectors = np.linalg.eigh(self._covariance / np.outer(scale, scale))
            root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
            k = len(spread)
            drawn = rng.standard_normal((DRAWS, k)) @ root * spread
        return drawn, rng.standard_normal((DRAWS, k))

    def pointwise_level(self, level: float) -> float:
        """The level at which each interval must be taken for all of them to hold together at `level`.

        What is not sampling error counts as independent of the rest, which is the least favourable case.
        """
        total = np.array([variance(f, self.sums) for f in self.functionals])
        sampled = np.array([sampling_variance(f, self.sums) for f in self.functionals])
        share = np.clip(sampled / np.where(total > 0, total, np.inf), 0.0, 1.0)
        joint, independent = self._drawn
        errors = np.sqrt(share) * _standardised(joint, np.diag(self._covariance))
        errors += np.where(total > 0, np.sqrt(1 - share), 0.0) * independent
        return max(level, 2 * normal.cdf(_largest(np.abs(errors), level)) - 1)

    def may_be_largest(self, level: float) -> list[bool]:
        """For each estimate, whether it cannot be ruled out as the largest.

        Each is compared with all others at once, one-sided, so that the one whose expectation is the largest is ruled out
        with probability 1 − level at most (multiple comparisons with the best, Hsu 1981).
        """
        return [not self._is_exceeded(k, level) for k in range(len(self.functionals))]

    def _is_exceeded(self, k: int, level: float) -> bool:
        """Whether some other estimate is larger by more than chance explains."""
        others, own = [j for j in range(len(self.functionals)) if j != k], self.functionals[k]
        above = sorted(
            (j for j in others if self.functionals[j].value > own.value), key=lambda j: -self.functionals[j].value
        )
        if not above:
            return False
        tests = [test for j in above if (test := self._test(self.functionals[j].minus(own), level)) is not None]
        if not tests:
            return False
        if any(test.rejects(1 - (1 - level) / len(others)) for test in tests):  # Bonferroni
            return True
        joint = self._drawn[0][:, others] - self._drawn[0][:, [k]]
        c = self._covariance
        variances = np.diag(c)[others] + c[k, k] - 2 * c[others, k]
        one_sided = max(level, normal.cdf(_largest(_standardised(joint, variances), level)))
        return any(test.rejects(one_sided) for test in tests)

    def _test(self, difference: Functional, level: float) -> StudentTest | None:
        """Whether a difference exceeds 0; None if even a normal distribution would not reject that it does not."""
        error = std_error(difference, self.sums)
        if difference.value <= error * normal.inv_cdf(level):
            return None
        return StudentTest(difference.value, error, degrees_of_freedom(difference, self.sums))


@dataclass(frozen=True)
class StudentTest:
    """The one-sided test of a difference with a standard error."""

    difference: float
    error: float
    degrees_of_freedom: float

    def rejects(self, level: float) -> bool:
        """Whether the one-sided Student interval excludes 0."""
        from scipy.special import stdtrit  # here, so that importing stays light

        return self.difference > self.error * float(stdtrit(self.degrees_of_freedom, level))


def _standardised(drawn: FloatArray, variances: FloatArray) -> FloatArray:
    """Draws in units of their standard deviations; 0 where these are 0."""
    spread = np.sqrt(np.maximum(variances, 0.0))
    errors: FloatArray = drawn / np.where(spread > 0, spread, np.inf)
    return errors


def _largest(errors: FloatArray, level: float) -> float:
    """The quantile of the largest in each draw."""
    return float(np.quantile(errors.max(axis=1), level))
