"""Policies of lists: the probability of each item in each slot, given the items above it or whatever they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.hashing import mix, uniform
from offpolicy.core.threads import checkpoint
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.slate import PaddedColumn, Slate, as_lists, slate
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.policies.placements import (
    all_marginals,
    marginals_without_replacement,
    placements_without_replacement,
)

MOST_INTEGRATED = 32
"""The largest number of items whose probabilities of standing in a slot are integrated where only means are needed."""
LEAST_REMAINING = 1e-6
"""Below this share of their sum, what remains of the weights is summed again instead of subtracted."""


@dataclass(frozen=True)
class ItemWeights:
    """The probabilities of all items in every slot of some lists, up to a factor.

    Given the items above it, slot k holds item a with probability v_ka / Σ v_kb, where the sum runs over all items, or
    without replacement over those that do not stand above it.

    Parameters
    ----------
    values : array of float
        Rounds × items if all slots share them, otherwise rounds × slots × items.
    without_replacement : bool
        Whether an item is shown at most once in a list.
    logs : array of float, optional
        The logarithms of the values up to a constant, for values too small to be told from 0.
    """

    values: FloatArray
    without_replacement: bool
    logs: FloatArray | None = None

    def take(self, rows: slice) -> ItemWeights:
        """Neighbouring rounds."""
        return replace(self, values=self.values[rows], logs=None if self.logs is None else self.logs[rows])

    def of(self, slot: int) -> FloatArray:
        """Rounds × items: the values of one slot."""
        values: FloatArray = self.values if self.values.ndim == 2 else self.values[:, slot]
        return values

    @cached_property
    def totals(self) -> FloatArray:
        """Rounds × 1, or rounds × slots: the sums over all items."""
        totals: FloatArray = self.values.sum(axis=-1).reshape(len(self.values), -1)
        return totals

    def logged(self, codes: IntArray) -> FloatArray:
        """Rounds × slots: the values of some lists; 0 where a list has no item."""
        at = np.maximum(codes, 0)
        if self.values.ndim == 2:
            taken = np.take_along_axis(self.values, at, axis=1)
        else:
            taken = np.take_along_axis(self.values, at[:, :, None], axis=2)[:, :, 0]
        return np.where(codes >= 0, taken, 0.0)

    def remaining(self, codes: IntArray) -> FloatArray:
        """Rounds × slots: the sum of what can stand in each slot, given the items above it."""
        if not self.without_replacement:
            return np.broadcast_to(self.totals, codes.shape)
        values = self.logged(codes)
        left: FloatArray = self.totals - (np.cumsum(values, axis=1) - values)
        return left

    def lost(self, codes: IntArray) -> IntArray:
        """The rounds in which so little remains that a difference would have lost its digits."""
        if not self.without_replacement:
            return np.empty(0, np.int64)
        little = (self.remaining(codes) < LEAST_REMAINING * self.totals) & (codes >= 0)
        return np.flatnonzero(little.any(axis=1))

    def above(self, codes: IntArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """For each slot, the values of the items that can stand there given those above it, and their sum.

        Parameters
        ----------
        codes : array of int
            Rounds × slots: some lists.

        Yields
        ------
        tuple of array of float
            Rounds × items, which the next slot overwrites, and one sum per round.
        """
        if not self.without_replacement:
            yield from ((self.of(k), np.broadcast_to(self.totals, codes.shape)[:, k]) for k in range(codes.shape[1]))
            return
        left, sums, lost = self.values.copy(), self.remaining(codes), self.lost(codes)
        row = np.arange(len(codes))
        for k, items in enumerate(codes.T):
            sum_ = sums[:, k].copy()
            for r in lost:
                left[r] = self._rescaled(int(r), codes[r, :k])
                sum_[r] = left[r].sum()
            yield left, sum_
            there = items >= 0
            left[row[there], items[there]] = 0.0

    def _rescaled(self, row: int, taken: IntArray) -> FloatArray:
        """The values of one round without some items, so that the largest is 1."""
        with np.errstate(divide="ignore"):
            logs = (np.log(self.values[row]) if self.logs is None else self.logs[row]).copy()
        logs[taken[taken >= 0]] = -np.inf
        top = logs.max()
        return np.exp(logs - top) if np.isfinite(top) else np.zeros_like(logs)

    def conditional(self, codes: IntArray) -> FloatArray:
        """Rounds × slots: the probability of each item given those above it; 1 where a list has no item."""
        with np.errstate(divide="ignore", invalid="ignore"):
            p = self.logged(codes) / self.remaining(codes)
        for row in self.lost(codes):
            p[row] = self._one_by_one(int(row), codes[row])
        p[codes < 0] = 1.0
        return p

    def _one_by_one(self, row: int, codes: IntArray) -> FloatArray:
        """The same for one round, from logarithms."""
        p = np.ones(len(codes))
        for k, code in enumerate(codes[codes >= 0]):
            left = self._rescaled(row, codes[:k])
            p[k] = left[code] / left.sum() if left.any() else 0.0
        return p

    def placed(self, slots: int) -> Iterator[FloatArray]:
        """For each slot, the probability of every item, whatever the other slots hold: rounds × items."""
        if self.without_replacement:
            yield from all_marginals(self.values, slots)
            return
        totals = np.broadcast_to(self.totals, (len(self.values), slots))
        yield from (self.of(k) / totals[:, k : k + 1] for k in range(slots))

    def expected(self, slots: int, unit: UInt64Array, seed: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """For each slot, values and their sum, whose quotients have the marginal probabilities of items as their means.

        Of many items without replacement, these are their probabilities given the items above them in a list that is drawn
        for each round, from the hash of its unit: an integral for each would take much longer.

        Parameters
        ----------
        slots : int
            The number of slots.
        unit : array of uint64
            The unit of each round.
        seed : int
            Determines the lists that are drawn.

        Yields
        ------
        tuple of array of float
            Rounds × items, which the next slot overwrites, and one sum per round.
        """
        if self.without_replacement and self.values.shape[1] > MOST_INTEGRATED:
            yield from self.above(self._raced(slots, unit, seed))
        else:
            ones = np.ones(len(self.values))
            yield from ((p, ones) for p in self.placed(slots))

    def _raced(self, slots: int, unit: UInt64Array, seed: int) -> IntArray:
        """One list per round: every item arrives after an exponential time with its value as the rate."""
        of_item = mix(np.arange(self.values.shape[1], dtype=np.uint64))
        times = uniform(unit[:, None] ^ of_item, seed, "lists")
        np.subtract(1.0, times, out=times)
        np.log(times, out=times)
        with np.errstate(divide="ignore"):
            np.divide(times, self.values, out=times)  # minus the times
        first = np.argpartition(times, -slots, axis=1)[:, -slots:]
        order = np.argsort(-np.take_along_axis(times, first, axis=1), axis=1)
        return np.take_along_axis(first, order, axis=1)

    def drawn(self, slots: int, unit: UInt64Array, seed: int) -> IntArray:
        """Rounds × slots: one list per round, from the hash of its unit."""
        if self.without_replacement:
            return self._raced(slots, unit, seed)
        lists = np.empty((len(self.values), slots), np.int64)
        for k in range(slots):
            up_to = np.cumsum(self.of(k), axis=1)
            level = uniform(unit, seed, f"slot {k}") * up_to[:, -1]
            lists[:, k] = np.minimum((up_to <= level[:, None]).sum(axis=1), up_to.shape[1] - 1)
        return lists

    def marginals(self, codes: IntArray) -> FloatArray:
        """Rounds × slots: the probability that the logged item stands in its slot; 1 where a list has no item."""
        if self.without_replacement:
            return marginals_without_replacement(self.values, codes)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = self.logged(codes) / self.totals
        p[codes < 0] = 1.0
        return p

    def placements(self, codes: IntArray) -> FloatArray:
        """Rounds × slots × slots: the probability that the item logged in slot k stands in slot j."""
        if self.without_replacement:
            return placements_without_replacement(self.values, codes)
        at = np.maximum(codes, 0)
        return np.stack([np.take_along_axis(p, at, axis=1) for p in self.placed(codes.shape[1])], axis=2)

    def draw(self, slots: int, rng: np.random.Generator) -> IntArray:
        """One list per round: rounds × slots."""
        if self.without_replacement:
            with np.errstate(divide="ignore"):
                logs = np.log(self.values) if self.logs is None else self.logs
            noisy = logs + rng.gumbel(size=logs.shape)  # the largest ones, in their order, are a draw (Gumbel)
            best = np.argpartition(-noisy, slots - 1, axis=1)[:, :slots] if slots < noisy.shape[1] else None
            best = np.argsort(-noisy, axis=1)[:, :slots] if best is None else best
            return np.take_along_axis(best, np.argsort(-np.take_along_axis(noisy, best, axis=1), axis=1), axis=1)
        drawn = np.empty((len(self.values), slots), np.int64)
        for k in range(slots):
            up_to = np.cumsum(self.of(k), axis=1)
            level = rng.random(len(up_to)) * up_to[:, -1]
            drawn[:, k] = np.minimum((up_to <= level[:, None]).sum(axis=1), up_to.shape[1] - 1)
        return drawn


class ListPolicy(Policy):
    """Base of policies of lists. A subclass gives the weights of all items, or only the probabilities of logged items."""

    spaces = (Slate,)

    @property
    def whole(self) -> bool:
        return False

    @property
    def gives_items(self) -> bool:
        """Whether the probabilities of items that were not logged are known."""
        return True

    @property
    def gives_marginals(self) -> bool:
        """Whether the probability of an item in a slot is known whatever stands above it."""
        return True

    @property
    def factored(self) -> bool:
        """Whether slots do not depend on each other, so that conditional and marginal probabilities are the same."""
        return False

    @abstractmethod
    def weights(self, batch: Batch) -> ItemWeights:
        """The weights of all items, from which everything else follows.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of lists.

        Returns
        -------
        ItemWeights
            Probabilities of all items, up to a factor, for a block of rounds.
        """

    def slots(self, batch: Batch) -> FloatArray:
        """The probability of each logged item given those above it.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of lists.

        Returns
        -------
        array of float
            Rounds × slots; 1 where the list has no item.
        """
        return self._in_blocks(batch, ItemWeights.conditional)

    def slots_of(self, batch: Batch, weights: ItemWeights) -> FloatArray:  # noqa: ARG002
        """The same, where the weights of all items have been computed.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of lists.
        weights : ItemWeights
            What `weights` returned for them.

        Returns
        -------
        array of float
            Rounds × slots; 1 where the list has no item.
        """
        return self.slots(batch)

    def marginals(self, batch: Batch) -> FloatArray:
        """The probability of each logged item in its slot, whatever the other slots hold.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of lists.

        Returns
        -------
        array of float
            Rounds × slots; 1 where the list has no item.
        """
        return self.slots(batch) if self.factored else self._in_blocks(batch, ItemWeights.marginals)

    def items(self, batch: Batch) -> list[FloatArray]:
        """The probability of every item in each slot, whatever the other slots hold.

        Parameters
        ----------
        batch : Batch
            A block of rounds of a log of lists.

        Returns
        -------
        list of array of float
            For each slot, rounds × items.
        """
        return list(self.weights(batch).placed(_sizes(batch)[0]))

    def placements(self, batch: Batch) -> FloatArray:
        """The probability of each logged item in every slot, whatever the other slots hold.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of lists.

        Returns
        -------
        array of float
            Rounds × slots × slots: entry (i, k, j) is the probability that the item logged in slot k stands in slot j.
        """
        slots, items = _sizes(batch)
        out = np.empty((len(batch), slots, slots))
        for rows in blocks(len(batch), items):
            checkpoint()
            block = batch.take(rows)
            out[rows] = self.weights(block).placements(block.action)
        return out

    def likelihood(self, batch: Batch) -> FloatArray:
        likelihood: FloatArray = self.slots(batch).prod(axis=1)
        return likelihood

    def draw(self, batch: Batch, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Draw one list per round, as long as there are slots.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of lists.
        rng : Generator
            NumPy's source of random numbers.

        Returns
        -------
        codes : array of int
            Rounds × slots.
        probabilities : array of float
            Of each item given those above it.
        """
        slots, items = _sizes(batch)
        codes, p = np.empty((len(batch), slots), np.int64), np.empty((len(batch), slots))
        for rows in blocks(len(batch), items):
            weights = self.weights(batch.take(rows))
            codes[rows] = weights.draw(slots, rng)
            p[rows] = weights.conditional(codes[rows])
        return codes, p

    def distribution(self, batch: Batch) -> FloatArray:  # noqa: ARG002
        raise InputError(f"{type(self).__name__} is a policy of lists, and lists are too many to give one probability each.")

    def _in_blocks(self, batch: Batch, of: Callable[[ItemWeights, IntArray], FloatArray]) -> FloatArray:
        out = np.empty(batch.action.shape)
        for rows in blocks(len(batch), _sizes(batch)[1]):
            checkpoint()
            block = batch.take(rows)
            out[rows] = of(self.weights(block), block.action)
        return out


@final
class SlotColumn(ListPolicy):
    """A policy of lists of which only the probabilities of the logged items, given those above them, are known."""

    def __init__(self, name: str | None, values: Any = None) -> None:
        self._name, self._values = name, values

    def __repr__(self) -> str:
        return f"Column({self._name!r})" if self._name is not None else "Column(an array)"

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self._name is None else (self._name,)

    @property
    def gives_items(self) -> bool:
        return False

    @property
    def gives_marginals(self) -> bool:
        return False

    def check(self, log: Log) -> None:
        if self._name is None and self._values is None:
            raise InputError("Column: give one list of probabilities per round for a log of lists.")
        if self._values is not None:
            log.check_ordered("Column", "Put the probabilities into the DataFrame and give the name of the column.")
        if self._values is not None and len(self._values) != log.source.rows:
            raise InputError(f"Column: {len(self._values):,} rows of probabilities for {log.source.rows:,} rounds.")

    def slots(self, batch: Batch) -> FloatArray:
        if self._name is None:
            values = as_lists(self._values, "Column", codes=False).take(pa.array(batch.row))
        else:
            values = batch.extra[self._name]
        column = PaddedColumn.of(self._name or "Column", values, _sizes(batch)[0])
        try:
            return column.probabilities(batch.action)
        except RowsError as error:
            raise RowsError(error.column, error.what, batch.row[error.rows], error.advice) from None

    def weights(self, batch: Batch) -> ItemWeights:  # noqa: ARG002
        raise InputError("a Column policy has the probabilities of the logged items only.")


def _sizes(batch: Batch) -> tuple[int, int]:
    """The numbers of slots and of items."""
    space = slate(batch.space, "a policy of lists")
    return space.slots, space.items.n_actions


def refuse_repeats(batch: Batch, policy: str) -> None:
    """Raise if an item stands twice in a list, which a policy without replacement never shows."""
    codes = batch.action
    for k in range(1, codes.shape[1]):
        twice = ((codes[:, :k] == codes[:, k : k + 1]) & (codes[:, k : k + 1] >= 0)).any(axis=1)
        if twice.any():
            raise RowsError(
                "action", f"have an item twice (the second in slot {k + 1})", batch.row[twice],
                f"{policy} shows each item at most once: correct the lists, or use op.Factored if items may repeat.",
            )  # fmt: skip
