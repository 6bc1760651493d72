"""Confidence sequences: intervals that hold at every look at once, of values and of differences between two policies.

Rounds bet one by one, from histograms of their scores. Rounds of returning users are not independent: there whole units bet,
from the sums of the buckets. That holds at one look only, so the error probability is spent over the looks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.inference.betting import BinnedCapital, Capital, SharedCapital, UnitCapital, lower_bound
from offpolicy.inference.functionals import ScoreSums
from offpolicy.scoring.score_histograms import RewardRange
from offpolicy.statistics.signed_histogram import Bins

ROUNDING = 1e-6
NOT_ASKED = (
    "a confidence sequence needs sums that were not asked for; evaluate again with sequence=True, or with the name of a "
    "baseline for differences from it."
)
UNBOUNDED = (
    "with a reward model, a confidence sequence needs a bound on the weights that is known without looking at the log; give "
    "it as weight_bound=."
)


def spent(alpha: float, look: int) -> float:
    """The error probability of one look; those of all looks sum to α."""
    return alpha / (look * (look + 1))


@dataclass(frozen=True)
class SequenceScores(ABC):
    """Scores of rounds, or their sums over units."""

    @abstractmethod
    def capital(self, factor: float = 1.0, offset: float = 0.0, floor: float = 0.0, shift: float = 0.0) -> Capital:
        """The capital of bets on factor·s + offset, which is at least −floor and has the mean θ + shift."""


@final
@dataclass(frozen=True)
class IndependentScores(SequenceScores):
    """Of independent rounds."""

    bins: Bins

    def capital(self, factor: float = 1.0, offset: float = 0.0, floor: float = 0.0, shift: float = 0.0) -> Capital:
        return BinnedCapital(self.bins.affine(factor, offset), floor, shift)


@final
@dataclass(frozen=True)
class UnitScores(SequenceScores):
    """Of independent units."""

    sums: FloatArray
    rounds: FloatArray

    def capital(self, factor: float = 1.0, offset: float = 0.0, floor: float = 0.0, shift: float = 0.0) -> Capital:
        return UnitCapital(factor * self.sums + offset * self.rounds, self.rounds, floor, shift)

    def __add__(self, other: UnitScores) -> UnitScores:
        return UnitScores(self.sums + other.sums, self.rounds)

    def __sub__(self, other: UnitScores) -> UnitScores:
        return UnitScores(self.sums - other.sums, self.rounds)


class SequenceBounds(ABC):
    """What a confidence sequence is computed from; everything on the scale of rewards from 0 to 1."""

    @abstractmethod
    def ends(self, alpha: float, weight_bound: float | None) -> tuple[float, float]:
        """The two bounds; together they miss with probability α at most."""


def _upper(parts: Sequence[Capital], alpha: float) -> float:
    """1 − a lower bound on 1 − V."""
    return 1 - lower_bound(SharedCapital(parts), alpha, 0.0, 1.0)


@final
@dataclass(frozen=True)
class Earnings(SequenceBounds):
    """Of w·r ("hits") and w·(1 − r) ("misses"), whose means are V and 1 − V."""

    hits: SequenceScores
    misses: SequenceScores

    def ends(self, alpha: float, weight_bound: float | None) -> tuple[float, float]:
        above = [self.misses.capital()]
        if weight_bound is not None:
            above.append(self.hits.capital(-1.0, floor=weight_bound, shift=-1.0))  # −w·r ≥ −W
        return lower_bound(self.hits.capital(), alpha / 2, 0.0, 1.0), _upper(above, alpha / 2)


@final
@dataclass(frozen=True)
class Predictions(SequenceBounds):
    """Of q(x, π) + w·(r − q(x, a)), which is at least −W and at most 1 + W if all predictions lie between 0 and 1."""

    scores: SequenceScores
    beyond: float = 0.0

    def ends(self, alpha: float, weight_bound: float | None) -> tuple[float, float]:
        if weight_bound is None:
            raise InputError(UNBOUNDED)
        if self.beyond > weight_bound * (1 + ROUNDING):
            raise InputError(
                f"a round scores {self.beyond:.3g} beyond the range of the rewards, which is more than the weight_bound, "
                f"{weight_bound:g}, allows. Give the largest possible weight, and use a reward model whose predictions stay "
                "within the reward_range."
            )
        low = lower_bound(self.scores.capital(floor=weight_bound), alpha / 2, 0.0, 1.0)
        return low, _upper([self.scores.capital(-1.0, 1.0, floor=weight_bound)], alpha / 2)


@final
@dataclass(frozen=True)
class Gains(SequenceBounds):
    """Of the differences between two policies: (w₁ − w₂)·r, w₁·r + w₂·(1 − r) and w₂·r + w₁·(1 − r).

    Their means are D, 1 + D and 1 − D. Where w₂ ≤ W is known, the first is at least −W. `reference` is whether the second
    policy is the logging policy, whose weights are 1.
    """

    gains: SequenceScores
    ahead: SequenceScores
    behind: SequenceScores
    reference: bool = False

    def ends(self, alpha: float, weight_bound: float | None) -> tuple[float, float]:
        other = 1.0 if self.reference else weight_bound
        below, above = [self.ahead.capital(shift=1.0)], [self.behind.capital(shift=1.0)]
        if other is not None:
            below.append(self.gains.capital(floor=other))
        if weight_bound is not None:
            above.append(self.gains.capital(-1.0, floor=weight_bound))
        low = lower_bound(SharedCapital(below), alpha / 2, -1.0, 1.0)
        return low, -lower_bound(SharedCapital(above), alpha / 2, -1.0, 1.0)


@final
@dataclass(frozen=True)
class Apart(SequenceBounds):
    """Of two values, each with half of the error probability: for policies whose differences were not summed."""

    first: SequenceBounds
    second: SequenceBounds

    def ends(self, alpha: float, weight_bound: float | None) -> tuple[float, float]:
        low, high = self.first.ends(alpha / 2, weight_bound)
        other_low, other_high = self.second.ends(alpha / 2, weight_bound)
        return low - other_high, high - other_low


@final
@dataclass(frozen=True)
class Reversed(SequenceBounds):
    """Of the difference the other way round."""

    forward: SequenceBounds

    def ends(self, alpha: float, weight_bound: float | None) -> tuple[float, float]:
        low, high = self.forward.ends(alpha, weight_bound)
        return -high, -low


@final
@dataclass(frozen=True)
class ValueScores:
    """The scores of one estimate: which columns they are in, and their bins if these were asked for.

    `weight` is None with a reward model, `baseline` without. `largest` is the largest weight seen. Entries of `bins` and of
    `gains` are named: by the kind of score, and by the other policy (None: what was logged).
    """

    scale: RewardRange
    origin: float
    correction: int
    weight: int | None = None
    baseline: int | None = None
    naive: bool = False
    largest: float = 1.0
    bins: tuple[tuple[str, Bins], ...] = ()
    beyond: float = 0.0
    gains: tuple[tuple[str | None, tuple[tuple[str, Bins], ...]], ...] = ()

    def check(self, weight_bound: float | None) -> None:
        """Raise if a weight exceeds its bound."""
        if weight_bound is not None and self.largest > weight_bound * (1 + ROUNDING):
            raise InputError(
                f"weight_bound is {weight_bound:g}, and the largest weight of the log is {self.largest:.4g}. Give a bound "
                "that follows from the two policies, not from the weights seen, or leave it out."
            )

    def bounds(self, sums: ScoreSums) -> SequenceBounds:
        """Of the value."""
        scores = self._scores(sums)
        if self.baseline is not None:
            return Predictions(scores["scores"], 0.0 if sums.clustered else self.beyond)
        return Earnings(scores["hits"], scores["misses"])

    def difference(self, other: ValueScores, sums: ScoreSums, names: tuple[str, str]) -> SequenceBounds:
        """Of the value minus that of another policy; `names` are those of the two policies."""
        if sums.clustered and self.weight is not None and other.weight is not None:
            first, second = self._units(sums), other._units(sums)
            gains = first["hits"] - second["hits"]
            return Gains(gains, first["hits"] + second["misses"], second["hits"] + first["misses"], other.naive)
        summed = dict(self.gains).get(None if other.naive else names[1])
        if summed is not None:
            return Gains(**{name: IndependentScores(bins) for name, bins in summed}, reference=other.naive)
        if dict(other.gains).get(None if self.naive else names[0]) is not None:
            return Reversed(other.difference(self, sums, (names[1], names[0])))
        return Apart(self.bounds(sums), other.bounds(sums))

    def _scores(self, sums: ScoreSums) -> dict[str, SequenceScores]:
        if sums.clustered:
            return dict(self._units(sums))
        if not self.bins:
            raise InputError(NOT_ASKED)
        return {name: IndependentScores(bins) for name, bins in self.bins}

    def _units(self, sums: ScoreSums) -> dict[str, UnitScores]:
        """The sums of the buckets that contain any unit."""
        columns, (low, width) = sums.filled.T, (self.scale.low, self.scale.high - self.scale.low)
        rounds = columns[0]
        if self.baseline is not None:
            score = columns[self.baseline] + columns[self.correction] + (self.origin - low) * rounds
            return {"scores": UnitScores(score / width, rounds)}
        assert self.weight is not None
        w = columns[self.weight]
        hits = np.maximum((columns[self.correction] + (self.origin - low) * w) / width, 0.0)
        return {"hits": UnitScores(hits, rounds), "misses": UnitScores(np.maximum(w - hits, 0.0), rounds)}

    def rescaled(self, ends: tuple[float, float], shift: bool) -> tuple[float, float]:
        """On the scale of the rewards; with `shift`, values rather than differences."""
        width, low = self.scale.high - self.scale.low, self.scale.low if shift else 0.0
        return low + width * ends[0], low + width * ends[1]

    def without_bins(self) -> ValueScores:
        return replace(self, bins=(), gains=())
