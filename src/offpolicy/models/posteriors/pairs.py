"""The distinct (action, features) of a log with their counts, or a sample of them if there are too many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.hashing import mix
from offpolicy.data.batch import Batch
from offpolicy.data.spaces import Discrete
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class Pairs(FitStatistic):
    """For each group of units, the number of rounds of each distinct (action, features of the round[, context]).

    At most `limit` are retained, those with the smallest hashes, so that the sample depends on neither order nor partitions.
    """

    limit: int
    context: bool = False

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.shape.features.per_round, self.shape.context if self.context else 0

    def zero(self) -> State:
        features, context = self._sizes
        return {
            "hash": np.empty(0, np.uint64),
            "group": np.empty(0, np.int64),
            "action": np.empty(0, np.int64),
            "features": np.empty((0, features)),
            "context": np.empty((0, context)),
            "count": np.empty(0),
            "total": np.zeros(()),
            "sampled": np.zeros((), bool),
        }

    def fold(self, state: State, batch: Batch) -> State:
        features, context = self._sizes
        seen = batch.features if features else np.empty((len(batch), 0))
        x = batch.context if context else np.empty((len(batch), 0))
        weight = self.shape.weights(batch)
        count = np.ones(len(batch)) if weight is None else weight
        part = {
            "hash": _hash(batch.action, seen, x),
            "group": self.shape.group(batch),
            "action": batch.action,
            "features": seen,
            "context": x,
            "count": count,
            "total": count.sum(),
            "sampled": np.zeros((), bool),
        }
        return self.merge(state, part)

    def merge(self, a: State, b: State) -> State:
        joined = {name: np.concatenate([a[name], b[name]]) for name in a if name not in ("total", "sampled")}
        key = joined["hash"] ^ mix(joined["group"].astype(np.uint64))
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        out = {name: values[first] for name, values in joined.items()}
        out["count"] = np.bincount(which, joined["count"], len(first))
        sampled = a["sampled"] | b["sampled"]
        if len(first) > self.limit and len(distinct := np.unique(out["hash"])) > self.limit:
            keep = out["hash"] < distinct[self.limit]
            out, sampled = {name: values[keep] for name, values in out.items()}, np.ones((), bool)
        return {**out, "total": a["total"] + b["total"], "sampled": sampled}

    def finish(self, state: State) -> PairSample:
        order = np.lexsort((state["group"], state["hash"]))
        parts = {name: state[name][order] for name in ("group", "action", "features", "context", "count")}
        parts["count"] = parts["count"] * self.shape.weight_scale(float(state["total"]))
        key = _hash(np.zeros_like(parts["action"]), parts["features"], parts["context"])
        return PairSample(
            **parts, sampled=bool(state["sampled"]), combination=np.unique(key, return_inverse=True)[1].astype(np.int64)
        )


@dataclass(frozen=True)
class PairSample:
    """One row per (group, action, features), with the number of rounds that it represents.

    `combination` numbers the distinct combinations of features.
    """

    group: IntArray
    action: IntArray
    features: FloatArray
    context: FloatArray
    count: FloatArray
    sampled: bool
    combination: IntArray

    def of(self, keep: npt.NDArray[np.bool_]) -> PairSample:
        """The rows of some groups."""
        rows = keep[self.group]
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "sampled"}
        return replace(self, **arrays)


def pair_batch(pairs: PairSample, n_actions: int) -> Batch:
    """The pairs as a batch of rounds."""
    n = len(pairs.action)
    return Batch(
        row=np.arange(n),
        unit=np.zeros(n, np.uint64),
        action=pairs.action,
        reward=np.zeros((n, 1)),
        context_parts=(pairs.context,),
        space=Discrete(n_actions),
        feature_parts=(pairs.features,),
    )


def _hash(action: IntArray, *tables: FloatArray) -> UInt64Array:
    out = mix(action.astype(np.uint64))
    for table in tables:
        for column in table.T:
            out = mix(out ^ (np.ascontiguousarray(column) + 0.0).view(np.uint64))  # −0.0 becomes 0.0
    return out
