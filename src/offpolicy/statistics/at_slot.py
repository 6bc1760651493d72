"""Statistics of single actions, folded over one slot of the lists of a log, or over all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from offpolicy.data.batch import Batch
from offpolicy.data.slate import at_slot, in_position, shown
from offpolicy.statistics.base import State, Statistic


@dataclass(frozen=True)
class OfItems(ABC):
    """A statistic over items of lists. Slots that a list is too short to have are left out."""

    statistic: Statistic

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def batch_rows(self) -> int | None:
        return self.statistic.batch_rows

    def zero(self) -> State:
        return self.statistic.zero()

    @abstractmethod
    def fold(self, state: State, batch: Batch) -> State: ...

    def merge(self, a: State, b: State) -> State:
        return self.statistic.merge(a, b)

    def finish(self, state: State) -> Any:
        return self.statistic.finish(state)


@final
@dataclass(frozen=True)
class AtSlot(OfItems):
    """A statistic over the items of one slot."""

    slot: int

    def fold(self, state: State, batch: Batch) -> State:
        some = _with_item(batch, self.slot)
        return self.statistic.fold(state, at_slot(some, self.slot)) if len(some) else state


@final
@dataclass(frozen=True)
class OverSlots(OfItems):
    """A statistic over the items of all slots, with the position as one more column of the context."""

    def fold(self, state: State, batch: Batch) -> State:
        for slot in range(batch.action.shape[1]):
            some = _with_item(batch, slot)
            if len(some):
                state = self.statistic.fold(state, in_position(some, slot))
        return state


def _with_item(batch: Batch, slot: int) -> Batch:
    """The rounds whose list has an item in a slot."""
    there = shown(batch)[:, slot]
    return batch if there.all() else batch.take(np.flatnonzero(there))
