"""The normal equations of `Ridge` and their exact solutions, from Gram matrices by action.

The coordinates are z̃ = (z, 1), with z = (x − μ)/s the standardised context, and φ̃, the standardised features. With β the
pooled least-squares fit, the coefficients of a round are β + u and minimise Σ (r − z̃·(β + u))² plus penalty times

    identity   u = B_a             ‖B_a‖² of each action: a batch of small systems
    features   u = δ + φ̃·W        ‖W‖², δ free and shared by all: one system of size features × context
    both       u = B_a + φ̃·W      ‖B‖² + ‖W‖²: B is eliminated action by action, W solves the Schur complement

If φ is a function of the action (a catalog), the Schur complement divided by the penalty is I + Σ_a φ̃_aφ̃_aᵀ ⊗ M_a with
M_a = (Z_a + penalty)⁻¹ Z_a and Z_a = Σ z̃z̃ᵀ: no large terms cancel. In the limit of no penalty M_a is the projector on what
the action's rounds span, and the solution is the one of minimum norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import Array, FloatArray, library, like, zeros
from offpolicy.statistics.gram import GramState

RCOND = 1e-10
ACTIONS_AT_ONCE = 256


@dataclass(frozen=True)
class Scaled:
    """The normal equations of each action in z̃, and the pooled fit β in the same coordinates."""

    zz: FloatArray
    residual: FloatArray  # Σ z̃·(r − z̃·β)
    pool: FloatArray
    centre: FloatArray
    scale: FloatArray
    level: float
    intercept: bool

    @classmethod
    def of(cls, gram: GramState, whole: GramState, intercept: bool) -> Scaled:
        if intercept:
            centre, level = whole.x, float(whole.r)
            spread = np.einsum("ii->i", whole.xx) / (float(whole.n) or 1.0)
        else:  # no constant: scale by the second moment around 0, and keep the origin
            centre, level = np.zeros_like(whole.x), 0.0
            spread = np.einsum("ii->i", whole.xx) / (float(whole.n) or 1.0) + whole.x**2
        scale = np.sqrt(spread)
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(whole.x), 1e-300), scale, 1.0)
        zz, zr = _normal(gram, centre, scale, level, intercept)
        pool_zz, pool_zr = _normal(whole.at_all(), centre, scale, level, intercept)
        pool = np.linalg.pinv(pool_zz[0], rcond=RCOND, hermitian=True) @ pool_zr[0]
        return cls(zz, zr - zz @ pool, pool, centre, scale, level, intercept)

    def own_units(self, beta: Array, constant: bool = True) -> Array:
        """Rows of coefficients in z̃ as (slopes in the units of the context, level at the centre).

        `constant`: whether they are complete coefficients, which include the level of the rewards, or parts of them.
        """
        size = len(self.scale)
        out = zeros((len(beta), size + 1), beta)
        library(beta).divide(beta[:, :size], like(self.scale, beta), out=out[:, :size])
        out[:, size] = (self.level if constant else 0.0) + beta[:, -1] if self.intercept else 0.0
        return out


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


def per_action(scaled: Scaled, penalty: float) -> FloatArray:
    """B_a for the identity alone. Requires a penalty; without one see `least_squares`."""
    eye = np.eye(len(scaled.pool))
    return _solve(scaled.zz + penalty * eye, scaled.residual[..., None])[..., 0]


def least_squares(gram: GramState, whole: GramState, intercept: bool) -> FloatArray:
    """Least squares by action: (slopes, level at `whole.x`, or at 0 without an intercept).

    If there are too few rounds for a unique solution, the slopes of minimum norm.
    """
    if intercept:
        xx, xr, centre = gram.xx, gram.xr, whole.x
    else:
        xx = gram.xx + gram.n[:, None, None] * gram.x[:, :, None] * gram.x[:, None, :]
        xr, centre = gram.xr + (gram.n * gram.r)[:, None] * gram.x, np.zeros_like(whole.x)
    slope = (np.linalg.pinv(xx, rcond=RCOND, hermitian=True) @ xr[..., None])[..., 0]
    # A column with large values must not make the others look like 0: if the scaled problem has full rank, its solution is
    # unique, whatever the units.
    scale = np.sqrt(np.einsum("aii->ai", xx))
    scale = np.where(scale > 0, scale, 1.0)
    unit = xx / (scale[:, :, None] * scale[:, None, :])
    full = np.linalg.eigvalsh(unit)[:, 0] > RCOND if unit.shape[1] else np.zeros(len(unit), bool)
    slope[full] = np.linalg.solve(unit[full], (xr / scale)[full][..., None])[..., 0] / scale[full]
    level = gram.r + np.einsum("ai,ai->a", slope, centre - gram.x) if intercept else np.zeros(len(slope))
    return np.column_stack([slope, level])


@dataclass(frozen=True)
class Standard:
    """φ̃ = (φ − centre)/scale."""

    centre: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, mean: FloatArray, square: FloatArray) -> Standard:
        """From the mean and the variance of each column."""
        scale = np.sqrt(np.maximum(square, 0.0))
        return cls(mean, np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0))

    def __call__(self, values: FloatArray) -> FloatArray:
        standard: FloatArray = (values - self.centre) / self.scale
        return standard


def by_features(scaled: Scaled, phi: FloatArray) -> FreeMean:
    """δ and W (features × context), if φ̃ is a function of the action."""
    crossed = np.einsum("af,aij->ifj", phi, scaled.zz).reshape(len(scaled.pool), -1)
    target = np.einsum("af,ai->fi", phi, scaled.residual)
    return FreeMean.of(_kron_sum(phi, scaled.zz), crossed, scaled.zz.sum(axis=0), target)


def features_covariance(scaled: Scaled, phi: FloatArray, share: FloatArray, penalty: float) -> tuple[FloatArray, float]:
    """The covariance of φ̃_a·W averaged over the rounds, for noise 1; and the effective number of parameters."""
    crossed = np.einsum("af,aij->ifj", phi, scaled.zz).reshape(len(scaled.pool), -1)
    system = _kron_sum(phi, scaled.zz) - crossed.T @ damped_inverse(scaled.zz.sum(axis=0), 0.0) @ crossed
    inverse = damped_inverse(system, penalty)
    f, k = phi.shape[1], len(scaled.pool)
    spread = np.einsum("fg,figj->ij", phi.T @ (phi * share[:, None]), inverse.reshape(f, k, f, k))
    return spread, float(np.einsum("ij,ji->", inverse, system)) + k


@dataclass(frozen=True)
class FreeMean:
    """The equations of δ and W, if φ̃ is correlated with the context.

    The pooled fit ignores φ̃, and may attribute the effect of the features to the context; δ corrects that. (The residuals
    of the pooled fit are uncorrelated with z̃, so δ depends only on W: δ = −plain⁻¹·crossed·W.)
    """

    system: FloatArray
    projection: FloatArray
    target: FloatArray

    @classmethod
    def of(cls, system: FloatArray, crossed: FloatArray, plain: FloatArray, target: FloatArray) -> FreeMean:
        projection = damped_inverse(plain, 0.0) @ crossed
        return cls(system - crossed.T @ projection, projection, target)

    def solve(self, penalty: float) -> tuple[FloatArray, FloatArray]:
        """δ and W."""
        shared = solve_system(self.system, self.target, penalty)
        return -self.projection @ shared.ravel(), shared


def by_both(scaled: Scaled, phi: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
    """B and W, if φ̃ is a function of the action."""
    inverse = damped_inverse(scaled.zz, penalty)
    m = inverse @ scaled.zz
    target = (inverse @ scaled.residual[..., None])[..., 0]
    shared = solve_system(_kron_sum(phi, m), np.einsum("af,ai->fi", phi, target), 1.0)
    return target - (m @ (phi @ shared)[..., None])[..., 0], shared


def damped_inverse(zz: FloatArray, penalty: float) -> FloatArray:
    """(Z_a + penalty)⁻¹; without a penalty, the pseudo-inverse."""
    if penalty > 0:
        return np.asarray(np.linalg.inv(zz + penalty * np.eye(zz.shape[-1])), dtype=np.float64)
    return np.asarray(np.linalg.pinv(zz, rcond=RCOND, hermitian=True), dtype=np.float64)


def _kron_sum(phi: FloatArray, blocks: FloatArray) -> FloatArray:
    """Σ_a φ̃_aφ̃_aᵀ ⊗ blocks_a, as (features·context)²."""
    f, k = phi.shape[1], blocks.shape[-1]
    out = np.zeros((f, f * k * k))
    for start in range(0, len(phi), ACTIONS_AT_ONCE):
        some = slice(start, start + ACTIONS_AT_ONCE)
        weighted = phi[some, :, None] * blocks[some].reshape(-1, 1, k * k)
        out += phi[some].T @ weighted.reshape(len(weighted), -1)
    system: FloatArray = out.reshape(f, f, k, k).transpose(0, 2, 1, 3).reshape(f * k, f * k)
    return system


def solve_system(system: FloatArray, target: FloatArray, penalty: float) -> FloatArray:
    """(system + penalty)⁻¹ target, for a target of shape features × context; of minimum norm without a penalty."""
    if penalty > 0:
        return _solve(system + penalty * np.eye(len(system)), target.reshape(-1, 1)).reshape(target.shape)
    return (damped_inverse(system, 0.0) @ target.ravel()).reshape(target.shape)


def _solve(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(a, b), dtype=np.float64)


def low_rank(deviation: FloatArray, weight: FloatArray, metric: FloatArray, rank: int) -> tuple[FloatArray, FloatArray]:
    """The best approximation of deviations u_a by a given rank, with squared error Σ_a weight_a (u − û)ᵀ metric (u − û).

    Returns `down` and `up`, with û = u·down·up. It is the minimiser if all actions have the same contexts. The columns of
    `down` are orthonormal in the metric, so that distances between embeddings are those between predictions.
    """
    values, vectors = np.linalg.eigh(metric)
    values = np.maximum(values, max(float(values.max()) * RCOND, 1e-300))
    root = vectors * np.sqrt(values)  # metric = root·rootᵀ
    _, _, axes = np.linalg.svd(np.sqrt(weight)[:, None] * (deviation @ root), full_matrices=False)
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])  # make the signs of the axes unique
    axes = axes[:rank] * signs[:rank, None]
    return root @ axes.T, axes @ np.linalg.inv(root)
