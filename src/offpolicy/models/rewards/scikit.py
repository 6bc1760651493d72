"""Any scikit-learn regressor as a reward model: r ≈ f(context, action), fitted on rows held in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import Discrete
from offpolicy.models.embedding_table import Embedding
from offpolicy.models.rewards.base import Fits, FitShape, RewardModel
from offpolicy.models.rewards.continuous import ContinuousRegressor, Predict
from offpolicy.models.rewards.sample import FitRows, SampleFits, SampleRows, features_of, pairs
from offpolicy.statistics.base import Statistic

MOST_ONE_HOT = 50

EmbeddingOf = Callable[[Any, FloatArray], npt.ArrayLike]
"""From the fitted regressor and some of its input rows to one embedding per row."""


@dataclass(frozen=True, eq=False)
class Regressor(RewardModel):
    """A scikit-learn regressor, or a classifier of two rewards, as a reward model, cloned and fitted once per fold.

    Its inputs are the context, then the action (for inputs="identity" and "both"), then the action's features (for
    "features" and "both"). The action is one-hot encoded, or encoded by its mean reward if there are more than 50 actions
    (scikit-learn's cross-fitted `TargetEncoder`). Where features vary per round, the reward of an action that was not taken
    is predicted at the mean of its features over its rounds in the sample. Actions that are numbers (`op.Box`) are used as
    they are.

    A classifier is for rewards with two values, such as clicks: q is the expected reward by its `predict_proba`. With more
    values it is refused.

    Parameters
    ----------
    estimator : scikit-learn regressor or classifier
        It is cloned, and never fitted itself.
    rows : int, default=1_000_000
        Fit on at most this number of rows, chosen by hash.
    embedding : callable, optional
        Makes the regressor a source of embeddings: a function of the fitted regressor and of input rows that returns
        rows × k numbers, such as a hidden layer or the leaves of trees. It is called with one input row per action (per
        round where features vary), with the context at its mean in the sample, so that only the action matters.

    Examples
    --------
    >>> import offpolicy as op
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> tree = op.Regressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    >>> round(op.evaluate(log, op.Uniform(), op.DR(tree))["DR"].value, 2)
    0.48
    """

    estimator: Any
    rows: int = 1_000_000
    _: KW_ONLY
    embedding: EmbeddingOf | None = None
    spaces = (Discrete, Box)

    def __post_init__(self) -> None:
        if predicts_classes(self.estimator) and not hasattr(self.estimator, "predict_proba"):
            raise InputError(
                f"rewards: {type(self.estimator).__name__} is a classifier without predict_proba, and a reward model needs "
                "expected rewards. Calibrate it with scikit-learn's CalibratedClassifierCV, or use a regressor."
            )
        if self.embedding is not None and not callable(self.embedding):
            raise InputError(
                f"Regressor: embedding is a {type(self.embedding).__name__}; give a function of (fitted regressor, input "
                "rows) that returns one embedding per row."
            )

    @property
    def embeds(self) -> bool:
        return self.embedding is not None

    def on(self, schema: Schema) -> RewardModel:
        if not isinstance(schema.space, Box):
            return self
        return ContinuousRegressor(self._trained, self.rows)

    def _trained(self, inputs: FloatArray, rows: FitRows) -> Predict:
        """A fitted clone, for continuous actions."""
        from sklearn.base import clone

        fitted, values = clone(self.estimator), _two_values(self.estimator, rows.reward)
        return _Predictions.train(fitted, values, inputs, rows)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        return (SampleRows.of(shape, self.rows),)

    def fits(self, shape: FitShape, results: Any) -> Fits:
        return SampleFits(shape, results[0], lambda rows: (_FittedRegressor.train(self, rows), {}))


def predicts_classes(model: Any) -> bool:
    """Whether a scikit-learn model predicts classes; also for libraries that only follow its interface."""
    if hasattr(model, "predict_proba"):
        return True
    from sklearn.base import is_classifier

    try:
        return bool(is_classifier(model))
    except (AttributeError, TypeError):  # a model without scikit-learn's tags
        return False


def as_reward_model(model: Any) -> RewardModel:
    """A reward model from what users write: a reward model of the package, or a scikit-learn regressor."""
    if isinstance(model, RewardModel):
        return model
    if hasattr(model, "fit") and hasattr(model, "predict") and hasattr(model, "get_params"):
        return Regressor(model)
    raise InputError(
        f"rewards: {type(model).__name__} is not a reward model; give op.Ridge(), op.Given(q) or a scikit-learn regressor."
    )


@dataclass(frozen=True)
class _Predictions:
    """What a fitted regressor predicts, or a classifier of the two `values` of the reward."""

    regressor: Any
    values: tuple[float, float] | None

    @classmethod
    def train(cls, regressor: Any, values: tuple[float, float] | None, inputs: FloatArray, rows: FitRows) -> _Predictions:
        target = rows.reward if values is None else (rows.reward == values[1]).astype(np.int64)
        if values is None or values[0] < values[1]:
            _fit_regressor(regressor, inputs, target, rows.weight)
        return cls(regressor, values)

    def __call__(self, inputs: FloatArray) -> FloatArray:
        if self.values is None:
            return np.asarray(self.regressor.predict(inputs), dtype=np.float64)
        low, high = self.values
        if low == high:  # all rounds of the fit have the same reward
            return np.full(len(inputs), low)
        expected: FloatArray = low + (high - low) * np.asarray(self.regressor.predict_proba(inputs), dtype=np.float64)[:, 1]
        return expected


@dataclass(frozen=True)
class _FittedRegressor:
    """A fitted regressor, or a classifier, of discrete actions.

    `inputs` are the columns after the context for each action, at its mean features where these vary; `codes` is the part of
    them that encodes the identity.
    """

    model: Regressor
    predict: _Predictions
    inputs: FloatArray
    codes: FloatArray
    shape: FitShape
    counts: FloatArray
    mean_context: FloatArray

    @classmethod
    def train(cls, model: Regressor, rows: FitRows) -> _FittedRegressor:
        from sklearn.base import clone

        seen, codes = _encoded(rows)
        fitted, values = clone(model.estimator), _two_values(model.estimator, rows.reward)
        predict = _Predictions.train(fitted, values, np.hstack([rows.context, seen, rows.features]), rows)
        inputs = np.hstack([codes, rows.action_features])
        return cls(model, predict, inputs, codes, rows.shape, rows.counts, rows.mean_context)

    def all(self, batch: Batch) -> FloatArray:
        n, m = len(batch), len(self.inputs)
        out = np.empty(n * m)
        for block, rounds, actions in pairs(n, m):
            out[block] = self.predict(np.hstack([batch.context[rounds], self.inputs[actions]]))
        return out.reshape(n, m)

    def taken(self, batch: Batch) -> FloatArray:
        return self.predict(np.hstack([batch.context, self._inputs_of(batch)]))

    @cached_property
    def embedding(self) -> Embedding | None:
        if self.model.embedding is None:
            return None
        inputs = self._at_mean_context(self.inputs)
        return Embedding(
            table=self._embed(inputs),
            counts=self.counts,
            common=False,
            varying=None if features_of(self.shape) is None else self,
            reward=self.predict(inputs),
        )

    def rows(self, batch: Batch) -> FloatArray:
        """The embedding of each round, from the features of its action in that round."""
        return self._embed(self._at_mean_context(self._inputs_of(batch)))

    def _inputs_of(self, batch: Batch) -> FloatArray:
        features = features_of(self.shape)
        if features is None:
            return self.inputs[batch.codes]
        return np.hstack([self.codes[batch.codes], features.rows(batch)])

    def _at_mean_context(self, inputs: FloatArray) -> FloatArray:
        return np.hstack([np.broadcast_to(self.mean_context, (len(inputs), len(self.mean_context))), inputs])

    def _embed(self, inputs: FloatArray) -> FloatArray:
        assert self.model.embedding is not None
        embedded = self.model.embedding(self.predict.regressor, inputs)
        try:
            values = np.asarray(embedded, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"Regressor: embedding returned a {type(embedded).__name__}, not an array of numbers; return a plain array, "
                "rows × k (for a sparse matrix, its .toarray())."
            ) from None
        if values.ndim != 2 or len(values) != len(inputs) or not values.shape[1]:
            raise InputError(
                f"Regressor: embedding returned an array of shape {values.shape} for {len(inputs)} input rows; it must be "
                f"({len(inputs)}, k): one embedding per row."
            )
        return values


def _encoded(rows: FitRows) -> tuple[FloatArray, FloatArray]:
    """The encoded identity of each row's action, and of every action; no columns if the regressor does not use it."""
    n_actions = rows.shape.n_actions
    if rows.shape.inputs == "features":
        return np.empty((len(rows), 0)), np.empty((n_actions, 0))
    if n_actions <= MOST_ONE_HOT:
        codes = np.eye(n_actions)
        return codes[rows.action], codes
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import TargetEncoder

    encoder, action = TargetEncoder(target_type="continuous"), rows.action[:, None]
    seen = np.empty(action.shape)
    for others, held_out in KFold(5, shuffle=True, random_state=0).split(action):  # before 1.9, `cv` takes no KFold
        seen[held_out] = encoder.fit(action[others], rows.reward[others]).transform(action[held_out])
    return seen, encoder.fit(action, rows.reward).transform(np.arange(n_actions)[:, None])


def _two_values(model: Any, reward: FloatArray) -> tuple[float, float] | None:
    """The two values of the reward, for a classifier; None for a regressor."""
    if not predicts_classes(model):
        return None
    values = np.unique(reward)
    if len(values) > 2:
        shown = ", ".join(f"{value:g}" for value in values[:3])
        raise InputError(
            f"rewards: {type(model).__name__} is a classifier, and the reward has {len(values):,} values ({shown}, …). "
            "Classifiers are for rewards with two values, such as clicks; use a regressor, such as scikit-learn's "
            "HistGradientBoostingRegressor, or op.Ridge()."
        )
    return float(values[0]), float(values[-1])


def _fit_regressor(regressor: Any, inputs: FloatArray, target: npt.NDArray[Any], weight: FloatArray | None) -> None:
    if weight is None:
        regressor.fit(inputs, target)
        return
    try:
        regressor.fit(inputs, target, sample_weight=weight)
    except TypeError:
        raise InputError(
            f"rewards: {type(regressor).__name__} takes no sample_weight, but this fit needs row weights "
            "(MRDR, or a log with a weight column). Use another regressor or op.Ridge()."
        ) from None
