"""Weights: a ratio, which answers "how much more often would π have done this?", and its bend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.spaces import ActionSpace
from offpolicy.ratios.actions import ActionRatio
from offpolicy.ratios.base import Ratio, UnfittedRatio
from offpolicy.ratios.pools import Rounds

UNBOUNDED = 1e18
"""A ratio larger than any, to see what the largest weight of a bend is."""
HALF_CORRECTED = 13.0
"""The largest weight of a bend that leaves about half of a reward model's error uncorrected."""


class Bend(ABC):
    """A function of the ratio w that trades bias for variance.

    A bend of your own is a frozen dataclass that defines `__call__`; override `largest` if the function is not monotone.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Root(Bend):
    ...     def __call__(self, w):
    ...         return np.sqrt(w)
    >>> Root()(np.array([0.25, 4.0])).tolist()
    [0.5, 2.0]
    """

    @abstractmethod
    def __call__(self, w: FloatArray) -> FloatArray: ...

    def largest(self, w: float) -> float:
        """The largest weight that ratios up to w can give.

        Parameters
        ----------
        w : float
            The largest ratio.

        Returns
        -------
        float
            The largest weight.
        """
        return float(self(np.array([w]))[0])

    @property
    def exact(self) -> bool:
        """Whether the weight is the ratio itself, so that its mean under the logging policy is 1."""
        return False


@dataclass(frozen=True)
class Straight(Bend):
    """w itself."""

    def __call__(self, w: FloatArray) -> FloatArray:
        return w

    @property
    def exact(self) -> bool:
        return True


STRAIGHT = Straight()


@dataclass(frozen=True)
class Clip(Bend):
    """min(w, M)."""

    limit: float

    def __call__(self, w: FloatArray) -> FloatArray:
        return np.minimum(w, self.limit)


@dataclass(frozen=True)
class Times(Bend):
    """h·w for a bend h, or h² with `squared`: what is needed to scale a correction by h."""

    bend: Bend
    squared: bool = False

    def __call__(self, w: FloatArray) -> FloatArray:
        h = self.bend(w)
        return h * (h if self.squared else w)


@dataclass(frozen=True)
class Switch(Bend):
    """w where w ≤ τ, else 0."""

    threshold: float

    def __call__(self, w: FloatArray) -> FloatArray:
        return np.where(w <= self.threshold, w, 0.0)

    def largest(self, w: float) -> float:
        return min(w, self.threshold)


@dataclass(frozen=True)
class Shrink(Bend):
    """λw / (w² + λ): the optimistic shrinkage of Su et al. (2020). λ → ∞ is w, λ = 0 is 0."""

    amount: float

    def __call__(self, w: FloatArray) -> FloatArray:
        if np.isinf(self.amount):
            return w
        return self.amount * w / np.where(w > 0, w * w + self.amount, 1.0)

    def largest(self, w: float) -> float:
        return float(self(np.array([min(w, np.sqrt(self.amount))]))[0])  # it rises up to w = √λ and falls after that


@dataclass(frozen=True)
class Harmonic(Bend):
    """w / (1 − λ + λw): Metelli et al. (2021). λ = 0 is w, λ = 1 is 1 wherever w > 0."""

    amount: float

    def __call__(self, w: FloatArray) -> FloatArray:
        return w / np.where(w > 0, 1 - self.amount + self.amount * w, 1.0)


@final
@dataclass(frozen=True)
class Constant(UnfittedRatio):
    """The same for every round: 1 uses the log as it is, and 0 leaves only the baseline, as the direct method does."""

    value: float
    spaces = (ActionSpace,)
    weighs = False

    @property
    def corrects(self) -> bool:
        return self.value > 0

    def weights(self, rounds: Rounds) -> FloatArray:
        return np.full(len(rounds.batch), self.value)


NAMED: dict[str, Ratio] = {"action": ActionRatio(), "one": Constant(1.0), "none": Constant(0.0)}  # short names of ratios


@dataclass(frozen=True, init=False)
class Weight:
    """How a round is weighted: a ratio of the two policies, and a bend of it.

    Parameters
    ----------
    ratio : Ratio or {"action", "one", "none"}
        "action" is π(a|x)/π0(a|x), "one" uses the log as it is, and "none" gives every round weight 0, as the direct method
        does.
    bend : Bend
        What is done to the ratio, such as clipping it; nothing by default.

    Raises
    ------
    InputError
        If `ratio` is neither a ratio nor one of the names.

    Examples
    --------
    >>> Weight().exact, Weight("one").naive
    (True, True)
    >>> Weight(bend=Clip(10.0)).exact
    False
    """

    ratio: Ratio
    bend: Bend

    def __init__(self, ratio: Ratio | Literal["action", "one", "none"] = "action", bend: Bend = STRAIGHT) -> None:
        resolved = NAMED.get(ratio) if isinstance(ratio, str) else ratio
        if not isinstance(resolved, Ratio):
            raise InputError(f'Weight: ratio is {ratio!r}; give an op.Ratio, "action", "one" or "none".')
        object.__setattr__(self, "ratio", resolved)
        object.__setattr__(self, "bend", bend)

    @property
    def exact(self) -> bool:
        """Whether weighting by it is unbiased whatever the rewards are."""
        return self.ratio.exact and self.bend.exact

    @property
    def uncorrected(self) -> float:
        """The share of a reward model's error that it leaves uncorrected, roughly: 0 if it is exact, 1 if nothing corrects.

        A bend that gives weights up to M leaves 1 / (1 + M/13): four fifths at M = 3, three tenths at M = 30.
        """
        if self.exact:
            return 0.0
        return 1 / (1 + self.bend.largest(UNBOUNDED) / HALF_CORRECTED) if self.ratio.exact else 1.0

    @property
    def mean_one(self) -> bool:
        """Whether its mean under the logging policy is 1."""
        return self.ratio.mean_one and self.bend.exact

    @property
    def model_error_cancels(self) -> bool:
        """Whether baseline and control of a reward model change alike on average."""
        return self.ratio.model_error_cancels and self.bend.exact

    @property
    def weighs(self) -> bool:
        """Whether it compares the two policies at all."""
        return self.ratio.weighs

    @property
    def naive(self) -> bool:
        """Whether it uses the log as it is, whatever the target policy does."""
        return self.ratio.corrects and not self.ratio.weighs

    @property
    def shown(self) -> Weight | None:
        """The weight whose distribution the report shows for it: for actions, π/π0 without a bend."""
        if self.ratio.of_actions:
            return Weight(self.ratio)
        return self if self.ratio.shown else None

    def for_reward(self, reward: int) -> Weight:
        """The same for one of several rewards: learned weights belong to the reward they are learned from.

        Parameters
        ----------
        reward : int
            The position of the reward among those of the log.

        Returns
        -------
        Weight
            With the ratio for that reward.
        """
        return Weight(self.ratio.for_reward(reward), self.bend)

    def for_slot(self, slot: int) -> Weight:
        """The same for the reward of one slot, if actions are lists.

        Parameters
        ----------
        slot : int
            The slot, from 0.

        Returns
        -------
        Weight
            With the ratio of that slot.
        """
        return Weight(self.ratio.for_slot(slot), self.bend)


def check_setting(estimator: str, name: str, value: float | str, low: float, high: float = np.inf) -> None:
    """Raise unless a setting is a number within its range, or "auto"."""
    if value == "auto":
        return
    if not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f'{estimator}: {name} is {value!r}; give a number from {low:g} to {high:g}, or "auto".')
