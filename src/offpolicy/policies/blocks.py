"""Chances and shares of a block of rounds: a grid of rounds × actions, or only the few actions that are listed.

Both answer to the same names, so that everything above is written once: sums over the actions of each round, the value of
the logged action, one number a round next to each action's, and products with tables by action and by round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray

ENTRIES_AT_ONCE = 1 << 15
BLOCK_ELEMENTS = 1 << 18
"""Elements of a rounds × actions block: 2 MB, so that a block stays in a core's cache while it is worked on."""


def blocks(rows: int, n_actions: int) -> Iterator[slice]:
    """Runs of rows, of about equal length, whose rounds × actions block stays small."""
    count = min(-(-rows * n_actions // BLOCK_ELEMENTS), rows)
    edges = [rows * k // max(count, 1) for k in range(count + 1)]
    return (slice(a, b) for a, b in pairwise(edges))


@dataclass(frozen=True)
class Listed:
    """The few actions of each round that have a chance, each once, and the chance of each; all others have none."""

    starts: IntArray
    """Rounds + 1: where the list of each round starts, and where the last one ends. No list is empty."""
    codes: IntArray
    chances: FloatArray

    @cached_property
    def row(self) -> IntArray:
        """The round of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def take(self, rows: slice) -> Listed:
        """Neighbouring rounds."""
        first, last = self.starts[rows.start], self.starts[rows.stop]
        return Listed(self.starts[rows.start : rows.stop + 1] - first, self.codes[first:last], self.chances[first:last])


@dataclass(frozen=True)
class Grid:
    """Values of all actions: rounds × actions."""

    action: IntArray
    """The logged action of each round."""

    def dot(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Σ_a a·b of each round."""
        return np.asarray(np.einsum("ij,ij->i", a, b), dtype=np.float64)

    def own(self, values: FloatArray) -> FloatArray:
        """Of the logged action."""
        logged: FloatArray = values[np.arange(len(self.action)), self.action]
        return logged

    def spread(self, rounds: FloatArray) -> FloatArray:
        """One number a round, in a shape that goes with the values."""
        return rounds[:, None]

    def by_round(self, values: FloatArray, table: FloatArray) -> FloatArray:
        """Σ_a values·table_a of each round: rounds × columns."""
        return np.asarray(values @ table, dtype=np.float64)

    def by_action(self, values: FloatArray, rounds: FloatArray) -> FloatArray:
        """Σ_t values·rounds_t of each action: actions × columns."""
        return np.asarray((rounds.T @ values).T, dtype=np.float64)


@dataclass(frozen=True)
class Lists:
    """Values of some actions of each round, one after the other."""

    action: IntArray
    starts: IntArray
    codes: IntArray
    n_actions: int
    near: bool = False
    """Whether only actions near the logged one are listed, and others may have a chance as well."""

    @cached_property
    def row(self) -> IntArray:
        """The round of each entry."""
        return np.repeat(np.arange(len(self.action)), np.diff(self.starts))

    @cached_property
    def _logged(self) -> tuple[IntArray, IntArray]:
        """The rounds whose list holds the logged action, and the entries."""
        at = np.flatnonzero(self.codes == self.action[self.row])
        return self.row[at], at

    def dot(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(a * b, self.starts[:-1]), dtype=np.float64)

    def most(self, values: FloatArray) -> FloatArray:
        """The largest of each round."""
        return np.asarray(np.maximum.reduceat(values, self.starts[:-1]), dtype=np.float64)

    def own(self, values: FloatArray) -> FloatArray:
        rounds, at = self._logged
        out = np.zeros(len(self.action))
        out[rounds] = values[at]
        return out

    def spread(self, rounds: FloatArray) -> FloatArray:
        return np.repeat(rounds, np.diff(self.starts))

    def scores(self, points: FloatArray, weight: FloatArray, bias: FloatArray) -> FloatArray:
        """points_t·weight_a + bias_a of each entry, some entries at a time so that what is gathered stays in cache."""
        out = bias[self.codes]
        for start in range(0, len(out), ENTRIES_AT_ONCE):
            some = slice(start, start + ENTRIES_AT_ONCE)
            out[some] += np.einsum("ij,ij->i", points[self.row[some]], weight[self.codes[some]])
        return out

    def by_round(self, values: FloatArray, table: FloatArray) -> FloatArray:
        return np.asarray(self._matrix(values) @ table, dtype=np.float64)

    def by_action(self, values: FloatArray, rounds: FloatArray) -> FloatArray:
        return np.asarray(self._matrix(values).T @ rounds, dtype=np.float64)

    def _matrix(self, values: FloatArray) -> Any:
        from scipy.sparse import csr_array

        return csr_array((values, self.codes, self.starts), shape=(len(self.action), self.n_actions))

    @classmethod
    def of_each(cls, action: IntArray, n_actions: int, codes: IntArray, near: bool = False) -> Lists:
        """The same number of actions in each round: rounds × some."""
        return cls(action, np.arange(len(codes) + 1) * codes.shape[1], codes.ravel(), n_actions, near)

    @classmethod
    def union(cls, action: IntArray, n_actions: int, *lists: Listed) -> tuple[Lists, list[FloatArray]]:
        """The actions that any of the lists names, and the chances of each list for them."""
        first = lists[0]
        if all(np.array_equal(first.starts, o.starts) and np.array_equal(first.codes, o.codes) for o in lists[1:]):
            return cls(action, first.starts, first.codes, n_actions), [each.chances for each in lists]
        keys = [each.row * n_actions + each.codes for each in lists]
        distinct = np.unique(np.concatenate(keys))
        row, codes = np.divmod(distinct, n_actions)
        starts = np.searchsorted(row, np.arange(len(action) + 1))
        chances = []
        for key, each in zip(keys, lists, strict=True):
            values = np.zeros(len(distinct))
            values[np.searchsorted(distinct, key)] = each.chances
            chances.append(values)
        return cls(action, starts, codes, n_actions), chances


Layout = Grid | Lists
