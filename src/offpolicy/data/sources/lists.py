"""The columns of a table that hold lists: which they are, and the rewards and propensities that are read from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.slate import Gain, ListColumns, PaddedColumn, gains
from offpolicy.data.slots import Logged


@dataclass(frozen=True)
class ListRoles:
    """The columns of a log whose actions are lists.

    Attributes
    ----------
    per_list : frozenset[str]
        Those with one number per row, which belongs to the whole list.
    """

    slots: int
    action: str
    rewards: Sequence[str]
    propensity: str | None
    position_propensity: str | None
    gain: Gain
    per_list: frozenset[str]

    def check(self) -> None:
        """Raise if the columns do not go together."""
        gains(self.gain, self.slots)
        if 0 < len(self.per_list & set(self.rewards)) < len(self.rewards):
            raise InputError("some rewards belong to slots and others to whole lists; evaluate them one after the other.")
        if self.position_propensity in self.per_list:
            raise InputError(f"{self.position_propensity} has one number per row; give a list with one number per item.")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, that of the lists first."""
        every = (self.action, *self.rewards, self.propensity, self.position_propensity)
        return tuple(name for name in every if name is not None)

    @property
    def lists(self) -> frozenset[str]:
        """Those that hold lists."""
        return frozenset(self.names) - (self.per_list - {self.action})

    @property
    def counted(self) -> tuple[float, ...] | None:
        """What each slot counts, if rewards belong to slots."""
        return None if self.rewards[0] in self.per_list else tuple(gains(self.gain, self.slots).tolist())

    def logged(self, raw: Mapping[str, pa.Array], codes: IntArray, checked: Callable[[str, str], FloatArray]) -> Logged:
        """The rewards and propensities of some rows; `checked` reads a column of numbers for a role."""

        def padded(name: str | None) -> PaddedColumn | None:
            return None if name is None or name in self.per_list else PaddedColumn.of(name, raw[name], self.slots)

        columns = ListColumns(
            tuple(gains(self.gain, self.slots).tolist()),
            [column for name in self.rewards if (column := padded(name)) is not None],
            np.column_stack([checked("reward", name) for name in self.rewards]) if self.counted is None else None,
            checked("propensity", str(self.propensity)) if self.propensity in self.per_list else None,
            padded(self.propensity),
            padded(self.position_propensity),
        )
        return columns.logged(codes)
