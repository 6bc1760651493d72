"""The ratios of embeddings in the making: what the blocks of a batch give, and how it moves with what was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.models.posteriors.base import Pooling
from offpolicy.ratios.embedding_fits import Slopes
from offpolicy.ratios.pool_sums import BlockRows, PoolSums
from offpolicy.ratios.rounds import Pool, Rounds
from offpolicy.statistics.base import State


@final
@dataclass
class EmbeddingPool(Pool):
    """The ratios of one embedding for a batch of one policy; `state` takes what is summed besides."""

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

    def pooling(self, block: BlockRows) -> Pooling:
        return self.poolings[block.fold(len(self.poolings))]

    def multipliers(self, block: BlockRows) -> FloatArray | None:
        return self.rounds.multipliers[block.rows] if self.sloped and block.sampled else None

    def add(self, block: BlockRows, sums: PoolSums) -> None:
        rows, state = block.rows, self.state
        omega = self.rounds.omega[rows]
        self._ratio[rows] = sums.ratio
        state["rows"] += omega.sum()
        state["own"] += omega @ sums.own
        state["new"] += sums.new.sum()
        if sums.contextual is not None:
            np.maximum(state["contextual"], sums.contextual, out=state["contextual"])
        if sums.left_out is not None:
            state["left_out"] += sums.left_out @ np.abs(self.rounds.multipliers[rows])
            state["near_rows"] += omega.sum()
        if sums.slopes is not None:
            fold, (slopes, folds) = block.fold(len(self.poolings)), self._slopes
            state["scores"][fold] += sums.slopes.scores
            slopes[rows], folds[rows] = sums.slopes.rounds, fold
            state["sloped_rows"] += omega.sum()

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
