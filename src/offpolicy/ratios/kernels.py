"""The kernel ratio: how close a logged number is to the one that a deterministic policy chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray, ratios
from offpolicy.data.box import Box, box
from offpolicy.ratios.base import Available, UnfittedRatio
from offpolicy.ratios.pools import Rounds


@final
@dataclass(frozen=True)
class KernelRatio(UnfittedRatio):
    """K_h(a − τ(x)) / (α(x)·p0(a|x)): the exact ratio of a policy smoothed over h around τ(x), not of τ itself.

    α(x) is the mass of K_h(· − τ(x)) inside the box, so that the mean under the logging policy is 1 near the bounds, too.
    """

    bandwidth: float
    spaces = (Box,)
    mean_one = True

    def lacks(self, available: Available) -> str | None:
        if all(policy.deterministic for policy in available.policies.values()):
            return available.lacks_propensities
        return "it needs one action per round, which the policy does not provide; give an op.Deterministic"

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.target is not None
        assert rounds.propensity is not None
        bounds, h, target = box(rounds.batch.space, "KernelRatio"), self.bandwidth, rounds.target
        inside = half_mass((bounds.high - target) / h) + half_mass((target - bounds.low) / h)  # α(x)
        return ratios(epanechnikov((rounds.batch.action - target) / h) / (h * inside), rounds.propensity)


def epanechnikov(u: FloatArray) -> FloatArray:
    """K(u) = ¾(1 − u²) for |u| ≤ 1."""
    return 0.75 * np.maximum(1 - u * u, 0.0)


def half_mass(v: FloatArray) -> FloatArray:
    """∫ K(u) du from 0 to v ≥ 0. The sum of two is a mass, without the loss of digits of a difference."""
    v = np.minimum(v, 1.0)
    return 0.25 * v * (3 - v * v)
