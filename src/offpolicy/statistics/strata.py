"""Sums by stratum, such as the logger, and the sums of rows centred within their strata.

The number of rounds of each stratum is fixed, so that differences between strata are no sampling error. With m = z̄/ω̄, the
means per row weight, each row z of stratum k is replaced by z − ω·(m_k − m). All means stay the same, as do the row
weights, and whatever is computed from squares, buckets of units or groups of them has the variance of a stratified sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.statistics.base import State, added
from offpolicy.statistics.moments import Moments


@dataclass(frozen=True)
class Strata:
    """Moments of `size` columns by stratum, and the sum of the row weights (column 0) of each stratum in each bucket."""

    size: int
    strata: int
    buckets: int

    @cached_property
    def _moments(self) -> Moments:
        return Moments(self.size)

    def zero(self) -> State:
        by_stratum = {str(k): self._moments.zero() for k in range(self.strata)}
        return {"moments": by_stratum, "omega": np.zeros((self.buckets, self.strata))}

    def fold(self, state: State, values: FloatArray, bucket: IntArray, stratum: IntArray) -> State:
        """Add values (columns × rows) with the bucket and the stratum of each row."""
        for k in np.unique(stratum):
            state["moments"][str(k)] = self._moments.fold(state["moments"][str(k)], values[:, stratum == k])
        key = bucket * self.strata + stratum
        state["omega"] += np.bincount(key, values[0], state["omega"].size).reshape(state["omega"].shape)
        return state

    def merge(self, a: State, b: State) -> State:
        moments = {k: self._moments.merge(part, b["moments"][k]) for k, part in a["moments"].items()}
        return {"moments": moments, **added({"omega": a["omega"]}, b)}


def stratified(moments: State, buckets: FloatArray, strata: Mapping[str, State]) -> tuple[State, FloatArray]:
    """The moments and bucket sums of rows that are centred within their strata, with the weight n_k / (n_k − 1) of each.

    Of a column that is not finite, the sums stay as they are.
    """
    parts, n, mean = list(strata["moments"].values()), float(moments["n"]), moments["mean"]
    finite = np.isfinite(mean)
    shifts = np.stack([np.where(finite, _per_weight(part["mean"]) - _per_weight(mean), 0.0) for part in parts])
    shifts[[not part["mean"][0] > 0 for part in parts]] = 0.0
    m2 = np.zeros_like(moments["m2"])
    for part, shift in zip(parts, shifts, strict=True):
        moved = np.eye(len(mean))
        moved[:, 0] -= shift
        # Σ_k n_k/(n_k − 1)·M_k, in the units of sums that are later divided by n(n − 1)
        scale = float(part["n"]) / max(float(part["n"]) - 1, 1) * max(n - 1, 1) / max(n, 1)
        m2 += scale * (moved @ np.where(finite[:, None] & finite, part["m2"], 0.0) @ moved.T)
    m2 = np.where(finite[:, None] & finite, m2, moments["m2"])
    return {**moments, "m2": m2}, buckets - strata["omega"] @ shifts


def _per_weight(mean: FloatArray) -> FloatArray:
    """Means per row weight; 0 if every row has weight 0."""
    return mean / mean[0] if mean[0] > 0 else np.zeros_like(mean)
