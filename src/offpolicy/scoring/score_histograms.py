"""What bounds that hold at every look are computed from: histograms of the scores of the rounds, by estimate.

Rewards are rescaled to 0 to 1 by their stated range. Nothing here reads an action: scores are made of the planned columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
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
class Rewarded:
    """The rounds of a batch whose reward is not the smallest possible: their positions, and their rewards from 0 to 1."""

    rows: IntArray
    reward: FloatArray
    scored: ScoredBlock
    _sorted: dict[int, State] = field(default_factory=dict)

    @classmethod
    def of(cls, reward: FloatArray, scored: ScoredBlock, scale: RewardRange) -> Rewarded:
        rows = np.flatnonzero(reward != scale.low)
        return cls(rows, scale.rescaled(reward[rows]), scored)

    @cached_property
    def clicks(self) -> bool:
        """Whether each of them has the largest possible reward."""
        return bool((self.reward == 1).all())

    def weights(self, column: int | None) -> FloatArray:
        """Those of these rounds; None: 1."""
        return np.ones(len(self.rows)) if column is None else self.scored.columns[column][self.rows]

    def sorted_weights(self, column: int | None) -> State:
        """Their histogram."""
        if column is None:
            return _times(len(self.rows), ONE)
        if column not in self._sorted:
            self._sorted[column] = SignedHistogram.of(self.weights(column))
        return self._sorted[column]


ONE = SignedHistogram.of(np.ones(1))


def _times(times: int, histogram: State) -> State:
    return {name: times * part for name, part in histogram.items()}


def _include(state: State, new: State) -> None:
    for name, part in state.items():
        part += new[name]


def _exclude(state: State, old: State) -> None:
    for name, part in state.items():
        part -= old[name]


@dataclass(frozen=True)
class EveryRound:
    """Adds what all rounds score without a reward; `weights` has the histograms of the columns of weights."""

    rounds: int
    weights: Callable[[int], State]

    def zero(self, state: State) -> State:
        """Rounds that are not in the histogram score 0."""
        count = state["count"].copy()
        count[0] += self.rounds - count.sum()
        return {**state, "count": count}

    def weight(self, state: State, column: int | None) -> State:
        """All rounds score a weight (None: 1)."""
        if column is None:
            return self.zero(added(state, _times(self.rounds, ONE)))
        return self.zero(SignedHistogram.with_weights(state, self.weights(column)))


@dataclass(frozen=True)
class ScoreKind(ABC):
    """Which scores of a round are summed, and by what names; `reward` is the number of the reward.

    The histogram of the weights of all rounds is known from the diagnostics, and without a reward a score is 0 or a weight.
    So only rounds with a reward are sorted here: a state has the difference that their rewards make, except for scores of 0.
    """

    reward: int

    @property
    def weights(self) -> tuple[int, ...]:
        """The columns of weights whose histograms it needs."""
        return ()

    @abstractmethod
    def zero(self) -> State: ...

    @abstractmethod
    def fold(self, state: State, some: Rewarded, scale: RewardRange) -> State:
        """Add rounds."""

    @abstractmethod
    def finish(self, state: State, every: EveryRound) -> State:
        """The histograms of all rounds."""


@final
@dataclass(frozen=True)
class Logged(ScoreKind):
    """The rewards themselves as "hits", r, and "misses", 1 − r."""

    def zero(self) -> State:
        return {"hits": SignedHistogram.zero(), "misses": SignedHistogram.zero(), "clicks": np.zeros((), np.int64)}

    def fold(self, state: State, some: Rewarded, scale: RewardRange) -> State:  # noqa: ARG002
        if some.clicks:
            state["clicks"] += len(some.rows)
            return state
        _include(state["hits"], SignedHistogram.of(some.reward))
        _include(state["misses"], SignedHistogram.of(1 - some.reward))
        _exclude(state["misses"], some.sorted_weights(None))
        return state

    def finish(self, state: State, every: EveryRound) -> State:
        clicks = _times(int(state["clicks"]), ONE)
        hits, misses = added(state["hits"], clicks), added(state["misses"], _times(-1, clicks))
        return {"hits": every.zero(hits), "misses": every.weight(misses, None)}


@final
@dataclass(frozen=True)
class Earned(ScoreKind):
    """The "hits", w·r, and the "misses", w·(1 − r), for a column of weights whose mean is 1."""

    weight: int

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.weight,)

    def zero(self) -> State:
        return {"hits": SignedHistogram.zero(), "misses": SignedHistogram.zero()}

    def fold(self, state: State, some: Rewarded, scale: RewardRange) -> State:  # noqa: ARG002
        own = some.sorted_weights(self.weight)
        _exclude(state["misses"], own)
        if some.clicks:
            _include(state["hits"], own)
            return state
        w = some.weights(self.weight)
        _include(state["hits"], SignedHistogram.of(w * some.reward))
        _include(state["misses"], SignedHistogram.of(w - w * some.reward))
        return state

    def finish(self, state: State, every: EveryRound) -> State:
        return {"hits": every.zero(state["hits"]), "misses": every.weight(state["misses"], self.weight)}


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

    def fold(self, state: State, some: Rewarded, scale: RewardRange) -> State:  # noqa: ARG002
        w1, w2 = (some.weights(column) for column in (self.weight, self.other))
        first, second = (some.sorted_weights(column) for column in (self.weight, self.other))
        gains = (w1 - w2) * some.reward
        ahead, behind = first, second
        if not some.clicks:
            ahead, behind = (SignedHistogram.of(each) for each in (w2 + gains, w1 - gains))
        _include(state["gains"], SignedHistogram.of(gains))
        _include(state["ahead"], ahead)
        _exclude(state["ahead"], second)
        _include(state["behind"], behind)
        _exclude(state["behind"], first)
        return state

    def finish(self, state: State, every: EveryRound) -> State:
        return {
            "gains": every.zero(state["gains"]),
            "ahead": every.weight(state["ahead"], self.other),
            "behind": every.weight(state["behind"], self.weight),
        }


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

    def fold(self, state: State, some: Rewarded, scale: RewardRange) -> State:
        scored = some.scored
        score = scored.columns[self.baseline] + scored.origin[self.reward] + scored.columns[self.correction]
        scaled = scale.rescaled(score)
        state["scores"] = SignedHistogram.fold(state["scores"], scaled)
        state["below"] = np.maximum(state["below"], (-scaled).max())
        state["above"] = np.maximum(state["above"], (scaled - 1).max())
        return state

    def finish(self, state: State, every: EveryRound) -> State:  # noqa: ARG002
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

    def zero(self) -> State:
        own = {str(column): LogHistogram().zero() for column in self.weights}
        return {
            "weights": own,
            "rounds": np.zeros((), np.int64),
            **{str(k): kind.zero() for k, kind in enumerate(self.kinds)},
        }

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        some = {k: Rewarded.of(batch.reward[:, k], scored, self.scale) for k in {kind.reward for kind in self.kinds}}
        for k, kind in enumerate(self.kinds):
            state[str(k)] = kind.fold(state[str(k)], some[kind.reward], self.scale)
        for column in self.weights:
            own = state["weights"]
            own[str(column)] = LogHistogram().fold(own[str(column)], scored.columns[column])
        state["rounds"] += len(batch)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b, (*EXTREMES, *LARGEST_OF))

    def finish(self, state: State, kind: ScoreKind, weights: Callable[[int], State]) -> State:
        """The histograms of one kind of scores over all rounds; `weights` has those of a diagnostic."""

        def of(column: int) -> State:
            own: State = state["weights"][str(column)] if column in self.weights else weights(column)
            return own

        return kind.finish(state[str(self.kinds.index(kind))], EveryRound(int(state["rounds"]), of))


def kind_of(member: Member, terms: Terms, reward: int) -> ScoreKind | None:
    """The scores of an estimator whose rounds each have the value of the policy as their mean; None for others.

    A self-normalised estimate has those of the same weights, without the division.
    """
    unbiased = member.weight.mean_one or member.weight.naive
    summed = terms.correction is not None and terms.weight is not None and terms.slot is None
    if not (unbiased and summed) or member.scaled or member.smoothing is not None:
        return None
    if member.rewards is None:
        if member.weight.naive:
            return Logged(reward)
        return None if terms.weight is None else Earned(reward, terms.weight)
    given = not member.rewards.fitted and not member.normalised and not member.remainder and member.weight.exact
    if not given or terms.baseline is None or terms.correction is None:
        return None
    return Modelled(reward, terms.baseline, terms.correction)
