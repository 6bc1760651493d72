"""How estimates of several kernel widths are mixed: less variance than the narrow ones, less bias than the wide ones.

Every width h_k estimates V + b_k with sampling errors of known covariance Σ. The bias of a kernel falls with its width, like
h where rewards have a kink or the target is at a bound, and like h² where they are smooth:

    b ~ N(0, κ²·s²·B),    B_jk = (h_j h_k)^p ρ^|log2(h_j / h_k)|,    p in {½, 1, 2},

with h relative to the largest width, s the standard deviation of the rewards, and κ on a grid that is even in log κ. Nothing
is assumed about V. For each (p, κ), the estimate of V with the least mean squared error is Σ x_k V̂_k with
x = M⁻¹1 / (1ᵀM⁻¹1), M = Σ + κ²s²B, and its error is 1 / (1ᵀM⁻¹1). What the paired differences of the widths say about κ and
p is their likelihood, by which the grid is averaged. Weights may be negative: two widths whose bias is known up to a factor
show where the bias vanishes (Richardson's extrapolation).

The error of the mix includes the bias that may remain, so that intervals allow for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray

WIDTHS: tuple[float, ...] = tuple(2.0**-k for k in range(7, 0, -1))
"""The widths, as shares of the range of the actions, from the least biased to the most."""
POWERS = (0.5, 1.0, 2.0)
SHARES = np.logspace(-3, 0.5, 12)
"""The grid of κ."""
LARGER = 1.0
"""The exponent of the prior of κ."""
ALIKE = 0.9
"""ρ: how alike the biases of a width and of its double are."""
LEAST_ROUNDS = 20.0
"""Widths with fewer effective rounds have standard errors that mean little."""
DOUBT = 5.0
"""Variances are multiplied by 1 + this / effective rounds, since they are estimated from those."""
JITTER = 1e-9


@dataclass(frozen=True)
class WidthMix:
    """The weights of the widths, the variance of the bias that may remain, and what was found about the bias.

    Attributes
    ----------
    weights : ndarray of shape (widths,)
        They sum to 1, and may be negative.
    biases : ndarray of shape (widths,)
        The estimate of each width, less that of the mix.
    variance : float
        The variance of the error of the mix: of sampling, and of the bias that may remain.
    share : float
        The mean of κ: the size of the bias of the widest kernel, in standard deviations of the rewards.
    power : float
        The mean of p.
    """

    weights: FloatArray
    biases: FloatArray
    variance: float
    share: float
    power: float


def mixed(values: FloatArray, covariance: FloatArray, widths: FloatArray, effective: FloatArray, spread: float) -> WidthMix:
    """Mix the estimates of several widths.

    Parameters
    ----------
    values : ndarray of shape (widths,)
        The estimates.
    covariance : ndarray of shape (widths, widths)
        The covariance of their sampling errors.
    widths : ndarray of shape (widths,)
        In any unit.
    effective : ndarray of shape (widths,)
        The effective rounds of each width.
    spread : float
        The standard deviation of the rewards.

    Returns
    -------
    WidthMix
        The weights and the variance.

    Examples
    --------
    >>> equal = mixed(np.array([1.0, 1.0]), np.diag([0.04, 0.01]), np.array([1.0, 2.0]), np.array([500.0, 900.0]), 1.0)
    >>> bool(np.isclose(equal.weights.sum(), 1))
    True
    """
    usable = np.flatnonzero(np.isfinite(values) & (effective >= LEAST_ROUNDS) & (np.diag(covariance) > 0))
    if len(usable) < 2 or not spread > 0:
        return _single(values, covariance, effective)
    v, h = values[usable], widths[usable] / widths[usable].max()
    doubted = np.sqrt(1 + DOUBT / effective[usable])
    sampling = covariance[np.ix_(usable, usable)] * np.outer(doubted, doubted)
    sampling = sampling + JITTER * np.trace(sampling) / len(h) * np.eye(len(h))
    alike = ALIKE ** np.abs(np.subtract.outer(np.log2(h), np.log2(h)))
    shapes = np.array([np.outer(h**p, h**p) * alike for p in POWERS])
    prior = ((SHARES * spread) ** 2)[None, :, None, None] * shapes[:, None]
    matrices = (sampling + prior).reshape(-1, len(h), len(h))
    solved = np.linalg.solve(matrices, np.stack([np.ones(len(h)), v], axis=1)[None])
    precision = solved[:, :, 0].sum(axis=1)
    each = solved[:, :, 0] / precision[:, None]
    means = each @ v
    misfit = np.einsum("gk,gk->g", v - means[:, None], solved[:, :, 1] - means[:, None] * solved[:, :, 0])
    log = -(np.linalg.slogdet(matrices)[1] + np.log(precision) + misfit) / 2
    log += LARGER * np.log(np.tile(SHARES, len(POWERS)))
    posterior = np.exp(log - log.max())
    posterior /= posterior.sum()
    weights = np.zeros(len(values))
    weights[usable] = posterior @ each
    value = float(weights[usable] @ v)
    grid = posterior.reshape(len(POWERS), len(SHARES))
    return WidthMix(
        weights=weights,
        biases=np.where(np.isfinite(values), values - value, 0.0),
        variance=float(posterior @ (1 / precision + (means - value) ** 2)),
        share=float(grid.sum(axis=0) @ SHARES),
        power=float(grid.sum(axis=1) @ np.array(POWERS)),
    )


def _single(values: FloatArray, covariance: FloatArray, effective: FloatArray) -> WidthMix:
    """The width with the most effective rounds, where there is nothing to compare it with."""
    pick = int(np.argmax(np.where(np.isfinite(values), effective, -1.0)))
    weights: FloatArray = np.eye(len(values))[pick]
    nothing = np.zeros(len(values))
    return WidthMix(weights, nothing, float(covariance[pick, pick]), float("nan"), float("nan"))
