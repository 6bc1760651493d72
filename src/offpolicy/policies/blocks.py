"""Probabilities and shares of a block of rounds: a grid of rounds × actions, or only the few actions that are listed.

Both have the same methods, so that their users are written once: sums over the actions of each round, the value of the
logged action, one number per round beside the values of its actions, and products with tables by action and by round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray, sums_by

ENTRIES_AT_ONCE = 1 << 15
BLOCK_ELEMENTS = 1 << 18
"""Elements of a rounds × actions block: 2 MB, so that a block stays in the cache of a core."""


_one_block: ContextVar[bool] = ContextVar("_one_block", default=False)


@contextmanager
def in_one_block() -> Iterator[None]:
    """Let `blocks` return one block, for policies that are evaluated for whole batches."""
    token = _one_block.set(True)
    try:
        yield
    finally:
        _one_block.reset(token)


def blocks(rows: int, n_actions: int, elements: int = BLOCK_ELEMENTS) -> Iterator[slice]:
    """Neighbouring rows, in slices of about equal length, whose rounds × actions block stays small."""
    return even_slices(rows, min(1 if _one_block.get() else -(-rows * n_actions // elements), rows))


def even_slices(rows: int, count: int) -> Iterator[slice]:
    """`count` neighbouring slices of about equal length."""
    return (slice(a, b) for a, b in pairwise(rows * k // max(count, 1) for k in range(count + 1)))


@dataclass(frozen=True)
class ActionLists:
    """Some actions of each round. `starts` (rounds + 1) has the start of each round's list and the end of the last one."""

    starts: IntArray
    codes: IntArray

    @cached_property
    def row(self) -> IntArray:
        """The round of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


@dataclass(frozen=True)
class Listed(ActionLists):
    """The few actions of each round with positive probability, each once, and their probabilities; no list is empty."""

    probabilities: FloatArray

    def take(self, rows: slice) -> Listed:
        """Neighbouring rounds."""
        first, last = self.starts[rows.start], self.starts[rows.stop]
        starts = self.starts[rows.start : rows.stop + 1] - first
        return Listed(starts, self.codes[first:last], self.probabilities[first:last])

    def grid(self, n_actions: int) -> FloatArray:
        """Rounds × actions."""
        rounds = len(self.starts) - 1
        at = self.row * n_actions + self.codes
        return sums_by(at, self.probabilities, rounds * n_actions).reshape(rounds, n_actions)

    def answers(self, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        """What `Policy.answers` returns, without an array of entries × columns."""
        sums = _sparse(self, self.probabilities, len(values)) @ values
        return np.asarray(sums, dtype=np.float64), self.at(len(values), row, code)

    def at(self, n_actions: int, row: IntArray, code: IntArray) -> FloatArray:
        """π of some (round, action); 0 where the list of the round does not name the action."""
        out = np.zeros(len(row))
        if len(row) == len(self.starts) - 1 and np.array_equal(row, np.arange(len(row))):  # one action per round
            at = np.flatnonzero(self.codes == code[self.row])
            out[self.row[at]] = self.probabilities[at]
            return out
        key = self.row * n_actions + self.codes
        order = np.argsort(key)
        requested = row * n_actions + code
        at = np.minimum(np.searchsorted(key, requested, sorter=order), len(key) - 1)
        listed = key[order[at]] == requested
        out[listed] = self.probabilities[order[at[listed]]]
        return out


@dataclass(frozen=True)
class Grid:
    """Values of all actions, rounds × actions; `action` has the logged action of each round."""

    action: IntArray

    def dot(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Σ_a a·b of each round."""
        return np.asarray(np.vecdot(a, b), dtype=np.float64)

    def own(self, values: FloatArray) -> FloatArray:
        """The value of the logged action."""
        logged: FloatArray = values[np.arange(len(self.action)), self.action]
        return logged

    def spread(self, rounds: FloatArray) -> FloatArray:
        """One number per round, in a shape that broadcasts with the values."""
        return rounds[:, None]

    def scores(self, points: FloatArray, weight: FloatArray, bias: FloatArray) -> FloatArray:
        """points_t·weight_a + bias_a of each value."""
        out: FloatArray = points @ weight.T
        out += bias
        return out

    def by_round(self, values: FloatArray, table: FloatArray) -> FloatArray:
        """Σ_a values·table_a of each round: rounds × columns."""
        return np.asarray(values @ table, dtype=np.float64)

    def by_action(self, values: FloatArray, rounds: FloatArray) -> FloatArray:
        """Σ_t values·rounds_t of each action: actions × columns."""
        return np.asarray((rounds.T @ values).T, dtype=np.float64)


@dataclass(frozen=True)
class Lists(ActionLists):
    """Values of some actions of each round, one round after another; `action` has the logged action of each round.

    With `near`, only actions near the logged one are listed, and others may have positive probability as well.
    """

    action: IntArray
    n_actions: int
    near: bool = False

    @cached_property
    def _logged(self) -> tuple[IntArray, IntArray]:
        """The rounds whose list holds the logged action, and the entries."""
        at = np.flatnonzero(self.codes == self.action[self.row])
        return self.row[at], at

    def dot(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(a * b, self.starts[:-1]), dtype=np.float64)

    def most(self, values: FloatArray) -> FloatArray:
        """The largest value of each round."""
        return np.asarray(np.maximum.reduceat(values, self.starts[:-1]), dtype=np.float64)

    def own(self, values: FloatArray) -> FloatArray:
        rounds, at = self._logged
        out = np.zeros(len(self.action))
        out[rounds] = values[at]
        return out

    def spread(self, rounds: FloatArray) -> FloatArray:
        return np.repeat(rounds, np.diff(self.starts))

    def scores(self, points: FloatArray, weight: FloatArray, bias: FloatArray) -> FloatArray:
        """points_t·weight_a + bias_a of each entry, computed in chunks that stay in cache."""
        out = bias[self.codes]
        for start in range(0, len(out), ENTRIES_AT_ONCE):
            some = slice(start, start + ENTRIES_AT_ONCE)
            out[some] += np.einsum("ij,ij->i", points[self.row[some]], weight[self.codes[some]])
        return out

    def by_round(self, values: FloatArray, table: FloatArray) -> FloatArray:
        return np.asarray(_sparse(self, values, self.n_actions) @ table, dtype=np.float64)

    def by_action(self, values: FloatArray, rounds: FloatArray) -> FloatArray:
        return np.asarray(_sparse(self, values, self.n_actions).T @ rounds, dtype=np.float64)

    @classmethod
    def of_each(cls, action: IntArray, n_actions: int, codes: IntArray, near: bool = False) -> Lists:
        """From the same number of actions in each round: rounds × k."""
        return cls(np.arange(len(codes) + 1) * codes.shape[1], codes.ravel(), action, n_actions, near)

    @classmethod
    def union(cls, action: IntArray, n_actions: int, *lists: Listed) -> tuple[Lists, list[FloatArray]]:
        """The union of several lists, and the probabilities of each list for its actions."""
        first = lists[0]
        if all(np.array_equal(first.starts, o.starts) and np.array_equal(first.codes, o.codes) for o in lists[1:]):
            return cls(first.starts, first.codes, action, n_actions), [each.probabilities for each in lists]
        keys = [each.row * n_actions + each.codes for each in lists]
        distinct = np.unique(np.concatenate(keys))
        row, codes = np.divmod(distinct, n_actions)
        starts = np.searchsorted(row, np.arange(len(action) + 1))
        probabilities = []
        for key, each in zip(keys, lists, strict=True):
            values = np.zeros(len(distinct))
            values[np.searchsorted(distinct, key)] = each.probabilities
            probabilities.append(values)
        return cls(starts, codes, action, n_actions), probabilities


def _sparse(lists: ActionLists, values: FloatArray, n_actions: int) -> Any:
    """Rounds × actions as a sparse matrix."""
    from scipy.sparse import csr_array

    return csr_array((values, lists.codes, lists.starts), shape=(len(lists.starts) - 1, n_actions))


Layout = Grid | Lists
