"""Pareto k: how heavy the tail of the weights is, from a generalised Pareto distribution fitted to the largest of them.

Zhang & Stephens (2009), "A New and Efficient Estimation Method for the Generalized Pareto Distribution", Technometrics
51(3); the size of the tail and the weak prior on k are those of Vehtari et al. (2024), "Pareto Smoothed Importance
Sampling", JMLR 25(72).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.statistics.base import State
from offpolicy.statistics.histogram import LogHistogram

FEWEST = 5  # weights in a tail that can be fitted
TIED = 0.25  # the share of the tail in one bin of about 1% from which its weights count as tied
PRIOR_SHAPE, PRIOR_WEIGHT = 0.5, 10  # k is shrunk towards 0.5 as if by ten more weights
LIMIT = 0.7
"""The published limit. From there on, Student and normal intervals are too narrow in spite of 500 effective rounds. In most
of these logs other checks of the weights warn already, so that no finding rests on it (docs/coverage.md)."""


@dataclass(frozen=True)
class ParetoTail:
    """The shape k of the tail of the weights, or the reason why it is undefined.

    If k is positive, moments of order 1/k and above are infinite.
    """

    k: float | None
    undefined: str | None = None

    def to_dict(self) -> dict[str, float | str | None]:
        return {"pareto_k": self.k, "pareto_k_undefined": self.undefined}

    @classmethod
    def of(cls, weights: State) -> ParetoTail:
        """From a fine histogram of weights, whose counts are the same in whatever order the rounds came."""
        positive = float(weights["count"][1:].sum())
        values, counts, below = LogHistogram.tail(weights, min(positive / 5, 3 * sqrt(positive)))
        size = float(counts.sum())
        if size < FEWEST:
            return cls(None, "There are too few positive weights.")
        if counts.max() > TIED * size:
            return cls(None, "The largest weights are tied, or differ by less than 1%.")
        return cls(fitted_shape(values - below, counts))


WHOLE_LOG_ONLY = ParetoTail(None, "It is computed for weights by action over the whole log.")


def fitted_shape(excess: FloatArray, counts: FloatArray) -> float:
    """The shape of a generalised Pareto distribution of positive excesses (ascending) that occur `counts` times."""
    n = float(counts.sum())
    quartile = excess[np.searchsorted(np.cumsum(counts), np.floor(n / 4 + 0.5))]
    points = 30 + int(sqrt(n))
    theta = 1 / excess[-1] + (1 - np.sqrt(points / (np.arange(points) + 0.5))) / (3 * quartile)
    theta = theta[theta != 0]  # k = 0 there, the exponential distribution, which its neighbours on the grid cover

    def shape(t: FloatArray) -> FloatArray:
        means: FloatArray = np.log1p(-np.multiply.outer(t, excess)) @ counts / n
        return means

    k = shape(theta)
    likelihood = n * (np.log(-theta / k) - k - 1)
    posterior = np.exp(likelihood - likelihood.max())
    found = float(shape(np.atleast_1d(theta @ posterior / posterior.sum()))[0])
    return (n * found + PRIOR_WEIGHT * PRIOR_SHAPE) / (n + PRIOR_WEIGHT)
