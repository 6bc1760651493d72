"""Weights: which ratio stands in for "how much more would π have done this?", and how it is bent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.features import Inputs
from offpolicy.data.spaces import Serves
from offpolicy.models.posteriors.base import Posterior
from offpolicy.models.rewards.base import RewardModel


class Bend(ABC):
    """A function of the ratio w that trades bias for variance."""

    @abstractmethod
    def __call__(self, w: FloatArray) -> FloatArray: ...

    def largest(self, w: float) -> float:
        """The largest weight that ratios up to w can give."""
        return float(self(np.array([w]))[0])

    @property
    def exact(self) -> bool:
        """Whether the weight is still the ratio itself, so that its mean under the logging policy is 1."""
        return False


@dataclass(frozen=True)
class Straight(Bend):
    """w itself."""

    def __call__(self, w: FloatArray) -> FloatArray:
        return w

    @property
    def exact(self) -> bool:
        return True


@dataclass(frozen=True)
class Clip(Bend):
    """min(w, M)."""

    limit: float

    def __call__(self, w: FloatArray) -> FloatArray:
        return np.minimum(w, self.limit)


@dataclass(frozen=True)
class Times(Bend):
    """h·w for a bend h, or h² with `squared`: what it takes to scale a correction by h."""

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
        return float(self(np.array([min(w, np.sqrt(self.amount))]))[0])  # it rises up to w = √λ, and falls from there


@dataclass(frozen=True)
class Harmonic(Bend):
    """w / (1 − λ + λw): Metelli et al. (2021). λ = 0 is w, λ = 1 is 1 wherever w > 0."""

    amount: float

    def __call__(self, w: FloatArray) -> FloatArray:
        return w / np.where(w > 0, 1 - self.amount + self.amount * w, 1.0)


@dataclass(frozen=True)
class Pooled:
    """p(e|π, x)/p(e|π0, x): actions are pooled by their embeddings."""

    posterior: Posterior
    rewards: RewardModel | None
    """The model whose embedding it is; None: the pre-defined features themselves."""
    inputs: Inputs | None = "identity"
    cross_fit: int = 0
    dimensions: tuple[str, ...] | None = None
    """Of the pre-defined features, where not all are used."""
    reward: int = 0
    """Which reward the embedding is learned from."""


@dataclass(frozen=True)
class Outcome:
    """E[w | r]: rounds are pooled by their reward."""

    cross_fit: int = 0
    reward: int = 0


@dataclass(frozen=True)
class Weight(Serves):
    """A ratio and its bend. "none" is no weight at all (0: the direct method); "one" takes the log as it is."""

    ratio: Literal["action", "one", "none"] | Pooled | Outcome = "action"
    bend: Bend = Straight()

    @property
    def exact(self) -> bool:
        """Whether its mean under the logging policy is 1, and pooled rounds have the same reward in the mean."""
        return self.ratio == "action" and self.bend.exact

    @property
    def mean_one(self) -> bool:
        """Whether its mean under the logging policy is 1."""
        return self.exact or (isinstance(self.ratio, Pooled) and self.ratio.posterior.exact and self.bend.exact)

    @property
    def weighs(self) -> bool:
        """Whether it compares the two policies at all."""
        return self.ratio not in ("one", "none")

    def for_reward(self, reward: int) -> Weight:
        """Learned weights belong to the reward they are learned from."""
        if isinstance(self.ratio, Outcome) or (isinstance(self.ratio, Pooled) and self.ratio.rewards is not None):
            return replace(self, ratio=replace(self.ratio, reward=reward))
        return self


def check_setting(estimator: str, name: str, value: float | str, low: float, high: float = np.inf) -> None:
    """A setting is a number within its range, or "auto"."""
    if value == "auto":
        return
    if not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f'{estimator}: {name} is {value!r}; give a number from {low:g} to {high:g}, or "auto".')
