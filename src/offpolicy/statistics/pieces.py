"""States as rows that travel: cut into pieces that are merged apart, written as Arrow, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.statistics.base import Joint, State, Statistic

Arrays = dict[str, npt.NDArray[Any]]
"""The arrays of a piece by name: the keys that lead to each, with a slash between them."""
PIECE_BYTES = 8 << 20


class Leaf(NamedTuple):
    """One array of a piece of a state."""

    piece: str
    name: str
    array: npt.NDArray[Any]

    def row(self) -> dict[str, Any]:
        """The columns of its row."""
        array = np.ascontiguousarray(self.array)
        return {
            "piece": pa.array([self.piece]),
            "leaf": pa.array([self.name]),
            "dtype": pa.array([array.dtype.str]),
            "shape": pa.array([list(self.array.shape)], pa.list_(pa.int64())),
            "data": pa.array([array.tobytes()], pa.binary()),
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Leaf:
        """From the values of a row. The array is a copy: states are changed in place."""
        array = np.frombuffer(row["data"].as_buffer(), row["dtype"].as_py()).reshape(row["shape"].as_py()).copy()
        return cls(row["piece"].as_py(), row["leaf"].as_py(), array)


@dataclass(frozen=True)
class Pieces:
    """How the states of a statistic are cut. Pieces with the same name, from any rows, are merged with each other.

    The parts of a `Joint` are cut one by one: as a statistic itself says (`split`); sums by ranges of their elements; and
    what is left of a state is one piece. A range of nothing but zeros is not written.
    """

    statistic: Statistic

    @cached_property
    def parts(self) -> list[_Part]:
        return [_Part(path, part) for path, part in _simple(self.statistic)]

    def cut(self, state: State) -> Iterator[Leaf]:
        """The arrays of a state, piece by piece."""
        for p, part in enumerate(self.parts):
            own = state
            for key in part.path:
                own = own[key]
            for piece, arrays in part.cut(own):
                yield from (Leaf(f"{p}:{piece}", name, array) for name, array in arrays.items())

    def merged(self, piece: str, states: Iterable[Arrays]) -> Iterator[Leaf]:
        """The arrays of one piece, from those of several sets of rows, in their order."""
        number, _, own = piece.partition(":")
        merged = self.parts[int(number)].merged(own, states)
        return (Leaf(piece, name, array) for name, array in merged.items())

    def joined(self, leaves: Iterable[Leaf]) -> State:
        """One state from all its pieces."""
        found: dict[str, dict[str, Arrays]] = {}
        for piece, name, array in leaves:
            number, _, own = piece.partition(":")
            found.setdefault(number, {}).setdefault(own, {})[name] = array
        state: State = {}
        for p, part in enumerate(self.parts):
            whole = part.joined(found.get(str(p), {}))
            if not part.path:
                return whole
            inner = state
            for key in part.path[:-1]:
                inner = inner.setdefault(key, {})
            inner[part.path[-1]] = whole
        return state


@dataclass(frozen=True)
class _Part:
    """A statistic that is no `Joint`, and where its state stands in that of the whole."""

    path: tuple[Any, ...]
    statistic: Statistic

    def cut(self, state: State) -> Iterator[tuple[str, Arrays]]:
        if (split := getattr(self.statistic, "split", None)) is not None:
            yield from ((f"split:{name}", _flat(piece)) for name, piece in split(state, PIECE_BYTES))
            return
        arrays, rest = _flat(state), {}
        summed: frozenset[str] = getattr(self.statistic, "summed", frozenset())
        for name, array in arrays.items():
            if name.rpartition("/")[2] in summed and array.ndim:
                flat, step = array.reshape(-1), PIECE_BYTES // array.itemsize
                for start in range(0, array.size, step):
                    if flat[start : start + step].any():
                        yield f"sum:{start}:{name}", {"": flat[start : start + step]}
            rest[name] = array[:0] if name.rpartition("/")[2] in summed and array.ndim else array
        yield "rest", rest

    def merged(self, piece: str, states: Iterable[Arrays]) -> Arrays:
        first, *others = states
        if piece.startswith("sum:"):
            for other in others:
                first[""] += other[""]
            return first
        if not others or (piece == "rest" and not any(array.size for array in first.values())):
            return first
        state = self._state(first)
        for other in others:
            state = self.statistic.merge(state, self._state(other))
        return _flat(state)

    def joined(self, pieces: Mapping[str, Arrays]) -> State:
        whole = self.statistic.zero()
        for piece in (name for name in pieces if name.startswith("split:")):
            whole = self.statistic.merge(whole, self._state(pieces[piece]))
        if "rest" not in pieces:
            return whole
        zeros = _flat(whole)
        for piece, arrays in pieces.items():
            if piece.startswith("sum:"):
                _, start, name = piece.split(":", 2)
                zeros[name].reshape(-1)[int(start) : int(start) + len(arrays[""])] = arrays[""]
        summed: frozenset[str] = getattr(self.statistic, "summed", frozenset())
        kept = {n: a if n.rpartition("/")[2] in summed and a.ndim else pieces["rest"][n] for n, a in zeros.items()}
        return self._state(kept)

    def _state(self, arrays: Arrays) -> State:
        """A state of these arrays, with the empty parts that only `zero` knows of."""
        state = _without_arrays(self.statistic.zero())
        for name, array in arrays.items():
            inner = state
            *path, last = name.split("/")
            for key in path:
                inner = inner[key]
            inner[last] = array
        return state


def _simple(statistic: Statistic, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Statistic]]:
    if not isinstance(statistic, Joint):
        yield path, statistic
        return
    for key, part in statistic.parts.items():
        yield from _simple(part, (*path, key))


def _flat(state: State, before: str = "") -> Arrays:
    out: Arrays = {}
    for key, value in state.items():
        out |= _flat(value, f"{before}{key}/") if isinstance(value, dict) else {f"{before}{key}": np.asarray(value)}
    return out


def _without_arrays(state: State) -> State:
    return {key: _without_arrays(value) for key, value in state.items() if isinstance(value, dict)}
