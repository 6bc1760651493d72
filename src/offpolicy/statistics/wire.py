"""States as rows to send: split into pieces that are merged separately, written as Arrow, and joined again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.statistics.at_slot import OfItems
from offpolicy.statistics.base import Joint, Keyed, State, Statistic

Array = npt.NDArray[Any]
PIECE_BYTES = 8 << 20


class Leaf(NamedTuple):
    """One array of a piece of a state: the piece's name, the position of the array in it, and the array."""

    piece: str
    number: int
    array: Array

    def row(self) -> dict[str, Any]:
        """The columns of its row."""
        array = np.ascontiguousarray(self.array)
        shape = pa.array([list(self.array.shape)], pa.list_(pa.int64()))
        return {
            "piece": pa.array([self.piece]),
            "leaf": pa.array([self.number], pa.int32()),
            "dtype": pa.array([array.dtype.str]),
            "shape": shape,
            "data": pa.array([array.tobytes()], pa.binary()),
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Leaf:
        """From the values of a row. The array is a copy: states are changed in place."""
        array = np.frombuffer(row["data"].as_buffer(), row["dtype"].as_py()).reshape(row["shape"].as_py()).copy()
        return cls(row["piece"].as_py(), row["leaf"].as_py(), array)


@dataclass(frozen=True)
class Pieces:
    """How the states of a statistic are split. Pieces with the same name, from any rows, are merged with each other.

    The parts of a `Joint` are split one by one: by ranges of keys, if a statistic is `Keyed`; sums by ranges of their
    elements; and the rest of a state is one piece. A piece that is all zeros is not written.
    """

    statistic: Statistic

    @cached_property
    def parts(self) -> list[_Branch]:
        return [_Branch(path, part) for path, part in _simple(self.statistic)]

    def cut(self, state: State) -> Iterator[Leaf]:
        """The arrays of a state, piece by piece."""
        for p, part in enumerate(self.parts):
            own = state
            for key in part.path:
                own = own[key]
            for name, arrays in part.cut(own):
                yield from (Leaf(f"{p}:{name}", i, array) for i, array in enumerate(arrays))

    def merged(self, piece: str, states: Iterable[list[Array]]) -> Iterator[Leaf]:
        """The arrays of one piece, from those of several sets of rows, in their order."""
        number, _, name = piece.partition(":")
        merged = self.parts[int(number)].merged(name, states)
        return (Leaf(piece, i, array) for i, array in enumerate(merged))

    def joined(self, leaves: Iterable[Leaf]) -> State:
        """One state from all its pieces."""
        pieces: dict[str, dict[str, list[Array]]] = {}
        for piece, _, array in sorted(leaves, key=lambda leaf: leaf[:2]):
            number, _, name = piece.partition(":")
            pieces.setdefault(number, {}).setdefault(name, []).append(array)
        state: State = {}
        for p, part in enumerate(self.parts):
            own = part.joined(pieces.get(str(p), {}))
            if not part.path:
                return own
            inner = state
            for key in part.path[:-1]:
                inner = inner.setdefault(key, {})
            inner[part.path[-1]] = own
        return state


@dataclass(frozen=True)
class _Branch:
    """A statistic that is not a `Joint`, and the path to its state in the whole state."""

    path: tuple[Any, ...]
    statistic: Statistic

    @cached_property
    def _summed(self) -> list[bool]:
        names: frozenset[str] = getattr(self.statistic, "summed", frozenset())
        zero = self.statistic.zero()
        return [name in names and np.ndim(leaf) > 0 for name, leaf in zip(_names(zero), _leaves(zero, zero), strict=True)]

    def cut(self, state: State) -> Iterator[tuple[str, list[Array]]]:
        zero = self.statistic.zero()
        if isinstance(self.statistic, Keyed):
            for start, piece in self.statistic.pieces(state, PIECE_BYTES):
                yield f"keys:{start}", _leaves(piece, zero)
            return
        leaves = _leaves(state, zero)
        for i, leaf in enumerate(leaves):
            if self._summed[i]:
                flat, step = leaf.reshape(-1), PIECE_BYTES // leaf.itemsize
                for start in range(0, leaf.size, step):
                    if flat[start : start + step].any():
                        yield f"sum:{i}:{start}", [flat[start : start + step]]
        if not all(self._summed):
            yield "rest", [leaf[:0] if summed else leaf for leaf, summed in zip(leaves, self._summed, strict=True)]

    def merged(self, name: str, states: Iterable[list[Array]]) -> list[Array]:
        first, *others = states
        if name.startswith("sum:"):
            for (array,) in others:
                first[0] += array
            return first
        zero = self.statistic.zero()
        state = _filled(zero, first)
        merge = self.statistic.merge_pieces if isinstance(self.statistic, Keyed) else self.statistic.merge
        for arrays in others:
            state = merge(state, _filled(zero, arrays))
        return _leaves(state, zero)

    def joined(self, pieces: Mapping[str, list[Array]]) -> State:
        zero = self.statistic.zero()
        if isinstance(self.statistic, Keyed):
            state = zero
            for arrays in pieces.values():
                state = self.statistic.merge(state, _filled(zero, arrays))
            return state
        whole = _leaves(zero, zero)
        for name, arrays in pieces.items():
            kind, *at = name.split(":")
            if kind == "sum":
                start = int(at[1])
                whole[int(at[0])].reshape(-1)[start : start + len(arrays[0])] = arrays[0]
        if "rest" in pieces:
            whole = [own if s else rest for own, rest, s in zip(whole, pieces["rest"], self._summed, strict=True)]
        return _filled(zero, whole)


def _simple(statistic: Statistic, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Statistic]]:
    if isinstance(statistic, OfItems):  # only what is folded differs
        yield from _simple(statistic.statistic, path)
        return
    if not isinstance(statistic, Joint):
        yield path, statistic
        return
    for key, part in statistic.parts.items():
        yield from _simple(part, (*path, key))


def _names(zero: State) -> list[str]:
    """The name of each array, in the order of `zero`."""
    return [name for key, value in zero.items() for name in (_names(value) if isinstance(value, dict) else [str(key)])]


def _leaves(state: State, zero: State) -> list[Array]:
    """The arrays of a state, in the order of `zero` (merging may have changed it)."""
    return [
        leaf
        for key, value in zero.items()
        for leaf in (_leaves(state[key], value) if isinstance(value, dict) else [np.asarray(state[key])])
    ]


def _filled(zero: State, leaves: Iterable[Array]) -> State:
    """A state of these arrays."""
    rest = iter(leaves)

    def fill(part: State) -> State:
        return {key: fill(value) if isinstance(value, dict) else next(rest) for key, value in part.items()}

    return fill(zero)
