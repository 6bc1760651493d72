"""Sums of weights and of weighted rewards by reward and by group: how a policy's weights are distributed over rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.statistics.base import State

GROUPS = 256  # groups of units, for the errors of what is computed from the sums
MOST_POINTS = 96
BEYOND = 8  # points on either side of the first rewards, each twice as far away as the one before


def points_of(rewards: FloatArray) -> FloatArray:
    """The points at which rewards are separated, from the first ones: all of a few distinct values, or quantiles.

    >>> points_of(np.array([0.0, 1.0, 1.0]))[8:10].tolist()
    [0.0, 1.0]
    """
    seen = np.unique(rewards)
    if len(seen) > MOST_POINTS:
        at = np.linspace(0, 1, MOST_POINTS // 2)  # of rounds and of values, as nearly all rounds may have the same
        seen = np.unique([np.quantile(values, at, method="nearest") for values in (rewards, seen)])
    spread = float(seen[-1] - seen[0]) or max(abs(float(seen[0])), 1.0)
    steps = spread * (2.0 ** np.arange(1, BEYOND + 1) - 1) / 8
    return np.concatenate([seen[0] - steps[::-1], seen, seen[-1] + steps])


@dataclass(frozen=True)
class RewardBins:
    """Σωw and Σωw(r − origin) by group of units and bin of r: a bin for each point, and one between each two.

    All rewards of a point's bin are equal, so that results for few distinct rewards are exact.
    """

    points: FloatArray
    origin: float

    @property
    def bins(self) -> int:
        return 2 * len(self.points) + 1

    def zero(self) -> State:
        return {"mass": np.zeros((GROUPS, self.bins)), "sum": np.zeros((GROUPS, self.bins))}

    def places(self, reward: FloatArray, bucket: IntArray) -> IntArray:
        """The position of each row in the flat table."""
        after = np.searchsorted(self.points, reward)
        on = self.points[np.minimum(after, len(self.points) - 1)] == reward
        places: IntArray = (bucket * GROUPS // BUCKETS) * self.bins + 2 * after + on
        return places

    def fold(self, state: State, places: IntArray, reward: FloatArray, weight: FloatArray) -> State:
        """`weight` is that of the row in the log, times its ratio."""
        for name, values in (("mass", weight), ("sum", weight * (reward - self.origin))):
            state[name] += np.bincount(places, values, GROUPS * self.bins).reshape(GROUPS, -1)
        return state

    def by_group(self, bucket: IntArray, omega: FloatArray, reward: FloatArray) -> FloatArray:
        """Σω and Σω(r − origin) of each group: 2 × groups."""
        group = bucket * GROUPS // BUCKETS
        return np.stack([np.bincount(group, v, GROUPS) for v in (omega, omega * (reward - self.origin))])

    def atoms(self, state: State, low: float, high: float) -> tuple[FloatArray, FloatArray]:
        """Rewards less the origin, and their mass by group, with at least the spread of the rewards.

        For a bin between two points, mass and mean are known: the mass is put on the ends, as far apart as possible.
        """
        p = self.points
        least, most = np.concatenate([[low], p]), np.concatenate([p, [high]])
        ends = np.empty((2, self.bins))
        ends[:, 1::2], ends[:, ::2] = p, (least, most)
        ends = np.clip(ends, low, high) - self.origin
        width, mass = ends[1] - ends[0], state["mass"]
        with np.errstate(divide="ignore", invalid="ignore"):
            upper = np.where(width > 0, np.clip((state["sum"] - ends[0] * mass) / width, 0.0, mass), mass)
        rewards, masses = ends.ravel(), np.concatenate([mass - upper, upper], axis=1)
        used = masses.sum(axis=0) > 0
        return rewards[used], masses[:, used]

    @staticmethod
    def middles(state: State) -> tuple[FloatArray, FloatArray]:
        """The same with each bin's mass on its mean: at most the spread of the rewards."""
        used = state["mass"].sum(axis=0) > 0
        mass = state["mass"][:, used]
        return state["sum"][:, used].sum(axis=0) / mass.sum(axis=0), mass
