"""Whether `row_id` identifies each row: repeats are counted in a sample of ids of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Diagnostic, Subject
from offpolicy.diagnostics.verdict import Finding, Measure
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State

ALL = 2**64 - 1
SAMPLED_ROWS = 1 << 16
"""In a log of so many rows all ids are counted, and in a longer one those with small hashes, about so many rows of them."""


@dataclass(frozen=True)
class RowIds(Diagnostic):
    """Counts the rows whose `row_id` occurred before, among the ids whose hash is at most `limit`."""

    limit: int

    @classmethod
    def of(cls, rows: int) -> RowIds:
        """The check for a log of so many rows."""
        return cls(ALL if rows <= SAMPLED_ROWS else ALL * SAMPLED_ROWS // rows)

    def zero(self) -> State:
        return {"ids": np.empty(0, np.uint64), "rows": np.empty(0, np.int64)}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:  # noqa: ARG002
        if batch.row_id is None:
            return state
        ids = batch.row_id[batch.row_id <= np.uint64(self.limit)]
        return self.merge(state, {"ids": ids, "rows": np.ones(len(ids), np.int64)})

    def merge(self, a: State, b: State) -> State:
        ids, which = np.unique(np.concatenate([a["ids"], b["ids"]]), return_inverse=True)
        rows = np.bincount(which, np.concatenate([a["rows"], b["rows"]]), len(ids))
        return {"ids": ids, "rows": rows.astype(np.int64)}

    def findings(self, state: State, subject: Subject) -> Sequence[Finding]:
        share, n = self._share(state), subject.sums.n
        if not subject.whole:
            return []
        about = "" if self.limit == ALL else "About "
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
