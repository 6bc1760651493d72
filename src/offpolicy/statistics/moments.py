"""Means and co-moments of columns, centred throughout (Chan's merge), so that large offsets lose no digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.statistics.base import State

AT_ONCE = 1 << 13
"""Rows that are centred at a time, which stay in the cache."""


@dataclass(frozen=True)
class Moments:
    """Count, means and sums of centred products of `size` columns.

    >>> moments = Moments(1)
    >>> state = moments.fold(moments.zero(), np.array([[1e8, 1e8 + 1, 1e8 + 2]]))
    >>> float(state["m2"][0, 0])
    2.0
    """

    size: int

    def zero(self) -> State:
        return {"n": np.zeros(()), "mean": np.zeros(self.size), "m2": np.zeros((self.size, self.size))}

    def fold(self, state: State, values: FloatArray) -> State:
        """Add values, as columns × rows: each column is contiguous."""
        rows = values.shape[1]
        if not rows:
            return state
        mean, m2 = values.mean(axis=1), np.zeros((self.size, self.size))
        for start in range(0, rows, AT_ONCE):
            centred = values[:, start : start + AT_ONCE] - mean[:, None]
            m2 += centred @ centred.T
        return self.merge(state, {"n": np.asarray(float(rows)), "mean": mean, "m2": m2})

    def merge(self, a: State, b: State) -> State:
        n = a["n"] + b["n"]
        if n == 0:
            return a
        delta = b["mean"] - a["mean"]
        share = b["n"] / n
        return {
            "n": n,
            "mean": a["mean"] + delta * share,
            "m2": a["m2"] + b["m2"] + np.outer(delta, delta) * (a["n"] * share),
        }
