"""A batch while it is scored (`BatchWork`), and once it is (`ScoredBlock`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.data.slate import at_slot, shown
from offpolicy.ratios.sides import SlotSides
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.kernel import TargetMass
from offpolicy.scoring.plan import ModelKey, TableKey, WeightTable
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class BatchWork:
    """The rounds of a batch, sorted by bucket if folds matter, and what has been computed for them so far.

    Attributes
    ----------
    x : FloatArray
        x̃ of each round, (features + 1) × rounds.
    out : FloatArray
        The columns, which are filled in one after the other.
    state : State
        The state of the scoring pass, which other sums are added to.
    masses : tuple[TargetMass, ...]
        Of each policy, for this batch.
    weights : dict[tuple[int, Weight], FloatArray]
        By policy.
    earned : dict[tuple[int, Weight], FloatArray]
        What the weights apply to, where that is not the logged reward.
    """

    batch: Batch
    bucket: IntArray
    x: FloatArray
    out: FloatArray
    state: State
    masses: tuple[TargetMass, ...]
    controls: dict[ModelKey, FloatArray] = field(default_factory=dict)
    weights: dict[tuple[int, Weight], FloatArray] = field(default_factory=dict)
    earned: dict[tuple[int, Weight], FloatArray] = field(default_factory=dict)

    @cached_property
    def omega(self) -> FloatArray:
        """The row weights."""
        return np.ones(len(self.batch)) if self.batch.weight is None else self.batch.weight

    def runs(self, groups: int) -> Iterator[tuple[int, slice]]:
        """Each of `groups` groups with its run of rows."""
        group = group_of_bucket(groups)[self.bucket]
        edges = np.searchsorted(group, np.arange(groups + 1))
        return ((g, slice(int(a), int(b))) for g, (a, b) in enumerate(itertools.pairwise(edges)) if b > a)

    def ratio_state(self, position: int) -> State:
        """The sums of the ratio of a weight of the plan."""
        own: State = self.state["ratios"][str(position)]
        return own

    def sets(self, slices: IntArray | None) -> list[IntArray | None]:
        """The sets of rounds that have tables: all, then each slice."""
        return [None, *(rows for _, rows in self._slices(slices))]

    def add_shares(self, tables: Mapping[int, Sequence[FloatArray]], slices: IntArray | None, group: int) -> None:
        """Add the tables of these sets, for rounds of one group of units."""
        parts = [self.state, *(part for part, _ in self._slices(slices))]
        for table, sums in tables.items():
            if str(table) in self.state["shares"]:
                self.state["shares"][str(table)][group] += sums[0]
            for part, values in zip(parts, sums, strict=True):
                part["tables"][table] += values

    def add_weight_tables(self, tables: Sequence[TableKey], sampled: slice) -> None:
        """Add the tables of weights, over the first rows."""
        batch, x = self.batch.take(sampled), self.x[:, sampled] * self.omega[sampled]
        for part, rows in self._slices(batch.slice_code):
            part["table_rows"] += x[-1, rows].sum()
        for index, key in enumerate(tables):
            if isinstance(key, WeightTable):
                weighted, one = x * self.weights[key.policy, key.weight][sampled], batch
                if key.slot is not None:
                    weighted, one = weighted * shown(batch)[:, key.slot], at_slot(batch, key.slot)
                self.state["tables"][index] += one.space.collect(weighted, one.action)
                for part, rows in self._slices(batch.slice_code):
                    part["tables"][index] += one.space.collect(weighted[:, rows], one.action[rows])

    def _slices(self, slices: IntArray | None) -> Iterator[tuple[State, IntArray]]:
        """Each slice that has tables, with its rows."""
        if slices is not None and len(self.state["tables"]):
            for s in np.unique(slices):
                if len(self.state["slices"][str(s)]["tables"]):
                    yield self.state["slices"][str(s)], np.flatnonzero(slices == s)


@dataclass(frozen=True)
class ScoredBlock:
    """The scored rounds of a batch, as diagnostics receive them.

    Rounds are in the order in which they were scored, which is that of the batch that comes with them.

    Attributes
    ----------
    columns : ndarray of shape (columns, rounds)
        The planned columns; the row weight is the first.
    bucket : ndarray of shape (rounds,)
        The bucket, from 0 to 4095, of each round's unit.
    omega : ndarray of shape (rounds,)
        The row weights of the log; 1 if it has none.
    propensity : ndarray of shape (rounds,), or None
        The logging policy's probability or density of each logged action; None if it is unknown.
    ratios : tuple of ndarray or None
        For each policy, π/π0 of the logged actions; None without propensities, or if the policy is deterministic.
    controls : mapping of ModelKey to ndarray of shape (rounds,)
        For each reward model, q(x, a) of the logged actions, from a fit without their fold.
    origin : ndarray of shape (rewards,)
        A typical value of each reward, which is subtracted before summing.
    masses : tuple of TargetMass
        For each policy, its probability mass by action, over the first groups of units.
    slots : tuple of SlotSides or None
        For each policy, its probabilities and those of the logging policy in the slots of lists; None for other actions.
    targets : tuple of ndarray or None
        For each policy, the action that it takes in each round; None unless it always takes one.
    """

    columns: FloatArray
    bucket: IntArray
    omega: FloatArray
    propensity: FloatArray | None
    ratios: tuple[FloatArray | None, ...]
    controls: Mapping[ModelKey, FloatArray]
    origin: FloatArray
    masses: tuple[TargetMass, ...]
    slots: tuple[SlotSides | None, ...] = ()
    targets: tuple[npt.NDArray[Any] | None, ...] = ()


class BlockStatistic(Protocol):
    """What is summed over scored rounds, such as a diagnostic."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State: ...

    def merge(self, a: State, b: State) -> State: ...
