"""Being stopped: SIGINT (Ctrl-C) and SIGTERM end a command with one line that says what is kept, and no traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "Nothing was written; run the same command again."


class Stopped(BaseException):
    """A signal asks the command to end. Not an `Exception`, so that nothing on the way takes it for a fault."""

    def __init__(self, signum: int, kept: str = NOTHING) -> None:
        super().__init__(signum)
        self.signum, self.kept = signum, kept


def run(command: Callable[[], None]) -> None:
    """Run the command of this process; a signal ends it with 128 + its number."""
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # as for a job in the background, whose Ctrl-C is not meant for it
            signal.signal(signum, _stop)
    try:
        command()
    except Stopped as stopped:
        start = "\n" if sys.stderr.isatty() else ""  # after the terminal's own ^C
        print(f"{start}offpolicy: stopped by {signal.Signals(stopped.signum).name}. {stopped.kept}", file=sys.stderr)
        sys.exit(128 + stopped.signum)
    finally:
        for signum in SIGNALS:  # all is said and done
            signal.signal(signum, signal.SIG_IGN)


def _stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End in an orderly way; the second time at once, for someone is in a hurry."""
    for each in SIGNALS:
        signal.signal(each, _leave)
    raise Stopped(signum)


def _leave(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os._exit(128 + signum)
