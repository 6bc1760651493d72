"""The scoring pass: the sums that every estimate is made of, overall and by slice."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.data.batch import Batch
from offpolicy.engines.base import BATCH_ROWS
from offpolicy.scoring.scored_block import BlockStatistic
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import State, added
from offpolicy.statistics.fingerprint import Fingerprint
from offpolicy.statistics.moments import Moments
from offpolicy.statistics.strata import Strata

SLICE_BUCKETS = 256
# Tables are summed by slice, for the fit's share of the error there, as long as they fit into 256 MB.
MOST_SLICE_ELEMENTS = 1 << 25


@dataclass(frozen=True)
class ScorePass:
    """The statistic of the scoring pass: moments and bucket sums of the columns, overall and by slice."""

    scorer: Scorer
    n_actions: int
    table_rows: int
    n_slices: int
    clustered: bool
    diagnostics: Mapping[str, BlockStatistic] = field(default_factory=dict)
    loggers: int = 0
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
        """The columns of models take more memory than others, and listed actions still more."""
        plan = self.scorer.plan
        rows = BATCH_ROWS // 2 if plan.models or any(key.ratio.whole for key in plan.ratios) else BATCH_ROWS
        return self.scorer.at_most(self.scorer.kernel.batch_rows or rows)

    @cached_property
    def moments(self) -> Moments:
        return Moments(self.scorer.plan.width)

    def zero(self) -> State:
        scorer, plan = self.scorer, self.scorer.plan
        tables = len(scorer.tables)
        size = tables * self.table_rows * (len(scorer.centre) + 1) * self.n_slices
        by_slice = self._zero_part(SLICE_BUCKETS, tables if size <= MOST_SLICE_ELEMENTS else 0)
        slices = {str(s): copy.deepcopy(by_slice) | {"table_rows": np.zeros(())} for s in range(self.n_slices)}
        weights = zip(plan.weights, scorer.ratios, strict=True)
        by_group = (scorer.groups, self.table_rows, len(scorer.centre) + 1)
        shares = plan.shares_by_group(*by_group) if scorer.tables and scorer.every_table else []
        return {
            **self._zero_part(BUCKETS, tables),
            "slices": slices,
            "shares": {str(table): np.zeros(by_group) for table in shares},
            "ratios": {str(k): ratio.zero(len(plan.corrections(key))) for k, (key, ratio) in enumerate(weights)},
            "fingerprint": Fingerprint(self.clustered).zero(),
            "diagnostics": {name: each.zero() for name, each in self.diagnostics.items()},
            "counts": np.zeros(self.n_actions),
            "reward_low": np.full(plan.rewards, np.inf),
            "reward_high": np.full(plan.rewards, -np.inf),
        }

    def _zero_part(self, buckets: int, tables: int) -> State:
        """Of the whole log, or of a slice."""
        plan = self.scorer.plan
        return {
            "moments": self.moments.zero(),
            "buckets": np.zeros((buckets, plan.width)),
            **({"strata": self._strata(buckets).zero()} if self.loggers else {}),
            "nonzero": np.zeros(plan.rewards),
            "tables": np.zeros((tables, self.table_rows, len(self.scorer.centre) + 1)),
        }

    def _strata(self, buckets: int) -> Strata:
        return Strata(self.scorer.plan.width, self.loggers, buckets)

    def fold(self, state: State, batch: Batch) -> State:
        batch, bucket = self.scorer.ordered(batch)
        scored = self.scorer.score(batch, bucket, state)
        values = scored.columns
        for name, each in self.diagnostics.items():
            state["diagnostics"][name] = each.fold(state["diagnostics"][name], batch, scored)
        self._add(state, values, bucket, batch)
        state["fingerprint"] = Fingerprint(self.clustered).fold(state["fingerprint"], batch)
        state["counts"] += batch.space.tally(batch.action)
        np.minimum(state["reward_low"], batch.reward.min(axis=0), out=state["reward_low"])
        np.maximum(state["reward_high"], batch.reward.max(axis=0), out=state["reward_high"])
        if batch.slice_code is not None:
            for s in np.unique(batch.slice_code):
                rows = np.flatnonzero(batch.slice_code == s)
                self._add(state["slices"][str(s)], values[:, rows], bucket[rows], batch.take(rows))
        return state

    def _add(self, part: State, values: FloatArray, bucket: IntArray, batch: Batch) -> None:
        """Rows of the whole log, or of a slice."""
        part["moments"] = self.moments.fold(part["moments"], values)
        part["nonzero"] += np.count_nonzero(batch.reward, axis=0)
        sums = part["buckets"]
        coarser = bucket if len(sums) == BUCKETS else bucket * len(sums) // BUCKETS
        for column, row_values in enumerate(values):
            sums[:, column] += np.bincount(coarser, row_values, len(sums))
        if batch.logger_code is not None:
            part["strata"] = self._strata(len(sums)).fold(part["strata"], values, coarser, batch.logger_code)

    def merge(self, a: State, b: State) -> State:
        own = {
            "slices": {s: self._merge_parts(part, b["slices"][s]) for s, part in a["slices"].items()},
            "ratios": {k: self.scorer.ratios[int(k)].merge(part, b["ratios"][k]) for k, part in a["ratios"].items()},
            "diagnostics": {
                name: each.merge(a["diagnostics"][name], b["diagnostics"][name]) for name, each in self.diagnostics.items()
            },
            "reward_low": np.minimum(a["reward_low"], b["reward_low"]),
            "reward_high": np.maximum(a["reward_high"], b["reward_high"]),
        }
        return self._merge_parts({name: part for name, part in a.items() if name not in own}, b) | own

    def _merge_parts(self, a: State, b: State) -> State:
        sums = added({name: part for name, part in a.items() if name not in ("moments", "strata")}, b)
        if "strata" in a:
            sums["strata"] = self._strata(len(a["buckets"])).merge(a["strata"], b["strata"])
        return {"moments": self.moments.merge(a["moments"], b["moments"]), **sums}

    def finish(self, state: State) -> State:
        slices = {s: _without_lost(part) for s, part in state["slices"].items()}
        return {**_without_lost(state), "slices": slices}


def _without_lost(state: State) -> State:
    """A model that returns NaN must not affect the errors of the others: 0 · NaN is NaN. Its mean stays NaN."""
    lost = ~np.isfinite(state["moments"]["mean"])
    if not lost.any():
        return state
    moments = {**state["moments"], "m2": np.where(lost[:, None] | lost, 0.0, state["moments"]["m2"])}
    return {**state, "moments": moments, "buckets": np.where(lost, 0.0, state["buckets"])}
