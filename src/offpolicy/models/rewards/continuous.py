"""Reward models of (context, action) for continuous actions: a scikit-learn regressor, and a function from the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.models.rewards.base import Fits, FitShape, RewardModel
from offpolicy.models.rewards.sample import FitRows, SampleFits, SampleRows
from offpolicy.policies.nodes import Nodes
from offpolicy.statistics.base import Statistic

Predict = Callable[[FloatArray], FloatArray]
"""From rows of (context, action) to predicted rewards."""
Train = Callable[[FloatArray, FitRows], Predict]
"""From rows of (context, action), and the rewards and weights that belong to them, to what predicts."""


@final
@dataclass(frozen=True, eq=False)
class ContinuousRegressor(RewardModel):
    """A regressor whose inputs are the context, and the action as it is."""

    train: Train
    rows: int
    spaces = (Box,)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        return (SampleRows.of(shape, self.rows),)

    def fits(self, shape: FitShape, results: Any) -> Fits:
        def fitted(rows: FitRows) -> tuple[_OfInputs, dict[str, int]]:
            return _OfInputs(self.train(_inputs(rows.context, rows.action), rows)), {}

        return SampleFits(shape, results[0], fitted)


@dataclass(frozen=True)
class _OfInputs:
    """A fitted q(x, a)."""

    predict: Predict

    def all(self, batch: Batch) -> FloatArray:
        raise InputError(f"the reward model cannot list the actions, which are {batch.space.nature}.")

    def taken(self, batch: Batch) -> FloatArray:
        return self.predict(_inputs(batch.context, batch.action))

    def at(self, batch: Batch, nodes: Nodes) -> FloatArray:
        row, action = nodes.flat(box(batch.space, "the reward model"))
        return self.predict(_inputs(batch.context[row], action)).reshape(nodes.weights.shape)


def _inputs(context: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
    return np.column_stack([context, action])


@final
@dataclass(frozen=True, eq=False)
class ContinuousGiven(RewardModel):
    """q(x, a) from the user, as a function of contexts and actions."""

    q: Callable[[FloatArray, FloatArray], npt.ArrayLike]
    spaces = (Box,)
    fitted = False

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:  # noqa: ARG002
        return ()

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:  # noqa: ARG002
        return _GivenFits(self.q)


@dataclass(frozen=True)
class _GivenFits(Fits):
    q: Callable[[FloatArray, FloatArray], npt.ArrayLike]

    def on_all(self, reward: int) -> _GivenFits:
        if reward:
            raise InputError("Given: q is for a single reward; evaluate the rewards one by one.")
        return self

    def without_fold(self, reward: int, fold: int, folds: int) -> _GivenFits:  # noqa: ARG002
        return self.on_all(reward)

    def all(self, batch: Batch) -> FloatArray:
        return self.taken(batch)

    def taken(self, batch: Batch) -> FloatArray:
        return self._called(batch.context, batch.action, batch.row)

    def at(self, batch: Batch, nodes: Nodes) -> FloatArray:
        row, action = nodes.flat(box(batch.space, "Given"))
        return self._called(batch.context[row], action, batch.row[row]).reshape(nodes.weights.shape)

    def _called(self, context: FloatArray, action: FloatArray, rows: npt.NDArray[Any]) -> FloatArray:
        values = np.asarray(self.q(context, action), dtype=np.float64)
        if values.shape != (len(action),):
            raise InputError(
                f"Given: q returned shape {values.shape} for {len(action)} pairs of a context and an action; return one "
                "number for each."
            )
        if not np.isfinite(values).all():
            bad = np.unique(rows[~np.isfinite(values)])
            raise RowsError("Given", "have a NaN or infinite q", bad, "Give a finite prediction for every action.")
        return values
