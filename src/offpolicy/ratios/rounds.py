"""What a ratio is shown of the log: the rounds of a batch and, where it sums over all actions, the sums of their blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.models.posteriors.base import Pooling
from offpolicy.ratios.pool_sums import BlockRows, PoolSums


class Pool(ABC):
    """The ratio of one batch in the making, for a ratio that sums over all actions of a policy, block by block."""

    @abstractmethod
    def pooling(self, block: BlockRows) -> Pooling:
        """The pooling that weighs the rounds of a block: the one fitted without their fold."""

    @abstractmethod
    def multipliers(self, block: BlockRows) -> FloatArray | None:
        """What slopes of the block are multiplied with; None where none are summed."""

    @abstractmethod
    def add(self, block: BlockRows, sums: PoolSums) -> None:
        """Take in the sums of a block."""

    @abstractmethod
    def finish(self) -> FloatArray:
        """The ratio of each round, once every block was taken in."""


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
    """π/π0 of the logged actions; None where the log has no propensities or the target policy is deterministic."""
    propensity: FloatArray | None = None
    """π0 of the logged actions, a probability or a density; None where the log has none."""
    target: npt.NDArray[Any] | None = None
    """The action that a deterministic target policy takes; None for other policies."""
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
