"""Progress on stderr for work that takes more than a second: a bar on a terminal, lines of text in a file."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

DELAY = 1.0
STEP = 10
"""Percent between two lines of text."""


class PassProgress:
    """Counts the rows of a pass; its progress is shown once the pass has taken longer than a second.

    `done` rows were processed earlier; the remaining time is estimated without them.
    """

    def __init__(self, what: str, rows: int, shown: bool | None, done: int = 0) -> None:
        self._what, self._rows = what, rows
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._done = self._before = done
        self._bar: Any = None
        self._task: Any = None
        self._printed = 0
        self._lock = threading.Lock()

    def __enter__(self) -> PassProgress:
        self._start = time.monotonic()
        return self

    def __call__(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            if self._shown and time.monotonic() - self._start > DELAY:
                if sys.stderr.isatty():
                    self._draw()
                else:
                    self._print()

    def _print(self) -> None:
        """A line whenever another tenth is done; a bar that redraws itself would fill a file with empty lines."""
        percent = 100 * self._done // max(self._rows, 1)
        if percent >= self._printed + STEP or (self._printed < percent == 100):
            self._printed = percent - percent % STEP
            print(f"{self._what}: {percent}%", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            bar: Any = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f}%"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            bar.start()
            self._bar, self._task = bar, bar.add_task(self._what, total=self._rows, completed=self._before)
        self._bar.update(self._task, completed=self._done)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
