"""What an engine does: run a statistic over a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from offpolicy.data.log import Log
from offpolicy.statistics.base import Statistic

BATCH_ROWS = 65_536

Progress = Callable[[int], None]  # called with the number of rows read since the last call


class Engine(Protocol):
    """Runs statistics. The same statistic gives the same result on every engine."""

    @property
    def threads(self) -> int | None:
        """How many states this machine folds at once; None: one per core."""
        ...

    def check(self, log: Log) -> None:
        """Raise if it cannot read this log."""
        ...

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold the statistic over the whole log."""
        ...
