"""Sums by stratum, such as the logger of a round, and the sums of rows centred within their strata.

The number of rounds of each stratum is fixed, so that differences between strata are no sampling error. With each row z of
stratum k replaced by z − z̄_k + z̄, all means stay the same, and whatever is computed from squares, buckets of units or
groups of them has the variance of a stratified sample.
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
    """Moments of `size` columns by stratum, and how many rows of each stratum are in each bucket."""

    size: int
    strata: int
    buckets: int

    @cached_property
    def _moments(self) -> Moments:
        return Moments(self.size)

    def zero(self) -> State:
        by_stratum = {str(k): self._moments.zero() for k in range(self.strata)}
        return {"moments": by_stratum, "rows": np.zeros((self.buckets, self.strata))}

    def fold(self, state: State, values: FloatArray, bucket: IntArray, stratum: IntArray) -> State:
        """Add values (columns × rows) with the bucket and the stratum of each row."""
        for k in np.unique(stratum):
            state["moments"][str(k)] = self._moments.fold(state["moments"][str(k)], values[:, stratum == k])
        key = bucket * self.strata + stratum
        state["rows"] += np.bincount(key, minlength=state["rows"].size).reshape(state["rows"].shape)
        return state

    def merge(self, a: State, b: State) -> State:
        moments = {k: self._moments.merge(part, b["moments"][k]) for k, part in a["moments"].items()}
        return {"moments": moments, **added({"rows": a["rows"]}, b)}


def stratified(moments: State, buckets: FloatArray, strata: Mapping[str, State]) -> tuple[State, FloatArray]:
    """The moments and bucket sums of rows that are centred within their strata, with the weight n_k / (n_k − 1) of each.

    Of a column that is not finite, the sums stay as they are.
    """
    parts, n, mean = list(strata["moments"].values()), float(moments["n"]), moments["mean"]
    finite = np.isfinite(mean)
    shifts = np.stack([np.where(finite, part["mean"] - mean, 0.0) * (part["n"] > 0) for part in parts])
    # Σ_k n_k/(n_k − 1)·M_k, in the units of sums that are later divided by n(n − 1)
    scales = [float(part["n"]) / max(float(part["n"]) - 1, 1) * max(n - 1, 1) / max(n, 1) for part in parts]
    m2 = np.sum([scale * part["m2"] for scale, part in zip(scales, parts, strict=True)], axis=0)
    m2 = np.where(finite[:, None] & finite, m2, moments["m2"])
    return {**moments, "m2": m2}, buckets - strata["rows"] @ shifts
