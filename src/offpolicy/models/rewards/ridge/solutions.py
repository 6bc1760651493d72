"""From the sums of some rows to a `LinearPredictor`: the exact minimiser for each penalty, its rank, its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.features import Features
from offpolicy.models.embedding_table import FeatureMap
from offpolicy.models.rewards.base import FitShape, LinearPredictor
from offpolicy.models.rewards.ridge import solve
from offpolicy.models.rewards.ridge.varying import ARMS_AT_ONCE, Arrow, Cross, by_varying_features
from offpolicy.statistics.gram import GramState


class RidgeSettings(Protocol):
    """The settings of `Ridge` that a solution depends on."""

    @property
    def penalty(self) -> float | str: ...
    @property
    def chosen(self) -> bool: ...
    @property
    def rank(self) -> int | None: ...
    @property
    def intercept(self) -> bool: ...
    @property
    def unseen(self) -> str: ...


@dataclass(frozen=True)
class RowSums:
    """The sums over some rows: Gram matrices by action and, if features vary within actions, `Cross`."""

    gram: GramState
    cross: Cross | None = None

    @property
    def share(self) -> FloatArray:
        """The share of each action in the rounds."""
        share: FloatArray = self.gram.n / max(float(self.gram.n.sum()), 1e-300)
        return share


@dataclass(frozen=True)
class Coefficients:
    """B, one row per action, and W, which acts through the standardised features φ̃, both around the pooled fit."""

    own: FloatArray
    shared: FloatArray | None = None
    features: FloatArray | None = None

    @property
    def mean(self) -> FloatArray:
        """B + φ̃·W."""
        return self.own if self.shared is None or self.features is None else self.own + self.features @ self.shared

    def turned_down(self, rounds: FloatArray, zz: FloatArray, model: RidgeSettings) -> tuple[FloatArray, Coefficients]:
        """The map to the embedding of low rank, and the coefficients of that rank; `zz` is summed over the actions."""
        assert model.rank is not None
        total, mean = max(float(rounds.sum()), 1.0), self.mean
        middle = rounds @ mean / total
        down, up = solve.low_rank(mean - middle, rounds, zz / total, model.rank)
        shared = None if self.shared is None else self.shared @ down @ up
        low_rank = replace(self, own=middle + (self.own - middle) @ down @ up, shared=shared)
        return down if model.intercept else np.vstack([down, np.zeros((1, down.shape[1]))]), low_rank


@dataclass(frozen=True)
class Regression:
    """The sums over some rows, those over all their actions together, and how coefficients are fitted to them."""

    rows: RowSums
    whole: GramState
    model: RidgeSettings
    shape: FitShape

    def solutions(self, penalties: Sequence[float] | FloatArray) -> Iterator[LinearPredictor]:
        """The exact minimiser for each penalty."""
        gram, model = self.rows.gram, self.model
        scaled = solve.Scaled.of(gram, self.whole, model.intercept)
        solver, features = self._solver(scaled)
        for penalty in penalties:
            own, shared = solver(penalty)
            own = np.broadcast_to(own, (len(scaled.zz), len(scaled.pool)))
            coefficients, down = Coefficients(own, shared, features), None
            if model.rank is not None:
                down, coefficients = coefficients.turned_down(gram.n, scaled.zz.sum(axis=0), model)
            linear = replace(self._linear(scaled, coefficients), down=down)
            if model.unseen == "zero":
                linear.coef[gram.n == 0] = 0.0
            yield linear

    def covariance(self, linear: LinearPredictor, penalty: float, noise: float | None = None) -> FloatArray:
        """The covariance of an action's coefficients, averaged over the rounds, in the coordinates of the embedding.

        It is σ²·(Z_a + penalty)⁻¹; for features alone, that of φ̃_a·W. σ² is `noise`, or estimated from the rows.
        """
        gram = self.rows.gram
        scaled = solve.Scaled.of(gram, self.whole, self.model.intercept)
        total = max(float(gram.n.sum()), 1.0)
        if self.shape.inputs == "features":
            phi = _standard_catalog(self.rows, self.shape.features)
            mean, used = solve.features_covariance(scaled, phi, gram.n / total, penalty)
        else:
            inverse = solve.damped_inverse(scaled.zz, penalty)
            used = float(np.einsum("aij,aji->", inverse, scaled.zz))
            mean = np.einsum("a,aij->ij", gram.n / total, inverse)
        out = np.zeros((len(scaled.scale) + 1,) * 2)
        if noise is None:
            noise = float(squared_error(linear, gram)) / max(total - used, 1.0)
        out[: len(mean), : len(mean)] = mean * noise
        return out

    def _solver(self, scaled: solve.Scaled) -> tuple[Callable[[float], tuple[FloatArray, FloatArray | None]], FloatArray]:
        """From a penalty to B (or δ for all actions) and W; and the (mean) standardised features of each action."""
        rows, both = self.rows, self.shape.inputs == "both"
        if self.shape.inputs == "identity":
            return lambda penalty: (identity_alone(rows.gram, self.whole, scaled, penalty), None), np.empty((0, 0))
        if rows.cross is None:
            features = _standard_catalog(rows, self.shape.features)
            return partial(solve.by_both, scaled, features) if both else solve.by_features(scaled, features).solve, features
        standard = rows.cross.standard()
        solver = (Arrow if both else by_varying_features)(rows.cross, scaled, standard)
        return solver.solve, standard(rows.cross.mean_features(self.shape.features))

    def _linear(self, scaled: solve.Scaled, fitted: Coefficients) -> LinearPredictor:
        """In the units of the context and of the features."""
        rows, varying = self.rows, None
        if fitted.shared is not None and rows.cross is not None:
            standard = rows.cross.standard()
            per_unit = fitted.shared / standard.scale[:, None]
            base = scaled.pool + fitted.own - standard.centre @ per_unit
            varying = FeatureMap(scaled.own_units(base), scaled.own_units(per_unit, constant=False), self.shape.features)
        return LinearPredictor(
            scaled.own_units(scaled.pool + fitted.mean), scaled.centre, scaled.scale, rows.gram.n, varying,
            mean=rows.share @ rows.gram.x,
        )  # fmt: skip


def identity_alone(gram: GramState, whole: GramState, scaled: solve.Scaled, penalty: float) -> FloatArray:
    """B. Without a penalty, least squares by action; actions never logged do not deviate from the pooled fit."""
    if penalty > 0:
        return solve.per_action(scaled, penalty)
    pooled = scaled.own_units(scaled.pool[None])
    own = (solve.least_squares(gram, whole, scaled.intercept) - pooled) * np.append(scaled.scale, 1.0)
    own[gram.n == 0] = 0.0
    deviation: FloatArray = own[:, : len(scaled.pool)]
    return deviation


def _standard_catalog(rows: RowSums, features: Features) -> FloatArray:
    """φ̃: the features of each action, standardised over the rounds."""
    assert features.catalog is not None
    mean = rows.share @ features.catalog
    return solve.Standard.of(mean, rows.share @ (features.catalog - mean) ** 2)(features.catalog)


def squared_error(linear: LinearPredictor, gram: GramState) -> FloatArray:
    """Σ (r − q(x, a))² from Gram matrices with leading shape (…, actions), summed over actions."""
    slope = linear.coef[:, :-1]
    level = gram.r - np.einsum("...ai,ai->...a", gram.x - linear.centre, slope) - linear.coef[:, -1]
    spread = gram.rr + np.einsum("...ai,ai->...a", (gram.xx @ slope[..., None])[..., 0] - 2 * gram.xr, slope)
    errors: FloatArray = (spread + gram.n * level**2).sum(axis=-1)
    return errors


def varying_error(linear: LinearPredictor, rows: RowSums) -> float:
    """Σ (r − q(x, a, φ))² over rows in one group, if features vary within actions."""
    assert linear.varying is not None
    assert rows.cross is not None
    cross = rows.cross
    around = linear.moved(cross.x0).varying  # coefficients around the typical row
    assert around is not None
    own = around.own + cross.y0 @ around.shared
    alone = float(squared_error(LinearPredictor(own, cross.x0), rows.gram))
    shared = np.vstack([around.shared, np.zeros((1, cross.k))]).ravel()
    own_at_r0 = own - np.append(np.zeros(cross.k - 1), cross.r0)
    if len(cross.arms):
        i, j = np.triu_indices(cross.k)
        left, right, once = own_at_r0[:, None, :], around.shared[None], np.where(i == j, 0.0, 1.0)
        crossed = 0.0
        for some in (slice(k, k + ARMS_AT_ONCE) for k in range(0, len(left), ARMS_AT_ONCE)):
            weight = left[some][..., i] * right[..., j] + once * left[some][..., j] * right[..., i]
            crossed += float((cross.arms[some, :-1] * weight).sum())
    else:  # without the identity, all actions have the same part
        pooled = np.vstack([np.zeros((len(around.shared), cross.k)), own_at_r0[:1]]).ravel()
        crossed = float(pooled @ cross.zz @ shared)
    return alone + float(shared @ cross.zz @ shared) - 2 * (float(cross.zr @ shared) - crossed)
