"""Predicted and observed rewards, in bins of the prediction: constant memory, and no edges needed in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.statistics.base import State

_SHIFT = np.int64(49)  # retains the exponent and 3 bits of the fraction of a float64: bins about 9% wide
_LOW = np.int64((1023 - 64) << 3)
_SIDE = 128 << 3
_BINS = 2 * _SIDE + 1
SAME = 1e-12  # below this share of their square, the variation of rewards is rounding error


class Bin(NamedTuple):
    """Rounds with similar predictions: their mean prediction, their mean reward and its standard error.

    Attributes
    ----------
    std_error : float | None
        As if rounds were independent; None if all rewards are equal, so that their variance cannot be estimated.
    """

    predicted: float
    observed: float
    std_error: float | None
    rounds: int


@dataclass(frozen=True)
class Calibration:
    """Sums over rounds by prediction, in bins that grow by about 9% on either side of 0.

    Subtract a typical reward from predictions and rewards first: bins are finest around 0.
    """

    def zero(self) -> State:
        return {"sums": np.zeros((7, _BINS))}

    def fold(self, state: State, predicted: FloatArray, reward: FloatArray, omega: FloatArray) -> State:
        """Adds Σ1, Σω, Σωq, Σωr, Σω², Σω²r and Σω²r² of each bin."""
        size = (np.abs(predicted).view(np.int64) >> _SHIFT) - _LOW
        at = _SIDE + np.where(np.signbit(predicted), -1, 1) * (np.clip(size, -1, _SIDE - 1) + 1)
        at = np.where(np.isfinite(predicted), at, _SIDE)
        square, r = omega**2, reward
        for row, values in enumerate((None, omega, omega * predicted, omega * r, square, square * r, square * r**2)):
            state["sums"][row] += np.bincount(at, values, _BINS)
        return state

    @staticmethod
    def bins(state: State, most: int) -> list[Bin]:
        """At most so many bins with about the same number of rounds, in ascending order of the prediction."""
        sums = state["sums"][:, state["sums"][1] > 0]
        if not sums.size:
            return []
        middle = np.cumsum(sums[0]) - sums[0] / 2
        place = np.minimum((middle * most / sums[0].sum()).astype(np.int64), most - 1)
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        rounds, omega, q, r, square, square_r, square_rr = np.add.reduceat(sums, starts, axis=1)
        mean = r / omega
        spread = square_rr - 2 * mean * square_r + mean**2 * square  # Σω²(r − mean)²
        error = np.where(spread > SAME * square_rr, np.sqrt(np.maximum(spread, 0.0)) / omega, np.nan)
        bins = zip(q / omega, mean, error, rounds, strict=True)
        return [Bin(float(q), float(r), None if np.isnan(e) else float(e), int(n)) for q, r, e, n in bins]
