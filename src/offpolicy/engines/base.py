"""What an engine does: run a statistic over a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from offpolicy.core.device import Device
from offpolicy.data.log import Log
from offpolicy.statistics.base import Statistic

BATCH_ROWS = 65_536

Progress = Callable[[int], None]  # called with the number of rows read since the last call


class Engine(ABC):
    """Runs statistics. The same statistic gives the same result on every engine."""

    @property
    @abstractmethod
    def threads(self) -> int | None:
        """How many states this machine folds at once; None: one per core."""

    @property
    def accelerator(self) -> Device | None:
        """The device that sums over the actions of a round; None: the processor that reads the rounds."""
        return None

    @property
    def packages(self) -> tuple[str, ...]:
        """The optional packages whose versions its numbers depend on."""
        return ()

    def on_one_thread(self) -> Engine:
        """The same on the calling thread alone, if its threads are those of this process."""
        return self

    @abstractmethod
    def check(self, log: Log) -> None:
        """Raise if it cannot read this log.

        Parameters
        ----------
        log : Log
            The log to read.
        """

    @abstractmethod
    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold a statistic over the whole log.

        Parameters
        ----------
        log : Log
            The log to read.
        statistic : Statistic
            What to compute.
        progress : callable, optional
            Called with the number of rows read since the last call.

        Returns
        -------
        object
            What `statistic.finish` returns.
        """
