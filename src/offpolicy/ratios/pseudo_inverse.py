"""The weights of the pseudo-inverse estimator, for logging policies that show each item at most once.

A reward of the list that adds up over (item, slot) is a vector φ with E[R | x, s] = φᵀ1_s, where 1_s marks the K pairs that
the list s consists of. With Γ = E_π0[1_s 1_sᵀ | x] and q = E_π[1_s | x], the weight qᵀΓ⁺1_s gives φᵀq on average. If every
list is equally likely, Γ has the eigenvalues K/A, (A − K)/(A(A − 1)) and 1/(A − 1) for A items, and the weight is a sum over
the logged items; otherwise Γ is summed over all lists.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.threads import checkpoint
from offpolicy.data.batch import Batch
from offpolicy.data.slate import shown
from offpolicy.policies.blocks import blocks
from offpolicy.policies.lists import ItemWeights, ListPolicy
from offpolicy.ratios.sides import SlotSides

MOST_LISTS = 100_000
"""The largest number of lists that Γ is summed over."""
EQUAL = 1e-9
"""Relative differences of probabilities below which items count as equally likely."""
SINGULAR = 1e-9
"""Eigenvalues of Γ below this share of the largest count as 0."""


def pseudo_inverse_weights(sides: SlotSides) -> FloatArray:
    """qᵀΓ⁺1_s of each logged list."""
    logging = sides.logged.logging
    assert logging is not None
    batch, lengths = sides.batch, shown(sides.batch).sum(axis=1)
    out = np.ones(len(batch))
    n_items = batch.space.n_codes
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        for part in blocks(len(rows), n_items * (batch.space.slots or 1)):
            checkpoint()
            some = batch.take(rows[part])
            old = logging.weights(some)
            listed = _Lists(some, int(length), old.values, sides.target)
            out[rows[part]] = listed.weights(sides.target.weights(some))
    return out


@dataclass(frozen=True)
class _Lists:
    """Logged lists of one length, with the rates of all items under the logging policy."""

    batch: Batch
    length: int
    rates: FloatArray
    target: ListPolicy

    @property
    def codes(self) -> IntArray:
        """Rounds × slots."""
        return self.batch.action[:, : self.length]

    @cached_property
    def items(self) -> list[FloatArray]:
        """For each slot, rounds × items: the probabilities under the target policy."""
        return self.target.items(self.batch)[: self.length]

    @cached_property
    def _eligible(self) -> npt.NDArray[np.bool_]:
        eligible: npt.NDArray[np.bool_] = self.rates > 0
        return eligible

    @cached_property
    def _even(self) -> npt.NDArray[np.bool_]:
        """The rounds in which all eligible items are equally likely."""
        top = self.rates.max(axis=1)
        least = np.where(self._eligible, self.rates, np.inf).min(axis=1)
        even: npt.NDArray[np.bool_] = top - least <= EQUAL * top
        return even

    def weights(self, target: ItemWeights) -> FloatArray:
        out = np.empty(len(self.codes))
        if self._even.any():
            out[self._even] = self._closed(self._even)
        uneven = np.flatnonzero(~self._even)
        alike: dict[tuple[bytes, bytes], list[int]] = {}
        for row in uneven:
            key = (self.rates[row].tobytes(), np.ascontiguousarray(target.values[row]).tobytes())
            alike.setdefault(key, []).append(int(row))
        for several in alike.values():
            out[several] = self._summed(np.array(several), target)
        return out

    def _closed(self, rows: npt.NDArray[np.bool_]) -> FloatArray:
        """Where every list is equally likely."""
        slots = self.codes.shape[1]
        eligible = self._eligible[rows]
        a = eligible.sum(axis=1).astype(np.float64)
        # (Γ⁺q)ᵀ1_s by the eigenspaces: 1, differences of items in all slots alike, and what is left of each slot.
        placed = self.target.placements(self.batch.take(np.flatnonzero(rows)))[:, :slots, :slots]
        surplus = placed - 1 / a[:, None, None]
        own = np.einsum("nkk->n", surplus)
        shared = surplus.mean(axis=2).sum(axis=1)
        common = np.where(a > slots, a * (a - 1) / np.maximum(a - slots, 1), 0.0)
        weights: FloatArray = 1 + (a - 1) * (own - shared) + common * shared
        return weights

    def _summed(self, rows: IntArray, target: ItemWeights) -> FloatArray:
        """For rounds with the same probabilities: Γ is a sum over all lists of the eligible items."""
        items, slots = np.flatnonzero(self._eligible[rows[0]]), self.codes.shape[1]
        lists = _permutations(len(items), slots)
        gamma = _gamma(_probabilities(self.rates[rows[0], items], lists), lists, len(items))
        if target.without_replacement:
            q = _marginals(_probabilities(target.values[rows[0], items], lists), lists, len(items))
        else:
            q = np.concatenate([p[rows[0], items] for p in self.items])
        values, vectors = np.linalg.eigh(gamma)
        kept = values > SINGULAR * values.max()
        z = (vectors[:, kept] * (1 / values[kept])) @ (vectors[:, kept].T @ q)
        position = np.searchsorted(items, self.codes[rows])
        weights: FloatArray = z.reshape(slots, -1)[np.arange(slots), position].sum(axis=1)
        return weights


@lru_cache(maxsize=4)
def _permutations(items: int, slots: int) -> IntArray:
    """All lists without repetition: lists × slots."""
    if math.perm(items, slots) > MOST_LISTS:
        raise InputError(
            f"PI: {items} items in {slots} slots make {math.perm(items, slots):,} lists, and the pseudo-inverse sums over "
            f"all of them (at most {MOST_LISTS:,}), unless the logging policy shows every list equally often. Use op.SIPS, "
            "op.RIPS or op.IIPS."
        )
    return np.array(list(itertools.permutations(range(items), slots)), dtype=np.int64)


def _probabilities(rates: FloatArray, lists: IntArray) -> FloatArray:
    """Of each list, drawn slot by slot."""
    weights = ItemWeights(np.broadcast_to(rates, (len(lists), len(rates))), without_replacement=True)
    return np.asarray(weights.conditional(lists).prod(axis=1))


def _gamma(p: FloatArray, lists: IntArray, items: int) -> FloatArray:
    """E[1_s 1_sᵀ], (slots·items)²."""
    pairs = lists + items * np.arange(lists.shape[1])
    size = items * lists.shape[1]
    flat = (pairs[:, :, None] * size + pairs[:, None, :]).reshape(len(lists), -1)
    gamma = np.bincount(flat.ravel(), np.repeat(p, flat.shape[1]), size * size)
    return np.asarray(gamma, dtype=np.float64).reshape(size, size)


def _marginals(p: FloatArray, lists: IntArray, items: int) -> FloatArray:
    """E[1_s]."""
    pairs = lists + items * np.arange(lists.shape[1])
    return np.asarray(np.bincount(pairs.ravel(), np.repeat(p, lists.shape[1]), items * lists.shape[1]), dtype=np.float64)
