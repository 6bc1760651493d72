"""What bounds that hold at every look are computed from: histograms of the scores of the rounds, by estimate.

Rewards are rescaled to 0 to 1 by their stated range. Nothing here reads an action: scores are made of the planned columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.estimators import Member
from offpolicy.scoring.plan import Terms
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added
from offpolicy.statistics.signed_histogram import ROWS, SignedHistogram

EXTREMES = ("below", "above")  # entries that are merged by their maximum


@dataclass(frozen=True)
class RewardRange:
    """The smallest and the largest possible reward."""

    low: float
    high: float

    def rescaled(self, values: FloatArray) -> FloatArray:
        """Rewards, or a mean of them, from 0 to 1."""
        scaled: FloatArray = (values - self.low) / (self.high - self.low)
        return scaled


@dataclass(frozen=True)
class ScoreKind(ABC):
    """Which scores of a round are summed, and by what names; `reward` is the number of the reward."""

    reward: int

    @abstractmethod
    def zero(self) -> State: ...

    @abstractmethod
    def fold(self, state: State, reward: FloatArray, scored: ScoredBlock, scale: RewardRange) -> State:
        """Add rounds; rewards are from 0 to 1."""


@final
@dataclass(frozen=True)
class Earned(ScoreKind):
    """The "hits", w·r, and the "misses", w·(1 − r), for a column of weights whose mean is 1; `naive`: all are 1."""

    weight: int
    naive: bool = False

    def zero(self) -> State:
        return {"hits": SignedHistogram.zero(), "misses": SignedHistogram.zero()}

    def fold(self, state: State, reward: FloatArray, scored: ScoredBlock, scale: RewardRange) -> State:  # noqa: ARG002
        for start in range(0, len(reward), ROWS):
            part = slice(start, start + ROWS)
            state = self._folded(state, scored.columns[self.weight][part], reward[part])
        return state

    def _folded(self, state: State, w: FloatArray, reward: FloatArray) -> State:
        if ((reward == 0) | (reward == 1)).all():  # then only one of the two is not 0
            return added(state, dict(zip(("hits", "misses"), self._of_clicks(w, reward), strict=True)))
        hits = w * reward
        return {
            "hits": SignedHistogram.fold(state["hits"], hits),
            "misses": SignedHistogram.fold(state["misses"], w - hits),
        }

    def _of_clicks(self, w: FloatArray, reward: FloatArray) -> tuple[State, State]:
        """One pass sorts both; weights of 1 need only be counted."""
        if self.naive:
            ones = int(np.count_nonzero(reward))
            counts = ((len(w) - ones, ones), (ones, len(w) - ones))
            zero, repeated = SignedHistogram.zero(), SignedHistogram.repeated
            hits, misses = (repeated(repeated(zero, 0.0, none), 1.0, some) for none, some in counts)
            return hits, misses
        both = SignedHistogram.halves(SignedHistogram.fold(SignedHistogram.zero(), 2 * (w * reward) - w))
        for half in both:
            half["count"][0] += len(w) - half["count"].sum()
        return both


@final
@dataclass(frozen=True)
class Modelled(ScoreKind):
    """The "scores" q(x, π) + w·(r − q(x, a)), with a reward model that was fitted on other rounds.

    "below" and "above" are how far the scores reach beyond 0 and 1.
    """

    baseline: int
    correction: int

    def zero(self) -> State:
        return {"scores": SignedHistogram.zero(), "below": np.zeros(()), "above": np.zeros(())}

    def fold(self, state: State, reward: FloatArray, scored: ScoredBlock, scale: RewardRange) -> State:  # noqa: ARG002
        score = scored.columns[self.baseline] + scored.origin[self.reward] + scored.columns[self.correction]
        scaled = scale.rescaled(score)
        state["scores"] = SignedHistogram.fold(state["scores"], scaled)
        state["below"] = np.maximum(state["below"], (-scaled).max())
        state["above"] = np.maximum(state["above"], (scaled - 1).max())
        return state


@final
@dataclass(frozen=True)
class Gained(ScoreKind):
    """Of two columns of weights (None: 1): (w₁ − w₂)·r, w₁·r + w₂·(1 − r), and w₂·r + w₁·(1 − r)."""

    weight: int
    other: int | None

    def zero(self) -> State:
        return {name: SignedHistogram.zero() for name in ("gains", "ahead", "behind")}

    def fold(self, state: State, reward: FloatArray, scored: ScoredBlock, scale: RewardRange) -> State:  # noqa: ARG002
        first = scored.columns[self.weight]
        second = np.ones_like(first) if self.other is None else scored.columns[self.other]
        gains = (first - second) * reward
        for name, values in (("gains", gains), ("ahead", second + gains), ("behind", first - gains)):
            state[name] = SignedHistogram.fold(state[name], values)
        return state


@dataclass(frozen=True)
class ScoreHistograms:
    """The statistic: histograms of the scores of every kind that is asked for."""

    columns: ClassVar[tuple[str, ...]] = ()
    kinds: Sequence[ScoreKind]
    scale: RewardRange

    def zero(self) -> State:
        return {str(k): kind.zero() for k, kind in enumerate(self.kinds)}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        rewards = {k: self.scale.rescaled(batch.reward[:, k]) for k in {kind.reward for kind in self.kinds}}
        for k, kind in enumerate(self.kinds):
            state[str(k)] = kind.fold(state[str(k)], rewards[kind.reward], scored, self.scale)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b, EXTREMES)


def kind_of(member: Member, terms: Terms, reward: int) -> ScoreKind | None:
    """The scores of an estimator whose rounds each have the value of the policy as their mean; None for others.

    A self-normalised estimate has those of the same weights, without the division.
    """
    unbiased = member.weight.mean_one or member.weight.naive
    summed = terms.correction is not None and terms.weight is not None and terms.slot is None
    if not (unbiased and summed) or member.scaled or member.smoothing is not None:
        return None
    if member.rewards is None:
        return None if terms.weight is None else Earned(reward, terms.weight, member.weight.naive)
    given = not member.rewards.fitted and not member.normalised and not member.remainder and member.weight.exact
    if not given or terms.baseline is None or terms.correction is None:
        return None
    return Modelled(reward, terms.baseline, terms.correction)
