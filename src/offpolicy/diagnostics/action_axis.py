"""Where along each dimension of their actions the log has rounds, and where the new policies go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.hashing import mix
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.data.log import Log
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import Finding, Measure
from offpolicy.inference.scores import Scores
from offpolicy.policies.base import Policy
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added

CELLS = 480
"""Cells per dimension in which actions are counted."""
REACH = 8
"""An action is near a logged one if no more than this many cells, 1/60 of the range, are between them."""
MOST_BARS = 40
"""The bars of a picture, which merge neighbouring cells."""
ROUNDS, POINTS = 4_000, 256
"""About how many rounds show where a policy with a density goes, and at how many actions each."""
LOOKED_AT = 1_024


def drawn(batch: Batch, share: float) -> npt.NDArray[np.bool_]:
    """A random share of the rounds: the same on any engine, batch size and partitioning."""
    if share >= 1:
        return np.ones(len(batch), np.bool_)
    bits = np.ascontiguousarray(batch.action, dtype=np.float64).view(np.uint64).reshape(len(batch), -1)
    return mix(batch.unit ^ np.bitwise_xor.reduce(bits, axis=1)) < np.uint64(share * 2.0**64)


@dataclass(frozen=True)
class ActionAxisSums:
    """Counts of the logged actions, and of each policy's, in cells along every dimension.

    `policies`: those with a density at every action, by number. What they take is computed for a share of the rounds. Of
    policies that take one action per round, the action of every round is counted.
    """

    space: Box
    policies: Mapping[int, Policy]
    n_policies: int
    share: float

    @classmethod
    def of(cls, log: Log, policies: Sequence[Policy]) -> ActionAxisSums | None:
        """Those of a log; None unless its actions are numbers."""
        if not isinstance(log.space, Box):
            return None
        dense = {p: policy for p, policy in enumerate(policies) if policy.whole and not policy.deterministic}
        return cls(log.space, dense, len(policies), ROUNDS / len(log))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for policy in self.policies.values() for name in policy.columns))

    def zero(self) -> State:
        return {"log": self._zero(), **{str(p): self._zero() for p in range(self.n_policies)}}

    def _zero(self) -> State:
        d = self.space.dimensions
        return {
            "cells": np.zeros((d, CELLS)),
            "low": np.zeros(d),
            "high": np.zeros(d),
            "points": np.zeros(len(self.space.points)),
            "total": np.zeros(()),
        }

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        self._add(state["log"], batch.action, scored.omega)
        some = np.flatnonzero(drawn(batch, self.share)) if self.policies else np.empty(0, np.int64)
        for p in range(self.n_policies):
            target = scored.targets[p]
            if target is not None:
                self._add(state[str(p)], target, scored.omega)
            elif p in self.policies and len(some):
                self._add_density(state[str(p)], self.policies[p], batch, some)
        return state

    def _add(self, part: State, actions: FloatArray, weight: FloatArray) -> None:
        """Actions, each with a weight."""
        for j, values in enumerate(self.space.vectors(actions).T):
            low, high = self.space.lows[j], self.space.highs[j]
            part["cells"][j] += np.bincount(_cells((values - low) / (high - low)), weight, CELLS)
            part["low"][j] += weight[values == low].sum()
            part["high"][j] += weight[values == high].sum()
        for k, point in enumerate(self.space.points):
            part["points"][k] += weight[actions == point].sum()
        part["total"] += weight.sum()

    def _add_density(self, part: State, policy: Policy, batch: Batch, some: npt.NDArray[np.int64]) -> None:
        """The density at actions that fill the box evenly, others in each round; and the probability of each point."""
        if not policy.whole_batches:
            batch, some = batch.take(some), np.arange(len(some))
        space, d = self.space, self.space.dimensions
        omega = (np.ones(len(batch)) if batch.weight is None else batch.weight)[some]
        first = mix(batch.unit[some]) / 2.0**64
        at = (first[:, None, None] + np.arange(POINTS)[:, None] * np.array(_steps(d))) % 1.0
        vectors = space.lows + at.reshape(-1, d) * space.ranges
        actions: Any = vectors if space.shape else vectors[:, 0]
        density = policy.entries(batch, np.repeat(some, POINTS), actions).reshape(at.shape[:2])
        mass = density * omega[:, None] * float(space.ranges.prod()) / POINTS
        for j in range(d):
            part["cells"][j] += np.bincount(_cells(at[..., j].ravel()), mass.ravel(), CELLS)
        for k, point in enumerate(space.points):
            fixed: Any = np.full(len(some), point)
            probability = float(policy.entries(batch, some, fixed) @ omega)
            part["points"][k] += probability
            part["cells"][0, _cells((point - space.lows) / space.ranges)] += probability
            part["total"] += probability
        part["total"] += mass.sum()

    def merge(self, a: State, b: State) -> State:
        return added(a, b)


def _cells(shares: FloatArray) -> npt.NDArray[np.int64]:
    """The cell of actions, given as shares of the range."""
    cells: npt.NDArray[np.int64] = np.clip((shares * CELLS).astype(np.int64), 0, CELLS - 1)
    return cells


@cache
def _steps(dimensions: int) -> tuple[float, ...]:
    """The steps of a sequence that fills a box evenly (Roberts 2018): powers of 1/φ, where φ^(d + 1) = φ + 1."""
    phi = 2.0
    for _ in range(60):
        phi = (1 + phi) ** (1 / (dimensions + 1))
    return tuple(phi ** -(k + 1) for k in range(dimensions))


@dataclass(frozen=True)
class ActionAxis(Reading):
    """Findings about where the actions are, and the numbers of the picture."""

    sums: ActionAxisSums
    state: State
    scores: Scores

    @property
    def policies(self) -> tuple[str, ...]:
        """Their names."""
        return self.scores.policies

    def findings(self, subject: Subject) -> list[Finding]:
        if not subject.whole or (subject.member is None and subject.combination is None):
            return []
        return [*self._at_a_bound(), *self._repeated, *self._far_from_the_log(subject)]

    @cached_property
    def _repeated(self) -> list[Finding]:
        """The most frequent action of the first rounds, unless it is a point or a bound, which are counted exactly."""
        space = self.sums.space
        first, bounds = space.vectors(self.scores.log.head(LOOKED_AT).action), (space.lows, space.highs)
        shares = []
        for j, values in enumerate(first.T):
            distinct, counts = np.unique(values, return_counts=True)
            own = ~np.isin(distinct, [*space.points, *(bound[j] for bound in bounds)])
            if own.any():
                k = int(np.argmax(np.where(own, counts, 0)))
                shares.append(
                    (float(counts[k]) / len(values), float(distinct[k]), f" in dimension {j}" if space.shape else "")
                )
        share, value, where = max(shares, default=(0.0, float(space.lows[0]), ""))
        return [
            Measure("repeated action", share).finding(
                "repeated action",
                f"{share:.1%} of the first {len(first):,} logged actions are exactly {value:g}{where}.",
                "An action that is taken with a probability has no density, so these rounds get wrong weights.",
                f"Name it with its probability, op.Box(…, points=[{value:g}])."
                if not space.shape
                else "Check how these actions were chosen, and with which density.",
            )
        ]

    def numbers(self, subject: Subject) -> dict[str, Any]:
        if not subject.whole:
            return {}
        known = self.state[str(subject.policy)]["total"] > 0
        logged = {"logged_actions_at_a_bound": float(self._at_bounds("log").max())}
        if not known:
            return logged
        return logged | {
            "actions_at_a_bound": float(self._at_bounds(str(subject.policy)).max()),
            "actions_far_from_the_log": self._far(subject.policy),
        }

    def _at_bounds(self, name: str) -> FloatArray:
        """The share of actions exactly at a bound, unless it is a point: dimensions × (low, high)."""
        space, part = self.sums.space, self.state[name]
        share = np.column_stack([part["low"], part["high"]]) / max(float(part["total"]), 1e-300)
        bounds = np.column_stack([space.lows, space.highs])
        return np.where(np.isin(bounds, space.points), 0.0, share)

    def _at_a_bound(self) -> list[Finding]:
        shares, space = self._at_bounds("log"), self.sums.space
        j, side = np.unravel_index(int(np.argmax(shares)), shares.shape)
        bound = float((space.lows, space.highs)[int(side)][j])
        where = f" in dimension {j}" if space.shape else ""
        name = f"Name it with its probability, op.Box(…, points=[{bound:g}])" if not space.shape else "Widen the box"
        return [
            Measure("actions at a bound", float(shares[j, side])).finding(
                "actions at a bound",
                f"{shares[j, side]:.1%} of the logged actions are exactly {bound:g}, a bound of the box{where}.",
                "An action that is taken with a probability has no density, so these rounds get wrong weights.",
                f"{name}, if actions were clipped there.",
            )
        ]

    def _far(self, p: int) -> float:
        """The largest share, over dimensions, of a policy's actions that are not near any logged one."""
        part = self.state[str(p)]
        return float((part["cells"] * ~self._near).sum(axis=1).max() / max(float(part["total"]), 1e-300))

    @cached_property
    def _near(self) -> npt.NDArray[np.bool_]:
        """Which cells are near a cell with logged actions: dimensions × cells."""
        filled = self.state["log"]["cells"] > 0
        window = np.ones(2 * REACH + 1)
        return np.array([np.convolve(row, window, mode="same") > 0 for row in filled])

    def _far_from_the_log(self, subject: Subject) -> list[Finding]:
        if not self.state[str(subject.policy)]["total"] > 0:
            return []
        far = self._far(subject.policy)
        return [
            Measure("support, modelled" if subject.model is not None else "support", far).finding(
                "actions far from the log",
                f"{far:.1%} of the new policy's actions are farther than 1/{CELLS // REACH} of the range from any logged "
                "one.",
                "The log has no information about their rewards.",
                "Log some rounds with such actions, or restrict the new policy to the range that was logged.",
            )
        ]

    def near_a_bound(self, p: int, share: float) -> float | None:
        """The share of a policy's actions, in the worst dimension, within a share of the range of a bound; None: unknown."""
        part = self.state[str(p)]
        if not part["total"] > 0:
            return None
        from_low = np.clip(share * CELLS - np.arange(CELLS), 0, 1)  # of a cell that is partly within, that part
        within = np.minimum(from_low + from_low[::-1], 1)
        return float((part["cells"] @ within).max() / part["total"])

    def _middle(self, part: State, j: int) -> list[float]:
        """The 5% and the 95% quantile of the actions in a dimension, to within a cell."""
        cumulative = np.append(0.0, np.cumsum(part["cells"][j])) / max(float(part["cells"][j].sum()), 1e-300)
        edges = self.sums.space.lows[j] + np.arange(CELLS + 1) / CELLS * self.sums.space.ranges[j]
        return [float(np.interp(share, cumulative, edges)) for share in (0.05, 0.95)]

    def view(self) -> list[dict[str, Any]]:
        """The picture of each dimension: shares of the log and of each policy in bars of equal width."""
        return [self._dimension(j) for j in range(self.sums.space.dimensions)]

    def _dimension(self, j: int) -> dict[str, Any]:
        space = self.sums.space
        parts = {name: self.state[str(p)] for p, name in enumerate(self.policies)}
        known = {name: part for name, part in parts.items() if part["total"] > 0}
        used = np.flatnonzero(sum(part["cells"][j] for part in (self.state["log"], *known.values())) > 0)
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, CELLS)
        width = -(-(last - first) // MOST_BARS)
        bars = -(-(last - first) // width)
        cells = slice(min(first, CELLS - bars * width), min(first, CELLS - bars * width) + bars * width)
        edges = space.lows[j] + np.arange(cells.start, cells.stop + 1, width) / CELLS * space.ranges[j]

        def shares(part: State) -> dict[str, Any]:
            total = max(float(part["total"]), 1e-300)
            return {
                "middle": self._middle(part, j),
                "shares": (part["cells"][j, cells].reshape(bars, width).sum(axis=1) / total).tolist(),
                "at_low": float(part["low"][j]) / total,
                "at_high": float(part["high"][j]) / total,
                "at_points": (part["points"] / total).tolist(),
            }

        return {
            "dimension": j if space.shape else None,
            "low": float(space.lows[j]),
            "high": float(space.highs[j]),
            "points": list(space.points),
            "edges": edges.tolist(),
            "logged": shares(self.state["log"]),
            "policies": [{"policy": name, **shares(part)} for name, part in known.items()],
        }
