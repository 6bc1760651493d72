"""`Given`: the user's own q, as a rounds × actions matrix or a function of the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.batch import Batch, FloatArray
from offpolicy.errors import InputError, RowsError
from offpolicy.rewards.base import Fits, FitShape, Linear, Predictor, RewardModel
from offpolicy.statistics import Statistic


@dataclass(frozen=True, eq=False)
class Given(RewardModel):
    """q(x, a) from elsewhere: nothing is fitted, and its own error is not in any interval."""

    q: npt.ArrayLike | Callable[[FloatArray], npt.ArrayLike]

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:  # noqa: ARG002
        return ()

    def fits(self, shape: FitShape, results: Any) -> Fits:  # noqa: ARG002
        return _GivenFits(self.q if callable(self.q) else np.asarray(self.q, dtype=np.float64))


@dataclass(frozen=True)
class _GivenFits:
    q: Any

    def all(self, batch: Batch) -> FloatArray:
        q = self.q(batch.context) if callable(self.q) else self.q[batch.row]
        values = np.asarray(q, dtype=np.float64)
        if values.shape != (len(batch), batch.n_actions):
            raise InputError(
                f"Given: q has shape {values.shape} for {len(batch)} rounds × {batch.n_actions} actions; "
                "its columns follow `log.actions`."
            )
        if not np.isfinite(values.sum()):
            rows = batch.row[~np.isfinite(values).all(axis=1)]
            raise RowsError("Given", "have a NaN or infinite q", rows, "Give a finite prediction for every action.")
        return values

    def taken(self, batch: Batch) -> FloatArray:
        return self.all(batch)[np.arange(len(batch)), batch.action]

    def on_all(self, reward: int) -> Predictor:
        if reward:
            raise InputError("Given: one q serves one reward; evaluate the rewards one by one.")
        return self

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:  # noqa: ARG002
        return self.on_all(reward)

    def without_group(self, reward: int, group: int) -> Linear | None:  # noqa: ARG002
        return None

    def diagnostics(self, reward: int) -> dict[str, Any]:  # noqa: ARG002
        return {}
