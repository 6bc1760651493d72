"""Grouped Gram matrices: for each key, the weighted count, means and centred products of a row of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.threads import checkpoint
from offpolicy.statistics.base import State

TILE_ROWS = 8_192
KEYS_AT_ONCE = 1_024
"""Keys whose products are merged at a time: all at once, they would take several times the memory of a state."""
DENSE = 0.5  # the share of the keys above which a state stores all of them


@dataclass(frozen=True)
class Gram:
    """For each of `keys` keys: weight n, means of x (`size`) and r (`rewards`), and centred products x·x, x·r, r·r.

    Products of two different rewards are left out: no fit needs them. Symmetric products are stored once. A state with few
    of very many keys stores only those, in ascending order (`key`).

    With `shared` runs of keys (groups of units), x·x is summed over all keys of a run (`xx`) instead of by key: then the
    state grows with keys × size, not keys × size². The squared weights are stored (`square`): they determine the degrees of
    freedom of the rows of a key.
    """

    keys: int
    size: int
    rewards: int
    shared: int = 0

    @cached_property
    def by_key(self) -> tuple[str, ...]:
        """The arrays with the keys on their first axis."""
        return ("n", "mean", "m2", "square") if self.shared else ("n", "mean", "m2")

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The columns of each product stored by key: x·x packed, then for each reward x·r and r·r."""
        left, right = (np.empty(0, np.int64),) * 2 if self.shared else np.triu_indices(self.size)
        for k in range(self.rewards):
            r = self.size + k
            left = np.concatenate([left, np.arange(self.size), [r]])
            right = np.concatenate([right, np.full(self.size + 1, r)])
        return left, right

    def zero(self) -> State:
        return self._with_keys(self._rows(0), np.empty(0, np.int64)) | self._zero_shared()

    def _rows(self, count: int) -> State:
        shapes = {"n": (count,), "mean": (count, self.size + self.rewards), "m2": (count, len(self.pairs[0]))}
        return {name: np.zeros(shapes.get(name, (count,))) for name in self.by_key}

    def _zero_shared(self) -> State:
        return {"xx": np.zeros((self.shared, self.size, self.size))} if self.shared else {}

    def _with_keys(self, state: State, key: IntArray) -> State:
        return {"key": key, **{name: state[name] for name in self.by_key}}

    def fold(self, state: State, key: IntArray, values: FloatArray, weight: FloatArray | None) -> State:
        """Add rows of (x, r), given as columns × rows, to the states of their keys, in place.

        Rows are sorted by key. Then each product of two columns is summed over each key's run of rows, one tile of rows at a
        time, so that the columns stay in cache.
        """
        order = np.argsort(key.astype(np.uint16) if self.keys <= 1 << 16 else key, kind="stable")
        ordered = key[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        edges = np.append(starts, len(key))
        n, mean = np.empty(len(starts)), np.empty((len(starts), len(values)))
        m2 = np.empty((len(self.pairs[0]), len(starts)))
        for runs in _tiles(edges):
            checkpoint()
            rows = order[edges[runs.start] : edges[runs.stop]]
            at = starts[runs] - edges[runs.start]
            centred, weighted = self._tile(
                values[:, rows], None if weight is None else weight[rows], at, (n[runs], mean[runs], m2[:, runs])
            )
            if self.shared:
                self._add_shared(state, ordered[edges[runs.start] : edges[runs.stop]], centred, weighted)
        part = {"n": n, "mean": mean, "m2": m2.T}
        if self.shared:
            part["square"] = n if weight is None else np.add.reduceat(weight[order] ** 2, starts)
        return self._add(state, ordered[starts], part)

    def _add_shared(self, state: State, key: IntArray, centred: FloatArray, weighted: FloatArray) -> None:
        run = key // (self.keys // self.shared)
        edges = np.searchsorted(run, np.arange(self.shared + 1))
        for k in np.unique(run):
            rows = slice(edges[k], edges[k + 1])
            state["xx"][k] += weighted[: self.size, rows] @ centred[: self.size, rows].T

    def _tile(
        self,
        columns: FloatArray,
        weight: FloatArray | None,
        at: IntArray,
        out: tuple[FloatArray, FloatArray, FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Weight, means and centred products of runs of rows that start at `at`; returns the centred columns."""
        n, mean, m2 = out
        lengths = np.diff(np.append(at, columns.shape[1]))
        n[:] = lengths if weight is None else np.add.reduceat(weight, at)
        total = np.add.reduceat(columns if weight is None else columns * weight, at, axis=1)
        mean[:] = (total / np.where(n > 0, n, 1.0)).T
        centred = columns - np.repeat(mean.T, lengths, axis=1)
        weighted = centred if weight is None else centred * weight
        product = np.empty(columns.shape[1])
        for pair, (i, j) in enumerate(zip(*self.pairs, strict=True)):
            np.multiply(weighted[i], centred[j], out=product)
            np.add.reduceat(product, at, out=m2[pair])
        return centred, weighted

    def _add(self, state: State, keys: IntArray, part: State, few: bool = False) -> State:
        if "key" in state:
            state, at = self._with_room(state, keys, few)
        else:
            at = keys
        before = state["n"][at]
        if not before.any():
            for name in self.by_key:
                state[name][at] = part[name]
            return state
        total = before + part["n"]
        share = part["n"] / np.where(total > 0, total, 1.0)
        delta, cross = part["mean"] - state["mean"][at], before * share
        left, right = self.pairs
        for some in (slice(start, start + KEYS_AT_ONCE) for start in range(0, len(at), KEYS_AT_ONCE)):
            between = delta[some][:, left] * delta[some][:, right] * cross[some, None]
            state["m2"][at[some]] += part["m2"][some] + between
        state["mean"][at] += delta * share[:, None]
        state["n"][at] = total
        if self.shared:
            state["square"][at] += part["square"]
            run = keys // (self.keys // self.shared)
            for k in np.unique(run):
                some = delta[run == k, : self.size]
                state["xx"][k] += (some * cross[run == k, None]).T @ some
        return state

    def _with_room(self, state: State, keys: IntArray, few: bool) -> tuple[State, IntArray]:
        """The state with an entry for each of the keys, and their positions; with all keys once these are no longer few."""
        shared = {name: state[name] for name in state if name not in (*self.by_key, "key")}
        joined = np.union1d(state["key"], keys)
        if len(joined) == len(state["key"]):
            return state, np.searchsorted(joined, keys)
        few = few or len(joined) < DENSE * self.keys
        wider = self._rows(len(joined) if few else self.keys)
        at = np.searchsorted(joined, state["key"]) if few else state["key"]
        for name in self.by_key:
            wider[name][at] = state[name]
        if not few:
            return wider | shared, keys
        return self._with_keys(wider, joined) | shared, np.searchsorted(joined, keys)

    def pieces(self, state: State, size: int) -> Iterator[tuple[int, State]]:
        """The state in ranges of keys of about `size` bytes, each with its first key: pieces that are merged separately.

        Shared sums go with the first of them; `merge` joins the pieces.
        """
        shared = self._zero_shared()
        key = state["key"] if "key" in state else np.flatnonzero(state["n"] > 0)
        whole = state if "key" in state else {name: state[name][key] for name in self.by_key}
        step = max(1, size // (8 * (3 + self.size + self.rewards + len(self.pairs[0]))))
        for start in range(0, self.keys, step):
            some = slice(*np.searchsorted(key, (start, start + step)).tolist())
            if some.stop > some.start or (shared and not start):
                part = {name: state[name] if not start else shared[name] for name in shared}
                yield start, self._with_keys({name: whole[name][some] for name in self.by_key}, key[some]) | part

    def merge(self, a: State, b: State, few: bool = False) -> State:
        """The union; with `few`, a state that still stores only the keys that occur."""
        if "key" in a and ("key" not in b or not len(a["key"])):  # into the larger one
            a, b = b, a
        for name in self._zero_shared():
            a[name] = a[name] + b[name]
        keys = b["key"] if "key" in b else np.flatnonzero(b["n"] > 0)
        at = slice(None) if "key" in b or len(keys) == self.keys else keys
        return self._add(a, keys, {name: b[name][at] for name in self.by_key}, few) if len(keys) else a

    def dense(self, state: State) -> State:
        """The state with all keys."""
        if "key" not in state:
            return state
        wide = self._rows(self.keys)
        for name in self.by_key:
            wide[name][state["key"]] = state[name]
        return {**wide, **{name: state[name] for name in self._zero_shared()}}

    def unpack(self, state: State, reward: int, shared: FloatArray | None = None) -> GramState:
        """Full matrices for one reward; `shared` is x·x if it is not stored by key."""
        size, packed = self.size, len(self.pairs[0]) - self.rewards * (self.size + 1)
        if shared is None:
            xx = np.zeros((*state["n"].shape, size, size))
            i, j = np.triu_indices(size)
            xx[..., i, j] = xx[..., j, i] = state["m2"][..., :packed]
        else:
            xx = shared
        at = packed + reward * (size + 1)
        return GramState(
            n=state["n"],
            x=state["mean"][..., :size],
            r=state["mean"][..., size + reward],
            xx=xx,
            xr=state["m2"][..., at : at + size],
            rr=state["m2"][..., at + size],
        )


def _tiles(edges: IntArray) -> Iterator[slice]:
    """Consecutive runs of rows with about `TILE_ROWS` rows together."""
    start, last = 0, len(edges) - 1
    while start < last:
        stop = int(np.searchsorted(edges, edges[start] + TILE_ROWS, side="right")) - 1
        stop = min(max(stop, start + 1), last)
        yield slice(start, stop)
        start = stop


@dataclass(frozen=True)
class GramState:
    """Weights, means and centred products for one reward, with any leading shape: n, x̄, r̄, Σx·x, Σx·r, Σr·r."""

    n: FloatArray
    x: FloatArray
    r: FloatArray
    xx: FloatArray
    xr: FloatArray
    rr: FloatArray

    def plus(self, other: GramState) -> GramState:
        """The union of two sets of rows (Chan's merge)."""
        n = self.n + other.n
        share = other.n / np.where(n > 0, n, 1.0)
        cross = self.n * share
        dx, dr = other.x - self.x, other.r - self.r
        return GramState(
            n=n,
            x=self.x + dx * share[..., None],
            r=self.r + dr * share,
            xx=self.xx + other.xx + dx[..., :, None] * dx[..., None, :] * cross[..., None, None],
            xr=self.xr + other.xr + dx * (dr * cross)[..., None],
            rr=self.rr + other.rr + dr * dr * cross,
        )

    def times(self, factor: float) -> GramState:
        """The same rows with their weights multiplied."""
        return GramState(self.n * factor, self.x, self.r, self.xx * factor, self.xr * factor, self.rr * factor)

    def at(self, index: int | slice | IntArray) -> GramState:
        """The states at an index of the leading axis."""
        return GramState(*(part[index] for part in (self.n, self.x, self.r, self.xx, self.xr, self.rr)))

    def each(self, index: slice) -> GramState:
        """The states at a slice of the second axis."""
        return GramState(*(part[:, index] for part in (self.n, self.x, self.r, self.xx, self.xr, self.rr)))

    def at_all(self) -> GramState:
        """The same with a leading axis of one."""
        return GramState(*(np.asarray(part)[None] for part in (self.n, self.x, self.r, self.xx, self.xr, self.rr)))

    def pooled(self) -> GramState:
        """All keys of the leading axis as one, in one step."""
        n = self.n.sum(axis=0)
        share = self.n / np.where(n > 0, n, 1.0)
        x, r = np.einsum("k...,k...i->...i", share, self.x), (share * self.r).sum(axis=0)
        dx, dr = self.x - x, self.r - r
        weighted = dx * self.n[..., None]
        return GramState(
            n=n,
            x=x,
            r=r,
            xx=self.xx.sum(axis=0) + np.einsum("k...i,k...j->...ij", weighted, dx),
            xr=self.xr.sum(axis=0) + np.einsum("k...i,k...->...i", weighted, dr),
            rr=self.rr.sum(axis=0) + (self.n * dr * dr).sum(axis=0),
        )
