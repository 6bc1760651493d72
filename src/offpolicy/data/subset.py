"""`Subset`: some units of a log, chosen by the hash of each unit, so that rows are selected as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import UInt64Array
from offpolicy.core.hashing import uniform
from offpolicy.data.batch import Batch, Partition


@dataclass(frozen=True)
class Portion:
    """The units whose number in [0, 1), the hash of (seed, unit), lies in [low, high)."""

    seed: int
    low: float = 0.0
    high: float = 1.0

    def contains(self, unit: UInt64Array) -> npt.NDArray[np.bool_]:
        """Whether each unit belongs to it."""
        position = uniform(unit, self.seed, "split")
        return (position >= self.low) & (position < self.high)

    def cut(self, share: float) -> tuple[Portion, Portion]:
        """The first `share` of it, and the rest."""
        middle = self.low + share * (self.high - self.low)
        return replace(self, high=middle), replace(self, low=middle)

    @property
    def share(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Subset:
    """Units that belong to every portion, one per seed."""

    portions: tuple[Portion, ...] = ()
    rows: int = 0

    @property
    def described(self) -> str:
        """Completes "a log of files": how large a part of it."""
        return f"{np.prod([portion.share for portion in self.portions]):.3g} of its units"

    def cut(self, share: float, seed: int) -> tuple[Subset, Subset]:
        """Two subsets without a common unit. A portion of the same seed is cut again, another seed is independent of it."""
        others = tuple(portion for portion in self.portions if portion.seed != seed)
        (portion,) = [portion for portion in self.portions if portion.seed == seed] or [Portion(seed)]
        first, second = portion.cut(share)
        return Subset((*others, first)), Subset((*others, second))

    def contains(self, unit: UInt64Array) -> npt.NDArray[np.bool_]:
        """Whether each unit belongs to it."""
        mask = np.ones(len(unit), np.bool_)
        for portion in self.portions:
            mask &= portion.contains(unit)
        return mask

    def select(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The rounds of its units. They keep their row numbers."""
        for batch in batches:
            rows = np.flatnonzero(self.contains(batch.unit))
            if len(rows):
                yield batch if len(rows) == len(batch) else batch.take(rows)


ALL = Subset()
"""Every unit."""


@dataclass(frozen=True)
class SelectedPartition:
    """The rounds of a partition that belong to a subset."""

    partition: Partition
    subset: Subset

    def batches(self, rows: int) -> Iterator[Batch]:
        return self.subset.select(self.partition.batches(rows))
