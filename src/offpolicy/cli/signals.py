"""Being stopped: SIGINT (Ctrl-C) and SIGTERM end a command with one line that says what is kept, and no traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REMINDED = 0.1
"""Seconds."""
GRACE = 0.7
"""Seconds until a command is ended whose main thread does not react to a signal."""
TIDYING = 10.0
"""Seconds until it is ended if it does react, and removes what is half written."""
FINISHED = (None, 0, 3)
"""Exit codes of commands that did all of their work."""
NOTHING = "Nothing was written; run the same command again."
WHOLE = "What was written is whole; run the same command again."


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
    _watch(listener)
    try:
        command()
    except BaseException as error:
        if listener.signum is None or (isinstance(error, SystemExit) and error.code in FINISHED):
            raise
        _done()
        # There is code that turns any exception into one of its own: whatever ended the command, it was stopped.
        kept = error.kept if isinstance(error, Stopped) else WHOLE
        listener.report(listener.signum, kept)
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
        self.reported = False
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

    def report(self, signum: int, kept: str) -> None:
        """Print the one line, once."""
        if not self.reported:
            start = "\n" if sys.stderr.isatty() else ""  # after the terminal's own ^C
            print(f"{start}offpolicy: stopped by {signal.Signals(signum).name}. {kept}", file=sys.stderr, flush=True)
            self.reported = True

    def _remind(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._raised() is None and self.signum is not None:
            stopped = Stopped(self.signum)
            self._raised = weakref.ref(stopped)
            try:
                raise stopped
            finally:
                del stopped  # or its traceback would keep it


def _watch(listener: _Listener) -> None:
    """End the process soon after a signal, even if the main thread is inside compiled code, or waits for other threads.

    The wake-up descriptor is written to when a signal arrives; handlers in Python wait for the main thread.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # or a child's signals would end the parent

    def end() -> None:
        while (signum := os.read(read, 1)[0]) not in SIGNALS:
            continue
        heard = time.monotonic()
        while not listener.reported and time.monotonic() < heard + (GRACE if listener.signum is None else TIDYING):
            time.sleep(0.05)
        time.sleep(0.2 if listener.reported else 0.0)  # for an orderly end, if no thread delays it
        listener.report(signum, WHOLE)
        os._exit(128 + signum)

    threading.Thread(target=end, name="offpolicy-signals", daemon=True).start()


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
