"""`Ridge`: a linear model an action, in closed form from one pass of grouped Gram matrices.

With z = (x − μ)/s the context on the log's own scale and z̃ = (z, 1), each action's coefficients minimise

    Σ_t (r_t − z̃_t·β_a)² + penalty · ‖β_a − β‖²        β: the pooled least-squares fit of all actions

so `penalty` counts rounds: an action logged that often lies about half way between its own data and the pool, whatever
the units of the context. An action never logged is the pool's. `penalty=0` is ordinary least squares an action with a
free intercept, of minimum norm where rounds are few.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.errors import InputError
from offpolicy.log import CHUNK_ROWS
from offpolicy.rewards.base import Fits, FitShape, Linear, RewardModel
from offpolicy.statistics import Gram, GramState, State, Statistic

PENALTIES = np.logspace(-1, 5, 8)
FOLDS_TO_CHOOSE = 5
ROWS_TO_CHOOSE = 100_000
RCOND = 1e-10


@dataclass(frozen=True)
class Ridge(RewardModel):
    """Linear reward models, one an action, shrunk towards the pooled one.

    `penalty` is a number of rounds, or "auto": the one of least squared error out of fold, from the same statistics.
    `unseen="zero"` scores actions never logged as 0 instead of by the pooled model, as some published code does.
    """

    penalty: float | Literal["auto"] = "auto"
    _: KW_ONLY
    intercept: bool = True
    unseen: Literal["prior", "zero"] = "prior"

    def __post_init__(self) -> None:
        if self.penalty != "auto" and not self.penalty >= 0:
            raise InputError(f'Ridge: penalty is {self.penalty!r}; give a number of rounds (0 or more) or "auto".')
        if self.unseen not in ("prior", "zero"):
            raise InputError(f'Ridge: unseen is {self.unseen!r}; it must be "prior" or "zero".')

    def statistic(self, shape: FitShape) -> Statistic:
        return _GramPass(shape)

    def fits(self, shape: FitShape, result: Any) -> Fits:
        return RidgeFits(self, shape, result)


@dataclass(frozen=True)
class _GramPass:
    """Gram matrices of (context, rewards) by (group, action)."""

    shape: FitShape

    @cached_property
    def gram(self) -> Gram:
        return Gram(self.shape.groups * self.shape.n_actions, self.shape.context, self.shape.rewards)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.shape.columns

    @property
    def batch_rows(self) -> int:
        return CHUNK_ROWS  # many rows a key: the cost of adding to the keys' states is then small

    def zero(self) -> State:
        return self.gram.zero()

    def fold(self, state: State, batch: Batch) -> State:
        key = self.shape.group(batch) * self.shape.n_actions + batch.action
        values = np.vstack([batch.context.T, batch.reward.T])
        return self.gram.fold(state, key, values, self.shape.weights(batch))

    def merge(self, a: State, b: State) -> State:
        return self.gram.merge(a, b)

    def finish(self, state: State) -> list[GramState]:
        """For each reward, the Gram matrices with leading shape (groups, actions), as if row weights had mean 1.

        The penalty counts rounds, so the unit in which rows are weighed must not matter.
        """
        lead = (self.shape.groups, self.shape.n_actions)
        total = float(state["n"].sum())
        scale = self.shape.rows / total if total > 0 and self.shape.rows else 1.0
        scaled = {"n": state["n"] * scale, "mean": state["mean"], "m2": state["m2"] * scale} if scale != 1.0 else state
        shaped = {name: array.reshape(*lead, *array.shape[1:]) for name, array in scaled.items()}
        return [self.gram.unpack(shaped, k) for k in range(self.shape.rewards)]


class RidgeFits:
    """Fits on all rows, without each fold, and without each group, all from the same Gram matrices."""

    def __init__(self, model: Ridge, shape: FitShape, grams: list[GramState]) -> None:
        self._model, self._shape, self._grams = model, shape, grams
        self._whole = [gram.pooled() for gram in grams]
        self._chosen: dict[int, _Choice] = {}
        self._left_out: dict[tuple[int, int], list[GramState]] = {}

    def on_all(self, reward: int) -> Linear:
        return self._solve(self._whole[reward], self._choice(reward).penalty)

    def without_fold(self, reward: int, fold: int, folds: int) -> Linear:
        return self._solve(self._without(reward, folds)[fold], self._choice(reward).penalty)

    def without_group(self, reward: int, group: int) -> Linear:
        return self._solve(self._without(reward, self._shape.groups)[group], self._choice(reward).without(group))

    def diagnostics(self, reward: int) -> dict[str, Any]:
        choice = self._choice(reward)
        return {"r2": choice.r2, "penalty": choice.penalty}

    def _folds(self, reward: int, folds: int) -> list[GramState]:
        """The Gram matrices of each fold, with leading shape (groups of the fold, actions)."""
        each = self._shape.groups // folds
        return [self._grams[reward].at(slice(k * each, (k + 1) * each)) for k in range(folds)]

    def _without(self, reward: int, folds: int) -> list[GramState]:
        """All rows but those of each fold, from sums of the others: nothing is subtracted, so nothing cancels."""
        if (reward, folds) not in self._left_out:
            parts = [fold.pooled() for fold in self._folds(reward, folds)]
            before, after = [parts[0]], [parts[-1]]
            for k in range(1, folds - 1):
                before.append(before[-1].plus(parts[k]))
                after.append(after[-1].plus(parts[-1 - k]))
            inner = [before[k - 1].plus(after[folds - 2 - k]) for k in range(1, folds - 1)]
            self._left_out[reward, folds] = [after[-1], *inner, before[-1]]
        return self._left_out[reward, folds]

    def _choice(self, reward: int) -> _Choice:
        if reward not in self._chosen:
            folds = next(k for k in range(FOLDS_TO_CHOOSE, 0, -1) if self._shape.groups % k == 0)
            self._chosen[reward] = _choose(self._without(reward, folds), self._folds(reward, folds), self._model)
        return self._chosen[reward]

    def _solve(self, gram: GramState, penalty: float) -> Linear:
        return next(solve(gram, [penalty], self._model, gram.pooled()))


def solve(gram: GramState, penalties: Iterable[float], model: Ridge, whole: GramState) -> Iterator[Linear]:
    """The minimiser at the head of this file for each penalty, from Gram matrices with leading shape (actions,)."""
    scaled = _Scaled.of(gram, whole, model.intercept)
    never = gram.n == 0
    for penalty in penalties:
        if penalty > 0:
            eye = np.eye(len(scaled.pool))
            linear = scaled.linear(
                scaled.pool + np.linalg.solve(scaled.zz + penalty * eye, scaled.residual[..., None])[..., 0]
            )
        else:
            linear = _least_squares(gram, whole, model.intercept)
            linear.coef[never] = scaled.linear(scaled.pool[None]).coef
        if model.unseen == "zero":
            linear.coef[never] = 0.0
        yield linear


def _least_squares(gram: GramState, whole: GramState, intercept: bool) -> Linear:
    """Least squares an action. Where rounds are too few for one answer, the slopes of minimum norm."""
    if intercept:
        xx, xr, centre = gram.xx, gram.xr, whole.x
    else:
        xx = gram.xx + gram.n[:, None, None] * gram.x[:, :, None] * gram.x[:, None, :]
        xr, centre = gram.xr + (gram.n * gram.r)[:, None] * gram.x, np.zeros_like(whole.x)
    slope = (np.linalg.pinv(xx, rcond=RCOND, hermitian=True) @ xr[..., None])[..., 0]
    # A feature in large units must not make the others look like none: where the scaled problem is of full rank it has one
    # answer, whatever the units.
    scale = np.sqrt(np.einsum("aii->ai", xx))
    scale = np.where(scale > 0, scale, 1.0)
    unit = xx / (scale[:, :, None] * scale[:, None, :])
    full = np.linalg.eigvalsh(unit)[:, 0] > RCOND if unit.shape[1] else np.zeros(len(unit), bool)
    slope[full] = np.linalg.solve(unit[full], (xr / scale)[full][..., None])[..., 0] / scale[full]
    level = gram.r + np.einsum("ai,ai->a", slope, centre - gram.x) if intercept else np.zeros(len(slope))
    return Linear(np.column_stack([slope, level]), centre)


@dataclass(frozen=True)
class _Scaled:
    """Normal equations of each action in z̃, and the pooled fit β in the same coordinates."""

    zz: FloatArray
    residual: FloatArray  # Σ z̃·(r − z̃·β)
    pool: FloatArray
    centre: FloatArray
    scale: FloatArray
    level: float
    intercept: bool

    @classmethod
    def of(cls, gram: GramState, whole: GramState, intercept: bool) -> _Scaled:
        if intercept:
            centre, level = whole.x, float(whole.r)
            spread = np.einsum("ii->i", whole.xx) / (float(whole.n) or 1.0)
        else:  # no constant: scale by the second moment around 0, and leave the origin where it is
            centre, level = np.zeros_like(whole.x), 0.0
            spread = np.einsum("ii->i", whole.xx) / (float(whole.n) or 1.0) + whole.x**2
        scale = np.sqrt(spread)
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(whole.x), 1e-300), scale, 1.0)
        zz, zr = _normal(gram, centre, scale, level, intercept)
        pool_zz, pool_zr = _normal(whole.at_all(), centre, scale, level, intercept)
        pool = np.linalg.pinv(pool_zz[0], rcond=RCOND, hermitian=True) @ pool_zr[0]
        return cls(zz, zr - zz @ pool, pool, centre, scale, level, intercept)

    def linear(self, beta: FloatArray) -> Linear:
        """Back to the context's own units."""
        slopes = beta[:, : len(self.scale)] / self.scale
        level = self.level + beta[:, -1] if self.intercept else np.zeros(len(beta))
        return Linear(np.column_stack([slopes, level]), self.centre)


def _normal(
    gram: GramState, centre: FloatArray, scale: FloatArray, level: float, intercept: bool
) -> tuple[FloatArray, FloatArray]:
    """Σ z̃z̃ᵀ and Σ z̃(r − level) of each action."""
    z, r = (gram.x - centre) / scale, gram.r - level
    xx = gram.xx / (scale[:, None] * scale) + gram.n[:, None, None] * z[:, :, None] * z[:, None, :]
    xr = gram.xr / scale + (gram.n * r)[:, None] * z
    if not intercept:
        return xx, xr
    nz = gram.n[:, None] * z
    zz = np.empty((len(z), z.shape[1] + 1, z.shape[1] + 1))
    zz[:, :-1, :-1], zz[:, -1, :-1], zz[:, :-1, -1], zz[:, -1, -1] = xx, nz, nz, gram.n
    return zz, np.column_stack([xr, gram.n * r])


@dataclass(frozen=True)
class _Choice:
    """Squared errors out of fold by (group, penalty), and the penalties they speak for.

    The penalty is where a parabola through the three lowest neighbours on the log scale has its least value: as smooth in
    the data as the errors are. The jackknife chooses anew without each group, so the choice's own error is counted.
    """

    grid: FloatArray
    errors: FloatArray
    total: float

    @property
    def penalty(self) -> float:
        return _least(self.grid, self.errors.sum(axis=0))

    def without(self, group: int) -> float:
        return _least(self.grid, self.errors.sum(axis=0) - self.errors[group])

    @property
    def r2(self) -> float | None:
        return float(1 - self.errors.sum(axis=0).min() / self.total) if self.total > 0 else None


def _choose(train: list[GramState], held_out: list[GramState], model: Ridge) -> _Choice:
    """Score every penalty on held-out folds, each of them given as its groups. Reads Gram matrices, not rows."""
    grid = PENALTIES if model.penalty == "auto" else np.array([float(model.penalty)])
    rows = sum(float(fold.n.sum()) for fold in held_out)
    step = max(1, min(int(rows / ROWS_TO_CHOOSE), len(train[0].n) // 100))  # a regular sample of actions is enough
    some = slice(0, None, step)

    def on_fold(fitted: GramState, test: GramState) -> tuple[FloatArray, float]:
        whole, unseen = fitted.pooled(), test.each(some)
        errors = [squared_error(linear, unseen) for linear in solve(fitted.at(some), grid, model, whole)]
        return np.array(errors).T, float((unseen.rr + unseen.n * (unseen.r - whole.r) ** 2).sum())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors, totals = zip(*pool.map(on_fold, train, held_out), strict=True)
    return _Choice(grid, np.vstack(errors), sum(totals))


def _least(grid: FloatArray, errors: FloatArray) -> float:
    k = int(np.argmin(errors))
    if k in (0, len(grid) - 1):
        return float(grid[k])
    x, y = np.log(grid[k - 1 : k + 2]), errors[k - 1 : k + 2]
    curve, tilt, _ = np.polyfit(x - x[1], y - y[1], 2)
    return float(np.exp(x[1] - tilt / (2 * curve))) if curve > 0 else float(grid[k])


def squared_error(linear: Linear, gram: GramState) -> FloatArray:
    """Σ (r − q(x, a))² over the rows behind Gram matrices with leading shape (…, actions), summed over actions."""
    slope = linear.coef[:, :-1]
    level = gram.r - np.einsum("...ai,ai->...a", gram.x - linear.centre, slope) - linear.coef[:, -1]
    spread = gram.rr + np.einsum("...ai,ai->...a", (gram.xx @ slope[..., None])[..., 0] - 2 * gram.xr, slope)
    errors: FloatArray = (spread + gram.n * level**2).sum(axis=-1)
    return errors
