"""A logging density estimated from the log: cross-fitted, calibrated out of fold, and refused for a deterministic log.

The density of a vector is the product of those of its numbers, each given the context and the numbers before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.progress import PassProgress
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.models.conditional_density import ConditionalDensity, Data, LinearNormal, Located
from offpolicy.models.estimated_policy import EstimatedPolicy, deterministic
from offpolicy.models.rewards.base import FitShape
from offpolicy.models.rewards.sample import SampleRows
from offpolicy.policies.density import integrated
from offpolicy.policies.nodes import Nodes
from offpolicy.statistics.base import State

LEAST_ROWS = 50
KNOWN = 0.999
"""A log looks deterministic if the model predicts this share of the variance of its actions."""
REPEATED = 0.05
"""A value that is this share of all actions has a probability, not a density."""

Fit = Callable[[Data], ConditionalDensity]
FITS: dict[str, Fit] = {"normal": LinearNormal.fit, "kernel": Located.fit}


def estimate_density(log: Log, engine: Engine, seed: int, progress: bool | None = None) -> Log:
    """The log with its logging density estimated, in one pass."""
    setting, space = log.logging, box(log.space, "EstimatedLogging")
    assert isinstance(setting, EstimatedLogging)
    if space.points:
        raise InputError(
            "logging: EstimatedLogging does not estimate probabilities of single values (points) beside a density; log both "
            "as `propensity=`."
        )
    setting = replace(setting, model=setting.model or ("normal" if log.schema.context else "kernel"))
    shape = FitShape(
        0, len(log.schema.context), len(log.schema.rewards), setting.folds, seed, action_shape=space.shape
    )  # fmt: skip
    with PassProgress("estimating densities", len(log), progress) as report:
        sample = engine.reduce(log, SampleRows(shape, setting.rows), report)
    _check_repeated(space, sample)
    fits = _Fit(setting, space, sample)
    about = {"model": setting.model, "log_rows": len(log), "fitted_rows": len(sample["order"])}
    policy = FittedDensity(setting, seed, fits.models(), about)
    return log.with_logging(policy.checked(space, sample))


def _check_repeated(space: Box, sample: State) -> None:
    """Raise if some value is too frequent for a density."""
    for j, column in enumerate(space.vectors(sample["action"]).T):
        values, counts = np.unique(column, return_counts=True)
        at = int(np.argmax(counts))
        if counts[at] >= max(REPEATED * len(column), 3):
            where = f" in dimension {j}" if space.shape else ""
            raise InputError(
                f"action: {counts[at]:,} of {len(column):,} rounds have exactly the action {values[at]:.6g}{where}, which "
                "therefore has a probability, and EstimatedLogging estimates densities. Log probabilities and densities as "
                "`propensity=`, with op.Box(…, points=[…]); or, if actions were clipped there, log them before they were."
            )


@dataclass(frozen=True)
class _Fit:
    """Models fitted on the sampled rows, each without one fold: one per number of an action."""

    setting: EstimatedLogging
    space: Box
    sample: State

    def models(self) -> list[tuple[ConditionalDensity, ...]]:
        folds = range(self.setting.folds)
        return [self._calibrated(self._without(fold), fold) for fold in folds]

    def _data(self, rows: IntArray) -> list[Data]:
        """For each number of an action: what it is predicted from, and its values."""
        vectors = _scaled(self.space, self.sample["action"][rows])
        weight = self.sample["weight"][rows] / self.sample["weight"][rows].mean()
        context = self.sample["context"][rows]
        return [Data(np.column_stack([context, vectors[:, :j]]), vectors[:, j], weight) for j in range(vectors.shape[1])]

    def _without(self, *folds: int) -> tuple[ConditionalDensity, ...]:
        rows = np.flatnonzero(~np.isin(self.sample["group"], folds) & (self.sample["weight"] > 0))
        if len(rows) < LEAST_ROWS:
            raise InputError(
                f"EstimatedLogging: without one or two folds, {len(rows):,} rounds remain, which is too few to fit on; use "
                "a larger log (or smaller clusters)."
            )
        return tuple(FITS[str(self.setting.model)](data) for data in self._data(rows))

    def _calibrated(self, models: tuple[ConditionalDensity, ...], fold: int) -> tuple[ConditionalDensity, ...]:
        """With the spread that suits the next fold, for a model fitted without this fold and the next."""
        after = (fold + 1) % self.setting.folds
        rows = np.flatnonzero((self.sample["group"] == after) & (self.sample["weight"] > 0))
        if not self.setting.calibrated or len(rows) < LEAST_ROWS:
            return models
        others = self._without(fold, after)
        return tuple(m.calibrated(data, own) for m, data, own in zip(models, self._data(rows), others, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class FittedDensity(EstimatedPolicy):
    """An estimated logging density. `models` has one model per fold and number of an action."""

    spaces: ClassVar = (Box,)
    models: Sequence[tuple[ConditionalDensity, ...]]

    def distribution(self, batch: Batch) -> FloatArray:
        raise InputError(f"an estimated density has no probabilities, and the actions here are {batch.space.nature}.")

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        space, fold = box(batch.space, "EstimatedLogging"), self.folds(batch)
        action: Any = np.asarray(code, dtype=np.float64)
        density = np.zeros(len(row))
        for f, models in enumerate(self.models):
            rounds = np.flatnonzero(fold == f)
            at = np.full(len(batch), -1)
            at[rounds] = np.arange(len(rounds))
            some = np.flatnonzero(at[row] >= 0)
            if len(some):
                density[some] = self._of(models, batch.context[rounds], at[row[some]], action[some], space)
        density[space.outside(action)] = 0.0
        return density

    def _of(
        self, models: Sequence[ConditionalDensity], context: FloatArray, row: IntArray, action: FloatArray, space: Box
    ) -> FloatArray:
        """The density of actions, each in a round (row) of the context."""
        vectors, density = _scaled(space, action), np.full(len(row), 1 / float(np.prod(space.ranges)))
        for j, model in enumerate(models):
            known = context if j == 0 else np.column_stack([context[row], vectors[:, :j]])
            location, scale = model.shapes(known)
            shapes = (location[row], scale[row]) if j == 0 else (location, scale)
            density *= model.density(shapes, vectors[:, j])
        return (
            density if self.setting.trim is None else np.maximum(density, self.setting.trim / float(np.prod(space.ranges)))
        )

    def nodes(self, batch: Batch) -> Nodes:
        actions, weights = integrated(self.entries, batch)
        return Nodes(actions, weights / weights.sum(axis=1, keepdims=True))

    def checked(self, space: Box, sample: State) -> FittedDensity:
        """Add the quality of its predictions out of fold to the report; raise if the log looks deterministic."""
        vectors, weight, group = _scaled(space, sample["action"]), sample["weight"], sample["group"]
        own, missed = np.zeros(len(vectors)), np.zeros(vectors.shape)
        for f, models in enumerate(self.models):
            rows = np.flatnonzero(group == f)
            own[rows] = self._of(models, sample["context"][rows], np.arange(len(rows)), sample["action"][rows], space)
            for j, model in enumerate(models):
                known = np.column_stack([sample["context"][rows], vectors[rows, :j]])
                missed[rows, j] = vectors[rows, j] - model.shapes(known)[0]
        variance = np.average((vectors - np.average(vectors, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
        known = 1 - np.average(missed**2, axis=0, weights=weight) / np.maximum(variance, 1e-300)
        if (known >= KNOWN).any():
            j = int(np.argmax(known))
            raise deterministic(
                f"the context predicts {known[j]:.2%} of the variance of its actions"
                f"{f' in dimension {j}' if space.shape else ''} in rounds that the model was not fitted on"
            )
        loss = -float(weight @ np.log(np.maximum(own, 1e-300))) / float(weight.sum())
        quality = {"log_loss": loss, "variance_explained": [float(v) for v in known]}
        return replace(self, report={**self.report, **quality})


def _scaled(space: Box, action: FloatArray) -> FloatArray:
    """Actions as vectors of numbers from 0 to 1."""
    vectors: FloatArray = (space.vectors(action) - space.lows) / space.ranges
    return vectors
