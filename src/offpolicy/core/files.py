"""Writing files so that they appear whole or not at all.

What is written goes to a draft in the same folder, which takes the file's name when all of it is on the disk. A draft is
locked while its process lives, however that ends: those that nobody holds are left by killed processes, and are removed by
the next one that writes to the folder.
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
"""What a disk says that takes no more; some libraries leave out the name of the file."""

DRAFT = ".offpolicy-draft-"
"""How the names of drafts begin: hidden, so that folders of logs and of results are read without them."""


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A draft beside `path` to write to; it takes the name at the end, or is removed if anything fails."""
    path = Path(path)
    # of this machine: there are disks whose locks are known to one machine only
    mine = f"{DRAFT}{platform.node()[:40]}-"
    draft = path.with_name(f"{mine}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        if not path.parent.is_dir():
            raise InputError(f"{path.parent}: no such folder.")
        if path.is_dir():
            raise InputError(f"{path}: is a folder; give the name of a file.")
        _sweep(path.parent, mine)
        with _held(draft):
            yield draft
            _to_disk(draft)
            draft.replace(path)
        with suppress(OSError):  # there are folders that cannot be waited for
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
def _held(draft: Path) -> Iterator[None]:
    """The empty draft, locked."""
    if sys.platform == "win32":
        yield  # neither locks nor a new name for an open file: what killed processes leave stays there
        return
    while True:
        with draft.open("xb") as file:
            with suppress(OSError):  # a disk without locks, where nothing is swept
                fcntl.flock(file, fcntl.LOCK_EX)
            if not draft.exists():  # another process swept it away before it was locked
                continue
            yield
            return


def _sweep(folder: Path, mine: str) -> None:
    """Remove the drafts of processes that were killed."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # a folder that may be written to, but not listed
        for name in [entry.name for entry in os.scandir(folder) if entry.name.startswith(mine)]:
            with suppress(OSError), (folder / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused where its process lives
                (folder / name).unlink()


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would outlive a power failure."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
