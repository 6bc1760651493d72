"""`Ridge` for continuous actions: q(x, a) = Σ_j B_j(a)·(x̃·β_j), with smooth functions B_j of the action that sum to 1.

The penalty counts rounds, as for discrete actions, and acts on differences between neighbouring functions: on second
differences of the intercepts, so that a straight line in the action is free, and on first differences of the slopes, so that
the pooled slopes are. Intercepts are those at the mean context, and rewards are counted from their mean, so that the fit
does not depend on the origins from which both are counted. With G the Gram matrix of B(a) ⊗ x̃ and b its products with the
reward, β = (G + λP)⁻¹ b (Eilers and Marx 1996). Everything follows from sums by group of units, also the squared error out
of fold by which λ is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Need
from offpolicy.data.batch import Batch
from offpolicy.data.box import box
from offpolicy.data.splines import SplineBasis
from offpolicy.models.rewards.base import Fits, FitShape, FitStatistic, LinearPredictor, RewardModel
from offpolicy.statistics.base import State, Statistic

PENALTIES = np.logspace(-1, 5, 8)
FOLDS_TO_CHOOSE = 5
LEAST = 1e-6
"""What is added to the diagonal, relative to its mean: functions without any round are otherwise free."""
BLOCK = 1 << 21
"""The number of products that are held at a time."""
COPIES = 8


@dataclass(frozen=True)
class SplineRidge(RewardModel):
    """`Ridge` on a log with continuous actions."""

    penalty: float | Literal["auto", "prediction"]
    basis: SplineBasis

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        return (SplineGram(shape.without_inputs(), self.basis),)

    def fits(self, shape: FitShape, results: Any) -> Fits:
        return SplineFits(self, shape, results[0])

    def needs(self, shape: FitShape, threads: int) -> tuple[Need, ...]:
        size = self.basis.size * (shape.context + 1)
        detail = f"{shape.groups} groups × ({self.basis.size} splines × {shape.context + 1} columns)² × 8 bytes"
        return (Need("sums for the reward model", 8.0 * size**2 * (shape.groups * (threads + 2) + COPIES), detail),)


@dataclass(frozen=True)
class SplineGram(FitStatistic):
    """Sums by group of φφᵀ, φr and r², with φ = B(a) ⊗ (x − origin, 1)."""

    basis: SplineBasis

    @property
    def size(self) -> int:
        return self.basis.size * (self.shape.context + 1)

    def zero(self) -> State:
        groups, rewards = self.shape.groups, self.shape.rewards
        return {
            "n": np.zeros(groups),
            "gram": np.zeros((groups, self.size, self.size)),
            "product": np.zeros((groups, self.size, rewards)),
            "square": np.zeros((groups, rewards)),
        }

    def fold(self, state: State, batch: Batch) -> State:
        s, group = self.shape, self.shape.group(batch)
        context, origin = s.origin[: s.context], s.origin[len(s.origin) - s.rewards :]
        weight = s.weights(batch)
        order = np.argsort(group, kind="stable")
        edges = np.searchsorted(group[order], np.arange(s.groups + 1))
        vectors = box(batch.space, "Ridge").vectors(batch.action)
        step = max(1, BLOCK // self.size)
        for g in range(s.groups):
            for start in range(edges[g], edges[g + 1], step):
                rows = order[start : min(start + step, edges[g + 1])]
                x = np.column_stack([batch.context[rows] - context, np.ones(len(rows))])
                phi = (self.basis.values(vectors[rows])[:, :, None] * x[:, None]).reshape(len(rows), -1)
                r = batch.reward[rows] - origin
                scaled = phi if weight is None else phi * weight[rows, None]
                state["gram"][g] += scaled.T @ phi
                state["product"][g] += scaled.T @ r
                state["square"][g] += (r * r if weight is None else r * r * weight[rows, None]).sum(axis=0)
                state["n"][g] += len(rows) if weight is None else weight[rows].sum()
        return state

    def finish(self, state: State) -> State:
        total = float(state["n"].sum())
        if not total > 0:
            raise InputError("weight: every row has weight 0, so there is nothing to fit or average.")
        scale = self.shape.weight_scale(total)
        return {name: values * scale for name, values in state.items()}


@dataclass(frozen=True)
class _Sums:
    """The sums of some groups, for one reward."""

    n: float
    gram: FloatArray
    product: FloatArray
    square: float

    def squared_error(self, beta: FloatArray) -> float:
        return float(self.square - 2 * self.product @ beta + beta @ self.gram @ beta)


@dataclass(frozen=True)
class SplineFits(Fits):
    """Fits on all rows, without each fold and each group, and on some groups, all from the same sums."""

    model: SplineRidge
    shape: FitShape
    sums: State
    _chosen: dict[int, float] = field(default_factory=dict)
    _solved: dict[tuple[int, bytes], LinearPredictor] = field(default_factory=dict)

    @property
    def can_refit(self) -> bool:
        return self.shape.jackknife

    def on_all(self, reward: int) -> LinearPredictor:
        return self._predictor(reward, np.arange(self.shape.groups))

    def without_fold(self, reward: int, fold: int, folds: int) -> LinearPredictor:
        each = self.shape.groups // folds
        return self._predictor(reward, np.delete(np.arange(self.shape.groups), slice(fold * each, (fold + 1) * each)))

    def without_group(self, reward: int, group: int) -> LinearPredictor:
        return self._predictor(reward, np.delete(np.arange(self.shape.groups), group))

    def on_groups(self, reward: int, groups: IntArray) -> LinearPredictor:
        return self._predictor(reward, groups)

    def diagnostics(self, reward: int) -> dict[str, Any]:
        penalty = self._penalty(reward)
        return {"penalty": penalty, "r2": self._r2(reward, penalty), "splines": self.model.basis.size}

    def _predictor(self, reward: int, groups: IntArray) -> LinearPredictor:
        key = (reward, groups.tobytes())
        if key not in self._solved:
            beta = self._solve(self._of(reward, groups), self._penalty(reward))
            coef = beta.reshape(self.model.basis.size, -1)
            coef[:, -1] += self.shape.origin[len(self.shape.origin) - self.shape.rewards + reward]
            self._solved[key] = LinearPredictor(coef, self.shape.origin[: self.shape.context], scale=self._scale)
        return self._solved[key]

    def _of(self, reward: int, groups: IntArray) -> _Sums:
        s = self.sums
        parts = (s["n"][groups].sum(), s["gram"][groups].sum(axis=0), s["product"][groups, :, reward].sum(axis=0))
        if not parts[0] > 0:
            raise InputError(
                "rewards: one fold contains every row, since there are too few units (clusters) to fit without it."
            )
        return _Sums(float(parts[0]), *parts[1:], float(s["square"][groups, reward].sum()))

    @cached_property
    def _moments(self) -> FloatArray:
        """E[x̃x̃ᵀ], with x counted from the origin: the functions of the action sum to 1, and so do their sums."""
        j, d = self.model.basis.size, self.shape.context + 1
        moments: FloatArray = self.sums["gram"].sum(axis=0).reshape(j, d, j, d).sum(axis=(0, 2)) / self.sums["n"].sum()
        return moments

    @cached_property
    def _centring(self) -> FloatArray:
        """R, with which x̃R is counted from the mean."""
        centring = np.eye(self.shape.context + 1)
        centring[-1, :-1] = -self._moments[-1, :-1]
        return centring

    @cached_property
    def _scale(self) -> FloatArray:
        """The standard deviation of each context column."""
        sd = np.sqrt(np.maximum(np.diag(self._moments)[:-1] - self._moments[-1, :-1] ** 2, 0.0))
        scale: FloatArray = np.where(sd > 0, sd, 1.0)
        return scale

    @cached_property
    def _penalised(self) -> FloatArray:
        """P, in the unit of the context."""
        slopes, intercepts = (self.model.basis.roughness(order) for order in (1, 2))
        squares = np.append(self._scale**2, 0.0)
        return np.kron(slopes, np.diag(squares)) + np.kron(intercepts, np.diag(np.append(0 * self._scale, 1.0)))

    def _solve(self, sums: _Sums, penalty: float) -> FloatArray:
        j, d = self.model.basis.size, self.shape.context + 1
        unit = np.tile(np.append(self._scale, 1.0), j)  # the system in standardised columns
        centred = np.einsum("ab,jakc,cd->jbkd", self._centring, sums.gram.reshape(j, d, j, d), self._centring, optimize=True)
        matrix = (centred.reshape(j * d, j * d) + penalty * self._penalised) / np.outer(unit, unit)
        matrix[np.diag_indices(len(matrix))] += LEAST * max(float(np.trace(matrix)) / len(matrix), 1e-300)
        mean = float(sums.product.reshape(j, d)[:, -1].sum() / sums.n)
        deviation = sums.product - mean * sums.gram.reshape(j * d, j, d)[:, :, -1].sum(axis=1)  # φᵀ(r − mean)
        product = (deviation.reshape(j, d) @ self._centring).ravel()
        solved: FloatArray = (np.linalg.solve(matrix, product / unit) / unit).reshape(j, d) @ self._centring.T
        solved[:, -1] += mean
        return solved.ravel()

    def _penalty(self, reward: int) -> float:
        if not isinstance(self.model.penalty, str):
            return float(self.model.penalty)
        if reward not in self._chosen:
            errors = [self._error(reward, float(penalty)) for penalty in PENALTIES]
            self._chosen[reward] = float(PENALTIES[int(np.argmin(errors))])
        return self._chosen[reward]

    def _error(self, reward: int, penalty: float) -> float:
        """The squared error out of fold."""
        groups = self.shape.groups
        folds = [np.arange(groups)[k::FOLDS_TO_CHOOSE] for k in range(FOLDS_TO_CHOOSE)]
        error = 0.0
        for held in folds:
            if self.sums["n"][held].sum() > 0:
                beta = self._solve(self._of(reward, np.setdiff1d(np.arange(groups), held)), penalty)
                error += self._of(reward, held).squared_error(beta)
        return error

    def _r2(self, reward: int, penalty: float) -> float:
        whole = self._of(reward, np.arange(self.shape.groups))
        j, d = self.model.basis.size, self.shape.context + 1
        mean = float(whole.product.reshape(j, d)[:, -1].sum() / whole.n)
        total = whole.square - whole.n * mean**2
        return 1 - self._error(reward, penalty) / total if total > 0 else 0.0
