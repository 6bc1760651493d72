"""A batch on its way through the scorer: `BatchWork` while it is scored, `ScoredBlock` for what is summed over it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.kernel import TargetMass
from offpolicy.scoring.plan import ModelKey, TableKey, WeightTable
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class BatchWork:
    """The rounds of a batch, sorted by bucket where folds matter, and what is known of them so far."""

    batch: Batch
    bucket: IntArray
    x: FloatArray
    """x̃ of each round, (features + 1) × rounds."""
    out: FloatArray
    """The columns, which are filled in."""
    state: State
    """Of the scoring pass: takes the sums that are made along the way."""
    masses: tuple[TargetMass, ...]
    """Of each policy, for this batch."""
    controls: dict[ModelKey, FloatArray] = field(default_factory=dict)
    weights: dict[tuple[int, Weight], FloatArray] = field(default_factory=dict)
    """By policy."""

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

    def add_shares(self, tables: Mapping[int, Sequence[FloatArray]], slices: IntArray | None) -> None:
        """Add the tables of these sets."""
        parts = [self.state, *(part for part, _ in self._slices(slices))]
        for table, sums in tables.items():
            for part, values in zip(parts, sums, strict=True):
                part["tables"][table] += values

    def add_weight_tables(self, tables: Sequence[TableKey], sampled: slice) -> None:
        """Add the tables of weights, over the first rows."""
        batch, x = self.batch.take(sampled), self.x[:, sampled] * self.omega[sampled]
        for part, rows in self._slices(batch.slice_code):
            part["table_rows"] += x[-1, rows].sum()
        for index, key in enumerate(tables):
            if isinstance(key, WeightTable):
                weighted = x * self.weights[key.policy, key.weight][sampled]
                self.state["tables"][index] += _by_action(weighted, batch.codes, batch.n_actions)
                for part, rows in self._slices(batch.slice_code):
                    part["tables"][index] += _by_action(weighted[:, rows], batch.codes[rows], batch.n_actions)

    def _slices(self, slices: IntArray | None) -> Iterator[tuple[State, IntArray]]:
        """Each slice that has tables, with its rows."""
        if slices is not None and len(self.state["tables"]):
            for s in np.unique(slices):
                if len(self.state["slices"][str(s)]["tables"]):
                    yield self.state["slices"][str(s)], np.flatnonzero(slices == s)


def _by_action(columns: FloatArray, action: IntArray, n_actions: int) -> FloatArray:
    """Sums of each column over the rows of each action: actions × columns."""
    return np.column_stack([np.bincount(action, column, n_actions) for column in columns])


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


class BlockStatistic(Protocol):
    """What is summed over scored rounds: a diagnostic, for one."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State: ...

    def merge(self, a: State, b: State) -> State: ...
