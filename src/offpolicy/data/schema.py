"""`Schema`: the contents of a log, and the meaning of every code and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.monte_carlo import MonteCarlo
from offpolicy.data.spaces import ActionSpace, Discrete, unserved


@dataclass(frozen=True)
class Dimension:
    """One pre-defined feature: columns start..stop, several if its categories are one-hot encoded; flags are one column."""

    name: str
    start: int
    stop: int
    categorical: bool

    @property
    def width(self) -> int:
        return self.stop - self.start

    @property
    def flag(self) -> bool:
        """Whether it is a category in a single column, as one with the values 0 and 1 is."""
        return self.categorical and self.width == 1

    def moved(self, by: int) -> Dimension:
        return Dimension(self.name, self.start + by, self.stop + by, self.categorical)


def dimensions(named: Sequence[tuple[str, int, bool]]) -> tuple[Dimension, ...]:
    """Dimensions side by side, from their names, their widths, and whether each is one-hot encoded."""
    starts = accumulate((width for _, width, _ in named), initial=0)
    return tuple(Dimension(name, at, at + width, one_hot) for at, (name, width, one_hot) in zip(starts, named, strict=False))


@dataclass(frozen=True)
class Preparation:
    """How the context was prepared: the options that were given, and what they did, one note per column."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


UNPREPARED = Preparation()


@dataclass(frozen=True)
class Schema:
    """The contents of a log: the meaning of every code and column.

    `gain` is how much the reward of each slot counts; None if rewards do not belong to slots.
    """

    space: ActionSpace
    context: tuple[str, ...]
    rewards: tuple[str, ...]
    slices: tuple[str, ...] | None = None
    slice_name: str | None = None
    loggers: tuple[str, ...] | None = None
    draws: MonteCarlo | None = None
    propensity: bool = False
    slot_propensity: bool = False
    position_propensity: bool = False
    gain: tuple[float, ...] | None = None
    weighted: bool = False
    clustered: bool = False
    identified: bool = False
    features: tuple[str, ...] = ()
    feature_dimensions: tuple[Dimension, ...] = ()
    catalog: FloatArray | None = None
    catalog_names: tuple[str, ...] = ()
    catalog_dimensions: tuple[Dimension, ...] = ()
    preparation: Preparation = UNPREPARED

    def __post_init__(self) -> None:
        if (self.features or self.catalog is not None) and not isinstance(self.space, Discrete):
            raise InputError(
                f"action_features= and catalog= are for {unserved((Discrete,), self.space)}; leave them out, or pass what "
                "was known before the action was taken as context."
            )
        if self.catalog is not None and len(self.catalog) != self.space.count:
            raise InputError(
                f"catalog: {len(self.catalog)} rows for {self.space.count} actions; it needs one row per action."
            )
