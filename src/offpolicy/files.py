"""Writing files so that they appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offpolicy.errors import InputError


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
        if error.filename not in (None, str(draft), str(path)):
            raise
        raise InputError(f"{path}: cannot be written: {error.strerror or error}.") from error
    finally:
        draft.unlink(missing_ok=True)
