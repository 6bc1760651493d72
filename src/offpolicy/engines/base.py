"""What an engine must do: run a statistic over a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from offpolicy.data.log import Log
from offpolicy.statistics.base import Statistic

BATCH_ROWS = 65_536

Progress = Callable[[int], None]
"""Told how many rows were read since it was last told."""


class Engine(Protocol):
    """Who runs a statistic. The same statistic gives the same answer on every engine."""

    @property
    def threads(self) -> int | None:
        """How many states this machine folds at once; None: one a core."""
        ...

    def check(self, log: Log) -> None:
        """Raise where it cannot read this log."""
        ...

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold the statistic over the whole log."""
        ...
