"""Wrong propensities: bounds on the value if each weight is wrong by a factor of up to Γ.

The self-normalised value Σ λwr / Σ λw, over 1/Γ ≤ λ ≤ Γ, is largest if λ is Γ for every reward above some threshold and 1/Γ
for the rest; the threshold is the largest value itself (Zhao, Small & Bhattacharya 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.hashing import buckets
from offpolicy.core.progress import PassProgress
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.engines.base import BATCH_ROWS, Engine
from offpolicy.inference.intervals import normal_quantile
from offpolicy.policies.base import Policy
from offpolicy.ratios.actions import ratio_of
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import State, added
from offpolicy.statistics.reward_bins import GROUPS, RewardBins, points_of

ANY_GAMMA = 1e6  # a claim that holds at this Γ holds at any
GAMMAS = (1.0, 1.1, 1.25, 1.5, 2.0)


class Bounds(NamedTuple):
    """The bounds on the value at one Γ, and the interval around them that also allows for sampling."""

    gamma: float
    low: float
    high: float
    low_error: float
    high_error: float
    interval_low: float
    interval_high: float


@dataclass(frozen=True)
class Tilted:
    """The weighted rewards of one policy by group of units, to be reweighted.

    `rewards` are relative to `origin`, `masses` is groups × rewards, and `logged` is groups × 2: Σω and Σω(r − origin).
    """

    rewards: FloatArray
    masses: FloatArray
    middles: tuple[FloatArray, FloatArray]
    logged: FloatArray
    origin: float

    @property
    def overlaps(self) -> bool:
        """Whether any round has a positive weight."""
        return bool(self.masses.sum() > 0)

    def value(self) -> float:
        """Relative to the origin, as are all values here except the bounds."""
        return float(self.masses.sum(axis=0) @ self.rewards / self.masses.sum())

    def logged_value(self) -> float:
        ones, earned = self.logged.sum(axis=0)
        return float(earned / ones)

    def bounds(self, gamma: float, level: float) -> Bounds:
        z = normal_quantile(0.5 + level / 2)
        (low, below), (high, above) = (self._end(sign, gamma) for sign in (-1.0, 1.0))
        errors = self._error(below), self._error(above)
        low, high = low + self.origin, high + self.origin
        return Bounds(gamma, low, high, *errors, low - z * errors[0], high + z * errors[1])

    def _end(self, sign: float, gamma: float) -> tuple[float, FloatArray]:
        """The largest value (sign 1) or the smallest (−1), relative to the origin, and the influence of each group on it.

        At the optimum the value does not depend on the threshold, so that λ can be held fixed.
        """
        total = self.masses.sum(axis=0)
        value = _largest(sign * self.rewards, total, gamma)
        factor = np.where(sign * self.rewards > value, gamma, 1 / gamma)
        influence: FloatArray = self.masses @ (factor * (self.rewards - sign * value)) / float(factor @ total)
        return sign * value, influence

    def _error(self, influence: FloatArray) -> float:
        filled = int((self.logged[:, 0] > 0).sum())
        return float(np.sqrt(influence @ influence * filled / (filled - 1))) if filled > 1 else math.nan

    def holds_to(self, sign: float) -> float:
        """The Γ with A/Γ = ΓB, where A and B are the weighted parts of r on either side of the log's mean."""
        away = sign * (self.rewards - self.logged_value())
        total = self.masses.sum(axis=0)
        against = float(total @ np.maximum(-away, 0.0))
        return math.sqrt(float(total @ np.maximum(away, 0.0)) / against) if against > 0 else math.inf

    def surely_to(self, sign: float, level: float) -> float | None:
        z, logged = normal_quantile(0.5 + level / 2), self.logged_value()
        own = (self.logged[:, 1] - logged * self.logged[:, 0]) / self.logged[:, 0].sum()

        def sure(gamma: float) -> bool:
            value, influence = self._end(-sign, gamma)
            return sign * (value - logged) > z * self._error(influence - own)  # paired

        if not sure(1.0):
            return None
        if sure(ANY_GAMMA):
            return math.inf
        low, high = 0.0, math.log(ANY_GAMMA)
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if sure(math.exp(middle)) else (low, middle)
        return math.exp(low)

    def resolution(self, gamma: float) -> float:
        """The bounds compared with those of the smallest spread that the sums allow."""
        spreads = ((rewards, masses.sum(axis=0)) for rewards, masses in ((self.rewards, self.masses), self.middles))
        most, least = ([_largest(sign * rewards, total, gamma) for sign in (-1.0, 1.0)] for rewards, total in spreads)
        return max(0.0, *(a - b for a, b in zip(most, least, strict=True)))


@dataclass(frozen=True)
class Tilting:
    """One more pass over the log, for all policies and rewards, when one of them is first requested.

    `low` and `high` are the smallest and the largest of each reward.
    """

    log: Log
    engine: Engine
    scorer: Scorer
    low: FloatArray
    high: FloatArray
    progress: bool | None

    @cached_property
    def _sums(self) -> tuple[RewardPass, State]:
        statistic = RewardPass.of(self.log, self.scorer)
        with PassProgress("bounding", len(self.log), self.progress) as progress:
            return statistic, self.engine.reduce(self.log, statistic, progress)

    def of(self, policy: int, reward: int) -> Tilted:
        statistic, state = self._sums
        bins, weighted = statistic.bins[reward], state["weighted"][f"{policy}:{reward}"]
        atoms = bins.atoms(weighted, float(self.low[reward]), float(self.high[reward]))
        return Tilted(*atoms, bins.middles(weighted), state["logged"][reward].T, bins.origin)


def _largest(rewards: FloatArray, masses: FloatArray, gamma: float) -> float:
    """max Σ λmr / Σ λm over 1/Γ ≤ λ ≤ Γ. Each threshold gives a larger value, the next threshold, until it converges."""
    value = float(masses @ rewards / masses.sum())
    while True:
        weighted = np.where(rewards > value, gamma, 1 / gamma) * masses
        larger = float(weighted @ rewards / weighted.sum())
        if not larger > value:
            return value
        value = larger


@dataclass(frozen=True)
class RewardPass:
    """Sums of weights and weighted rewards, by policy and reward, and those of the log itself."""

    policies: Sequence[Policy]
    logging: Policy | None
    bins: Sequence[RewardBins]
    seed: int
    batch_rows: int | None = None

    @classmethod
    def of(cls, log: Log, scorer: Scorer) -> RewardPass:
        """The bins of the rewards are chosen from the first rounds."""
        first = log.head().reward.T
        bins = [RewardBins(points_of(r), float(origin)) for r, origin in zip(first, scorer.origin, strict=True)]
        return cls(scorer.policies, scorer.logging, bins, scorer.seed, scorer.at_most(BATCH_ROWS))

    @property
    def columns(self) -> tuple[str, ...]:
        policies = (*self.policies, *([] if self.logging is None else [self.logging]))
        return tuple(dict.fromkeys(name for policy in policies for name in policy.columns))

    def zero(self) -> State:
        return {
            "weighted": {
                f"{p}:{k}": bins.zero() for p in range(len(self.policies)) for k, bins in enumerate(self.bins)
            },
            "logged": np.zeros((len(self.bins), 2, GROUPS)),
        }  # fmt: skip

    def fold(self, state: State, batch: Batch) -> State:
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        weights = [omega * ratio_of(batch, policy, self.logging) for policy in self.policies]
        bucket = buckets(batch.unit, self.seed)
        for k, bins in enumerate(self.bins):
            reward = batch.reward[:, k]
            places = bins.places(reward, bucket)
            state["logged"][k] += bins.by_group(bucket, omega, reward)
            for p, weight in enumerate(weights):
                bins.fold(state["weighted"][f"{p}:{k}"], places, reward, weight)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)

    def finish(self, state: State) -> State:
        return state
