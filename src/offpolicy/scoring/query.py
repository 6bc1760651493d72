"""Asking a policy about the rounds of a batch: for all actions, for those it lists, or for sums and a few actions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.models.rewards.base import LinearPredictor, Predictor
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import BLOCK_ELEMENTS, Grid, Listed, Lists, blocks
from offpolicy.ratios.base import FittedRatio
from offpolicy.ratios.pools import BlockRows, Pool, Sides, near_actions, unseen
from offpolicy.scoring.baselines import Baselines, Probabilities
from offpolicy.scoring.batch_work import BatchWork
from offpolicy.scoring.kernel import BlockInput, Kernel
from offpolicy.scoring.plan import BaselineColumn, ModelKey, Plan

Mode = Literal["grid", "lists", "apart"]
APART_ROWS = 4_096
"""Rounds for which a policy is asked at a time where it answers with sums."""
MASS_ELEMENTS = 1 << 21
Logged = tuple[FloatArray, FloatArray | None]
"""π of the logged actions, and π0 of them where the whole logging policy was asked."""


@dataclass(frozen=True)
class Groups:
    """How finely units are grouped, and in how many of the first groups tables and masses are summed."""

    count: int
    tables: int
    """Tables, which only say how large the fit's error is, are summed over the rows of these first groups."""
    mass: int
    """And where the target's mass lies over the rows of these."""


@dataclass(frozen=True)
class Query:
    """How one policy is asked, and what its answers are for."""

    index: int
    policy: Policy
    logging: Policy | None
    """The logging policy, where it is known as a whole."""
    plan: Plan
    models: Mapping[ModelKey, Sequence[Predictor]]
    origin: FloatArray
    ratios: Sequence[FittedRatio]
    """Those that sum over all actions."""
    groups: Groups
    many: bool
    kernel: Kernel

    @cached_property
    def baselines(self) -> list[BaselineColumn]:
        keys = (key for key in self.plan.columns if isinstance(key, BaselineColumn))
        return [key for key in keys if key.policy == self.index]

    @cached_property
    def asks_logging(self) -> bool:
        """Whether the whole logging policy is asked for every round."""
        return self.logging is not None and (bool(self.ratios) or any(key.clip is not None for key in self.baselines))

    @cached_property
    def mode(self) -> Mode:
        """How the policy is asked: for all actions; for those it lists; or for sums, with ratios of near actions alone."""
        linear = all(isinstance(m, LinearPredictor) for key in self.baselines for m in self.models[key.model])
        if not linear or any(ratio.needs_grid for ratio in self.ratios):
            return "grid"
        if self.policy.lists and (not self.asks_logging or (self.logging is not None and self.logging.lists)):
            return "lists"
        clipped = any(key.clip is not None for key in self.baselines)
        near = all(ratio.nearest_suffice for ratio in self.ratios)
        return "apart" if self.many and near and not clipped else "grid"

    def answer(self, work: BatchWork, pools: Sequence[Pool]) -> Logged:
        """Ask for all actions, block by block; fill in baselines and pools."""
        batch, lists = work.batch, self.mode == "lists"
        chance = np.empty(len(batch))
        logged = np.empty(len(batch)) if self.asks_logging else None
        target = self.policy.listed(batch) if lists else None
        logging = self.logging.listed(batch) if lists and self.asks_logging and self.logging is not None else None
        # What is not kept by group needs none.
        each = math.lcm(1, *self.plan.folds) if self.mode == "apart" else self.groups.count
        for part, run in work.runs(each):
            group = part * (self.groups.count // each)
            for rows in self._blocks(run, target, batch.n_actions):
                block = Block(self, work, self._rounds(work, rows, group), self._baselines(group), pools)
                if self.mode == "apart":
                    chances = block.apart()
                elif target is not None:
                    chances = block.listed(target.take(rows), None if logging is None else logging.take(rows))
                else:
                    chances = block.grid()
                chance[rows] = chances[0]
                if logged is not None and chances[1] is not None:
                    logged[rows] = chances[1]
        return chance, logged

    def _rounds(self, work: BatchWork, rows: slice, group: int) -> BlockRows:
        sampled = not self.many and group < self.groups.tables
        return BlockRows(rows, work.batch.take(rows), group, self.groups.count, sampled)

    def _blocks(self, run: slice, target: Listed | None, n_actions: int) -> Iterator[slice]:
        """Runs of rows whose work stays small: by the actions that are listed, or by all of them."""
        rows = run.stop - run.start
        if self.mode == "apart":
            edges: Sequence[int] = [*range(run.start, run.stop, APART_ROWS), run.stop]
        elif target is not None:
            entries = target.starts[run.start : run.stop + 1]
            count = max(1, -(-int(entries[-1] - entries[0]) // BLOCK_ELEMENTS))
            steps = np.searchsorted(entries, np.linspace(entries[0], entries[-1], count + 1)[1:-1])
            edges = [run.start, *(run.start + np.unique(steps[(steps > 0) & (steps < rows)])).tolist(), run.stop]
        else:
            return (slice(run.start + block.start, run.start + block.stop) for block in blocks(rows, n_actions))
        return (slice(a, b) for a, b in itertools.pairwise(edges))

    def _baselines(self, group: int) -> Baselines:
        """Those of the folds that a group is in."""
        folds = tuple((key, group * (key.model.folds or 1) // self.groups.count) for key in self.baselines)
        if folds not in self._by_folds:
            self._by_folds[folds] = Baselines.of(self.plan, self.models, self.origin, self.index, folds)
        return self._by_folds[folds]

    @cached_property
    def _by_folds(self) -> dict[tuple[tuple[BaselineColumn, int], ...], Baselines]:
        return {}


@dataclass(frozen=True)
class Block:
    """Some rounds for which a policy is asked."""

    query: Query
    work: BatchWork
    rounds: BlockRows
    baselines: Baselines
    pools: Sequence[Pool]

    @cached_property
    def _x(self) -> FloatArray:
        return self.work.x[:, self.rounds.rows]

    @cached_property
    def _omega(self) -> FloatArray:
        return self.work.omega[self.rounds.rows]

    @property
    def _massed(self) -> bool:
        return self.rounds.group < self.query.groups.mass

    def grid(self) -> Logged:
        """π of all actions."""
        q, batch = self.query, self.rounds.batch
        pi, loose = q.policy.proportional(batch)
        asked = q.asks_logging or self._massed
        pi0 = q.logging.probabilities(batch) if asked and q.logging is not None else None
        if loose and not (self.baselines.only_linear and pi0 is None):
            pi, loose = pi / pi.sum(axis=1, keepdims=True), False
        return self._sum(Probabilities(Grid(batch.codes), pi, pi0, loose))

    def listed(self, target: Listed, logging: Listed | None) -> Logged:
        """π of the actions that a policy lists (or the logging policy does)."""
        q, batch = self.query, self.rounds.batch
        both = [target] if logging is None else [target, logging]
        layout, chances = Lists.union(batch.codes, batch.n_actions, *both)
        pi0 = chances[1] if logging is not None else None
        if pi0 is None and self._massed and q.logging is not None:
            pi0 = q.logging.entries(batch, layout.row, layout.codes)
        return self._sum(Probabilities(layout, chances[0], pi0))

    def _sum(self, probabilities: Probabilities) -> Logged:
        """Have the kernel sum over the actions, and keep what it gives."""
        rounds, kept, slices = self.rounds, self.work.kept, self.rounds.batch.slice_code
        tables = kept.sets(slices) if rounds.sampled else []
        pools = [(pool.pooling(rounds), pool.multipliers(rounds)) for pool in self.pools]
        sums = self.query.kernel.sums(
            BlockInput(rounds, probabilities, self._x, self._omega, self.baselines, pools, self._massed, tables)
        )
        self._keep(sums.baselines)
        for pool, own in zip(self.pools if sums.pools else (), sums.pools, strict=True):
            pool.add(rounds, own)
        if sums.mass is not None:
            kept.masses[self.query.index].add(sums.mass)
        kept.add_shares(sums.tables, slices)
        return sums.target, sums.logging

    def _keep(self, baselines: Mapping[int, FloatArray]) -> None:
        for column, values in baselines.items():
            self.work.out[column, self.rounds.rows] = values

    def apart(self) -> Logged:
        """Sums over π, and the chances of logged actions and of those near them."""
        q, rounds, batch = self.query, self.rounds, self.rounds.batch
        poolings = [pool.pooling(rounds) for pool in self.pools]
        near = [near_actions(pooling, batch) for pooling in poolings]
        row, code, back = _together([Lists.of_each(batch.codes, batch.n_actions, batch.codes[:, None]), *near])
        parts = [part for part in self.baselines.parts if part.columns]
        new = [unseen(pooling) for pooling in poolings]
        tables = np.hstack([_no_columns(batch), *(part.by_action for part in parts), *new])
        sums, chances = q.policy.answers(batch, tables, row, code)
        edges = np.cumsum([0, *(part.by_action.shape[1] for part in parts)])
        for part, (start, stop) in zip(parts, itertools.pairwise(edges), strict=True):
            self._keep(part.from_product(self._x, sums[:, start:stop].T))
        pi = [chances[some] for some in back]
        if self._massed:
            self._add_mass()
        if not q.asks_logging or q.logging is None:
            return pi[0], None
        sums0, chances = q.logging.answers(batch, np.hstack([_no_columns(batch), *new]), row, code)
        pi0 = [chances[some] for some in back]
        ends = np.cumsum([0, *(table.shape[1] for table in new)])
        for k, (start, stop) in enumerate(itertools.pairwise(ends)):
            masses = sums[:, edges[-1] :][:, start:stop], sums0[:, start:stop]
            sides = Sides(pi[1 + k], pi0[1 + k], near[k], (pi[0], pi0[0]))
            self.pools[k].add(rounds, q.kernel.near(poolings[k], rounds, sides, masses))
        return pi[0], pi0[0]

    def _add_mass(self) -> None:
        """Where the mass lies, from all actions of a few rounds."""
        q, few = self.query, slice(0, max(1, MASS_ELEMENTS // self.rounds.batch.n_actions))
        shown = self.rounds.batch.take(few)
        pi0 = None if q.logging is None else q.logging.probabilities(shown)
        shares = Probabilities(Grid(shown.codes), q.policy.probabilities(shown), pi0)
        self.work.kept.masses[q.index].add(q.kernel.mass(shares, self._omega[few], self._omega[few]))


def _no_columns(batch: Batch) -> FloatArray:
    return np.empty((batch.n_actions, 0))


def _together(lists: Sequence[Lists]) -> tuple[IntArray, IntArray, list[IntArray]]:
    """Several lists as one, rounds ascending, and where the entries of each are in it."""
    row, code = (np.concatenate([getattr(each, name) for each in lists]) for name in ("row", "codes"))
    order = np.argsort(row, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    edges = np.cumsum([0, *(len(each.codes) for each in lists)])
    return row[order], code[order], [back[a:b] for a, b in itertools.pairwise(edges)]
