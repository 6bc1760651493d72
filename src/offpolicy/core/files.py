"""Atomic writes: a file appears complete or not at all.

Data is written to a draft in the same folder, which takes the file's name once everything is on disk. A draft is locked as
long as its process runs. Unlocked drafts were left by killed processes; the next process that writes to the folder removes
them.
"""

from __future__ import annotations

import errno
import os
import platform
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offpolicy.core.errors import InputError

if sys.platform != "win32":
    import fcntl

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of a full or failing disk; some libraries raise them without a file name."""

DRAFT = ".offpolicy-draft-"
"""Prefix of draft names. They are hidden files, so that readers of a folder skip them."""


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a draft beside `path` to write to; it is renamed at the end, or removed if anything fails."""
    path = Path(path)
    # The name includes the machine: on some shared disks, locks are visible on one machine only.
    prefix = f"{DRAFT}{platform.node()[:40]}-"
    draft = path.with_name(f"{prefix}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        if not path.parent.is_dir():
            raise InputError(f"{path.parent}: no such folder.")
        if path.is_dir():
            raise InputError(f"{path} is a folder; give a file name.")
        _sweep(path.parent, prefix)
        with _locked(draft):
            yield draft
            _to_disk(draft)
            draft.replace(path)
        with suppress(OSError):  # some file systems cannot sync a folder
            _to_disk(path.parent)
    except OSError as error:
        ours = error.filename in (str(draft), str(path)) or error.errno in FULL
        if not ours:
            raise
        raise InputError(f"{path}: cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def _locked(draft: Path) -> Iterator[None]:
    """Create the empty draft and hold a lock on it."""
    if sys.platform == "win32":
        yield  # no locks, and an open file cannot be renamed: drafts of killed processes remain
        return
    while True:
        with draft.open("xb") as file:
            with suppress(OSError):  # a disk without locks, where nothing is swept
                fcntl.flock(file, fcntl.LOCK_EX)
            if not draft.exists():  # another process removed it before it was locked
                continue
            yield
            return


def _sweep(folder: Path, prefix: str) -> None:
    """Remove the drafts of processes that were killed."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # a folder that can be written to but not listed
        for name in [entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix)]:
            with suppress(OSError), (folder / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process runs
                (folder / name).unlink()


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power failure."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
