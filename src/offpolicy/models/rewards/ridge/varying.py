"""`Ridge` with features that vary within an action: one more statistic, and its Schur complement.

With x̃ = (x, 1) and ỹ = (φ, 1), both around a typical row, the statistic sums (ỹ⊗x̃)(ỹ⊗x̃)ᵀ and (ỹ⊗x̃)r for each group of
units and, for inputs="both", ỹ⊗x̃x̃ᵀ for each action in it: the shared block of an arrow matrix, and its arms. The distinct
entries of the shared block are those of ỹỹᵀ times those of x̃x̃ᵀ: less than a third of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.models.rewards.base import FitStatistic, mean_features
from offpolicy.models.rewards.ridge.solve import RCOND, FreeMean, Scaled, Standard, solve_system
from offpolicy.statistics.base import State

ROWS_AT_ONCE = 1_024
ARM_BYTES = 48 << 20
"""Arms are stored for as many groups of units as this allows, and at least for each fold."""
FEWEST_GROUPS = 2
ARMS_AT_ONCE = 64
ELEMENTS_AT_ONCE = 1 << 17
"""Products for the arms that are computed at a time, 1 MB."""
LONG_RUN = 8
MOST_ARMS = 1 << 23
"""Rotated arms are computed once, up to 64 MB, and otherwise twice per penalty."""


@dataclass(frozen=True)
class CrossPass(FitStatistic):
    """The statistic described above, for `runs` runs of consecutive groups."""

    @property
    def arms(self) -> bool:
        return self.shape.inputs == "both"

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """k = context + 1, features + 1, and the number of distinct products of two of k."""
        k = self.shape.context + 1
        return k, self.shape.features.size + 1, k * (k + 1) // 2

    summed: ClassVar[frozenset[str]] = frozenset({"packed", "zr", "arms", "features"})

    @cached_property
    def runs(self) -> int:
        """The number of runs of groups: one per group if that is small, else as many as the memory allows."""
        _, f, pairs = self.sizes
        arms = self.shape.n_actions * f * pairs * 8 if self.arms else 0
        least = max(FEWEST_GROUPS, self.shape.folds)
        fitting = [
            g
            for g in range(least, self.shape.groups + 1)
            if self.shape.groups % g == 0 and g % self.shape.folds == 0 and g * arms <= ARM_BYTES
        ]
        return max(fitting, default=min(g for g in range(least, self.shape.groups + 1) if self.shape.groups % g == 0))

    def zero(self) -> State:
        k, f, pairs = self.sizes
        return {
            "packed": np.zeros((self.runs, f * (f + 1) // 2, pairs)),
            "zr": np.zeros((self.runs, f * k, self.shape.rewards)),
            "arms": np.zeros((self.runs, self.shape.n_actions if self.arms else 0, f, pairs)),
            "features": np.zeros((self.runs, self.shape.n_actions, f)),
        }

    def fold(self, state: State, batch: Batch) -> State:
        s = self.shape
        group, weight, phi = s.group(batch) * self.runs // s.groups, s.weights(batch), s.features.rows(batch)
        similar = phi @ np.sqrt(np.arange(2.0, phi.shape[1] + 2))  # brings rounds with the same features together
        for add, order in ((self._add_shared, similar), (self._add_by_action, batch.action)):
            rows = np.lexsort((order, group))
            edges = np.searchsorted(group[rows], np.arange(self.runs + 1))
            for g in range(self.runs):
                sums = {name: part[g] for name, part in state.items()}
                for start in range(edges[g], edges[g + 1], ROWS_AT_ONCE):
                    some = rows[start : min(start + ROWS_AT_ONCE, edges[g + 1])]
                    add(sums, batch, some, phi[some], None if weight is None else weight[some])
        return state

    def _add_shared(self, sums: State, batch: Batch, rows: IntArray, phi: FloatArray, weight: FloatArray | None) -> None:
        """Add to `packed` and `zr`. Rounds with the same features are summed before their products with these are taken."""
        x = self._context(batch, rows)
        xw = x if weight is None else x * weight
        r = batch.reward[rows] - self.shape.origin[len(x) - 1 + phi.shape[1] :]
        squares, xr = _products(xw, x), (xw[:, None] * r.T).reshape(-1, len(rows))
        first = _first_of_each(phi)
        if len(first) < len(rows):
            squares, xr = np.add.reduceat(squares, first, axis=1), np.add.reduceat(xr, first, axis=1)
        y = self._features(phi[first])
        sums["packed"] += _products(y, y) @ squares.T
        sums["zr"] += (y @ xr.T).reshape(sums["zr"].shape)

    def _add_by_action(self, sums: State, batch: Batch, rows: IntArray, phi: FloatArray, weight: FloatArray | None) -> None:
        """Add to `features` and `arms`. Rows are sorted by action."""
        y, action = self._features(phi), batch.action[rows]
        yw = y if weight is None else y * weight
        at = np.flatnonzero(np.diff(action, prepend=-1))
        sums["features"][action[at]] += np.add.reduceat(yw, at, axis=1).T
        if self.arms:
            x = self._context(batch, rows)
            self._add_arms(sums["arms"], action, yw.T, np.ascontiguousarray(_products(x, x).T))

    def _context(self, batch: Batch, rows: IntArray) -> FloatArray:
        """x̃ of some rounds, one per column."""
        x = batch.context[rows]
        return np.vstack([(x - self.shape.origin[: x.shape[1]]).T, np.ones(len(x))])

    def _features(self, phi: FloatArray) -> FloatArray:
        """ỹ of some rounds, one per column."""
        d = self.shape.context
        return np.vstack([(phi - self.shape.origin[d : d + phi.shape[1]]).T, np.ones(len(phi))])

    def _add_arms(self, arms: FloatArray, action: IntArray, y: FloatArray, squares: FloatArray) -> None:
        """Add the products of two matrices with one row per round, a few rounds at a time."""
        step = max(1, ELEMENTS_AT_ONCE // (y.shape[1] * squares.shape[1]))
        for some in (slice(start, start + step) for start in range(0, len(y), step)):
            at = np.flatnonzero(np.diff(action[some], prepend=-1))
            products = y[some, :, None] * squares[some, None, :]
            arms[action[some][at]] += _sums_of_runs(products, at)

    def merge(self, a: State, b: State) -> State:
        return super().merge(a, b) if a["features"].any() else b

    def finish(self, state: State) -> list[Cross]:
        """For each reward, the sums with a leading axis of runs, as if row weights had mean 1."""
        k, f, _ = self.sizes
        scale = self.shape.weight_scale(float(state["features"][..., -1].sum()))
        if scale != 1.0:
            state = {name: part * scale for name, part in state.items()}
        origin, d = self.shape.origin, self.shape.context
        return [
            Cross(
                state["packed"], state["zr"][..., reward], state["arms"], state["features"], origin[:d],
                origin[d : d + f - 1], float(origin[d + f - 1 + reward]), k,
            )
            for reward in range(self.shape.rewards)
        ]  # fmt: skip


@dataclass(frozen=True)
class Cross:
    """Sums over some rows, for one reward, with or without a leading axis of runs.

    `packed` has the distinct entries of Σ (ỹ⊗x̃)(ỹ⊗x̃)ᵀ. `features` is Σ ỹ of each action; its last column counts the rows.
    """

    packed: FloatArray
    zr: FloatArray
    arms: FloatArray
    features: FloatArray
    x0: FloatArray
    y0: FloatArray
    r0: float
    k: int

    @property
    def runs(self) -> int:
        """The number of runs of groups."""
        return len(self.packed)

    @cached_property
    def zz(self) -> FloatArray:
        """Σ (ỹ⊗x̃)(ỹ⊗x̃)ᵀ of sums without a leading axis."""
        f, k = len(self.y0) + 1, self.k
        of_two, of_both = _places(f), _places(k)
        blocks = self.packed[of_two[:, None, :, None], of_both[None, :, None, :]]
        return blocks.reshape(f * k, f * k)

    def summed(self, groups: IntArray | slice) -> Cross:
        """The sums over some runs of groups."""
        chosen = np.arange(self.runs)[groups]

        def total(part: FloatArray) -> FloatArray:
            """The sum over the runs, one by one; a single run is not copied."""
            out: FloatArray = part[chosen[0]]
            if len(chosen) == 1:
                return out
            out = out.copy()
            for group in chosen[1:]:
                out += part[group]
            return out

        return replace(
            self, packed=total(self.packed), zr=total(self.zr), arms=total(self.arms), features=total(self.features)
        )

    @property
    def counts(self) -> FloatArray:
        return self.features[:, -1]

    def mean_features(self, features: Features) -> FloatArray:
        """φ̄_a."""
        return mean_features(features, self.counts, self.features[:, :-1], self.y0)

    def standard(self) -> Standard:
        n, f, k = float(self.counts.sum()), len(self.y0) + 1, self.k
        yy = self.zz.reshape(f, k, f, k)[:, k - 1, :, k - 1]
        mean = yy[:-1, -1] / n
        return Standard.of(self.y0 + mean, np.diag(yy)[:-1] / n - mean**2)

    def maps(self, scaled: Scaled, standard: Standard) -> tuple[FloatArray, FloatArray]:
        """T_x and T_y: z̃ = T_x·x̃ and φ̃ = T_y·ỹ."""
        d = len(self.x0)
        to_z = np.zeros((len(scaled.pool), d + 1))
        to_z[:d, :d], to_z[:d, d] = np.diag(1 / scaled.scale), (self.x0 - scaled.centre) / scaled.scale
        if scaled.intercept:
            to_z[d, d] = 1.0
        to_phi = np.column_stack([np.diag(1 / standard.scale), (self.y0 - standard.centre) / standard.scale])
        return to_z, to_phi

    def shared_block(self, scaled: Scaled, to_z: FloatArray, to_phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Σ (φ̃⊗z̃)(φ̃⊗z̃)ᵀ and Σ (φ̃⊗z̃)(r − z̃·β)."""
        f, k = to_phi.shape[1], self.k

        def turned(columns: FloatArray) -> FloatArray:
            """(T_y ⊗ T_x) times the columns, one factor at a time."""
            half = np.tensordot(to_phi, columns.reshape(f, k, -1), axes=1)
            both: FloatArray = (to_z @ half).reshape(len(to_phi) * len(to_z), -1)
            return both

        half = turned(self.zz)
        system = turned(half.T)
        plain = half.reshape(-1, f, k)[:, -1] @ to_z.T @ scaled.pool  # Σ (φ̃⊗z̃)·(z̃·β)
        target = turned(self.zr - (scaled.level - self.r0) * self.zz[:, -1])[:, 0] - plain
        return system, target.reshape(len(to_phi), len(to_z))

    def arms_of(self, actions: slice, to_z: FloatArray, to_phi: FloatArray) -> FloatArray:
        """Σ z̃(φ̃⊗z̃)ᵀ of some actions: actions × context × (features·context)."""
        i, j = np.triu_indices(self.k)
        packed = self.arms[actions]
        full = np.empty((*packed.shape[:2], self.k, self.k))
        full[..., i, j] = full[..., j, i] = packed
        mapped = to_z @ np.tensordot(to_phi, full, axes=(1, 1)).transpose(1, 0, 2, 3) @ to_z.T
        arms: FloatArray = mapped.transpose(0, 2, 1, 3).reshape(len(mapped), len(to_z), -1)
        return arms


def by_varying_features(cross: Cross, scaled: Scaled, standard: Standard) -> FreeMean:
    """Features alone: one system, whatever the penalty."""
    to_z, to_phi = cross.maps(scaled, standard)
    system, target = cross.shared_block(scaled, to_z, to_phi)
    f, k = to_phi.shape[1], cross.k
    constant = cross.zz.reshape(f, k, f, k)[-1]  # Σ x̃ (ỹ⊗x̃)ᵀ
    crossed = np.einsum("zi,igj,fg,yj->zfy", to_z, constant, to_phi, to_z, optimize=True).reshape(len(to_z), -1)
    return FreeMean.of(system, crossed, scaled.zz.sum(axis=0), target)


class Arrow:
    """Identity and features: a block per action and one shared block. W from the Schur complement, then B by action.

    The coordinates of each action are rotated to the axes of its own block, which is then diagonal for any penalty.
    """

    def __init__(self, cross: Cross, scaled: Scaled, standard: Standard) -> None:
        self._cross, self._maps = cross, cross.maps(scaled, standard)
        self._system, self._target = cross.shared_block(scaled, *self._maps)
        self._values, self._axes = np.linalg.eigh(scaled.zz)
        self._values = np.maximum(self._values, 0.0)
        self._own = np.einsum("aij,ai->aj", self._axes, scaled.residual)
        elements = len(scaled.zz) * scaled.zz.shape[-1] * len(self._system)
        self._cached = list(self._make()) if elements <= MOST_ARMS else None

    def _make(self) -> Iterator[tuple[slice, FloatArray]]:
        """The rotated arms, for some actions at a time."""
        for start in range(0, len(self._values), ARMS_AT_ONCE):
            some = slice(start, start + ARMS_AT_ONCE)
            yield some, self._axes[some].transpose(0, 2, 1) @ self._cross.arms_of(some, *self._maps)

    def _arms(self) -> Iterator[tuple[slice, FloatArray]]:
        return iter(self._cached) if self._cached is not None else self._make()

    def solve(self, penalty: float) -> tuple[FloatArray, FloatArray]:
        """B and W."""
        damped = self._values + penalty
        top = self._values.max(axis=1, keepdims=True)
        spanned = (damped > 0) if penalty > 0 else self._values > RCOND * np.maximum(top, 1e-300)
        inverse = np.where(spanned, 1 / np.where(spanned, damped, 1.0), 0.0)
        system, target = self._system.copy(), self._target.ravel().copy()
        for some, arms in self._arms():
            rows = arms.reshape(-1, arms.shape[-1])
            system -= _gram(rows * np.sqrt(inverse[some]).reshape(-1, 1))
            target -= rows.T @ (inverse[some] * self._own[some]).ravel()
        shared = solve_system(system, target, penalty) if penalty > 0 else self._least_norm(system, target, inverse)
        own = np.concatenate([inverse[some] * (self._own[some] - arms @ shared) for some, arms in self._arms()])
        return np.einsum("aij,aj->ai", self._axes, own), shared.reshape(self._target.shape)

    def _least_norm(self, system: FloatArray, target: FloatArray, inverse: FloatArray) -> FloatArray:
        """Among the W that fit best, the one with the least ‖B‖² + ‖W‖².

        Eigenvalues below the rounding error of the original block count as 0.
        """
        values, vectors = np.linalg.eigh(system)
        certain = values > RCOND * np.trace(self._system)
        fitted: FloatArray = vectors[:, certain] @ ((vectors[:, certain].T @ target) / values[certain])
        free = vectors[:, ~certain]
        if not free.shape[1]:
            return fitted
        norm, goal = np.zeros_like(system), np.zeros_like(target)
        for some, arms in self._arms():
            rows = arms.reshape(-1, arms.shape[-1]) * inverse[some].reshape(-1, 1)
            norm += _gram(rows)
            goal += rows.T @ (inverse[some] * self._own[some]).ravel()
        left = free.T @ norm @ free + np.eye(free.shape[1])
        settled: FloatArray = np.linalg.solve(left, free.T @ (goal - norm @ fitted))
        return fitted + free @ settled


def _products(left: FloatArray, right: FloatArray) -> FloatArray:
    """The products of row i of the left and row j ≥ i of the right, in the order of `np.triu_indices`."""
    size = len(left)
    out = np.empty((size * (size + 1) // 2, left.shape[1]))
    at = 0
    for i in range(size):
        np.multiply(left[i], right[i:], out=out[at : at + size - i])
        at += size - i
    return out


def _first_of_each(rows: FloatArray) -> IntArray:
    """The first of each run of equal rows; all rows if few are equal."""
    first = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
    return first if 2 * len(first) < len(rows) else np.arange(len(rows))


def _sums_of_runs(rows: FloatArray, at: IntArray) -> FloatArray:
    """The sums of the runs of rows that start at `at`. `np.add.reduceat` is slow for many short ones."""
    lengths = np.diff(at, append=len(rows))
    if lengths.max() > LONG_RUN:
        return np.add.reduceat(rows, at, axis=0)
    sums: FloatArray = rows[at]
    for later in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > later)
        sums[longer] += rows[at[longer] + later]
    return sums


def _places(size: int) -> IntArray:
    """Where the entries of a symmetric matrix are among the distinct ones."""
    i, j = np.triu_indices(size)
    places = np.empty((size, size), np.int64)
    places[i, j] = places[j, i] = np.arange(len(i))
    return places


def _gram(rows: FloatArray) -> FloatArray:
    """rowsᵀ·rows; NumPy recognises that it is symmetric."""
    product: FloatArray = rows.T @ rows
    return product
