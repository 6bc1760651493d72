"""`Given`: q from the user, as a matrix of rounds × actions or a function of the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import Discrete
from offpolicy.models.rewards.base import Fits, FitShape, Predictor, RewardModel
from offpolicy.models.rewards.continuous import ContinuousGiven
from offpolicy.statistics.base import Statistic


@dataclass(frozen=True, eq=False)
class Given(RewardModel):
    """Your own q(x, a). Nothing is fitted, and intervals do not include its error.

    If actions are numbers (`op.Box`), q is a function of contexts and actions that returns one number for each pair.

    Parameters
    ----------
    q : array-like of shape (n_rounds, n_actions) or callable
        The predictions, or a function from contexts (rounds × columns) to them. Columns follow `log.actions`.
    control : array-like of shape (n_rounds,) or callable, optional
        q(x, e) of the logged action of each round, if it depends on the action features of the round: an array, or a
        function of contexts and features. `q` is then its mean over the features of each action.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> dr = op.DR(op.Given(lambda x: np.full((len(x), 10), 0.5)))
    >>> round(op.evaluate(log, op.Uniform(), dr)["DR"].value, 3)
    0.481
    """

    q: npt.ArrayLike | Callable[[FloatArray], npt.ArrayLike]
    control: npt.ArrayLike | Callable[[FloatArray, FloatArray], npt.ArrayLike] | None = None
    spaces = (Discrete, Box)
    fitted = False
    linear = True

    def on(self, schema: Schema) -> RewardModel:
        if not isinstance(schema.space, Box):
            return self
        if not callable(self.q) or self.control is not None:
            raise InputError(
                f"Given: the actions here are {schema.space.nature}; give q as a function of (contexts, actions), without "
                "control."
            )
        return ContinuousGiven(cast("Callable[[FloatArray, FloatArray], npt.ArrayLike]", self.q))

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:  # noqa: ARG002
        return ()

    def fits(self, shape: FitShape, results: Any) -> Fits:  # noqa: ARG002
        if not shape.ordered and not (callable(self.q) and (self.control is None or callable(self.control))):
            raise InputError(
                "Given: an array has one row per round of the log, but the rows of a Spark DataFrame have no order. Give a "
                "function of the context."
            )
        control = None if self.control is None or callable(self.control) else np.asarray(self.control, dtype=np.float64)
        return _GivenFits(
            self.q if callable(self.q) else np.asarray(self.q, dtype=np.float64),
            self.control if callable(self.control) else control,
        )


@dataclass(frozen=True)
class _GivenFits(Fits):
    q: Any
    control: Any = None

    def all(self, batch: Batch) -> FloatArray:
        q = self.q(batch.context) if callable(self.q) else self.q[batch.row]
        values = np.asarray(q, dtype=np.float64)
        if values.shape != (len(batch), batch.n_actions):
            raise InputError(
                f"Given: q has shape {values.shape} for {len(batch)} rounds × {batch.n_actions} actions; its columns must "
                "follow `log.actions`."
            )
        if not np.isfinite(values.sum()):
            rows = batch.row[~np.isfinite(values).all(axis=1)]
            raise RowsError("Given", "have a NaN or infinite q", rows, "Give a finite prediction for every action.")
        return values

    def taken(self, batch: Batch) -> FloatArray:
        if self.control is not None:
            control = self.control(batch.context, batch.features) if callable(self.control) else self.control[batch.row]
            values = np.asarray(control, dtype=np.float64)
            if values.shape != (len(batch),) or not np.isfinite(values.sum()):
                raise InputError(f"Given: control has shape {values.shape} (or a NaN in it) for {len(batch)} rounds.")
            return values
        return self.all(batch)[np.arange(len(batch)), batch.codes]

    def on_all(self, reward: int) -> Predictor:
        if reward:
            raise InputError("Given: q is for a single reward; evaluate the rewards one by one.")
        return self

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:  # noqa: ARG002
        return self.on_all(reward)
