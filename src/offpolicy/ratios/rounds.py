"""What a ratio is shown of the log: the rounds of a batch and, where it sums over all actions, blocks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.policies.blocks import Layout, Lists

Both = tuple[FloatArray, FloatArray]
"""Of the target policy and of the logging policy."""


@dataclass(frozen=True)
class Sides:
    """π and π0 of a block, and their quotient, which all weights in the posterior form share."""

    pi: FloatArray
    pi0: FloatArray
    layout: Layout
    logged: Both | None = None
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


@dataclass(frozen=True)
class BlockRows:
    """The rounds of a block: neighbouring rows of a batch, all of one group of units."""

    rows: slice
    batch: Batch
    """These rounds alone."""
    group: int
    groups: int
    sampled: bool
    """Whether it is among the rounds that show how estimates move with what was fitted."""

    def fold(self, folds: int) -> int:
        """The fold that the group is in."""
        return self.group * folds // self.groups


class Pool(ABC):
    """The ratio of one batch in the making: it sums over all actions of a policy, block by block."""

    @abstractmethod
    def fill(self, block: BlockRows, sides: Sides) -> None:
        """Take in a block."""

    @abstractmethod
    def finish(self) -> FloatArray:
        """The ratio of each round, once every block was taken in."""

    def near(self, block: BlockRows) -> Lists:
        """The actions near the logged one; only for ratios that make do with these."""
        raise NotImplementedError

    def unseen(self, block: BlockRows) -> FloatArray:
        """Actions × 1: 1 for those that one of the near actions stands for; actions × 0 where none does."""
        raise NotImplementedError

    def fill_near(self, block: BlockRows, sides: Sides, unseen: Both) -> None:
        """Take in the near actions alone; `unseen`, where it has a column, is the chance of all that were never logged."""
        raise NotImplementedError


@dataclass(frozen=True)
class Rounds:
    """The rounds of a batch, as one weight of an evaluation is shown them."""

    batch: Batch
    bucket: IntArray
    folds: int
    """In how many folds the ratio was fitted; 1 where it was fitted on all rounds."""
    omega: FloatArray
    """The row weights of the log; 1 where it has none."""
    residuals: Callable[[], Sequence[FloatArray]]
    """r less the control, for each correction that uses this weight."""
    action: FloatArray | None = None
    """π/π0 of the logged actions; None where the log has no propensities."""
    pool: Pool | None = None
    """What was summed over all actions, for a ratio that asks for them."""

    @cached_property
    def fold(self) -> IntArray:
        """The fold of each round: a cross-fitted ratio weighs it by the fit without this fold."""
        return group_of_bucket(self.folds)[self.bucket]

    @cached_property
    def multipliers(self) -> FloatArray:
        """What a round's weight is multiplied with in each sum that an estimate is made of: 1, and each residual."""
        return np.column_stack([self.omega, *(self.omega * residual for residual in self.residuals())])
