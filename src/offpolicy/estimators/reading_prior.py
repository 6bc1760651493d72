"""What is assumed about how people read lists, and the blend that follows from it and from paired differences.

Candidates differ in which interactions between slots their weights account for (`ratios/interactions.py`). The bias of
candidate k is −Σ_g s_kg·τ_g, where s_kg is the share of the interactions of kind g that it leaves out (the last kind is what
a reward model without weights leaves out), and τ_g what they contribute to the value. In the unit of the gap between the
value and the mean of the log,

    τ_g ~ N(0, κ²·A_hg²),    p(κ) ∝ κ^s on a grid from κ_min to 1,

where h is one of four ways to read, all equally likely at first: slots do not matter to each other, only those above do,
only neighbours do, or all do. A_hg is 1 for the kinds that matter to h, and small for the others; `together` is that of what
several slots contribute together. For each h and κ the weights on the simplex minimise the mean squared error, and the blend
is their mean over the posterior. Its likelihood is that of the differences from the nearly unbiased candidates, raised to
the power m / (m + m0) for m effective rounds. The stated variance is the mean squared error of the blend over the posterior
(with the sampling error ε ~ N(0, Σ), what the differences d = S(ε + b) leave unknown of the error x·(ε + b)), and what
sampling does not explain of its squared distance from the nearly unbiased blend: readers may follow none of the four ways.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number, whole
from offpolicy.estimators.bias_prior import spread_of
from offpolicy.estimators.selection import CandidateEstimates, Choice, on_simplex, stacked

READINGS = {
    "slots do not matter to each other": (0, 0, 0, 0),
    "slots above matter": (1, 1, 0, 0),
    "neighbours matter": (1, 0, 1, 0),
    "all slots matter": (1, 1, 1, 1),
}
"""Ways to read a list: which kinds of single other slots matter to a slot."""
LEAST_POSTERIOR = 0.01
"""Weights are computed for values of the posterior from here on."""


@dataclass(frozen=True)
class ReadingPrior:
    """The prior of what other slots contribute; the defaults were chosen on worlds of the building half of the benchmark.

    Parameters
    ----------
    least : float, default=0.02
        κ_min: the smallest contribution that is considered, as a share of the gap between the value and the mean of the log.
    slope : float, default=0.75
        The exponent s of p(κ) on the grid, which is even in log κ. Larger values expect larger contributions.
    unlikely : float, default=0.1
        What slots that do not matter contribute, as a share of what others do.
    together : float, default=0.05
        What several slots contribute together, as a share of what single ones do.
    model : float, default=0.5
        The bias of a reward model alone, as a share of what slots that matter contribute.
    evidence : float, default=20.0
        m0: the number of effective rounds with a reward at which the paired differences count half.
    grid : int, default=9
        The number of values of κ.
    """

    least: float = 0.02
    slope: float = 0.75
    unlikely: float = 0.1
    together: float = 0.05
    model: float = 0.5
    evidence: float = 20.0
    grid: int = 9

    def __post_init__(self) -> None:
        limits = {
            "least": (0, 1), "slope": (-10, 10), "unlikely": (0, 1), "together": (0, 1), "model": (0, 1),
            "evidence": (0, np.inf),
        }  # fmt: skip
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise InputError(f"ReadingPrior: {name} is {value!r}; give a number from {low:g} to {high:g}.")
        if not self.least > 0:
            raise InputError("ReadingPrior: least is 0; give a number above 0.")
        whole("grid", self.grid, 1)

    def choose(self, candidates: CandidateEstimates) -> Choice:
        """Return the posterior mean of the weights, and of the biases.

        Parameters
        ----------
        candidates : CandidateEstimates
            The estimates of lists, and the covariance of their errors.

        Returns
        -------
        Choice
            The weights and the biases.
        """
        anchor, size = stacked(candidates).weights, len(candidates.names)
        smooth = np.array([k for k in range(size) if candidates.known[k] and not candidates.unbiased[k]], dtype=np.int64)
        unit = float(np.hypot(candidates.values @ anchor - candidates.logged, np.sqrt(candidates.variance(anchor))))
        if not len(smooth) or not unit > 0:
            return Choice(anchor, np.zeros(size), anchor=anchor)
        usable = np.flatnonzero(candidates.known)
        differences, spread, steps = spread_of(candidates, smooth, anchor, unit)
        power = candidates.evidence / (candidates.evidence + self.evidence)
        shares = np.exp(np.linspace(np.log(self.least), 0.0, self.grid))
        amplitudes = [share * amplitude for amplitude in self._amplitudes for share in shares]
        cases = [_Case.of(candidates, candidates.missed * each, unit, (differences, spread, steps)) for each in amplitudes]
        log_posterior = power * np.array([case.log_likelihood for case in cases])
        log_posterior += np.tile(self.slope * np.log(shares), len(READINGS))
        posterior = np.exp(log_posterior - log_posterior.max())
        posterior /= posterior.sum()
        weights = np.zeros(size)
        for p, case in zip(posterior, cases, strict=True):
            if p >= LEAST_POSTERIOR:
                weights[usable] += p * on_simplex(case.total[np.ix_(usable, usable)])
        weights /= weights.sum()
        by_reading = posterior.reshape(len(READINGS), self.grid).sum(axis=1)
        details = {
            "expected_bias_share": float(posterior @ np.tile(shares, len(READINGS))),
            "effective_rewards": candidates.evidence,
            **{name: float(p) for name, p in zip(READINGS, by_reading, strict=True)},
        }
        moved = np.where(np.asarray(candidates.unbiased), 0.0, posterior @ np.array([case.bias for case in cases])) * unit
        step = weights - anchor
        unexplained = max(float(candidates.values @ step) ** 2 - candidates.variance(step), 0.0)
        variance = float(posterior @ [case.squared_error(weights) for case in cases]) * unit**2 + unexplained
        return Choice(weights, moved, anchor=anchor, variance=variance, allows=True, details=details)

    @property
    def _amplitudes(self) -> list[FloatArray]:
        """For each way to read, the size of each kind of contribution; the last is the bias of a model."""
        every = []
        for matters in READINGS.values():
            single = np.where(matters, 1.0, self.unlikely)
            together = self.together if any(matters) else self.together / 3
            every.append(np.array([*single, together, self.model]))
        return every


@dataclass(frozen=True)
class _Case:
    """One way to read with one size of contributions, given the differences. All numbers are in the unit of the gap.

    `total` is the covariance of the whole errors before the differences are known, `mean` and `covariance` the errors given
    them, and `bias` the part of the mean that is bias.
    """

    log_likelihood: float
    total: FloatArray
    mean: FloatArray
    covariance: FloatArray
    bias: FloatArray

    @classmethod
    def of(
        cls,
        candidates: CandidateEstimates,
        missed: FloatArray,
        unit: float,
        observed: tuple[FloatArray, FloatArray, FloatArray],
    ) -> _Case:
        """From what each candidate leaves out of contributions of this size, and the differences with their spread."""
        differences, spread, steps = observed
        bias = missed @ missed.T
        total = candidates.covariance / unit**2 + bias
        root = np.linalg.cholesky(spread + steps @ bias @ steps.T)
        solved = np.linalg.solve(root, differences)
        of_steps = np.linalg.solve(root, steps @ total)
        back = np.linalg.solve(root.T, solved)
        likelihood = -float(solved @ solved / 2 + np.log(np.diag(root)).sum())
        return cls(likelihood, total, of_steps.T @ solved, total - of_steps.T @ of_steps, bias @ steps.T @ back)

    def squared_error(self, weights: FloatArray) -> float:
        """The mean squared error of a weighted sum."""
        return float(weights @ self.mean) ** 2 + max(float(weights @ self.covariance @ weights), 0.0)
