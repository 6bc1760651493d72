"""Writing files so that they appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offpolicy.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""What a disk says that takes no more; some libraries leave out the name of the file."""


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A draft beside `path` to write to; it takes the name at the end, or is removed if anything fails."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder.")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file.")
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        ours = error.filename in (str(draft), str(path)) or error.errno in FULL
        if not ours:
            raise
        raise InputError(f"{path}: cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
