"""`Ridge` with one covariance of the context for all actions: systems that differ from a diagonal one by a few vectors.

With F the degrees of freedom of an action, C the shared covariance within actions, and n_g and z̃_g the rounds and the mean
context of each group of its rounds, the normal equations are

    (F·C + Σ_g n_g z̃_g z̃_gᵀ + penalty)·u = residual

In the axes of C the first term is diagonal, so that a solution takes products with one vector per group (Woodbury), and not
the cube of the number of columns. Sums and solutions are arrays, or tensors on a device; what is small is an array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import Array, FloatArray, IntArray, library, like, to_numpy
from offpolicy.models.rewards.base import LinearPredictor
from offpolicy.models.rewards.ridge import solve
from offpolicy.models.rewards.ridge.solutions import Coefficients, RidgeSettings
from offpolicy.statistics.gram import GramState


@dataclass(frozen=True)
class GroupSums:
    """The sums of some actions, with a leading axis of groups: n, x̄, r̄, Σx·r, Σr·r and the degrees of freedom."""

    n: Array
    x: Array
    r: Array
    xr: Array
    rr: Array
    freedom: Array

    def pooled(self) -> GramState:
        """All groups and actions as one, without what is shared."""
        n, d = self.n.ravel(), self.x.shape[2]
        total = float(n.sum())
        share = n / (total or 1.0)
        x, r = share @ self.x.reshape(-1, d), float(share @ self.r.ravel())
        dx, dr = self.x.reshape(-1, d) - x, self.r.ravel() - r
        weighted = dx * n[:, None]
        return GramState(
            n=np.asarray(total),
            x=to_numpy(x),
            r=np.asarray(r),
            xx=to_numpy(weighted.T @ dx),
            xr=to_numpy(self.xr.sum(axis=(0, 1)) + weighted.T @ dr),
            rr=to_numpy(self.rr.sum() + (n * dr) @ dr),
        )


class SharedSums(Protocol):
    """Where the sums come from."""

    def group_sums(self, keep: npt.NDArray[np.bool_], reward: int, actions: slice | IntArray) -> GroupSums: ...

    def within(self, keep: npt.NDArray[np.bool_]) -> FloatArray: ...


@dataclass(frozen=True)
class SharedEquations:
    """The equations of some actions, in the axes of the shared covariance.

    Attributes
    ----------
    values : FloatArray
        The variance along each axis (m); 0 for the intercept.
    rows : FloatArray
        √n_g·z̃_g, actions × groups × m.
    axes : FloatArray
        From the coordinates of these axes to z̃.
    """

    freedom: Array
    values: Array
    rows: Array
    residual: Array
    axes: Array

    @classmethod
    def of(
        cls, sums: SharedSums, keep: npt.NDArray[np.bool_], reward: int, actions: slice | IntArray, frame: solve.Scaled
    ) -> SharedEquations:
        """Those of some actions, from the rounds of some groups; `frame` has the pooled fit."""
        own, size = sums.group_sums(keep, reward, actions), len(frame.pool)
        values, axes = np.zeros(size), np.eye(size)
        d = len(frame.scale)
        values[:d], axes[:d, :d] = np.linalg.eigh(sums.within(keep) / (frame.scale[:, None] * frame.scale))
        xp, values = library(own.n), np.maximum(values, 0.0)
        centre, scale, pool, values, axes = (
            like(each, own.n) for each in (frame.centre, frame.scale, frame.pool @ axes, values, axes)
        )  # fmt: skip
        z = (own.x - centre) / scale
        r = own.r - frame.level
        target = (own.xr / scale + (own.n * r)[..., None] * z).sum(axis=0)
        if frame.intercept:
            z = xp.concatenate([z, xp.ones_like(z[..., :1])], axis=2)
            target = xp.column_stack([target, (own.n * r).sum(axis=0)])
        rows = xp.swapaxes(xp.sqrt(own.n)[..., None] * z, 0, 1) @ axes
        freedom = own.freedom.sum(axis=0)
        fitted = freedom[:, None] * (values * pool) + xp.einsum("agm,ag->am", rows, rows @ pool)
        return cls(freedom, values, rows, target @ axes - fitted, axes)

    @property
    def total(self) -> FloatArray:
        """Σ z̃z̃ᵀ over the actions."""
        flat = self.rows.reshape(-1, len(self.values))
        within = library(flat).diag(self.freedom.sum() * self.values)
        return to_numpy(self.axes @ (within + flat.T @ flat) @ self.axes.T)

    def own(self, penalty: float) -> Array:
        """u of each action, where the sums are."""
        inverse, over, small = self._parts(penalty)
        alone = inverse * self.residual
        xp = library(small)
        step = xp.linalg.solve(small, (self.rows @ alone[..., None]))
        return (alone - (xp.swapaxes(over, 1, 2) @ step)[..., 0]) @ self.axes.T

    def mean_inverse(self, share: FloatArray, penalty: float) -> FloatArray:
        """Σ_a share_a (… + penalty)⁻¹."""
        inverse, over, small = self._parts(penalty)
        xp, part = library(small), like(share, small)
        half = xp.linalg.solve(xp.linalg.cholesky(small), over) * xp.sqrt(part)[:, None, None]
        flat = half.reshape(-1, half.shape[2])
        mean = xp.diag(part @ inverse) - flat.T @ flat
        return to_numpy(self.axes @ mean @ self.axes.T)

    def _parts(self, penalty: float) -> tuple[Array, Array, Array]:
        """D⁻¹, Y·D⁻¹ and 1 + Y·D⁻¹·Yᵀ, with D the diagonal part and Y the rows."""
        inverse = 1 / (self.freedom[:, None] * self.values + penalty)
        over = self.rows * inverse[:, None, :]
        small = over @ library(over).swapaxes(self.rows, 1, 2)
        return inverse, over, small + like(np.eye(self.rows.shape[1]), small)


@dataclass(frozen=True)
class SharedRegression:
    """The equations of some actions, their rounds, and how coefficients are fitted to them."""

    equations: SharedEquations
    whole: GramState
    frame: solve.Scaled
    counts: FloatArray
    model: RidgeSettings

    def solutions(self, penalties: Sequence[float] | FloatArray) -> Iterator[LinearPredictor]:
        """The exact minimiser for each penalty."""
        for penalty in penalties:
            coefficients, down = Coefficients(to_numpy(self.equations.own(float(penalty)))), None
            if self.model.rank is not None:
                down, coefficients = coefficients.turned_down(self.counts, self.equations.total, self.model)
            coef = self.frame.own_units(self.frame.pool + coefficients.mean)
            if self.model.unseen == "zero":
                coef[self.counts == 0] = 0.0
            yield LinearPredictor(coef, self.frame.centre, self.frame.scale, self.counts, down=down)
