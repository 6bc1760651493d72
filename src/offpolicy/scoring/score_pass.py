"""The scoring pass: the sums that every estimate is made of, overall and by slice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.data.batch import Batch
from offpolicy.engines.base import BATCH_ROWS
from offpolicy.scoring.scored_block import BlockStatistic, ScoredBlock
from offpolicy.scoring.scorer import Scorer
from offpolicy.scoring.tallies import Tallies
from offpolicy.statistics.base import State, added
from offpolicy.statistics.fingerprint import Fingerprint
from offpolicy.statistics.moments import Moments

SLICE_BUCKETS = 256
MOST_SLICE_ELEMENTS = 1 << 25
"""Tables are kept by slice, for the fit's share of the error there, while they fit into 256 MB."""


@dataclass(frozen=True)
class ScorePass:
    """The statistic of the scoring pass: moments and bucket sums of the columns, overall and by slice."""

    scorer: Scorer
    n_actions: int
    n_slices: int
    clustered: bool
    diagnostics: Mapping[str, BlockStatistic] = field(default_factory=dict)
    most_rows: int | None = None
    summed: ClassVar[frozenset[str]] = frozenset({"tables", "mass", "scores", "points", "counts", "left_out"})

    @property
    def columns(self) -> tuple[str, ...]:
        logging = [self.scorer.logging] if self.scorer.logging else []
        policies = (policy.columns for policy in (*self.scorer.policies, *logging))
        ratios = (key.ratio.columns for key in self.scorer.plan.ratios)
        own = (each.columns for each in self.diagnostics.values())
        return tuple(dict.fromkeys(name for names in (*policies, *ratios, *own) for name in names))

    @property
    def batch_rows(self) -> int:
        """The columns of models take more room than others, and listed actions still more."""
        plan = self.scorer.plan
        rows = BATCH_ROWS // 2 if plan.models or any(key.ratio.whole for key in plan.ratios) else BATCH_ROWS
        return rows if self.most_rows is None else min(rows, self.most_rows)

    @cached_property
    def moments(self) -> Moments:
        return Moments(self.scorer.plan.width)

    def zero(self) -> State:
        width, plan = self.scorer.plan.width, self.scorer.plan
        size = len(self.scorer.centre) + 1
        return {
            "moments": self.moments.zero(),
            "buckets": np.zeros((BUCKETS, width)),
            "slices": {str(s): self._zero_slice() for s in range(self.n_slices)},
            "tables": np.zeros((len(self.scorer.tables), self.n_actions, size)),
            "ratios": {
                str(k): ratio.zero(len(plan.corrections(key)))
                for k, (key, ratio) in enumerate(zip(plan.weights, self.scorer.ratios, strict=True))
            },
            "fingerprint": Fingerprint(self.clustered).zero(),
            "diagnostics": {name: each.zero() for name, each in self.diagnostics.items()},
            "counts": np.zeros(self.n_actions),
            "nonzero": np.zeros(plan.rewards),
            "reward_low": np.full(plan.rewards, np.inf),
            "reward_high": np.full(plan.rewards, -np.inf),
        }

    def _zero_slice(self) -> State:
        shape = (len(self.scorer.tables), self.n_actions, len(self.scorer.centre) + 1)
        return {
            "moments": self.moments.zero(),
            "buckets": np.zeros((SLICE_BUCKETS, self.scorer.plan.width)),
            "nonzero": np.zeros(self.scorer.plan.rewards),
            "tables": np.zeros(shape if np.prod(shape) * self.n_slices <= MOST_SLICE_ELEMENTS else (0, *shape[1:])),
            "table_rows": np.zeros(()),
        }

    def fold(self, state: State, batch: Batch) -> State:
        batch, bucket = self.scorer.ordered(batch)
        scored = self.scored(state, batch, bucket)
        values = scored.columns
        for name, each in self.diagnostics.items():
            state["diagnostics"][name] = each.fold(state["diagnostics"][name], batch, scored)
        state["moments"] = self.moments.fold(state["moments"], values)
        _add_by_bucket(state["buckets"], bucket, values)
        state["fingerprint"] = Fingerprint(self.clustered).fold(state["fingerprint"], batch)
        state["counts"] += batch.space.tally(batch.action)
        state["nonzero"] += np.count_nonzero(batch.reward, axis=0)
        np.minimum(state["reward_low"], batch.reward.min(axis=0), out=state["reward_low"])
        np.maximum(state["reward_high"], batch.reward.max(axis=0), out=state["reward_high"])
        if batch.slice_code is not None:
            for s in np.unique(batch.slice_code):
                rows = np.flatnonzero(batch.slice_code == s)
                part = state["slices"][str(s)]
                part["moments"] = self.moments.fold(part["moments"], values[:, rows])
                part["nonzero"] += np.count_nonzero(batch.reward[rows], axis=0)
                _add_by_bucket(part["buckets"], bucket[rows] * SLICE_BUCKETS // BUCKETS, values[:, rows])
        return state

    def scored(self, state: State, batch: Batch, bucket: IntArray, weighted: bool = True) -> ScoredBlock:
        plan = self.scorer.plan
        whole = [plan.whole(p) for p in range(plan.n_policies)]
        tallies = Tallies(state, ScoredBlock.masses_of(whole, self.n_actions))
        return self.scorer.score(batch, bucket, tallies, weighted)

    def merge(self, a: State, b: State) -> State:
        own = {
            "moments": self.moments.merge(a["moments"], b["moments"]),
            "slices": {s: self._merge_slices(part, b["slices"][s]) for s, part in a["slices"].items()},
            "ratios": {k: self.scorer.ratios[int(k)].merge(part, b["ratios"][k]) for k, part in a["ratios"].items()},
            "fingerprint": Fingerprint(self.clustered).merge(a["fingerprint"], b["fingerprint"]),
            "diagnostics": {
                name: each.merge(a["diagnostics"][name], b["diagnostics"][name]) for name, each in self.diagnostics.items()
            },
            "reward_low": np.minimum(a["reward_low"], b["reward_low"]),
            "reward_high": np.maximum(a["reward_high"], b["reward_high"]),
        }
        rest = added({name: part for name, part in a.items() if name not in own}, b)
        return {name: own[name] if name in own else rest[name] for name in a}

    def _merge_slices(self, a: State, b: State) -> State:
        sums = added({name: part for name, part in a.items() if name != "moments"}, b)
        return {"moments": self.moments.merge(a["moments"], b["moments"]), **sums}

    def finish(self, state: State) -> State:
        slices = {s: _without_lost(part) for s, part in state["slices"].items()}
        return {**_without_lost(state), "slices": slices}


def _without_lost(state: State) -> State:
    """A model that gives NaN must not take the errors of the others with it: 0 · NaN is NaN. Its mean stays as it is."""
    lost = ~np.isfinite(state["moments"]["mean"])
    if not lost.any():
        return state
    moments = {**state["moments"], "m2": np.where(lost[:, None] | lost, 0.0, state["moments"]["m2"])}
    return {**state, "moments": moments, "buckets": np.where(lost, 0.0, state["buckets"])}


def _add_by_bucket(sums: FloatArray, bucket: IntArray, values: FloatArray) -> None:
    for column, row_values in enumerate(values):
        sums[:, column] += np.bincount(bucket, row_values, len(sums))
