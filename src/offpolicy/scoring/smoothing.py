"""Logarithmic smoothing: log(1 + λ·w·r)/λ in place of w·r, a transformation of the product rather than of the weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from offpolicy.core.arrays import FloatArray


@dataclass(frozen=True)
class Smoother:
    """A number λ, and the range from which rewards are rescaled to 0 to 1."""

    amount: float
    low: float
    high: float

    def hits(self, w: FloatArray, reward: FloatArray) -> FloatArray:
        """The smoothed w·r, on the scale of the rewards."""
        return self.low + (self.high - self.low) * self._smoothed(w * self._rescaled(reward))

    def misses(self, w: FloatArray, reward: FloatArray) -> FloatArray:
        """The smoothed w·(1 − r), for rewards from 0 to 1."""
        return self._smoothed(w * (1 - self._rescaled(reward)))

    def _rescaled(self, reward: FloatArray) -> FloatArray:
        return (reward - self.low) / (self.high - self.low)

    def _smoothed(self, product: FloatArray) -> FloatArray:
        """Of either sign, for rewards outside the range."""
        return np.copysign(np.log1p(self.amount * np.abs(product)) / self.amount, product) if self.amount else product


@dataclass(frozen=True)
class Smoothers:
    """What settles a smoother: the number of rounds, and the stated range of the rewards, or 0 to 1."""

    rounds: int
    reward_range: tuple[float, float] | None

    def of(self, setting: float | Literal["auto"]) -> Smoother:
        """With λ = 1/√n for "auto"."""
        amount = 1 / np.sqrt(self.rounds) if setting == "auto" else setting
        return Smoother(float(amount), *(self.reward_range or (0.0, 1.0)))
