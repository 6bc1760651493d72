"""Weights by embeddings for a block of rows, and how they move with what was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.models.posteriors.base import Pooling
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.ratios.embedding_fits import Slopes
from offpolicy.ratios.rounds import BlockRows, Both, Pool, Rounds, Sides
from offpolicy.statistics.base import State


@final
@dataclass
class EmbeddingPool(Pool):
    """The ratios of one embedding for a batch of one policy; `state` takes what is summed besides.

    With Q the shares, u and v the two sides, w = Σ_a Q_a u_a / Σ_a Q_a v_a, and ∂w/∂s_a = Q_a (u_a − w·v_a) / Σ_b Q_b v_b.
    """

    poolings: Sequence[Pooling]
    rounds: Rounds
    state: State
    sloped: bool
    """Whether slopes are summed, of the rounds that are sampled for them."""

    def __post_init__(self) -> None:
        self._ratio = np.empty(len(self.rounds.batch))

    @cached_property
    def _slopes(self) -> tuple[FloatArray, IntArray]:
        """∂w/∂z of each round, and the fold it was weighed in; only where slopes are summed."""
        rows = len(self.rounds.batch)
        return np.zeros((rows, self.poolings[0].weight.shape[1])), np.zeros(rows, np.int64)

    def fill(self, block: BlockRows, sides: Sides) -> None:
        """The weights of all actions of the layout, or of the near ones where these are looked up."""
        if isinstance(sides.layout, Lists) or self._pooling(block).near is None:
            self._fill(block, sides)
            return
        layout, table, row = self.near(block), self.unseen(block), np.arange(len(block.batch))
        both = (sides.pi, sides.pi0)
        pi, pi0 = (side[layout.row, layout.codes] for side in both)
        logged, logged0 = (side[row, block.batch.codes] for side in both)
        self.fill_near(block, Sides(pi, pi0, layout, (logged, logged0)), (sides.pi @ table, sides.pi0 @ table))

    def fill_near(self, block: BlockRows, sides: Sides, unseen: Both) -> None:
        for some, mass in zip((sides.pi, sides.pi0), unseen, strict=True):
            if mass.shape[1]:  # the last one stands for them
                some.reshape(len(block.batch), -1)[:, -1] = mass[:, 0]
        self._fill(replace(block, sampled=False), sides)

    def _pooling(self, block: BlockRows) -> Pooling:
        return self.poolings[block.fold(len(self.poolings))]

    def _fill(self, block: BlockRows, sides: Sides) -> None:
        """The ratios of a block. The ratio of actions stands in where the action is new to the fit."""
        pooling, layout, batch, rows = self._pooling(block), sides.layout, block.batch, block.rows
        shares = pooling.shares(batch, layout)
        u, v = (sides.pi, sides.pi0) if pooling.form == "ratio" else (sides.quotient, sides.supported)
        above = layout.dot(shares, u)
        below = np.ones(len(batch)) if v is None else layout.dot(shares, v)
        with np.errstate(divide="ignore", invalid="ignore"):
            action = sides.action
            ratio = np.where(below > 0, above / below, action)
            own = np.where(above > 0, layout.own(shares) * layout.own(u) / above, 1.0)
        new = ~pooling.seen[batch.codes]
        if pooling.near is not None and isinstance(layout, Lists) and layout.near:
            self._add_left_out(
                rows, sides, shares.reshape(len(batch), -1), pooling.near.count, above, np.where(new, 0.0, below)
            )
        ratio, own = np.where(new, action, ratio), np.where(new, 1.0, own)
        self._ratio[rows] = ratio
        omega = self.rounds.omega[rows]
        self.state["rows"] += omega.sum()
        self.state["own"] += omega @ own
        self.state["new"] += new.sum()
        if pooling.form == "posterior" and rows.start == 0:  # the first block of a batch is enough to see it
            np.maximum(self.state["contextual"], sides.contextual, out=self.state["contextual"])
        if self.sloped and block.sampled:
            moved = layout.spread(ratio)
            slope = shares * (u - moved if v is None else u - moved * v)
            scale = np.where(new | ~(below > 0), 0.0, 1 / np.maximum(below, 1e-300))
            self._add_slopes(block, layout, slope, scale)

    def near(self, block: BlockRows) -> Lists:
        near, batch = self._pooling(block).near, block.batch
        assert near is not None
        return Lists.of_each(batch.codes, batch.n_actions, near.codes[batch.codes].astype(np.int64), near=True)

    def unseen(self, block: BlockRows) -> FloatArray:
        pooling = self._pooling(block)
        if pooling.near is None or pooling.near.unseen is None:
            return np.empty((len(pooling.bias), 0))
        return pooling.near.unseen[:, None].astype(np.float64)

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
        self.state["left_out"] += off @ np.abs(self.rounds.multipliers[rows])
        self.state["near_rows"] += self.rounds.omega[rows].sum()

    def _add_slopes(self, block: BlockRows, layout: Layout, slope: FloatArray, scale: FloatArray) -> None:
        """`slope` times `scale` is ∂w/∂s."""
        pooling, fold, rows = self._pooling(block), block.fold(len(self.poolings)), block.rows
        z, m = pooling.points(block.batch), self.rounds.multipliers[rows] * scale[:, None]
        padded = np.column_stack([z, np.ones(len(z))])
        scores = layout.by_action(slope, (m[:, :, None] * padded[:, None, :]).reshape(len(z), -1))
        self.state["scores"][fold] += scores.reshape(len(scores), m.shape[1], -1)
        slopes, folds = self._slopes
        slopes[rows], folds[rows] = layout.by_round(slope, pooling.weight) * scale[:, None], fold
        self.state["sloped_rows"] += self.rounds.omega[rows].sum()

    def finish(self) -> FloatArray:
        """Adds the sums of ∂w/∂z over the rounds of each action, and against the features of the rounds."""
        if "_slopes" not in self.__dict__:  # no round was sampled
            return self._ratio
        batch, (slopes, folds) = self.rounds.batch, self._slopes
        features = getattr(self.poolings[0].embedding.varying, "features", None)
        phi = None if features is None else features.rows(batch)
        n_folds, _, n_actions, _ = self.state["points"].shape
        key = folds * n_actions + batch.codes
        for q, multiplier in enumerate(self.rounds.multipliers.T):
            weighted = slopes * multiplier[:, None]
            for j, column in enumerate(weighted.T):
                added = np.bincount(key, column, n_folds * n_actions)
                self.state["points"][:, q, :, j] += added.reshape(n_folds, n_actions)
            if phi is not None:
                for fold in range(n_folds):
                    rows = folds == fold
                    self.state["features"][fold, q] += phi[rows].T @ weighted[rows]
        return self._ratio


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


def slopes_of(pool: State) -> list[Slopes]:
    """The slopes that were summed, of each fold, with a leading axis of sums."""
    return [
        Slopes(scores[..., :-1], scores[..., -1], points, features)
        for scores, points, features in zip(
            pool["scores"].transpose(0, 2, 1, 3), pool["points"], pool["features"], strict=True
        )
    ]
