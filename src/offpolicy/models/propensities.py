"""A logging policy estimated from the log: cross-fitted, calibrated out of fold, and refused for a deterministic log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.progress import PassProgress
from offpolicy.data.batch import Batch
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.models.densities import estimate_density
from offpolicy.models.estimated_policy import EstimatedPolicy, deterministic
from offpolicy.models.posteriors.logistic import Counts, Problem
from offpolicy.models.rewards.base import FitShape, FitStatistic
from offpolicy.models.rewards.sample import SampleRows
from offpolicy.policies.blocks import blocks
from offpolicy.statistics.base import Joint, State

BoolArray = npt.NDArray[np.bool_]

C = 1.0
"""The inverse strength of the penalty of the logistic model, as in scikit-learn."""
MOST_SCORES = 50_000_000
"""The largest number of rows × actions of a fit; with many actions, it uses fewer rows."""
MOST_LOGISTIC, MOST_BOOSTED = 5_000, 100
"""The largest number of actions: beyond it, a fit would take hours, or most actions would have too few rounds."""
LEAST_ROWS = 50
FEW = 100
PREDICTED, SUREST, SURE_ROWS = 0.95, 0.8, 300
"""A log looks deterministic if this share of its actions is predicted, and all of them in this share of the rounds, with the
most confident predictions, of which there must be at least this many."""
UNITS_OF_A_CONTEXT = 5
LEAST = 1e-9
COLDEST, HOTTEST = 0.05, 20.0


def estimate_logging(log: Log, engine: Engine, seed: int, progress: bool | None = None) -> Log:
    """The log with its logging policy estimated, in one pass, if its setting is `EstimatedLogging`."""
    setting = log.logging
    if not isinstance(setting, EstimatedLogging):
        return log
    if (unserved := setting.unserved(log.space)) is not None:
        raise InputError(unserved)
    if log.space.likelihood == "density":
        return estimate_density(log, engine, seed, progress)
    contextual = bool(log.schema.context)
    setting = replace(setting, model=setting.model or ("logistic" if contextual else "counts"))
    if not contextual and setting.model != "counts":
        raise InputError(f"EstimatedLogging: the log has no context for the model {setting.model!r}; use model='counts'.")
    rows = _rows(setting, log.n_actions)
    shape = FitShape(log.n_actions, len(log.schema.context), len(log.schema.rewards), setting.folds, seed)
    statistics: dict[Any, Any] = {"counts": _FoldCounts(shape), "rows": _FoldCounts(shape, weighted=False)}
    if setting.model != "counts":
        statistics["sample"] = SampleRows(shape, rows)
    with PassProgress("estimating propensities", len(log), progress) as report:
        sums = engine.reduce(log, Joint(statistics), report)
    counts = sums["counts"]
    if int((counts.sum(axis=0) > 0).sum()) < 2:
        raise deterministic("every round of the log has the same action")
    models = _counted(setting, counts) if setting.model == "counts" else _Fit(setting, shape, sums["sample"], seed).models()
    seen = np.vstack([model.seen for model in models])
    new = int((sums["rows"] * ~seen).sum())
    about = {
        "model": setting.model, "log_rows": len(log), "fitted_rows": len(log), "rounds_with_an_action_new_to_the_fit": new,
    }  # fmt: skip
    total = counts.sum(axis=0)  # actions new to a model get their share in the whole log
    policy = FittedLogging(setting, seed, tuple(models), about, np.where(seen, 0.0, total / total.sum()))
    if "sample" in sums:
        policy = policy.checked(sums["sample"])
    return log.with_logging(policy)


def _rows(setting: EstimatedLogging, n_actions: int) -> int:
    most = {"logistic": MOST_LOGISTIC, "boosting": MOST_BOOSTED}.get(str(setting.model))
    if most is not None and n_actions > most:
        other = "'counts'" if setting.model == "logistic" else "'logistic'"
        raise InputError(
            f"EstimatedLogging: {setting.model} supports up to {most:,} actions, and the log has {n_actions:,}. Use "
            f"model={other}, or give the logging policy (logging=, --logging)."
        )
    if setting.trim is not None and setting.trim * n_actions >= 1:
        raise InputError(
            f"EstimatedLogging: trim is {setting.trim:g}, but {n_actions:,} actions cannot all have that probability; give "
            f"less than {1 / n_actions:.2g}."
        )
    return min(setting.rows, max(1_000, MOST_SCORES // n_actions))


@dataclass(frozen=True)
class _FoldCounts(FitStatistic):
    """The rounds of each action in each fold (folds × actions), weighted or counted."""

    weighted: bool = True

    def zero(self) -> State:
        return {"sums": np.zeros((self.shape.groups, self.shape.n_actions))}

    def fold(self, state: State, batch: Batch) -> State:
        n = self.shape.n_actions
        key = self.shape.group(batch) * n + batch.action
        state["sums"] += np.bincount(key, batch.weight if self.weighted else None, state["sums"].size).reshape(-1, n)
        return state

    def finish(self, state: State) -> FloatArray:
        sums: FloatArray = state["sums"]
        return sums


@dataclass(frozen=True)
class _Model(ABC):
    """p(a|x) of the actions in its data (`seen`), with scores multiplied by `sharpness`."""

    seen: BoolArray
    sharpness: float = field(default=1.0, kw_only=True)

    @abstractmethod
    def scores(self, context: FloatArray) -> FloatArray:
        """log p(a|x) up to a constant per round; −∞ for actions that are not in its data."""


@dataclass(frozen=True)
class _Constant(_Model):
    probabilities: FloatArray

    def scores(self, context: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.broadcast_to(np.log(self.probabilities), (len(context), len(self.probabilities)))


def _counted(setting: EstimatedLogging, counts: FloatArray) -> list[_Model]:
    models: list[_Model] = []
    for fold in range(setting.folds):
        others = counts.sum(axis=0) - counts[fold] + setting.smoothing
        if not others.sum() > 0:
            raise InputError("EstimatedLogging: one fold contains every row, since there are too few units (clusters).")
        models.append(_Constant(others > 0, others / others.sum()))
    return models


@dataclass(frozen=True)
class _LogisticFit(_Model):
    mean: FloatArray
    scale: FloatArray
    weight: FloatArray
    bias: FloatArray

    def scores(self, context: FloatArray) -> FloatArray:
        scores: FloatArray = ((context - self.mean) / self.scale) @ (self.weight.T * self.sharpness)
        return scores + self.bias * self.sharpness

    @classmethod
    def fit(cls, context: FloatArray, action: IntArray, weight: FloatArray, n_actions: int) -> _LogisticFit:
        share = weight / weight.sum()
        mean = share @ context
        spread = np.sqrt(share @ (context - mean) ** 2)
        scale = np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)
        z = (context - mean) / scale
        of_action: FloatArray = np.asarray(np.bincount(action, weight, n_actions), np.float64)
        classes = np.flatnonzero(of_action > 0)
        sums: FloatArray = np.column_stack([np.bincount(action, weight * column, n_actions) for column in z.T])
        problem = Problem(Counts(z, weight, of_action[classes], sums[classes]).rounded(), 1 / C)
        slopes, level = problem.to_plain(problem.minimum())
        full, bias = np.zeros((n_actions, z.shape[1])), np.full(n_actions, -np.inf)
        full[classes], bias[classes] = slopes, level
        return cls(of_action > 0, mean, scale, full, bias)


@dataclass(frozen=True)
class _Boosted(_Model):
    classifier: Any

    def scores(self, context: FloatArray) -> FloatArray:
        probabilities = np.zeros((len(context), len(self.seen)))
        probabilities[:, self.seen] = self.classifier.predict_proba(context) if len(context) else 0.0
        with np.errstate(divide="ignore"):
            return np.log(probabilities) * self.sharpness

    @classmethod
    def fit(cls, context: FloatArray, action: IntArray, weight: FloatArray, n_actions: int, seed: int) -> _Boosted:
        from sklearn.ensemble import HistGradientBoostingClassifier

        seen = np.bincount(action, minlength=n_actions)
        stops = bool(seen[seen > 0].min() >= 10)  # rounds are held out from every action
        classifier = HistGradientBoostingClassifier(
            max_iter=200 if stops else 30, learning_rate=0.1, max_leaf_nodes=15, min_samples_leaf=20, early_stopping=stops,
            random_state=seed % 2**32,
        )  # fmt: skip
        classifier.fit(context, action, sample_weight=weight)
        return cls(seen > 0, classifier)


@dataclass(frozen=True)
class _Fit:
    """Models fitted on the sampled rows, each without one fold."""

    setting: EstimatedLogging
    shape: FitShape
    sample: State
    seed: int

    def models(self) -> list[_Model]:
        folds = self.setting.folds
        return [self._calibrated(self._without(fold), fold) for fold in range(folds)]

    def _without(self, *folds: int) -> _Model:
        keep = ~np.isin(self.sample["group"], folds) & (self.sample["weight"] > 0)
        action = self.sample["action"][keep]
        if len(action) < LEAST_ROWS or len(np.unique(action)) < 2:
            raise InputError(
                f"EstimatedLogging: without one or two folds, {len(action):,} rounds with {len(np.unique(action))} actions "
                "remain, which is too few to fit on; use a larger log (or smaller clusters), or model='counts'."
            )
        weight = self.sample["weight"][keep]
        data = (self.sample["context"][keep], action, weight / weight.mean(), self.shape.n_actions)
        return _LogisticFit.fit(*data) if self.setting.model == "logistic" else _Boosted.fit(*data, self.seed)

    def _calibrated(self, model: _Model, fold: int) -> _Model:
        """With the temperature that is best on the next fold for a model fitted without this fold and the next."""
        if not self.setting.calibrated:
            return model
        after = (fold + 1) % self.setting.folds
        rows = np.flatnonzero((self.sample["group"] == after) & (self.sample["weight"] > 0))
        other = self._without(fold, after)
        scores = other.scores(self.sample["context"][rows])
        taken = self.sample["action"][rows]
        known = np.isfinite(scores[np.arange(len(rows)), taken])
        if known.sum() < LEAST_ROWS:
            return model
        return replace(model, sharpness=_sharpness(scores[known], taken[known], self.sample["weight"][rows[known]]))


def _sharpness(scores: FloatArray, taken: IntArray, weight: FloatArray) -> float:
    """The factor of the scores that maximises the likelihood of the logged actions."""
    from scipy.optimize import minimize_scalar  # here, so that importing stays light

    top = scores.max(axis=1, keepdims=True)
    below = np.where(np.isfinite(scores), scores - top, -1e6)
    own = below[np.arange(len(taken)), taken]

    def loss(log_factor: float) -> float:
        factor = float(np.exp(log_factor))
        return float(weight @ (np.log(np.exp(factor * below).sum(axis=1)) - factor * own))

    result = minimize_scalar(loss, bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded")
    return float(np.exp(result.x))


@dataclass(frozen=True, eq=False, repr=False)
class FittedLogging(EstimatedPolicy):
    """Estimated probabilities of discrete actions.

    `new` (folds × actions) holds the share in the whole log of the actions that are new to each model.
    """

    models: tuple[_Model, ...]
    new: FloatArray

    def distribution(self, batch: Batch) -> FloatArray:
        return self._of(batch.context, self.folds(batch))

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        if self._fixed is None:
            return super().entries(batch, row, code)
        probabilities: FloatArray = self._fixed[self.folds(batch)[row], code]
        return probabilities

    @property
    def _fixed(self) -> FloatArray | None:
        """Folds × actions, if the context does not matter."""
        if self.setting.model != "counts":
            return None
        folds = np.arange(len(self.models))
        return self._of(np.empty((len(folds), 0)), folds)

    def _of(self, context: FloatArray, folds: IntArray, trim: bool = True) -> FloatArray:
        p = np.empty((len(folds), self.new.shape[1]))
        for fold in np.unique(folds):
            rows = folds == fold
            p[rows] = _probabilities(self.models[fold], context[rows]) * (1 - self.new[fold].sum()) + self.new[fold]
        return _trimmed(p, self.setting.trim) if trim and self.setting.trim is not None else p

    def checked(self, sample: State) -> FittedLogging:
        """Add the quality of its predictions out of fold to the report; raise if the log looks deterministic."""
        n, taken, weight = len(sample["action"]), sample["action"], sample["weight"]
        own, top, correct = np.empty(n), np.empty(n), np.empty(n, dtype=bool)
        for rows in blocks(n, self.new.shape[1]):
            p = self._of(sample["context"][rows], sample["group"][rows], trim=False)
            own[rows], top[rows] = p[np.arange(len(p)), taken[rows]], p.max(axis=1)
            correct[rows] = p.argmax(axis=1) == taken[rows]
        sure = np.argsort(-top, kind="stable")[: int(SUREST * n)]
        wrong = int((~correct).sum())
        follows = correct.mean() >= PREDICTED and len(sure) >= SURE_ROWS and correct[sure].all()
        if (wrong == 0 and n >= FEW) or follows:
            raise deterministic(
                f"the context predicts its action in {correct.mean():.2%} of {n:,} rounds that the model was not fitted on, "
                f"and in all of the {SUREST:.0%} with the most confident predictions"
            )
        if (repeated := _one_action_each(sample)) is not None:
            raise deterministic(
                f"{repeated:,} of {n:,} rounds share their context with rounds of other units, and no context has two "
                "actions (if a unit always gets the same action, name the unit as cluster=)"
            )
        loss = -float(weight @ np.log(np.maximum(own, 1e-300))) / float(weight.sum())
        quality: dict[str, Any] = {"fitted_rows": n, "log_loss": loss, "accuracy": float(weight @ correct / weight.sum())}
        if self.setting.calibrated:
            quality["temperature"] = [1 / model.sharpness for model in self.models]  # as in op.Softmax
        return replace(self, report={**self.report, **quality})


def _probabilities(model: _Model, context: FloatArray) -> FloatArray:
    """Rounds × actions; every action in the data of the model gets a positive probability."""
    scores = model.scores(context)
    p: FloatArray = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if not isinstance(model, _Constant):
        p = (p + LEAST * model.seen) / (1 + LEAST * model.seen.sum())
    return p


def _trimmed(p: FloatArray, least: float) -> FloatArray:
    """Raise positive probabilities below `least` to `least`, and reduce the others in proportion."""
    raised = np.zeros(p.shape, dtype=bool)
    while (low := (p > 0) & (p < least) & ~raised).any():
        raised |= low
        left = 1 - least * raised.sum(axis=1, keepdims=True)
        others = np.where(raised, 0.0, p)
        p = np.where(raised, least, others * left / np.maximum(others.sum(axis=1, keepdims=True), 1e-300))
    return p


def _one_action_each(sample: State) -> int | None:
    """The number of rounds whose context other units share, if that is most rounds and none of these has two actions."""
    context = sample["context"]
    mixed = context @ np.random.default_rng(0).normal(size=context.shape[1])  # almost never equal for different rows
    _, which = np.unique(mixed, return_inverse=True)
    pairs = np.unique(np.column_stack([which, sample["order"].view(np.int64)]), axis=0)
    units = np.bincount(pairs[:, 0])
    actions = np.bincount(np.unique(np.column_stack([which, sample["action"]]), axis=0)[:, 0])
    shared = units >= UNITS_OF_A_CONTEXT
    rounds = int(shared[which].sum())
    enough = rounds >= max(FEW, len(which) // 2)
    return rounds if enough and bool((actions[shared] == 1).all()) else None
