"""`AtSlot`: a statistic of single actions, folded over one slot of the lists of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.data.batch import Batch
from offpolicy.data.slate import at_slot, shown
from offpolicy.statistics.base import State, Statistic


@dataclass(frozen=True)
class AtSlot:
    """A statistic over the items of one slot. Lists that are too short to have it are left out."""

    statistic: Statistic
    slot: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def batch_rows(self) -> int | None:
        return self.statistic.batch_rows

    def zero(self) -> State:
        return self.statistic.zero()

    def fold(self, state: State, batch: Batch) -> State:
        there = shown(batch)[:, self.slot]
        some = batch if there.all() else batch.take(np.flatnonzero(there))
        return self.statistic.fold(state, at_slot(some, self.slot)) if len(some) else state

    def merge(self, a: State, b: State) -> State:
        return self.statistic.merge(a, b)

    def finish(self, state: State) -> Any:
        return self.statistic.finish(state)
