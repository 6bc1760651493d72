"""Rows of the log held in memory, for reward models that are trained on rows instead of sums."""

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
"""The number of (round, action) pairs that are predicted at a time, which bounds the memory."""


@dataclass(frozen=True)
class SampleRows(FitStatistic):
    """At most `limit` rows, those with the smallest hashes: a sample that depends on neither order nor partitions."""

    limit: int

    @classmethod
    def of(cls, shape: FitShape, limit: int) -> SampleRows:
        """Without the settings that do not affect the sample, so that fits that differ only in these share it."""
        return cls(shape.without_inputs() if shape.inputs == "identity" else replace(shape, folds=1), limit)

    def zero(self) -> State:
        s = self.shape
        return {
            "order": np.empty(0, np.uint64),
            "group": np.empty(0, np.int64),
            "action": np.empty((0, *s.action_shape), np.int64),
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
    """The same order of the same rows, whatever the order of the log, since training depends on it."""
    keys = [state["reward"][:, 0], *state["action"].reshape(len(state["order"]), -1).T, state["order"]]
    order: IntArray = np.lexsort(keys)
    alike = [key[order[1:]] == key[order[:-1]] for key in keys]
    if np.logical_and.reduce(alike).any():  # rows of one unit that differ only in the other columns
        rest = np.hstack([state["features"], state["context"], state["weight"][:, None]])
        order = np.lexsort([*rest.T, *keys])
    return order


@dataclass(frozen=True)
class FitRows:
    """The rows of one fit, with one reward. `weight` is None if all rows count the same."""

    shape: FitShape
    context: FloatArray
    action: IntArray
    features: FloatArray
    reward: FloatArray
    weight: FloatArray | None

    @classmethod
    def of(cls, sample: State, shape: FitShape, reward: int, fold: int, folds: int) -> FitRows:
        """The rows of a sample that are not in the fold."""
        keep = sample["group"] * folds // shape.groups != fold
        weighted = shape.row_weight is not None or bool((sample["weight"] != 1).any())
        weight = sample["weight"][keep] if weighted else None
        if not keep.any():
            raise InputError(
                "rewards: one fold contains every row, since there are too few units (clusters) to fit without it."
            )
        if weight is not None and not weight.sum() > 0:
            raise InputError("rewards: all rows outside a fold have weight 0. Check the column of row weights.")
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
        """The number of rounds that each row represents. A fit's own weights (MRDR's) are not frequencies."""
        if self.weight is None or self.shape.row_weight is not None:
            return np.ones(len(self))
        counted: FloatArray = self.weight / self.weight.mean()
        return counted

    @cached_property
    def counts(self) -> FloatArray:
        """The rounds of each action."""
        return sums_by(self.action, self.counted, self.shape.n_actions)

    @cached_property
    def mean_context(self) -> FloatArray:
        mean: FloatArray = self.counted @ self.context / len(self)
        return mean

    @cached_property
    def action_features(self) -> FloatArray:
        """The features of each action: from the catalog, and the mean over its rounds (over all rounds if it has none)."""
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
    """Models trained on the sample, on all rows and without each fold, each when it is first needed.

    `train` returns a predictor and numbers to report, such as epochs; the largest over the fits is reported.
    """

    def __init__(self, shape: FitShape, sample: State, train: Callable[[FitRows], tuple[Predictor, dict[str, int]]]) -> None:
        self._shape, self._sample, self._train = shape, sample, train
        self._trained: dict[tuple[int, int, int], tuple[Predictor, dict[str, int]]] = {}
        self._lock = threading.Lock()

    def on_all(self, reward: int) -> Predictor:
        return self.without_fold(reward, -1, 1)

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:
        key = (reward, fold, folds)
        with self._lock:
            if key not in self._trained:
                self._trained[key] = self._train(FitRows.of(self._sample, self._shape, *key))
        return self._trained[key][0]

    def diagnostics(self, reward: int) -> dict[str, Any]:
        report: dict[str, Any] = {"fitted_rows": len(self._sample["order"]), "log_rows": int(self._sample["rows"])}
        for (of, _, _), (_, numbers) in self._trained.items():
            if of == reward:
                report |= {name: max(number, report.get(name, number)) for name, number in numbers.items()}
        return report


def features_of(shape: FitShape) -> Features | None:
    """The features, if the model uses them and they vary within an action; else None."""
    return shape.features if shape.inputs != "identity" and shape.features.varies else None


def pairs(rounds: int, n_actions: int) -> Iterator[tuple[slice, IntArray, IntArray]]:
    """All (round, action) pairs in blocks: the slice of each block, its rounds and its actions."""
    for start in range(0, rounds * n_actions, PAIRS):
        block = slice(start, min(start + PAIRS, rounds * n_actions))
        yield block, *np.divmod(np.arange(block.start, block.stop), n_actions)
