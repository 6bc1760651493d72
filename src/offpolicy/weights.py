"""Weights: which ratio stands in for "how much more would π have done this?", and how it is bent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from offpolicy.batch import FloatArray
from offpolicy.errors import InputError


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
class Weight:
    """A ratio and its bend. "none" is no weight at all (0: the direct method); "one" takes the log as it is."""

    ratio: Literal["action", "one", "none"] = "action"
    bend: Bend = Straight()

    @property
    def exact(self) -> bool:
        return self.ratio == "action" and self.bend.exact


def check_setting(estimator: str, name: str, value: float | str, low: float, high: float = np.inf) -> None:
    """A setting is a number within its range, or "auto"."""
    if value == "auto":
        return
    if not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f'{estimator}: {name} is {value!r}; give a number from {low:g} to {high:g}, or "auto".')
