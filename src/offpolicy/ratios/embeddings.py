"""Weights by embeddings for a block of rows, and how they move with what was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.models.posteriors.base import Pooling
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.ratios.embedding_fits import Slopes
from offpolicy.ratios.weights import Pooled, Weight
from offpolicy.statistics.base import State, added


@dataclass(frozen=True)
class Sides:
    """π and π0 of a block, and their quotient, which all weights in the posterior form share."""

    pi: FloatArray
    pi0: FloatArray
    layout: Layout
    logged: tuple[FloatArray, FloatArray] | None = None
    """Of the logged actions, where the layout does not tell."""

    @cached_property
    def supported(self) -> FloatArray | None:
        """1 where the logging policy gives a chance; None where it does so to every action."""
        everywhere = not isinstance(self.layout, Lists) and self.pi0.min(initial=1.0) > 0
        return None if everywhere else (self.pi0 > 0).astype(np.float64)

    @property
    def contextual(self) -> float:
        """How much the chances that the logging policy gives an action differ between rounds."""
        if not isinstance(self.layout, Lists):
            return float(np.ptp(self.pi0, axis=0).max(initial=0.0))
        mean = np.bincount(self.layout.codes, self.pi0) / len(self.layout.action)  # 0 where it is not listed
        return float(np.abs(self.pi0 - mean[self.layout.codes]).max(initial=0.0))

    @property
    def action(self) -> FloatArray:
        """π/π0 of the logged actions."""
        pi, pi0 = self.logged or (self.layout.own(self.pi), self.layout.own(self.pi0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return pi / pi0

    @cached_property
    def quotient(self) -> FloatArray:
        """π/π0; 0 where π0 is, for there no round of the log can speak for the action."""
        if self.supported is None:
            return self.pi / self.pi0
        return np.where(self.pi0 > 0, self.pi / np.where(self.pi0 > 0, self.pi0, 1.0), 0.0)


@dataclass
class Pool:
    """The ratios of one embedding for a batch of one policy; `state` takes what is summed besides.

    With Q the shares, u and v the two sides, w = Σ_a Q_a u_a / Σ_a Q_a v_a, and ∂w/∂s_a = Q_a (u_a − w·v_a) / Σ_b Q_b v_b.
    """

    weight: Weight
    poolings: Sequence[Pooling]
    state: State
    omega: FloatArray
    residuals: list[FloatArray]
    """Of the corrections that use this weight."""
    ratio: FloatArray
    sloped: bool
    _slopes: FloatArray = field(init=False)
    _fold: IntArray = field(init=False)

    @property
    def ratio_of(self) -> Pooled:
        assert isinstance(self.weight.ratio, Pooled)
        return self.weight.ratio

    def __post_init__(self) -> None:
        if self.sloped:
            self._slopes = np.zeros((len(self.ratio), self.poolings[0].weight.shape[1]))
            self._fold = np.zeros(len(self.ratio), np.int64)

    @cached_property
    def multipliers(self) -> FloatArray:
        """What a round's weight is multiplied with in each sum: 1, and the residual of each correction."""
        return np.column_stack([self.omega, *(self.omega * residual for residual in self.residuals)])

    def fill(self, rows: slice, batch: Batch, fold: int, sides: Sides, sampled: bool) -> None:
        """The ratios of a block. The ratio of actions stands in where the action is new to the fit."""
        pooling, layout = self.poolings[fold], sides.layout
        shares = pooling.shares(batch, layout)
        u, v = (sides.pi, sides.pi0) if pooling.form == "ratio" else (sides.quotient, sides.supported)
        above = layout.dot(shares, u)
        below = np.ones(len(batch)) if v is None else layout.dot(shares, v)
        with np.errstate(divide="ignore", invalid="ignore"):
            action = sides.action
            ratio = np.where(below > 0, above / below, action)
            own = np.where(above > 0, layout.own(shares) * layout.own(u) / above, 1.0)
        new = ~pooling.seen[batch.action]
        if pooling.near is not None and isinstance(layout, Lists) and layout.near:
            self._add_left_out(
                rows, sides, shares.reshape(len(batch), -1), pooling.near.count, above, np.where(new, 0.0, below)
            )
        ratio, own = np.where(new, action, ratio), np.where(new, 1.0, own)
        self.ratio[rows] = ratio
        omega = self.omega[rows]
        self.state["rows"] += omega.sum()
        self.state["own"] += omega @ own
        self.state["new"] += new.sum()
        np.maximum(self.state["largest"], ratio.max(initial=0.0), out=self.state["largest"])
        if pooling.form == "posterior" and rows.start == 0:  # the first block of a batch is enough to see it
            np.maximum(self.state["contextual"], sides.contextual, out=self.state["contextual"])
        if self.sloped and sampled:
            moved = layout.spread(ratio)
            slope = shares * (u - moved if v is None else u - moved * v)
            self._fold[rows] = fold
            scale = np.where(new | ~(below > 0), 0.0, 1 / np.maximum(below, 1e-300))
            self._add_slopes(rows, fold, batch, layout, slope, scale)

    def near(self, batch: Batch, fold: int) -> Lists:
        """The actions near the logged one."""
        near = self.poolings[fold].near
        assert near is not None
        return Lists.of_each(batch.action, batch.n_actions, near.codes[batch.action].astype(np.int64), near=True)

    def unseen(self, fold: int) -> FloatArray:
        """Actions × 1: 1 for those that one of them stands for; actions × 0 where none does."""
        near = self.poolings[fold].near
        if near is None or near.unseen is None:
            return np.empty((len(self.poolings[fold].bias), 0))
        return near.unseen[:, None].astype(np.float64)

    def _add_left_out(
        self, rows: slice, sides: Sides, shares: FloatArray, count: int, above: FloatArray, below: FloatArray
    ) -> None:
        """How far the actions that are not near could move the weight: none of them has a larger share than the farthest.

        With q that share, w lies between above / (below + q·π0(others)) and (above + q·π(others)) / below.
        """
        farthest = shares[:, :count].min(axis=1)
        known = (side.reshape(shares.shape).sum(axis=1) for side in (sides.pi, sides.pi0))
        rest, rest0 = (farthest * np.maximum(1 - sum_, 0.0) for sum_ in known)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = above / below
            off = np.maximum(rest / below, ratio - above / (below + rest0))
        off = np.where(below > 0, off, 0.0)
        self.state["left_out"] += off @ np.abs(self.multipliers[rows])
        self.state["near_rows"] += self.omega[rows].sum()

    def _add_slopes(
        self, rows: slice, fold: int, batch: Batch, layout: Layout, slope: FloatArray, scale: FloatArray
    ) -> None:
        """`slope` times `scale` is ∂w/∂s."""
        pooling = self.poolings[fold]
        z, m = pooling.points(batch), self.multipliers[rows] * scale[:, None]
        padded = np.column_stack([z, np.ones(len(z))])
        scores = layout.by_action(slope, (m[:, :, None] * padded[:, None, :]).reshape(len(z), -1))
        self.state["scores"][fold] += scores.reshape(len(scores), m.shape[1], -1)
        self._slopes[rows] = layout.by_round(slope, pooling.weight) * scale[:, None]
        self.state["sloped_rows"] += self.omega[rows].sum()

    def finish(self, batch: Batch) -> None:
        """Sums of ∂w/∂z over the rounds of each action, and against the features of the rounds."""
        if not self.sloped:
            return
        features = getattr(self.poolings[0].embedding.varying, "features", None)
        phi = None if features is None else features.rows(batch)
        n_folds, _, n_actions, _ = self.state["points"].shape
        key = self._fold * n_actions + batch.action
        for q, multiplier in enumerate(self.multipliers.T):
            weighted = self._slopes * multiplier[:, None]
            for j, column in enumerate(weighted.T):
                added = np.bincount(key, column, n_folds * n_actions)
                self.state["points"][:, q, :, j] += added.reshape(n_folds, n_actions)
            if phi is not None:
                for fold in range(n_folds):
                    rows = self._fold == fold
                    self.state["features"][fold, q] += phi[rows].T @ weighted[rows]


def zero_pool(poolings: Sequence[Pooling], sums: int, sloped: bool) -> State:
    """Empty sums for one weight with so many multipliers. Slopes are kept by fold."""
    pooling, folds = poolings[0], len(poolings)
    n, m = pooling.weight.shape if sloped else (0, 0)
    features = getattr(pooling.embedding.varying, "features", None)
    columns = features.size if sloped and features is not None else 0
    return {
        "rows": np.zeros(()),
        "own": np.zeros(()),
        "new": np.zeros(()),
        "largest": np.zeros(()),
        "contextual": np.zeros(()),
        "sloped_rows": np.zeros(()),
        "left_out": np.zeros(sums),
        "near_rows": np.zeros(()),
        "scores": np.zeros((folds, n, sums, m + 1)),
        "points": np.zeros((folds, sums, n, m)),
        "features": np.zeros((folds, sums, columns, m)),
    }


def merged_pools(a: State, b: State) -> State:
    """The sums of two sets of rows."""
    return added(a, b, ("largest", "contextual"))


def slopes_of(pool: State) -> list[Slopes]:
    """The slopes that were summed, of each fold, with a leading axis of sums."""
    return [
        Slopes(scores[..., :-1], scores[..., -1], points, features)
        for scores, points, features in zip(
            pool["scores"].transpose(0, 2, 1, 3), pool["points"], pool["features"], strict=True
        )
    ]
