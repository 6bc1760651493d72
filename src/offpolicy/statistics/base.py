"""The seam to any engine: a statistic that is folded over batches and merged over partitions."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from offpolicy.data.batch import Batch

State = dict[str, Any]  # named arrays, or named states, and nothing else, so that a state can be sent as Arrow


class Statistic(Protocol):
    """What an engine runs. `fold` and `merge` may change their first argument in place, and return it.

    An engine may split a large state into pieces that are merged separately: that of a `Keyed` statistic by ranges of keys,
    and arrays named in `summed`, whose merge is plain addition, by ranges of elements.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Extra columns of the log that it reads by name."""
        ...

    @property
    def batch_rows(self) -> int | None:
        """The preferred number of rows per batch; None if it does not matter."""
        ...

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch) -> State: ...

    def merge(self, a: State, b: State) -> State: ...

    def finish(self, state: State) -> Any: ...


def added(a: State, b: State, largest: Container[str] = ()) -> State:
    """The sums of two sets of rows; for names in `largest`, the maximum."""

    def both(name: str, part: Any) -> Any:
        if isinstance(part, dict):
            return added(part, b[name], largest)
        return np.maximum(part, b[name]) if name in largest else part + b[name]

    return {name: both(name, part) for name, part in a.items()}


@runtime_checkable
class Keyed(Protocol):
    """A statistic whose state consists of one small state per key."""

    def pieces(self, state: State, size: int) -> Iterator[tuple[int, State]]:
        """The state in ranges of keys of about `size` bytes, each with its first key."""
        ...

    def merge_pieces(self, a: State, b: State) -> State:
        """The union of two pieces of the same range, as a piece."""
        ...

    def merge(self, a: State, b: State) -> State: ...


@dataclass(frozen=True)
class Joint:
    """Several statistics in one pass.

    Attributes
    ----------
    most_rows : int | None
        The largest number of rows per batch, for the memory budget.
    """

    parts: Mapping[Any, Statistic]
    most_rows: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.columns))

    @property
    def batch_rows(self) -> int | None:
        preferred = max((part.batch_rows for part in self.parts.values() if part.batch_rows is not None), default=None)
        return min((rows for rows in (preferred, self.most_rows) if rows is not None), default=None)

    def zero(self) -> State:
        return {key: part.zero() for key, part in self.parts.items()}

    def fold(self, state: State, batch: Batch) -> State:
        return {key: part.fold(state[key], batch) for key, part in self.parts.items()}

    def merge(self, a: State, b: State) -> State:
        return {key: part.merge(a[key], b[key]) for key, part in self.parts.items()}

    def finish(self, state: State) -> dict[Any, Any]:
        return {key: part.finish(state[key]) for key, part in self.parts.items()}
