"""Whether `row_id` identifies each row: repeats are counted in a sample of ids of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.core.arrays import IntArray, UInt64Array
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Diagnostic, Subject
from offpolicy.diagnostics.verdict import Finding, Measure
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State

SAMPLED_IDS = 1 << 16
"""The ids with the smallest hashes, with all of their rows: exact for so many ids, a random sample of more."""


@dataclass(frozen=True)
class RowIds(Diagnostic):
    """Counts the rows whose `row_id` occurred before, in a bottom-k sample of the hashes of the ids."""

    sampled: int = SAMPLED_IDS

    def zero(self) -> State:
        return {"ids": np.empty(0, np.uint64), "rows": np.empty(0, np.int64)}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:  # noqa: ARG002
        ids = batch.row_id
        if ids is None:
            return state
        if len(state["ids"]) == self.sampled:
            ids = ids[ids <= state["ids"][-1]]  # most rows of a long log end here
        return self.merge(state, {"ids": ids, "rows": np.ones(len(ids), np.int64)})

    def merge(self, a: State, b: State) -> State:
        ids, rows = _counted(np.concatenate([a["ids"], b["ids"]]), np.concatenate([a["rows"], b["rows"]]))
        return {"ids": ids[: self.sampled], "rows": rows[: self.sampled]}

    def findings(self, state: State, subject: Subject) -> Sequence[Finding]:
        share, n = self._share(state), subject.sums.n
        if not subject.whole:
            return []
        about = "About " if len(state["ids"]) == self.sampled else ""
        most = int(state["rows"].max(initial=0))
        return [
            Measure("repeated row ids", share).finding(
                "repeated row ids",
                f"{about}{round(share * n):,} of {n:,} rows have a row_id that occurred before (one id has {most:,} rows).",
                "A row_id identifies one round, so these rounds count more than once, for example because a file was read "
                "or logged twice.",
                "Remove the repeats; if the column identifies units with several rounds, such as users, use it as "
                "`cluster`.",
            )
        ]

    def numbers(self, state: State, subject: Subject) -> dict[str, Any]:
        return {"repeated_row_ids": self._share(state)} if subject.whole else {}

    def _share(self, state: State) -> float:
        rows = int(state["rows"].sum())
        return (rows - len(state["ids"])) / rows if rows else 0.0


def _counted(ids: UInt64Array, rows: IntArray) -> tuple[UInt64Array, IntArray]:
    distinct, which = np.unique(ids, return_inverse=True)
    return distinct, np.bincount(which, rows, len(distinct)).astype(np.int64)
