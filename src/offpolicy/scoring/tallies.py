"""What a scoring pass sums besides its columns: overlap, misfit, and how estimates move with what was fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.policies.blocks import Layout
from offpolicy.ratios.rounds import Sides
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.plan import TableKey, WeightTable
from offpolicy.statistics.base import State
from offpolicy.statistics.calibration import Calibration
from offpolicy.statistics.histogram import LogHistogram


@dataclass(frozen=True)
class Tallies:
    """What is summed besides the columns; it writes into a state of `ScorePass`."""

    state: State

    def ratio(self, position: int) -> State:
        """What the ratio of a weight of the plan keeps."""
        own: State = self.state["ratios"][str(position)]
        return own

    def add_weights(self, policy: int, ratio: FloatArray | None, omega: FloatArray | None) -> None:
        if ratio is not None:
            part = self.state["policies"][str(policy)]
            part["weights"] = LogHistogram().fold(part["weights"], ratio, omega)

    def add_mass(
        self, policy: int, omega: FloatArray, counted: FloatArray, pi: FloatArray, layout: Layout, sides: Sides | None
    ) -> None:
        """`counted` is the row weight times what a loose π is still to be multiplied with."""
        part = self.state["policies"][str(policy)]
        part["rows"] += omega.sum()
        part["mass"] += layout.by_action(pi, counted[:, None])[:, 0]
        if sides is not None and sides.supported is not None:
            part["unsupported"] += counted @ layout.dot(pi, 1 - sides.supported)

    def add_misfit(self, model: int, reward: FloatArray, predicted: FloatArray, omega: FloatArray) -> None:
        """Σω, Σωr, Σωr² and Σω(r − q)², which give R²."""
        residual = reward - predicted
        sums = (omega.sum(), omega @ reward, (omega * reward) @ reward, (omega * residual) @ residual)
        self.state["misfit"][model] += sums
        if str(model) in self.state["calibration"]:
            Calibration().fold(self.state["calibration"][str(model)], predicted, reward, omega)

    def add_share(self, table: int, share: FloatArray, layout: Layout, x: FloatArray, slices: IntArray | None) -> None:
        self.state["tables"][table] += layout.by_action(share, x.T)
        for part, rows in self._slices(slices):
            inside = np.zeros(x.shape[1])
            inside[rows] = 1.0
            part["tables"][table] += layout.by_action(share, (x * inside).T)

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
