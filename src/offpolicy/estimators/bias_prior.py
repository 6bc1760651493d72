"""What is assumed about the bias of smoother estimates, and the blend that follows from it and from paired differences.

Every candidate k is the value V plus a bias b_k plus sampling error with a known covariance Σ. Candidates with exact weights
have no bias. A reward model moves an estimate from the value towards the mean of the log, so the natural unit of bias is the
gap between the two, which is computed from the nearly unbiased candidates first, and then from the blend itself, since the
error of the former would make it too large:

    b ~ N(0, κ²·gap²·B),    B_jk = u_j u_k (ρ + (1 − ρ)·[j = k]),    p(κ) ∝ κ^s on a grid from κ_min to 1,

with u_k the share of a model's error that the weights of candidate k leave uncorrected (0 for exact weights, 1 for none),
and ρ the correlation of biases, since most models are wrong in the same way. Where the learning curve of its model shows
that candidate k has a bias of at least l_k, κ·gap·u_k is at least l_k. For each κ the weights on the simplex minimise
xᵀ(Σ + κ²gap²B)x, and the blend is their mean over the posterior of κ. Its likelihood is that of the differences D from the
nearly unbiased candidates. Above the most likely κ, where it says that biases are not that large, it is raised to the power
m / (m + m0), where m counts effective rounds with a reward: differences that few of them show no larger than chance do not
clear a model. Below the most likely κ it counts in full: differences larger than chance contradict a model in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number, whole
from offpolicy.estimators.selection import CandidateEstimates, Choice, on_simplex, stacked

UNITS = 3
"""How often the unit of bias is computed: from the nearly unbiased mix, and again from the blend that follows."""
RIDGE = 1e-9
"""Added to the covariance of the differences, relative to its diagonal, since candidates may be almost equal."""


@dataclass(frozen=True)
class BiasPrior:
    """The prior of biases; the defaults were chosen on the building half of the benchmark.

    Parameters
    ----------
    least : float, default=0.02
        κ_min: the smallest bias that is considered, as a share of the gap between the value and the mean of the log.
    slope : float, default=1.0
        The exponent s of p(κ) on the grid, which is even in log κ. Larger values expect larger biases.
    common : float, default=0.9
        ρ: the correlation of biases.
    evidence : float, default=75.0
        m0: the number of effective rounds with a reward at which paired differences count half where they clear a model.
    grid : int, default=9
        The number of values of κ.
    hedge : float, default=0.2
        The share of the variance of the nearly unbiased blend that is added to the variance of the result, because biases
        that are smaller than its error go unnoticed.
    """

    least: float = 0.02
    slope: float = 1.0
    common: float = 0.9
    evidence: float = 75.0
    grid: int = 9
    hedge: float = 0.2

    def __post_init__(self) -> None:
        limits = {"least": (0, 1), "slope": (-10, 10), "common": (0, 1), "evidence": (0, np.inf), "hedge": (0, np.inf)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise InputError(f"BiasPrior: {name} is {value!r}; give a number from {low:g} to {high:g}.")
        if not self.least > 0:
            raise InputError("BiasPrior: least is 0; give a number above 0.")
        whole("grid", self.grid, 1)

    def choose(self, candidates: CandidateEstimates) -> Choice:
        """Return the posterior mean of the weights, and of the biases.

        Parameters
        ----------
        candidates : CandidateEstimates
            The estimates, and the covariance of their errors.

        Returns
        -------
        Choice
            The weights and the biases.
        """
        anchor = stacked(candidates).weights
        size = len(candidates.names)
        smooth = np.array([k for k in range(size) if candidates.known[k] and not candidates.unbiased[k]], dtype=np.int64)
        choice = Choice(anchor, np.zeros(size), anchor=anchor)
        for _ in range(UNITS if len(smooth) else 0):
            weights = choice.weights
            unit = float(np.hypot(candidates.values @ weights - candidates.logged, np.sqrt(candidates.variance(weights))))
            if not unit > 0:
                break
            choice = self._choice(candidates, smooth, anchor, unit)
        return choice

    def _choice(self, candidates: CandidateEstimates, smooth: IntArray, anchor: FloatArray, unit: float) -> Choice:
        """The posterior mean for one unit of bias."""
        size, usable = len(candidates.names), np.flatnonzero(candidates.known)
        differences, spread, steps = spread_of(candidates, smooth, anchor, unit)
        uncorrected, least = np.asarray(candidates.uncorrected), np.asarray(candidates.least_biases) / unit
        shares = np.exp(np.linspace(np.log(self.least), 0.0, self.grid))
        log_likelihood, weights, biases = np.empty(self.grid), np.zeros((self.grid, size)), np.zeros((self.grid, size))
        for k, share in enumerate(shares):
            bias = self._covariance(np.maximum(share * uncorrected, least))
            matrix = candidates.covariance / unit**2 + bias
            weights[k, usable] = on_simplex(matrix[np.ix_(usable, usable)])
            root = np.linalg.cholesky(spread + steps @ bias @ steps.T)
            solved = np.linalg.solve(root, differences)
            log_likelihood[k] = -(solved @ solved / 2 + np.log(np.diag(root)).sum())
            biases[k] = bias @ steps.T @ np.linalg.solve(root.T, solved) * unit
        counts = candidates.evidence / (candidates.evidence + self.evidence)
        posterior = tempered_posterior(log_likelihood, self.slope * np.log(shares), counts)
        details = {"expected_bias_share": float(posterior @ shares), "effective_rewards": candidates.evidence}
        moved = np.where(uncorrected > 0, posterior @ biases, 0.0)
        allows = self.hedge > 0
        return Choice(posterior @ weights, moved, anchor=anchor, hedge=self.hedge, allows=allows, details=details)

    def _covariance(self, sizes: FloatArray) -> FloatArray:
        """The covariance of biases with these standard deviations."""
        covariance: FloatArray = np.outer(sizes, sizes) * self.common
        np.fill_diagonal(covariance, sizes**2)
        return covariance


def tempered_posterior(log_likelihood: FloatArray, log_prior: FloatArray, counts: float) -> FloatArray:
    """The posterior on an ascending grid; above its peak, the likelihood is raised to the power `counts`."""
    relative = log_likelihood - log_likelihood.max()
    above = np.arange(len(relative)) > log_likelihood.argmax()
    log_posterior = np.where(above, counts, 1.0) * relative + log_prior
    posterior: FloatArray = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    return posterior


def spread_of(
    candidates: CandidateEstimates, smooth: IntArray, anchor: FloatArray, unit: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The differences of smoother candidates from the nearly unbiased mix, their covariance, and the steps to them."""
    steps = np.eye(len(candidates.names))[smooth] - anchor
    differences, spread = steps @ candidates.values / unit, steps @ candidates.covariance @ steps.T / unit**2
    spread = spread + (RIDGE * np.trace(spread) / len(smooth) + 1e-18) * np.eye(len(smooth))
    return differences, spread, steps
