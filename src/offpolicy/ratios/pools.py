"""Pooling of similar actions: the rounds that a ratio weights, and sums over the actions of their blocks.

With Q = exp(s) the shares, u and v the two sides, w = Σ_a Q_a u_a / Σ_a Q_a v_a, and
∂w/∂s_a = Q_a (u_a − w·v_a) / Σ_b Q_b v_b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.models.posteriors.base import Pooling
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.ratios.sides import SlotSides
from offpolicy.statistics.base import State

Both = tuple[FloatArray, FloatArray]  # for the target policy and for the logging policy


@dataclass(frozen=True)
class Sides:
    """π and π0 of a block, and their quotient, which all weights in the posterior form share.

    Attributes
    ----------
    logged : Both | None
        Those of the logged actions, if the layout does not contain them.
    """

    pi: FloatArray
    pi0: FloatArray
    layout: Layout
    logged: Both | None = None

    @cached_property
    def supported(self) -> FloatArray | None:
        """1 where the logging policy has positive probability; None if it has for every action."""
        everywhere = not isinstance(self.layout, Lists) and self.pi0.min(initial=1.0) > 0
        return None if everywhere else (self.pi0 > 0).astype(np.float64)

    @property
    def contextual(self) -> float:
        """The largest difference between rounds in the logging policy's probability of an action."""
        if not isinstance(self.layout, Lists):
            return float(np.ptp(self.pi0, axis=0).max(initial=0.0))
        mean = np.bincount(self.layout.codes, self.pi0) / len(self.layout.action)  # 0 where it is not listed
        return float(np.abs(self.pi0 - mean[self.layout.codes]).max(initial=0.0))

    @property
    def action(self) -> FloatArray:
        """π/π0 of the logged actions; 0 where π0 is 0, as in a slot that a shorter list does not have."""
        pi, pi0 = self.logged or (self.layout.own(self.pi), self.layout.own(self.pi0))
        action: FloatArray = np.divide(pi, pi0, out=np.zeros(len(pi)), where=pi0 > 0)
        return action

    @cached_property
    def quotient(self) -> FloatArray:
        """π/π0; 0 where π0 is 0, because no round of the log can represent the action there."""
        if self.supported is None:
            return self.pi / self.pi0
        return np.where(self.pi0 > 0, self.pi / np.where(self.pi0 > 0, self.pi0, 1.0), 0.0)


@dataclass(frozen=True)
class BlockRows:
    """The rounds of a block: consecutive rows of a batch, all in one group of units.

    Attributes
    ----------
    batch : Batch
        These rounds alone.
    sampled : bool
        Whether it belongs to the sample that shows how estimates depend on what was fitted.
    """

    rows: slice
    batch: Batch
    group: int
    groups: int
    sampled: bool

    def fold(self, folds: int) -> int:
        """The fold that the group is in."""
        return self.group * folds // self.groups


@dataclass(frozen=True)
class SlopeSums:
    """Derivatives of the ratios of a block with respect to the scores of the pooling.

    Attributes
    ----------
    scores : FloatArray
        Actions × multipliers × (m + 1): Σ multiplier·∂w/∂s·(z, 1) over the rounds.
    rounds : FloatArray
        Rounds × m: ∂w/∂z.
    """

    scores: FloatArray
    rounds: FloatArray


@dataclass(frozen=True)
class PoolSums:
    """What a pooling gives each round of a block.

    Attributes
    ----------
    ratio : FloatArray
        The ratio of actions, where the action does not occur in the fit.
    own : FloatArray
        The part of the ratio that comes from the logged action.
    contextual : float | None
        How much the logging policy's probabilities differ between rounds; None if that was not checked.
    left_out : FloatArray | None
        How far the actions that are not near could change the ratio, if sums are over the near ones.
    """

    ratio: FloatArray
    own: FloatArray
    new: npt.NDArray[np.bool_]
    contextual: float | None = None
    left_out: FloatArray | None = None
    slopes: SlopeSums | None = None


def pool_sums(pooling: Pooling, block: BlockRows, sides: Sides, multipliers: FloatArray | None) -> PoolSums:
    """Sums over all actions of the layout, or over the near ones if these are looked up; slopes only with `multipliers`."""
    if isinstance(sides.layout, Lists) or pooling.near is None:
        return _sums(pooling, block, sides, multipliers)
    layout, table, row = near_actions(pooling, block.batch), unseen(pooling), np.arange(len(block.batch))
    both = (sides.pi, sides.pi0)
    pi, pi0 = (side[layout.row, layout.codes] for side in both)
    logged, logged0 = (side[row, block.batch.codes] for side in both)
    near = Sides(pi, pi0, layout, (logged, logged0))
    return near_sums(pooling, block, near, (sides.pi @ table, sides.pi0 @ table))


def near_sums(pooling: Pooling, block: BlockRows, sides: Sides, masses: Both) -> PoolSums:
    """Sums over near actions alone; `masses`, if they have a column, are those of all actions that were never logged."""
    for some, mass in zip((sides.pi, sides.pi0), masses, strict=True):
        if mass.shape[1]:  # the last one represents them
            some.reshape(len(block.batch), -1)[:, -1] = mass[:, 0]
    return _sums(pooling, block, sides, None)


def near_actions(pooling: Pooling, batch: Batch) -> Lists:
    """The actions near the logged one."""
    assert pooling.near is not None
    return Lists.of_each(batch.codes, batch.n_actions, pooling.near.codes[batch.codes].astype(np.int64), near=True)


def unseen(pooling: Pooling) -> FloatArray:
    """Actions × 1: 1 for those that one of the near actions represents; actions × 0 if there are none."""
    if pooling.near is None or pooling.near.unseen is None:
        return np.empty((len(pooling.bias), 0))
    return pooling.near.unseen[:, None].astype(np.float64)


def _sums(pooling: Pooling, block: BlockRows, sides: Sides, multipliers: FloatArray | None) -> PoolSums:
    layout, batch = sides.layout, block.batch
    shares = pooling.shares(batch, layout)
    u, v = (sides.pi, sides.pi0) if pooling.form == "ratio" else (sides.quotient, sides.supported)
    above = layout.dot(shares, u)
    below = np.ones(len(batch)) if v is None else layout.dot(shares, v)
    with np.errstate(divide="ignore", invalid="ignore"):
        action = sides.action
        ratio = np.where(below > 0, above / below, action)
        own = np.where(above > 0, layout.own(shares) * layout.own(u) / above, 1.0)
    new = ~pooling.seen[batch.codes]
    ratio, own = np.where(new, action, ratio), np.where(new, 1.0, own)
    first = pooling.form == "posterior" and block.rows.start == 0  # the first block of a batch is enough to detect it
    left_out = slopes = None
    if pooling.near is not None and isinstance(layout, Lists) and layout.near:
        farthest = shares.reshape(len(batch), -1)[:, : pooling.near.count].min(axis=1)
        left_out = _left_out(sides, farthest, above, np.where(new, 0.0, below))
    if multipliers is not None:
        moved = layout.spread(ratio)
        slope = shares * (u - moved if v is None else u - moved * v)
        scale = np.where(new | ~(below > 0), 0.0, 1 / np.maximum(below, 1e-300))
        z, m = pooling.points(batch), multipliers * scale[:, None]
        padded = np.column_stack([z, np.ones(len(z))])
        products = (m[:, :, None] * padded[:, None, :]).reshape(len(z), -1)
        if pooling.width is None:
            scores = layout.by_action(slope, products)
        else:  # s = −d²/2 with d = (score − score of the logged action) / width
            slope *= -pooling.distances(batch, layout) / pooling.width
            scores = layout.by_action(slope, products)
            np.subtract.at(scores, batch.codes, layout.dot(slope, np.ones_like(slope))[:, None] * products)
        by_round = layout.by_round(slope, pooling.weight) * scale[:, None]
        slopes = SlopeSums(scores.reshape(len(scores), m.shape[1], -1), by_round)
    return PoolSums(ratio, own, new, sides.contextual if first else None, left_out, slopes)


def _left_out(sides: Sides, farthest: FloatArray, above: FloatArray, below: FloatArray) -> FloatArray:
    """How far the actions that are not near could change the weight: none of them has a larger share than the farthest.

    With q that share, w lies between above / (below + q·π0(others)) and (above + q·π(others)) / below.
    """
    known = (side.reshape(len(farthest), -1).sum(axis=1) for side in (sides.pi, sides.pi0))
    rest, rest0 = (farthest * np.maximum(1 - sum_, 0.0) for sum_ in known)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.maximum(rest / below, above / below - above / (below + rest0))
    return np.where(below > 0, off, 0.0)


@dataclass(frozen=True)
class Rounds:
    """The rounds of a batch, as the ratio of one weight sees them.

    Attributes
    ----------
    folds : int
        In how many folds the ratio was fitted; 1 if it was fitted on all rounds.
    omega : FloatArray
        The row weights of the log; 1 if it has none.
    residuals : Callable[[], Sequence[FloatArray]]
        r less the control, for each correction that uses this weight.
    action : FloatArray | None
        π/π0 of the logged actions; None if the log has no propensities or the target policy is deterministic.
    propensity : FloatArray | None
        π0 of the logged actions, a probability or a density; None if the log has none.
    target : npt.NDArray[Any] | None
        The action that a deterministic target policy takes; None for other policies.
    pool : Pool | None
        The sums over all actions, for a ratio that uses them.
    slots : SlotSides | None
        Both policies in the slots of the logged lists, if actions are lists.
    policies : tuple[Policy, Policy | None] | None
        The target policy, and the logging policy if it is known.
    sampled : int
        How many of the rounds, the first ones, show how estimates depend on what was fitted.
    """

    batch: Batch
    bucket: IntArray
    folds: int
    omega: FloatArray
    residuals: Callable[[], Sequence[FloatArray]]
    action: FloatArray | None = None
    propensity: FloatArray | None = None
    target: npt.NDArray[Any] | None = None
    pool: Pool | None = None
    slots: SlotSides | None = None
    policies: tuple[Policy, Policy | None] | None = None
    sampled: int = 0

    @cached_property
    def fold(self) -> IntArray:
        """The fold of each round: a cross-fitted ratio uses the fit without this fold."""
        return group_of_bucket(self.folds)[self.bucket]

    @cached_property
    def multipliers(self) -> FloatArray:
        """What a round's weight is multiplied by in each sum that an estimate is made of: 1, and each residual."""
        return np.column_stack([self.omega, *(self.omega * residual for residual in self.residuals())])


@dataclass
class Pool:
    """The ratios of a batch for one policy, from the sums of its blocks; other sums are added to `state`.

    Attributes
    ----------
    poolings : Sequence[Pooling]
        One per fold, or one.
    sloped : bool
        Whether slopes are summed, over the rounds that are sampled for them.
    _slopes : list[tuple[slice, int, FloatArray]]
        Rows, their fold, and ∂w/∂z of each.
    """

    poolings: Sequence[Pooling]
    rounds: Rounds
    state: State
    sloped: bool
    _slopes: list[tuple[slice, int, FloatArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ratio = np.empty(len(self.rounds.batch))

    @staticmethod
    def zero(poolings: Sequence[Pooling], sums: int, sloped: bool) -> State:
        """Empty sums for one weight with so many multipliers. Slopes are summed by fold."""
        pooling, folds = poolings[0], len(poolings)
        n, m = pooling.weight.shape if sloped else (0, 0)
        features = getattr(pooling.embedding.varying, "features", None)
        columns = features.size if sloped and features is not None else 0
        numbers = ("rows", "own", "new", "contextual", "sloped_rows", "near_rows")
        return {
            **{name: np.zeros(()) for name in numbers},
            "left_out": np.zeros(sums),
            "scores": np.zeros((folds, n, sums, m + 1)),
            "points": np.zeros((folds, sums, n, m)),
            "features": np.zeros((folds, sums, columns, m)),
        }

    def pooling(self, block: BlockRows) -> Pooling:
        """The pooling of a block: the one fitted without its fold."""
        return self.poolings[block.fold(len(self.poolings))]

    def multipliers(self, block: BlockRows) -> FloatArray | None:
        """What the slopes of a block are multiplied by; None where none are summed."""
        return self.rounds.multipliers[block.rows] if self.sloped and block.sampled else None

    def add(self, block: BlockRows, sums: PoolSums) -> None:
        """Add the sums of a block."""
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
            fold = block.fold(len(self.poolings))
            state["scores"][fold] += sums.slopes.scores
            self._slopes.append((rows, fold, sums.slopes.rounds))
            state["sloped_rows"] += omega.sum()

    def finish(self) -> FloatArray:
        """The ratio of each round; adds the sums of ∂w/∂z by action, and its products with the features of the rounds."""
        if not self._slopes:
            return self._ratio
        batch = self.rounds.batch
        slopes, folds = np.zeros((len(batch), self.poolings[0].weight.shape[1])), np.zeros(len(batch), np.int64)
        for rows, fold, of_rows in self._slopes:
            slopes[rows], folds[rows] = of_rows, fold
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
                    inside = folds == fold
                    self.state["features"][fold, q] += phi[inside].T @ weighted[inside]
        return self._ratio
