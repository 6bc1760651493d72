"""Bounds that hold at every look, from the capital of bets against each possible value.

Let s be a score with mean m and s ≥ −k. For a fixed λ < 1/k, the product over rounds of (1 + λs)/(1 + λm) is a martingale
that starts at 1, and so is a mixture M(m) = Σ_j ω_j Π (1 + λ_j s)/(1 + λ_j m) with fixed weights ω. It reaches 1/α with
probability α at most, whenever one looks (Ville). So m ≥ inf{m: M(m) < 1/α} at all times at once (Waudby-Smith & Ramdas
2024; with a single λ and s = w·r: logarithmic smoothing, Sakhi et al. 2024).

The logarithm of a product is a sum of log(1 + λs) over rounds. The sum over a bin is at least that of the chord between its
ends, because the logarithm is concave, so a histogram with a count and a sum per bin gives a bound that is still valid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.statistics.signed_histogram import Bins

EXPONENTS = np.arange(3.0, -21.0, -1.0)
"""λ is a power of 2; the best one is about √(2 log(1/α) / Σ s²)."""
CENTRE, SPREAD = -4.5, 3.0
PRIOR = 1 / (1 + ((EXPONENTS - CENTRE) / SPREAD) ** 2)
PRIOR = PRIOR / PRIOR.sum()
"""A Cauchy distribution: most weight at the λ that suit 1,000 to 1,000,000 rounds, and some everywhere."""
SAFE = 0.9
"""The largest λ for scores s ≥ −k is 0.9/k, so that no factor is below 0.1."""
STEPS = 60  # of a bisection


class Capital(ABC):
    """What bets against a value have earned by now: the larger, the less plausible the value. It falls as θ rises."""

    @abstractmethod
    def log_at(self, theta: float) -> float:
        """The logarithm of the capital that bets against the value θ."""


def _grid(floor: float) -> FloatArray:
    """The λs for scores that are at least −floor; those that would be too large are the largest that is not."""
    grid: FloatArray = 2.0**EXPONENTS
    return grid if floor == 0 else np.minimum(grid, SAFE / floor)


@final
@dataclass(frozen=True)
class BinnedCapital(Capital):
    """Of independent rounds with scores s ≥ −floor and mean θ + shift, from the bins of the scores."""

    bins: Bins
    floor: float = 0.0
    shift: float = 0.0

    @cached_property
    def _products(self) -> FloatArray:
        return log_products(self.bins, _grid(self.floor), self.floor)

    def log_at(self, theta: float) -> float:
        return _log_mixture(self._products - self.bins.n * np.log1p(_grid(self.floor) * (theta + self.shift)))


@final
@dataclass(frozen=True)
class UnitCapital(Capital):
    """Of independent units, each with `rounds` rounds and the sum of their scores: Π (1 + λ(s_u − n_u·m)).

    λ depends on the largest n_u, but on no score.
    """

    sums: FloatArray
    rounds: FloatArray
    floor: float = 0.0
    shift: float = 0.0

    def log_at(self, theta: float) -> float:
        grid = _grid(float(self.rounds.max()) * (self.floor + 1 + self.shift))  # m ≤ 1 + shift
        gains = self.sums - self.rounds * (theta + self.shift)
        return _log_mixture(np.log1p(np.multiply.outer(grid, gains)).sum(axis=1))


@final
@dataclass(frozen=True)
class SharedCapital(Capital):
    """Equal shares of the capital in several kinds of bets, so that the best of them costs only the others' shares."""

    parts: Sequence[Capital]

    def log_at(self, theta: float) -> float:
        return float(np.logaddexp.reduce([part.log_at(theta) for part in self.parts]) - np.log(len(self.parts)))


def log_products(bins: Bins, grid: FloatArray, floor: float = 0.0) -> FloatArray:
    """A lower bound on Σ log(1 + λs) for each λ: per bin, that of numbers at its two ends with the same count and sum.

    The λs are the last dimension; counts and sums at several looks are the first.
    """
    low = np.maximum(bins.low, -floor)
    width = bins.high - low
    mean = bins.total / np.maximum(bins.count, 1.0)
    share = np.clip((mean - low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    ends = [np.log1p(np.multiply.outer(end, grid)) for end in (low, bins.high)]
    products: FloatArray = (bins.count * (1 - share)) @ ends[0] + (bins.count * share) @ ends[1]
    return products


def _log_mixture(growth: FloatArray) -> float:
    return float(np.logaddexp.reduce(np.log(PRIOR) + growth))


def lower_bound(capital: Capital, alpha: float, low: float, high: float) -> float:
    """The smallest value in [low, high] that the bets have not refuted; `low` if they refute none."""
    limit = np.log(1 / alpha)
    if capital.log_at(low) < limit:
        return low
    if capital.log_at(high) >= limit:
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if capital.log_at(middle) >= limit else (low, middle)
    return low
