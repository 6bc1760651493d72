"""Work for processes that die of it; light to import, for every worker does."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def die_once(folder: Path, task: int) -> int:
    """The square of a task; the second task kills its worker the first time."""
    if task == 2 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task


def always_die(task: int) -> int:
    """The square of a task, but for the third."""
    if task == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return task * task
