"""Rows of the log held in memory, for reward models that are trained on rows and not on sums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray, sums_by
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.models.rewards.base import Fits, FitShape, FitStatistic, Predictor
from offpolicy.statistics.base import State

PAIRS = 1 << 17
"""So many (round, action) pairs are predicted at a time, so that memory stays bounded."""


@dataclass(frozen=True)
class SampleRows(FitStatistic):
    """The rows of smallest hash, at most `limit`: a sample that does not depend on order or partitioning."""

    limit: int

    @classmethod
    def of(cls, shape: FitShape, limit: int) -> SampleRows:
        """Without what the sample does not depend on, so that fits that differ only in that share it."""
        return cls(shape.without_inputs() if shape.inputs == "identity" else replace(shape, folds=1), limit)

    def zero(self) -> State:
        s = self.shape
        return {
            "order": np.empty(0, np.uint64),
            "group": np.empty(0, np.int64),
            "action": np.empty(0, np.int64),
            "context": np.empty((0, s.context)),
            "features": np.empty((0, 0 if s.inputs == "identity" else s.features.size)),
            "reward": np.empty((0, s.rewards)),
            "weight": np.empty(0),
            "rows": np.zeros(()),
        }

    def fold(self, state: State, batch: Batch) -> State:
        s = self.shape
        weight = s.weights(batch)
        return self.merge(
            state,
            {
                "order": batch.unit,
                "group": s.group(batch),
                "action": batch.action,
                "context": batch.context,
                "features": np.empty((len(batch), 0)) if s.inputs == "identity" else s.features.rows(batch),
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
        order = _order(state)
        return {
            **{name: array[order] for name, array in state.items() if name != "rows"},
            "rows": state["rows"],
        }


def _order(state: State) -> IntArray:
    """The same rows in the same order, however they came: training depends on it."""
    keys = [state["reward"][:, 0], state["action"], state["order"]]
    order: IntArray = np.lexsort(keys)
    alike = [key[order[1:]] == key[order[:-1]] for key in keys]
    if np.logical_and.reduce(alike).any():  # some rows of one unit are told apart by the rest only
        rest = np.hstack([state["features"], state["context"], state["weight"][:, None]])
        order = np.lexsort([*rest.T, *keys])
    return order


@dataclass(frozen=True)
class FitRows:
    """The rows behind one fit, with one reward."""

    shape: FitShape
    context: FloatArray
    action: IntArray
    features: FloatArray
    reward: FloatArray
    weight: FloatArray | None
    """None where all rows count the same."""

    @classmethod
    def of(cls, sample: State, shape: FitShape, reward: int, fold: int, folds: int) -> FitRows:
        """Those of a sample that are not in the fold."""
        keep = sample["group"] * folds // shape.groups != fold
        weighted = shape.row_weight is not None or bool((sample["weight"] != 1).any())
        weight = sample["weight"][keep] if weighted else None
        if not keep.any():
            raise InputError("rewards: a fold holds every row, since there are too few units (clusters) to fit without it.")
        if weight is not None and not weight.sum() > 0:
            raise InputError("rewards: all rows that are left for a fit have weight 0. Check the column of row weights.")
        return cls(
            shape=shape,
            context=sample["context"][keep],
            action=sample["action"][keep],
            features=sample["features"][keep],
            reward=sample["reward"][keep, reward],
            weight=weight,
        )

    def __len__(self) -> int:
        return len(self.action)

    @cached_property
    def counted(self) -> FloatArray:
        """How many rounds of the log each row stands for. A fit's own weights (MRDR's) do not say how often things occur."""
        if self.weight is None or self.shape.row_weight is not None:
            return np.ones(len(self))
        counted: FloatArray = self.weight / self.weight.mean()
        return counted

    @cached_property
    def counts(self) -> FloatArray:
        """Rounds of each action."""
        return sums_by(self.action, self.counted, self.shape.n_actions)

    @cached_property
    def mean_context(self) -> FloatArray:
        mean: FloatArray = self.counted @ self.context / len(self)
        return mean

    @cached_property
    def action_features(self) -> FloatArray:
        """Features of each action: from the catalog, and the mean of what its rounds showed (of all rounds, if none did)."""
        features = self.shape.features
        if self.shape.inputs == "identity":
            return np.empty((self.shape.n_actions, 0))
        means = [self._mean_by_action(self.features[:, j]) for j in range(features.per_round)]
        return np.column_stack([*means, *(() if features.catalog is None else (features.catalog,))])

    def _mean_by_action(self, column: FloatArray) -> FloatArray:
        sums = sums_by(self.action, self.counted * column, self.shape.n_actions)
        overall = float(self.counted @ column) / len(self)
        return np.where(self.counts > 0, sums / np.where(self.counts > 0, self.counts, 1.0), overall)


class SampleFits(Fits):
    """Models trained on the sample: on all rows and without each fold, each when it is first asked for.

    `train` gives a predictor and numbers to tell of, of which the largest over the fits is told.
    """

    def __init__(self, shape: FitShape, sample: State, train: Callable[[FitRows], tuple[Predictor, dict[str, int]]]) -> None:
        self._shape, self._sample, self._train = shape, sample, train
        self._made: dict[tuple[int, int, int], tuple[Predictor, dict[str, int]]] = {}
        self._lock = threading.Lock()

    def on_all(self, reward: int) -> Predictor:
        return self.without_fold(reward, -1, 1)

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:
        key = (reward, fold, folds)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._train(FitRows.of(self._sample, self._shape, *key))
        return self._made[key][0]

    def diagnostics(self, reward: int) -> dict[str, Any]:
        told: dict[str, Any] = {"fitted_rows": len(self._sample["order"]), "log_rows": int(self._sample["rows"])}
        for (of, _, _), (_, numbers) in self._made.items():
            if of == reward:
                told |= {name: max(number, told.get(name, number)) for name, number in numbers.items()}
        return told


def features_of(shape: FitShape) -> Features | None:
    """The features that a model sees and that vary within an action, else None."""
    return shape.features if shape.inputs != "identity" and shape.features.varies else None


def pairs(rounds: int, n_actions: int) -> Iterator[tuple[slice, IntArray, IntArray]]:
    """All (round, action) in blocks: where each block stands, its rounds and its actions."""
    for start in range(0, rounds * n_actions, PAIRS):
        block = slice(start, min(start + PAIRS, rounds * n_actions))
        yield block, *np.divmod(np.arange(block.start, block.stop), n_actions)
