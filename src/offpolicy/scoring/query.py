"""Asking a policy about a block of rounds: for all actions, for those it lists, or for sums and a few actions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import BLOCK_ELEMENTS, Grid, Layout, Listed, Lists, blocks
from offpolicy.ratios.rounds import BlockRows, Pool, Sides
from offpolicy.scoring.baselines import Baselines, share_of
from offpolicy.scoring.tallies import Tallies

Mode = Literal["grid", "lists", "apart"]
APART_ROWS = 4_096
"""Rounds for which a policy is asked at a time where it answers with sums."""
MASS_ELEMENTS = 1 << 21


@dataclass(frozen=True)
class Query:
    """How one policy is asked."""

    index: int
    policy: Policy
    logging: Policy | None
    """The logging policy, where it is known as a whole."""
    asks_logging: bool
    """Whether that is asked for every round."""
    mode: Mode
    groups: int
    table_groups: int
    mass_groups: int

    def blocks(self, run: slice, target: Listed | None, n_actions: int) -> Iterator[slice]:
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


@dataclass(frozen=True)
class Block:
    """Some rounds for which a policy is asked: fills baselines and pools, and gives π and π0 of logged actions."""

    query: Query
    group: int
    rows: slice
    batch: Batch
    x: FloatArray
    omega: FloatArray
    out: FloatArray
    kept: Tallies
    pools: Sequence[Pool]

    @property
    def _rounds(self) -> BlockRows:
        return BlockRows(self.rows, self.batch, self.group, self.query.groups, self.group < self.query.table_groups)

    def grid(self, work: Baselines) -> tuple[FloatArray, FloatArray | None]:
        """π of all actions."""
        q, batch = self.query, self.batch
        pi, loose = q.policy.proportional(batch)
        asked = q.asks_logging or self.group < q.mass_groups
        pi0 = q.logging.probabilities(batch) if asked and q.logging is not None else None
        if loose and not (work.only_linear and pi0 is None):
            pi, loose = pi / pi.sum(axis=1, keepdims=True), False
        return self._fill(work, Grid(batch.codes), pi, pi0, loose)

    def listed(self, work: Baselines, target: Listed, logging: Listed | None) -> tuple[FloatArray, FloatArray | None]:
        """π of the actions that a policy lists (or the logging policy does)."""
        q, batch = self.query, self.batch
        both = [target] if logging is None else [target, logging]
        layout, chances = Lists.union(batch.codes, batch.n_actions, *both)
        pi0 = chances[1] if logging is not None else None
        if pi0 is None and self.group < q.mass_groups and q.logging is not None:
            pi0 = q.logging.entries(batch, layout.row, layout.codes)
        return self._fill(work, layout, chances[0], pi0, False)

    def apart(self, work: Baselines) -> tuple[FloatArray, FloatArray | None]:
        """Sums over π, and the chances of logged actions and of those near them."""
        q, batch = self.query, self.batch
        near = [pool.near(self._rounds) for pool in self.pools]
        row, code, back = _together([Lists.of_each(batch.codes, batch.n_actions, batch.codes[:, None]), *near])
        parts = [part for part in work.parts if part.columns]
        unseen = [pool.unseen(self._rounds) for pool in self.pools]
        tables = np.hstack([_no_columns(batch), *(part.by_action for part in parts), *unseen])
        sums, chances = q.policy.answers(batch, tables, row, code)
        edges = np.cumsum([0, *(part.by_action.shape[1] for part in parts)])
        for part, (start, stop) in zip(parts, itertools.pairwise(edges), strict=True):
            part.fill_from(self.out, self.x, sums[:, start:stop].T)
        pi = [chances[some] for some in back]
        if self.group < q.mass_groups:
            self._add_mass()
        if not q.asks_logging or q.logging is None:
            return pi[0], None
        sums0, chances = q.logging.answers(batch, np.hstack([_no_columns(batch), *unseen]), row, code)
        pi0 = [chances[some] for some in back]
        at = 0
        for pool, layout, u, v, table in zip(self.pools, near, pi[1:], pi0[1:], unseen, strict=True):
            columns = slice(at, at := at + table.shape[1])
            mass = (sums[:, edges[-1] :][:, columns], sums0[:, columns])
            pool.fill_near(self._rounds, Sides(u, v, layout, (pi[0], pi0[0])), mass)
        return pi[0], pi0[0]

    def _add_mass(self) -> None:
        """Where the mass lies, from all actions of a few rounds."""
        few = slice(0, max(1, MASS_ELEMENTS // self.batch.n_actions))
        shown, q = self.batch.take(few), self.query
        pi, layout = q.policy.probabilities(shown), Grid(shown.codes)
        sides = None if q.logging is None else Sides(pi, q.logging.probabilities(shown), layout)
        self.kept.add_mass(q.index, self.omega[few], self.omega[few], pi, layout, sides)

    def _fill(
        self, work: Baselines, layout: Layout, pi: FloatArray, pi0: FloatArray | None, loose: bool
    ) -> tuple[FloatArray, FloatArray | None]:
        q, batch = self.query, self.batch
        scale = work.fill(self.out, batch, self.x, pi, pi0, layout, loose)
        sides = None if pi0 is None else Sides(pi, pi0, layout)
        if sides is not None:
            for pool in self.pools:
                pool.fill(self._rounds, sides)
        counted = self.omega * scale
        if self.group < q.mass_groups:
            self.kept.add_mass(q.index, self.omega, counted, pi, layout, sides)
        if self.group < q.table_groups:
            for part in work.parts:
                if part.table is not None:
                    share = share_of(pi, pi0, part.clip)
                    self.kept.add_share(part.table, share, layout, self.x * counted, batch.slice_code)
        return layout.own(pi) * scale, None if pi0 is None else layout.own(pi0)


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
