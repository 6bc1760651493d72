"""Counts and sums of features by action: what most posteriors are fitted from, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.statistics.base import State

ROUNDING = 1e-12
"""What is left below this part of what was subtracted is nothing."""


@dataclass(frozen=True)
class FeatureSums(FitStatistic):
    """By group and action: rows and Σφ; by group: Σφφᵀ around a typical φ. Without features, only the rows."""

    summed: ClassVar[frozenset[str]] = frozenset({"n", "sum", "square"})

    @property
    def size(self) -> int:
        return self.shape.features.size

    def zero(self) -> State:
        g, n, f = self.shape.groups, self.shape.n_actions, self.size
        return {"n": np.zeros(g * n), "sum": np.zeros((g * n, f)), "square": np.zeros((g, f, f))}

    def fold(self, state: State, batch: Batch) -> State:
        s = self.shape
        group = s.group(batch)
        key = group * s.n_actions + batch.action
        weight = s.weights(batch)
        state["n"] += np.bincount(key, weight, len(state["n"]))
        if self.size:
            y = s.features.rows(batch) - self._origin
            yw = y if weight is None else y * weight[:, None]
            for j in range(self.size):
                state["sum"][:, j] += np.bincount(key, yw[:, j], len(state["n"]))
            order = np.argsort(group, kind="stable")
            edges = np.searchsorted(group[order], np.arange(s.groups + 1))
            for g in range(s.groups):
                rows = order[edges[g] : edges[g + 1]]
                state["square"][g] += yw[rows].T @ y[rows]
        return state

    @property
    def _origin(self) -> FloatArray:
        d = self.shape.context
        return self.shape.origin[d : d + self.size]

    def finish(self, state: State) -> GroupedSums:
        """As if row weights had mean 1: posteriors count rounds."""
        g, n, scale = self.shape.groups, self.shape.n_actions, self.shape.weight_scale(float(state["n"].sum()))
        return GroupedSums(
            state["n"].reshape(g, n) * scale, state["sum"].reshape(g, n, -1) * scale, state["square"] * scale, self._origin,
            self.shape.features,
        )  # fmt: skip


@dataclass(frozen=True)
class GroupedSums:
    """The sums with a leading axis of groups."""

    n: FloatArray
    total: FloatArray
    square: FloatArray
    origin: FloatArray
    features: Features

    def of(self, keep: npt.NDArray[np.bool_]) -> ActionSums:
        """The sums of some groups. (Groups are added, never subtracted.)"""
        parts = (part[keep].sum(axis=0) for part in (self.n, self.total, self.square))
        return ActionSums(*parts, self.origin, self.features)  # type: ignore[call-arg]


@dataclass(frozen=True)
class ActionSums:
    """Rows and Σφ of each action, and Σφφᵀ, both around `origin`."""

    n: FloatArray
    total: FloatArray
    square: FloatArray
    origin: FloatArray
    features: Features

    def means(self) -> FloatArray:
        """φ̄ of each action; of actions never logged, what the catalog says and else that of the log."""
        n = self.n[:, None]
        overall = self.total.sum(axis=0) / max(float(n.sum()), 1e-300)
        means: FloatArray = self.origin + np.where(n > 0, self.total / np.where(n > 0, n, 1.0), overall)
        if self.features.catalog is not None and self.features.size:
            means[:, self.features.per_round :] = self.features.catalog
        return means

    def within(self) -> FloatArray:
        """The covariance of φ around the mean of its action."""
        around = self.means() - self.origin
        scatter: FloatArray = self.square - around.T @ (around * self.n[:, None])
        size = np.sqrt(np.diag(self.square))
        scatter = np.where(np.abs(scatter) > ROUNDING * np.outer(size, size), scatter, 0.0)
        return scatter / max(float(self.n.sum()), 1e-300)
