"""What a scoring pass sums besides its columns: how estimates move with what was fitted, and what ratios keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.plan import TableKey, WeightTable
from offpolicy.scoring.scored_block import TargetMass
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class Tallies:
    """What is summed besides the columns; it writes into a state of `ScorePass`."""

    state: State
    masses: tuple[TargetMass, ...]
    """Of each policy, for this batch."""

    def ratio(self, position: int) -> State:
        """What the ratio of a weight of the plan keeps."""
        own: State = self.state["ratios"][str(position)]
        return own

    def sets(self, slices: IntArray | None) -> list[IntArray | None]:
        """The sets of rounds that tables are kept of: all, then each slice."""
        return [None, *(rows for _, rows in self._slices(slices))]

    def add_shares(self, tables: Mapping[int, Sequence[FloatArray]], slices: IntArray | None) -> None:
        """The tables of these sets."""
        parts = [self.state, *(part for part, _ in self._slices(slices))]
        for table, sums in tables.items():
            for part, values in zip(parts, sums, strict=True):
                part["tables"][table] += values

    def add_weight_tables(
        self, tables: Sequence[TableKey], bent: Mapping[tuple[int, Weight], FloatArray], x: FloatArray, batch: Batch
    ) -> None:
        """`x` is multiplied with the row weights; it and `batch` hold the first rows of what `bent` holds."""
        for part, rows in self._slices(batch.slice_code):
            part["table_rows"] += x[-1, rows].sum()
        for index, key in enumerate(tables):
            if isinstance(key, WeightTable):
                weighted = x * bent[key.policy, key.weight][: len(batch)]
                self.state["tables"][index] += _by_action(weighted, batch.codes, batch.n_actions)
                for part, rows in self._slices(batch.slice_code):
                    part["tables"][index] += _by_action(weighted[:, rows], batch.codes[rows], batch.n_actions)

    def _slices(self, slices: IntArray | None) -> Iterator[tuple[State, IntArray]]:
        """Each slice that keeps tables, with its rows."""
        if slices is not None and len(self.state["tables"]):
            for s in np.unique(slices):
                if len(self.state["slices"][str(s)]["tables"]):
                    yield self.state["slices"][str(s)], np.flatnonzero(slices == s)


def _by_action(columns: FloatArray, action: IntArray, n_actions: int) -> FloatArray:
    """Sums of each column over the rows of each action: actions × columns."""
    return np.column_stack([np.bincount(action, column, n_actions) for column in columns])
