"""Being stopped: SIGINT (Ctrl-C) and SIGTERM end a command with one line that says what is kept, and no traceback."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REMINDED = 0.1
"""Seconds."""
FINISHED = (None, 0, 3)
"""Exit codes of commands that did all of their work."""
NOTHING = "Nothing was written; run the same command again."


class Stopped(BaseException):
    """A signal asks the command to end. Not an `Exception`, so that nothing on the way takes it for a fault."""

    def __init__(self, signum: int, kept: str = NOTHING) -> None:
        super().__init__(signum)
        self.signum, self.kept = signum, kept


def run(command: Callable[[], None]) -> None:
    """Run the command of this process; a signal ends it with 128 + its number."""
    listener, told = _Listener(), sys.unraisablehook
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # as for a job in the background, whose Ctrl-C is not meant for it
            signal.signal(signum, listener.stop)
    sys.unraisablehook = _quiet
    try:
        command()
    except BaseException as error:
        if listener.signum is None or (isinstance(error, SystemExit) and error.code in FINISHED):
            raise
        _done()
        # There is code that turns any exception into one of its own: whatever ended the command, it was stopped.
        kept = error.kept if isinstance(error, Stopped) else "What was written is whole; run the same command again."
        start = "\n" if sys.stderr.isatty() else ""  # after the terminal's own ^C
        print(f"{start}offpolicy: stopped by {signal.Signals(listener.signum).name}. {kept}", file=sys.stderr)
        sys.exit(128 + listener.signum)
    finally:
        _done()
        sys.unraisablehook = told


class _Listener:
    """Raises `Stopped` when a signal comes, and again where something took it for its own and went on.

    Compiled modules that try an import do so. An exception that is no more did not end the command; one that lives is on
    its way up.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._raised: Callable[[], Stopped | None] = lambda: None

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """End in an orderly way; the second time at once, for someone is in a hurry."""
        self.signum = signum
        for each in SIGNALS:
            signal.signal(each, _leave)
        if sys.platform != "win32":
            signal.signal(signal.SIGALRM, self._remind)
            signal.setitimer(signal.ITIMER_REAL, REMINDED, REMINDED)
        self._remind(signum, frame)

    def _remind(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._raised() is None and self.signum is not None:
            stopped = Stopped(self.signum)
            self._raised = weakref.ref(stopped)
            try:
                raise stopped
            finally:
                del stopped  # or its traceback would keep it


def _done() -> None:
    """All is said: nothing is to be stopped any more."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def _leave(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os._exit(128 + signum)


def _quiet(unraisable: Any) -> None:
    """Where no exception can be raised, Python prints it; ours is raised again, and needs no traceback."""
    if unraisable.exc_type is not Stopped:
        sys.__unraisablehook__(unraisable)
