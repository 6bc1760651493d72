"""SIGINT (Ctrl-C) and SIGTERM end a command with one line that reports what remains, and without a traceback."""

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
REMINDER_SECONDS = 0.1
GRACE = 0.7
"""Seconds until a command is ended whose main thread does not react to a signal."""
TIDYING = 10.0
"""Seconds until it is ended if it does react, and removes unfinished files."""
FINISHED = (None, 0, 3)
"""Exit codes of commands that finished their work."""
NOTHING = "Nothing was written; run the same command again."
COMPLETE = "Written files are complete; run the same command again."


class Stopped(BaseException):
    """A signal to end the command. Not an `Exception`, so that no handler mistakes it for an error."""

    def __init__(self, signum: int, remains: str = NOTHING) -> None:
        super().__init__(signum)
        self.signum, self.remains = signum, remains


def run(command: Callable[[], None]) -> None:
    """Run the command of this process; a signal ends it with exit code 128 + its number."""
    listener, hook = _Listener(), sys.unraisablehook
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # ignored for a background job, which Ctrl-C does not concern
            signal.signal(signum, listener.stop)
    sys.unraisablehook = _quiet
    _watch(listener)
    try:
        command()
    except BaseException as error:
        if listener.signum is None or (isinstance(error, SystemExit) and error.code in FINISHED):
            raise
        _done()
        # Some code converts any exception into its own: whatever exception ended the command, the signal stopped it.
        listener.report(listener.signum, error.remains if isinstance(error, Stopped) else COMPLETE)
        sys.exit(128 + listener.signum)
    finally:
        _done()
        sys.unraisablehook = hook


class _Listener:
    """Raises `Stopped` on a signal, and again if something swallowed it and continued.

    Compiled modules that try an import do so. An exception that no longer exists did not end the command; one that exists is
    still propagating.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.reported = False
        self._raised: Callable[[], Stopped | None] = lambda: None

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop in an orderly way; a second signal ends the process immediately."""
        self.signum = signum
        for each in SIGNALS:
            signal.signal(each, _leave)
        if sys.platform != "win32":
            signal.signal(signal.SIGALRM, self._remind)
            signal.setitimer(signal.ITIMER_REAL, REMINDER_SECONDS, REMINDER_SECONDS)
        self._remind(signum, frame)

    def report(self, signum: int, remains: str) -> None:
        """Print the one line, once."""
        if not self.reported:
            start = "\n" if sys.stderr.isatty() else ""  # after the terminal's own ^C
            print(f"{start}offpolicy: stopped by {signal.Signals(signum).name}. {remains}", file=sys.stderr, flush=True)
            self.reported = True

    def _remind(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._raised() is None and self.signum is not None:
            stopped = Stopped(self.signum)
            self._raised = weakref.ref(stopped)
            try:
                raise stopped
            finally:
                del stopped  # or its traceback would keep it alive


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
        listener.report(signum, COMPLETE)
        os._exit(128 + signum)

    threading.Thread(target=end, name="offpolicy-signals", daemon=True).start()


def _done() -> None:
    """Ignore further signals, since the command has ended."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def _leave(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os._exit(128 + signum)


def _quiet(unraisable: Any) -> None:
    """Python prints exceptions that it cannot raise; ours is raised again, so it needs no traceback."""
    if unraisable.exc_type is not Stopped:
        sys.__unraisablehook__(unraisable)
