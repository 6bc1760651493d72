"""How estimates of several kernel widths are mixed: less variance than the narrow ones, less bias than the wide ones.

Every width h_k estimates V + b_k with sampling errors of known covariance Σ. The bias of a kernel falls with its width, like
h where rewards have a kink or the target is at a bound, and like h² where they are smooth:

    b ~ N(0, κ²·s²·B),    B_jk = (h_j h_k)^p ρ^|log2(h_j / h_k)|,    p in {½, 1, 3/2},

with h relative to half of the range, s the standard deviation of the rewards, and κ on a grid that is even in log κ. Nothing
is assumed about V. For each (p, κ), the estimate of V with the least mean squared error is Σ x_k V̂_k with
x = M⁻¹1 / (1ᵀM⁻¹1), M = Σ + κ²s²B, and its error is 1 / (1ᵀM⁻¹1). What the paired differences of the widths say about κ and
p is their likelihood, by which the grid is averaged. Weights may be negative: two widths whose bias is known up to a factor
show where the bias vanishes (Richardson's extrapolation).

Kernels with a reward model smooth only what the model leaves unexplained, and kernels without one also what it explains.
Where there are both, the biases of the former are b as above, and those of the latter b + b′, with a κ′ of its own for b′.
The bias of a reward model alone is as large as that of the widest kernel with a model, and little correlated with those of
kernels.

The error of the mix includes the bias that may remain, so that intervals allow for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray

WIDTHS: tuple[float, ...] = tuple(2.0**-k for k in range(7, 0, -1))
"""The widths, as shares of the range of the actions, from the least biased to the most."""
POWERS = (0.5, 1.0, 1.5)
SHARES = np.logspace(-2.5, 0, 6)
"""The grid of κ: the bias of the widest kernel is hardly ever larger than a standard deviation of the rewards."""
LARGER = 1.0
"""The exponent of the prior of κ."""
ALIKE = 0.93
"""ρ: how alike the biases of a width and of its double are."""
LEAST_ROUNDS = 20.0
"""Widths with fewer effective rounds have standard errors that mean little."""
DOUBT = 25.0
"""Variances are multiplied by 1 + this / effective rounds, since they are estimated from those."""
JITTER = 1e-9
CRUDE = 3.0
"""By how much the variance of the bias that may remain is multiplied, since biases are not quite as assumed."""
UNLIKE = 0.25
"""How alike the bias of a reward model alone is with those of kernels, relative to ρ."""


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
        The mean of κ: the size of the bias of a kernel of half the range, in standard deviations of the rewards.
    power : float
        The mean of p.
    """

    weights: FloatArray
    biases: FloatArray
    variance: float
    share: float
    power: float


@dataclass(frozen=True)
class KernelEstimates:
    """Estimates of the same value by kernels of several widths.

    Attributes
    ----------
    values : ndarray of shape (estimates,)
        The estimates.
    covariance : ndarray of shape (estimates, estimates)
        The covariance of their sampling errors.
    widths : ndarray of shape (estimates,)
        As shares of the range; infinite for an estimate without weights.
    effective : ndarray of shape (estimates,)
        The effective rounds of each.
    spread : float
        The standard deviation of the rewards.
    modelled : sequence of bool
        Which have a reward model; none by default.

    Examples
    --------
    >>> equal = KernelEstimates(np.ones(2), np.diag([0.04, 0.01]), np.array([0.1, 0.2]), np.array([500.0, 900.0]), 1.0)
    >>> bool(np.isclose(equal.mixed().weights.sum(), 1))
    True
    """

    values: FloatArray
    covariance: FloatArray
    widths: FloatArray
    effective: FloatArray
    spread: float
    modelled: Sequence[bool] = ()

    def mixed(self) -> WidthMix:
        """Mix them.

        Returns
        -------
        WidthMix
            The weights and the variance.
        """
        some = np.flatnonzero(
            np.isfinite(self.values) & (self.effective >= LEAST_ROUNDS) & (np.diag(self.covariance) > 0) & (self.widths > 0)
        )
        if len(some) < 2 or not self.spread > 0:
            return self._single()
        v = self.values[some]
        sampling, shares, powers, prior = self._sampling(some), *self._prior(some)
        solved = np.linalg.solve(sampling + prior, np.stack([np.ones(len(v)), v], axis=1)[None])
        precision = solved[:, :, 0].sum(axis=1)
        each = solved[:, :, 0] / precision[:, None]
        means = each @ v
        misfit = np.einsum("gk,gk->g", v - means[:, None], solved[:, :, 1] - means[:, None] * solved[:, :, 0])
        log = -(np.linalg.slogdet(sampling + prior)[1] + np.log(precision) + misfit) / 2
        log += LARGER * np.log(shares).sum(axis=1)
        posterior = np.exp(log - log.max())
        posterior /= posterior.sum()
        weights = np.zeros(len(self.values))
        weights[some] = posterior @ each
        value = float(weights[some] @ v)
        sampled = float(weights[some] @ sampling @ weights[some])
        biased = max(float(posterior @ (1 / precision + (means - value) ** 2)) - sampled, 0.0)
        return WidthMix(
            weights=weights,
            biases=np.where(np.isfinite(self.values), self.values - value, 0.0),
            variance=sampled + CRUDE * biased,
            share=float(posterior @ shares[:, 0]),
            power=float(posterior @ powers),
        )

    def _sampling(self, some: np.ndarray) -> FloatArray:
        """Σ, a little larger, since it is itself estimated."""
        doubted = np.sqrt(1 + DOUBT / self.effective[some])
        sampling: FloatArray = self.covariance[np.ix_(some, some)] * np.outer(doubted, doubted)
        jitter: FloatArray = JITTER * np.trace(sampling) / len(some) * np.eye(len(some))
        return sampling + jitter

    def _prior(self, some: np.ndarray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The grid: κ of each part of the bias, p, and the covariance of the biases."""
        widths = self.widths[some]
        weighs = np.isfinite(widths)
        h = np.where(weighs, widths / max(WIDTHS), 1.0)
        alike = ALIKE ** np.abs(np.subtract.outer(np.log2(h), np.log2(h)))
        alike *= np.where(np.equal.outer(weighs, weighs), 1.0, UNLIKE)
        plain = ~np.asarray(self.modelled, dtype=bool)[some] if len(self.modelled) else np.ones(len(some), dtype=bool)
        parts = [np.ones(len(some))] if plain.all() or not plain.any() else [np.ones(len(some)), plain.astype(np.float64)]
        axes = np.meshgrid(POWERS, *[SHARES] * len(parts), indexing="ij")
        powers, *shares = (axis.ravel() for axis in axes)
        shapes = np.array([np.outer(h**p, h**p) * alike for p in POWERS])[np.searchsorted(POWERS, powers)]
        sizes = sum(
            ((share * self.spread) ** 2)[:, None, None] * np.outer(part, part)
            for share, part in zip(shares, parts, strict=True)
        )
        return np.stack(shares, axis=1), powers, shapes * sizes

    def _single(self) -> WidthMix:
        """The width with the most effective rounds, where there is nothing to compare it with."""
        candidates = np.isfinite(self.values) & np.isfinite(self.widths)
        pick = int(np.argmax(np.where(candidates, self.effective, -1.0)))
        weights: FloatArray = np.eye(len(self.values))[pick]
        nothing = np.zeros(len(self.values))
        return WidthMix(weights, nothing, float(self.covariance[pick, pick]), float("nan"), float("nan"))
