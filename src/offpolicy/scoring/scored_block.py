"""`ScoredBlock`: what the scorer knows of some rounds, for whatever is summed over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.scoring.kernel import Mass
from offpolicy.scoring.plan import ModelKey
from offpolicy.statistics.base import State


@dataclass
class TargetMass:
    """On which actions the mass of a target policy lies, summed over some of the rounds."""

    by_action: FloatArray
    rows: float = 0.0
    unsupported: float = 0.0
    """The mass where the logging policy has zero probability."""

    def add(self, mass: Mass) -> None:
        self.rows += mass.rows
        self.by_action += mass.by_action
        self.unsupported += mass.unsupported or 0.0


@dataclass(frozen=True)
class ScoredBlock:
    """The rounds of a batch, in the order they were scored in."""

    columns: FloatArray
    """The planned columns × rounds, the row weight first."""
    bucket: IntArray
    omega: FloatArray
    """The row weights of the log; 1 where it has none."""
    propensity: FloatArray | None
    """Of the logged actions."""
    ratios: tuple[FloatArray | None, ...]
    """π/π0 of the logged actions, for each policy; None without propensities, or if the policy is deterministic."""
    controls: Mapping[ModelKey, FloatArray]
    """q(x, a) of the logged actions, for each reward model, from a fit without their fold."""
    origin: FloatArray
    """A typical value of each reward, which sums are taken from."""
    masses: tuple[TargetMass, ...]
    """For each policy, over the first groups of units."""

    @classmethod
    def masses_of(cls, whole: list[bool], n_actions: int) -> tuple[TargetMass, ...]:
        """Empty ones; of a policy that is not asked for all actions nothing is known."""
        return tuple(TargetMass(np.zeros(n_actions if asked else 0)) for asked in whole)


class BlockStatistic(Protocol):
    """What is summed over scored rounds: a diagnostic, for one."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State: ...

    def merge(self, a: State, b: State) -> State: ...
