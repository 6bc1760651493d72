"""What bounds that hold at every look are computed from: histograms of the scores of the rounds, by estimate.

Rewards are rescaled to 0 to 1 by their stated range. Nothing here reads an action: scores are made of the planned columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from offpolicy.core.arrays import BoolArray, FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.estimators import Member
from offpolicy.scoring.plan import Terms
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added
from offpolicy.statistics.histogram import LARGEST_OF, LogHistogram
from offpolicy.statistics.signed_histogram import SignedHistogram

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
class Rewards:
    """One reward of a batch, and which rounds have the largest possible reward, the smallest, or one between them."""

    values: FloatArray
    scored: ScoredBlock
    scale: RewardRange

    @cached_property
    def largest(self) -> BoolArray:
        """Whether each round has the largest possible reward."""
        mask: BoolArray = self.values == self.scale.high
        return mask

    @cached_property
    def between(self) -> IntArray:
        """The rounds whose reward is neither the smallest possible nor the largest; none if rewards are clicks."""
        smallest = self.values == self.scale.low
        if np.count_nonzero(smallest) + np.count_nonzero(self.largest) == len(smallest):
            return np.empty(0, np.int64)
        return np.flatnonzero(~(smallest | self.largest))

    @cached_property
    def rewarded(self) -> IntArray:
        """The rounds whose reward is not the smallest possible."""
        return np.flatnonzero(self.values != self.scale.low)

    def at(self, rows: IntArray) -> FloatArray:
        """The rewards of some rounds, from 0 to 1."""
        return self.scale.rescaled(self.values[rows])

    def weights(self, column: int | None, rows: IntArray) -> FloatArray:
        """Those of some rounds; None: 1."""
        return np.ones(len(rows)) if column is None else self.scored.columns[column][rows]


def _replace(state: State, new: FloatArray, old: FloatArray | None = None) -> None:
    """Add some numbers to a histogram, in place of others."""
    for values, sign in ((new, 1), (old, -1)):
        if values is not None:
            for name, part in SignedHistogram.of(values).items():
                state[name] += sign * part


ONE = SignedHistogram.of(np.ones(1))


@dataclass(frozen=True)
class WeightsOfRounds:
    """The weights of all rounds, and of those with the largest reward. `sorted_`: the histogram of a column of weights."""

    rounds: int
    clicks: IntArray
    sorted_: Callable[[int], State]

    def clicked(self, state: State, column: int | None, reward: int) -> State:
        """Add to a histogram the weights (None: 1) of the rounds with the largest reward."""
        if column is None:
            return _and_ones(state, int(self.clicks[reward]))
        return SignedHistogram.with_weights(state, LogHistogram.of_set(self.sorted_(column), reward))

    def others(self, state: State, column: int | None, reward: int) -> State:
        """Add the weights of all other rounds."""
        if column is None:
            return _and_ones(state, self.rounds - int(self.clicks[reward]))
        return SignedHistogram.with_weights(state, LogHistogram.outside(self.sorted_(column), reward))

    def and_zeros(self, state: State) -> State:
        """Rounds that are not in a histogram score 0."""
        count = state["count"].copy()
        count[0] += self.rounds - count.sum()
        return {**state, "count": count}


def _and_ones(state: State, times: int) -> State:
    return {name: part + times * ONE[name] for name, part in state.items()}


@dataclass(frozen=True)
class ScoreKind(ABC):
    """Which scores of a round are summed, and by what names; `reward` is the number of the reward.

    The diagnostics have the histograms of the weights of all rounds, and of those with the largest reward. Without a reward,
    and with the largest, most scores are 0 or a weight. So only the other rounds are sorted here.
    """

    reward: int

    @property
    def weights(self) -> tuple[int, ...]:
        """The columns of weights whose histograms it needs."""
        return ()

    @abstractmethod
    def zero(self) -> State: ...

    @abstractmethod
    def fold(self, state: State, rewards: Rewards) -> State:
        """Add rounds."""

    @abstractmethod
    def finish(self, state: State, weights: WeightsOfRounds) -> State:
        """The histograms of all rounds."""


@final
@dataclass(frozen=True)
class Earned(ScoreKind):
    """The "hits", w·r, and the "misses", w·(1 − r), for a column of weights whose mean is 1 (None: all are 1)."""

    weight: int | None

    @property
    def weights(self) -> tuple[int, ...]:
        return () if self.weight is None else (self.weight,)

    def zero(self) -> State:
        return {"hits": SignedHistogram.zero(), "misses": SignedHistogram.zero()}

    def fold(self, state: State, rewards: Rewards) -> State:
        rows = rewards.between
        if len(rows):
            w = rewards.weights(self.weight, rows)
            hits = w * rewards.at(rows)
            _replace(state["hits"], hits)
            _replace(state["misses"], w - hits, w)
        return state

    def finish(self, state: State, weights: WeightsOfRounds) -> State:
        hits = weights.clicked(state["hits"], self.weight, self.reward)
        misses = weights.others(state["misses"], self.weight, self.reward)
        return {"hits": weights.and_zeros(hits), "misses": weights.and_zeros(misses)}


@final
@dataclass(frozen=True)
class Gained(ScoreKind):
    """Of two columns of weights (None: 1): (w₁ − w₂)·r, w₁·r + w₂·(1 − r), and w₂·r + w₁·(1 − r)."""

    weight: int
    other: int | None

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.weight,) if self.other is None else (self.weight, self.other)

    def zero(self) -> State:
        return {name: SignedHistogram.zero() for name in ("gains", "ahead", "behind")}

    def fold(self, state: State, rewards: Rewards) -> State:
        _replace(state["gains"], self._gains(rewards, rewards.rewarded))
        rows = rewards.between
        if len(rows):
            gains = self._gains(rewards, rows)
            first, second = (rewards.weights(column, rows) for column in (self.weight, self.other))
            _replace(state["ahead"], second + gains, second)
            _replace(state["behind"], first - gains, first)
        return state

    def _gains(self, rewards: Rewards, rows: IntArray) -> FloatArray:
        first, second = (rewards.weights(column, rows) for column in (self.weight, self.other))
        return (first - second) * rewards.at(rows)

    def finish(self, state: State, weights: WeightsOfRounds) -> State:
        ahead, behind = state["ahead"], state["behind"]
        ahead = weights.others(weights.clicked(ahead, self.weight, self.reward), self.other, self.reward)
        behind = weights.others(weights.clicked(behind, self.other, self.reward), self.weight, self.reward)
        found = {"gains": state["gains"], "ahead": ahead, "behind": behind}
        return {name: weights.and_zeros(part) for name, part in found.items()}


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

    def fold(self, state: State, rewards: Rewards) -> State:
        scored = rewards.scored
        score = scored.columns[self.baseline] + scored.origin[self.reward] + scored.columns[self.correction]
        scaled = rewards.scale.rescaled(score)
        state["scores"] = SignedHistogram.fold(state["scores"], scaled)
        state["below"] = np.maximum(state["below"], (-scaled).max())
        state["above"] = np.maximum(state["above"], (scaled - 1).max())
        return state

    def finish(self, state: State, weights: WeightsOfRounds) -> State:  # noqa: ARG002
        return state


@dataclass(frozen=True)
class ScoreHistograms:
    """The statistic: histograms of the scores of every kind that is asked for.

    `weights` are the columns of weights that are sorted here, because no diagnostic sorts them.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    kinds: Sequence[ScoreKind]
    scale: RewardRange
    weights: Sequence[int] = ()

    @property
    def _rewards(self) -> int:
        return 1 + max((kind.reward for kind in self.kinds), default=0)

    def zero(self) -> State:
        own = {str(column): LogHistogram().zero(self._rewards) for column in self.weights}
        counts = {"rounds": np.zeros((), np.int64), "clicks": np.zeros(self._rewards, np.int64)}
        return {"weights": own, **counts, **{str(k): kind.zero() for k, kind in enumerate(self.kinds)}}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        rewards = [Rewards(batch.reward[:, k], scored, self.scale) for k in range(self._rewards)]
        for k, kind in enumerate(self.kinds):
            state[str(k)] = kind.fold(state[str(k)], rewards[kind.reward])
        own, sets = state["weights"], [each.largest for each in rewards]
        for column in self.weights:
            own[str(column)] = LogHistogram().fold(own[str(column)], scored.columns[column], None, sets)
        state["rounds"] += len(batch)
        state["clicks"] += [np.count_nonzero(mask) for mask in sets]
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b, (*EXTREMES, *LARGEST_OF))

    def finish(self, state: State, kind: ScoreKind, weights: Callable[[int], State]) -> State:
        """The histograms of one kind of scores over all rounds; `weights` has those of a diagnostic."""

        def of(column: int) -> State:
            own: State = state["weights"][str(column)] if column in self.weights else weights(column)
            return own

        return kind.finish(state[str(self.kinds.index(kind))], WeightsOfRounds(int(state["rounds"]), state["clicks"], of))


def kind_of(member: Member, terms: Terms, reward: int) -> ScoreKind | None:
    """The scores of an estimator whose rounds each have the value of the policy as their mean; None for others.

    A self-normalised estimate has those of the same weights, without the division.
    """
    unbiased = member.weight.mean_one or member.weight.naive
    summed = terms.correction is not None and terms.weight is not None and terms.slot is None
    if not (unbiased and summed) or member.scaled or member.smoothing is not None:
        return None
    if member.rewards is None:
        return None if terms.weight is None else Earned(reward, None if member.weight.naive else terms.weight)
    given = not member.rewards.fitted and not member.normalised and not member.remainder and member.weight.exact
    if not given or terms.baseline is None or terms.correction is None:
        return None
    return Modelled(reward, terms.baseline, terms.correction)
