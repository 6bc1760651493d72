"""How a log is read in parts: `Source`, where it comes from, and `Partition`, what one thread reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from offpolicy.data.batch import Batch
from offpolicy.data.schema import Schema

CHUNK_ROWS = 262_144
"""Rows of a log that one thread takes at a time; fixed, so that results do not depend on the number of threads."""
FEW_ROWS = 4_096
FEW_CHUNKS = 8


def chunks(rows: int) -> Iterator[tuple[int, int]]:
    """Where each chunk of a table in memory starts and stops: several also of a small one, so that no core stands idle."""
    size = min(CHUNK_ROWS, max(FEW_ROWS, -(-rows // FEW_CHUNKS)))
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


class Partition(Protocol):
    """A part of the log that one thread reads from its start to its end."""

    def batches(self, rows: int) -> Iterator[Batch]:
        """The rounds, at most `rows` at a time."""
        ...


class Source(Protocol):
    """Where a log comes from."""

    @property
    def described(self) -> str:
        """In a few words, for reports."""
        ...

    @property
    def roles(self) -> Mapping[str, str]:
        """The columns that play a role alone, such as the action; none where there are no names."""
        ...

    def where(self, row: int) -> str:
        """A row's place in words: its file and its number there, from 0."""
        ...

    @property
    def schema(self) -> Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def ordered(self) -> bool:
        """Whether rows stand in one order, so that row i of an array can belong to row i of the log."""
        ...

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        """Some first rows, at most so many: any will do that come without a pass over the log."""
        ...

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise where one of the columns that a policy names is not there. Reads no row."""
        ...

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        """The parts of the log, each batch with the extra named `columns`, of the encoded context or of the table."""
        ...
