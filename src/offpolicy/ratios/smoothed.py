"""The ratio of two smoothed policies: the ratio form of learned embeddings, with the action plus noise as the embedding.

With e = a + h·ε and ε drawn from K,

    w(x, e) = ∫ π(u|x) K_h(e − u) du / ∫ π0(u|x) K_h(e − u) du

has mean 1 exactly, if e may leave the box. The ratio of a round is the mean of w over ε, which has less variance than w at
one ε. For a deterministic target, only those ε count for which e is within reach of τ(x); there, the quadrature is exact up
to the smoothness of the logging policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.data.spaces import ActionSpace
from offpolicy.policies.base import Policy
from offpolicy.policies.nodes import legendre
from offpolicy.ratios.base import Available, UnfittedRatio
from offpolicy.ratios.kernels import KERNELS, Bandwidth, SmoothingKernel
from offpolicy.ratios.pools import Rounds

NOISE_NODES, INNER_NODES = 8, (8, 4)
"""Nodes over ε; nodes per panel, and panels, over the actions that are smoothed."""
BLOCK = 1 << 12
"""Rounds at a time: each needs the logging policy at nodes × nodes actions."""
EDGE = 4.0
"""Where a kernel without bounds is cut off, in widths."""


@final
@dataclass(frozen=True)
class SmoothedRatio(UnfittedRatio):
    """E[w(x, a + hε) | x, a]: how much more often the smoothed target would have done this."""

    bandwidth: Bandwidth
    kernel: SmoothingKernel = KERNELS["epanechnikov"]
    spaces = (Box,)
    mean_one = True
    smooths = True

    def widths(self, space: ActionSpace) -> tuple[float, ...]:
        return tuple(self.bandwidth.of(box(space, "SmoothedRatio")).tolist())

    def lacks(self, available: Available) -> str | None:
        space = box(available.schema.space, "SmoothedRatio")
        if space.shape or space.points:
            return f"it smooths actions of one dimension that all have densities, and the actions are {space.nature}"
        if not available.has_whole_logging:
            return "it needs the density of the logging policy at every action; pass it as `logging=`"
        if not all(policy.whole or policy.deterministic for policy in available.policies.values()):
            return "it needs the new policy's density of every action, and only that of the logged action is known"
        return None

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.policies is not None
        target, logging = rounds.policies
        assert logging is not None
        out = np.empty(len(rounds.batch))
        for start in range(0, len(out), BLOCK):
            rows = slice(start, start + BLOCK)
            out[rows] = self._block(rounds.batch.take(rows), target, logging)
        return out

    def _block(self, batch: Batch, target: Policy, logging: Policy) -> FloatArray:
        space = box(batch.space, "SmoothedRatio")
        h, action = float(self.bandwidth.of(space)[0]), batch.action
        edge = min(self.kernel.reach, EDGE)
        low, high = np.full(len(batch), -edge), np.full(len(batch), edge)
        tau = target.actions(batch) if target.deterministic else None
        if tau is not None:
            low, high = np.maximum(low, (tau - action) / h - edge), np.minimum(high, (tau - action) / h + edge)
        at, shares = legendre(NOISE_NODES)
        length = np.maximum(high - low, 0.0)
        noise = low[:, None] + at * length[:, None]
        e = action[:, None] + h * noise
        weight = self._cut(noise) * shares * length[:, None]
        out = np.zeros(len(batch))
        some = np.flatnonzero(length > 0)
        if len(some):
            part = batch.take(some)
            below = self._smooth(part, logging, e[some], space, h)
            if tau is None:
                above = self._smooth(part, target, e[some], space, h)
            else:
                above = self._cut((e[some] - tau[some, None]) / h) / h
            ratio = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
            out[some] = (ratio * weight[some]).sum(axis=1)
        return out

    def _cut(self, u: FloatArray) -> FloatArray:
        """K within its edge, of mass 1."""
        edge = min(self.kernel.reach, EDGE)
        inside = np.where(np.abs(u) <= edge, self.kernel.density(u), 0.0)
        cut: FloatArray = inside / (2 * float(self.kernel.mass(np.array([edge]))[0]))
        return cut

    def _smooth(self, batch: Batch, policy: Policy, e: FloatArray, space: Box, h: float) -> FloatArray:
        """∫ p(u|x) K_h(e − u) du over the box, for each e (rounds × nodes)."""
        edge = min(self.kernel.reach, EDGE) * h
        low, high = np.maximum(e - edge, space.lows[0]), np.minimum(e + edge, space.highs[0])
        at, shares = legendre(*INNER_NODES)
        length = np.maximum(high - low, 0.0)[..., None]
        u = np.clip(low[..., None] + at * length, space.lows[0], space.highs[0])
        row: Any = np.repeat(np.arange(len(batch)), u[0].size)
        density = policy.entries(batch, row, u.ravel()).reshape(u.shape)
        smooth: FloatArray = (density * self._cut((e[..., None] - u) / h) / h * shares * length).sum(axis=2)
        return smooth
