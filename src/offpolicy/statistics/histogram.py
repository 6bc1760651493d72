"""A histogram of non-negative numbers on a logarithmic scale, for tails in flat memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.batch import FloatArray
from offpolicy.statistics.base import State

_SHIFT = np.int64(46)  # keeps the exponent and 6 bits of the fraction of a float64: bins about 1% wide
_LOW = np.int64((1023 - 64) << 6)  # values below 2⁻⁶⁴ share the bin of zero
_BINS = 1 + (128 << 6)
_HALF = 27  # of 64 parts of an octave: 1 + 27/64 is about √2


@dataclass(frozen=True)
class LogHistogram:
    """Counts and sums of values in bins whose edges grow by about 1%, from 2⁻⁶⁴ to 2⁶⁴, and the largest value."""

    def zero(self) -> State:
        return {"count": np.zeros(_BINS), "sum": np.zeros(_BINS), "max": np.zeros(())}

    def fold(self, state: State, values: FloatArray) -> State:
        if not len(values):
            return state
        bins = np.clip((np.ascontiguousarray(values).view(np.int64) >> _SHIFT) - _LOW, -1, _BINS - 2) + 1
        return {
            "count": state["count"] + np.bincount(bins, minlength=_BINS),
            "sum": state["sum"] + np.bincount(bins, values, _BINS),
            "max": np.maximum(state["max"], values.max()),
        }

    def merge(self, a: State, b: State) -> State:
        return {
            "count": a["count"] + b["count"],
            "sum": a["sum"] + b["sum"],
            "max": np.maximum(a["max"], b["max"]),
        }

    @staticmethod
    def top_share(state: State, share: float) -> float:
        """The part of the total that the largest `share` of the values holds."""
        total = float(state["sum"].sum())
        if total == 0:
            return 0.0
        count, sums = state["count"][::-1], state["sum"][::-1]
        wanted = share * count.sum()
        before = np.concatenate([[0.0], np.cumsum(count)[:-1]])
        part = np.clip((wanted - before) / np.maximum(count, 1), 0, 1)
        return float((part * sums).sum() / total)

    @staticmethod
    def steps(state: State) -> tuple[FloatArray, FloatArray, float]:
        """Edges that grow by about √2, the counts between them, and how many values are 0 (or below 2⁻⁶⁴)."""
        counts = state["count"][1:].reshape(-1, 1 << 6)
        halves = np.column_stack([counts[:, :_HALF].sum(axis=1), counts[:, _HALF:].sum(axis=1)]).ravel()
        used = np.flatnonzero(halves)
        if not len(used):
            return np.empty(0), np.empty(0), float(state["count"][0])
        first, last = int(used[0]), int(used[-1]) + 1
        k = np.arange(first, last + 1)
        edges = np.ldexp(np.where(k % 2 == 0, 1.0, 1 + _HALF / 64), k // 2 - 64)
        return edges, halves[first:last], float(state["count"][0])

    @staticmethod
    def count_above(state: State, value: float) -> float:
        """How many values lie above a bound, to about 1% of the bound."""
        edge = int(np.clip((np.float64(value).view(np.int64) >> _SHIFT) - _LOW, -1, _BINS - 2)) + 1
        return float(state["count"][edge + 1 :].sum())
