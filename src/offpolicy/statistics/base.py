"""The seam to any engine: a statistic that is folded over batches and merged over partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from offpolicy.batch import Batch

State = dict[str, Any]
"""Named arrays, or named states: nothing else, so that a state can travel as Arrow."""


class Statistic(Protocol):
    """What an engine runs. `fold` and `merge` may change their first argument in place, and return it.

    Two more attributes, which a statistic may have or not, let an engine cut a large state into pieces that are merged
    apart. `split(state, most)` gives named states of about `most` bytes: those of one name are merged with each other, and
    `merge` of all is the whole. `summed` names the arrays whose merge is plain addition.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Extra columns of the log that it reads by name."""
        ...

    @property
    def batch_rows(self) -> int | None:
        """How many rows it likes to be given at a time; None where it does not matter."""
        ...

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch) -> State: ...

    def merge(self, a: State, b: State) -> State: ...

    def finish(self, state: State) -> Any: ...


@dataclass(frozen=True)
class Joint:
    """Several statistics in one pass."""

    parts: Mapping[Any, Statistic]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.columns))

    @property
    def batch_rows(self) -> int | None:
        return max((part.batch_rows for part in self.parts.values() if part.batch_rows is not None), default=None)

    def zero(self) -> State:
        return {key: part.zero() for key, part in self.parts.items()}

    def fold(self, state: State, batch: Batch) -> State:
        return {key: part.fold(state[key], batch) for key, part in self.parts.items()}

    def merge(self, a: State, b: State) -> State:
        return {key: part.merge(a[key], b[key]) for key, part in self.parts.items()}

    def finish(self, state: State) -> dict[Any, Any]:
        return {key: part.finish(state[key]) for key, part in self.parts.items()}
