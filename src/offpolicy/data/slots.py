"""What was logged with the actions: rewards and propensities, and `SlotColumns` if actions are lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class SlotColumns:
    """One number per slot of every list. Slots that a shorter list does not have hold rewards of 0 and propensities of 1.

    Parameters
    ----------
    reward : array of float, optional
        Rounds × rewards × slots; None if rewards belong to whole lists.
    propensity : array of float, optional
        Rounds × slots: the probability of each item under the logging policy, given the items above it.
    position_propensity : array of float, optional
        Rounds × slots: the probability of each item in its slot, whatever stands above it.
    """

    reward: FloatArray | None = None
    propensity: FloatArray | None = None
    position_propensity: FloatArray | None = None

    @property
    def parts(self) -> tuple[FloatArray, ...]:
        """The columns that are there."""
        every = (self.reward, self.propensity, self.position_propensity)
        return tuple(part for part in every if part is not None)

    def take(self, rows: slice | IntArray) -> SlotColumns:
        """Some rounds."""
        return SlotColumns(*(None if part is None else part[rows] for part in self._fields))

    @classmethod
    def joined(cls, several: Sequence[SlotColumns]) -> SlotColumns:
        """The rounds of several batches of one log."""
        columns = zip(*(each._fields for each in several), strict=True)
        return cls(*(None if column[0] is None else np.concatenate(column) for column in columns))

    @property
    def _fields(self) -> tuple[FloatArray | None, ...]:
        return self.reward, self.propensity, self.position_propensity


@dataclass(frozen=True)
class Logged:
    """Rewards and propensities of some rounds. For lists, `reward` is their value, and `gain` what each slot counts.

    `wins` are those among the draws that propensities come from.
    """

    reward: FloatArray
    propensity: FloatArray | None
    slots: SlotColumns | None = None
    gain: tuple[float, ...] | None = None
    wins: FloatArray | None = None
