"""Any scikit-learn regressor as a reward model: r ≈ f(context, action), fitted on rows held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.errors import InputError
from offpolicy.rewards.base import Fits, FitShape, Linear, Predictor, RewardModel
from offpolicy.statistics import State, Statistic
from offpolicy.units import IntArray

MOST_ONE_HOT = 50


@dataclass(frozen=True, eq=False)
class Regressor(RewardModel):
    """Clones of a scikit-learn regressor, one a fold. The action is one-hot encoded, or by its mean reward when there are
    more than 50 (scikit-learn's cross-fitted `TargetEncoder`). Beyond `rows` rows it is fitted on that many, chosen by hash.
    """

    estimator: Any
    rows: int = 1_000_000

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        return (SampleRows(shape, self.rows),)

    def fits(self, shape: FitShape, results: Any) -> Fits:
        return _RegressorFits(self.estimator, shape, *results)


def as_reward_model(model: Any) -> RewardModel:
    """A reward model from what users write: one of ours, or a scikit-learn regressor."""
    if isinstance(model, RewardModel):
        return model
    if hasattr(model, "fit") and hasattr(model, "predict") and hasattr(model, "get_params"):
        return Regressor(model)
    raise InputError(
        f"rewards: {type(model).__name__} is not a reward model; give op.Ridge(), op.Given(q) or a scikit-learn regressor."
    )


@dataclass(frozen=True)
class SampleRows:
    """The rows of smallest hash, at most `limit`: a sample that does not depend on order or partitioning."""

    shape: FitShape
    limit: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.shape.columns

    @property
    def batch_rows(self) -> int | None:
        return None

    def zero(self) -> State:
        s = self.shape
        return {
            "order": np.empty(0, np.uint64),
            "group": np.empty(0, np.int64),
            "action": np.empty(0, np.int64),
            "context": np.empty((0, s.context)),
            "reward": np.empty((0, s.rewards)),
            "weight": np.empty(0),
            "rows": np.zeros(()),
        }

    def fold(self, state: State, batch: Batch) -> State:
        weight = self.shape.weights(batch)
        return self.merge(
            state,
            {
                "order": batch.unit,
                "group": self.shape.group(batch),
                "action": batch.action,
                "context": batch.context,
                "reward": batch.reward,
                "weight": np.ones(len(batch)) if weight is None else weight,
                "rows": np.asarray(float(len(batch))),
            },
        )

    def merge(self, a: State, b: State) -> State:
        rows = a["rows"] + b["rows"]
        merged = {name: np.concatenate([a[name], b[name]]) for name in a if name != "rows"}
        if len(merged["order"]) > self.limit:
            keep = np.sort(np.argpartition(merged["order"], self.limit)[: self.limit])
            merged = {name: array[keep] for name, array in merged.items()}
        return {**merged, "rows": rows}

    def finish(self, state: State) -> State:
        order = np.lexsort(
            (state["reward"][:, 0], state["action"], state["order"])
        )  # the same rows in the same order, however they came
        return {
            **{name: array[order] for name, array in state.items() if name != "rows"},
            "rows": state["rows"],
        }


class _RegressorFits:
    def __init__(self, estimator: Any, shape: FitShape, sample: State) -> None:
        self._estimator, self._shape, self._sample = estimator, shape, sample
        self._made: dict[tuple[int, int, int], _Fitted] = {}

    def on_all(self, reward: int) -> Predictor:
        return self._fit(reward, -1, 1)

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:
        return self._fit(reward, fold, folds)

    def without_group(self, reward: int, group: int) -> Linear | None:  # noqa: ARG002
        return None

    def diagnostics(self, reward: int) -> dict[str, Any]:  # noqa: ARG002
        return {"fitted_rows": len(self._sample["order"]), "log_rows": int(self._sample["rows"])}

    def _fit(self, reward: int, fold: int, folds: int) -> _Fitted:
        key = (reward, fold, folds)
        if key not in self._made:
            s = self._sample
            keep = s["group"] * folds // self._shape.groups != fold
            if not keep.any():
                raise InputError(
                    "rewards: a fold holds every row, since there are too few units (clusters) to fit without it."
                )
            weighted = self._shape.row_weight is not None or bool((s["weight"] != 1).any())
            self._made[key] = _Fitted.train(
                self._estimator,
                self._shape.n_actions,
                s["context"][keep],
                s["action"][keep],
                s["reward"][keep, reward],
                s["weight"][keep] if weighted else None,
            )
        return self._made[key]


@dataclass(frozen=True)
class _Fitted:
    regressor: Any
    codes: FloatArray  # actions × features: how each action looks to the regressor

    @classmethod
    def train(
        cls, estimator: Any, n_actions: int, context: FloatArray, action: IntArray, reward: FloatArray,
        weight: FloatArray | None,
    ) -> _Fitted:  # fmt: skip
        from sklearn.base import clone
        from sklearn.model_selection import KFold
        from sklearn.preprocessing import TargetEncoder

        if n_actions <= MOST_ONE_HOT:
            codes = np.eye(n_actions)
            seen = codes[action]
        else:
            encoder = TargetEncoder(target_type="continuous", cv=KFold(5, shuffle=True, random_state=0))
            seen = encoder.fit_transform(action[:, None], reward)
            codes = encoder.transform(np.arange(n_actions)[:, None])
        inputs = np.hstack([context, seen])
        fitted = clone(estimator)
        if weight is None:
            fitted.fit(inputs, reward)
        else:
            try:
                fitted.fit(inputs, reward, sample_weight=weight)
            except TypeError:
                raise InputError(
                    f"rewards: {type(estimator).__name__} takes no sample_weight, but this fit needs row weights "
                    "(MRDR, or a log with a weight column). Use another regressor or op.Ridge()."
                ) from None
        return cls(fitted, codes)

    def all(self, batch: Batch) -> FloatArray:
        n, m = len(batch), batch.n_actions
        inputs = np.hstack([np.repeat(batch.context, m, axis=0), np.tile(self.codes, (n, 1))])
        return np.asarray(self.regressor.predict(inputs), dtype=np.float64).reshape(n, m)

    def taken(self, batch: Batch) -> FloatArray:
        inputs = np.hstack([batch.context, self.codes[batch.action]])
        return np.asarray(self.regressor.predict(inputs), dtype=np.float64)
