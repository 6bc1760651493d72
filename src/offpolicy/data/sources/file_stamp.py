"""Whether a file is still the one that was opened."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from offpolicy.core.errors import InputError

TAIL_BYTES = 4096
"""The end of a Parquet file is its footer, and that of a compressed CSV file its checksum."""


@dataclass(frozen=True)
class Stamp:
    """By what a file is known again. Times are only ever compared for being the same: clocks may jump."""

    size: int
    changed: int
    inode: tuple[int, int]
    tail: bytes

    @classmethod
    def of(cls, path: Path) -> Stamp:
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
                tail = hashlib.blake2b(file.read(), digest_size=16).digest()
            found = path.stat()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None
        return cls(found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino), tail)

    @contextmanager
    def holds(self, path: Path) -> Iterator[None]:
        """Raise where the file is another one before or after what is read from it, whatever that made of it."""
        self._check(path)
        try:
            yield
        except InputError:
            self._check(path)  # the better reason, where it is one
            raise
        self._check(path)

    def _check(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f"{path}: has vanished since the log was opened. Put it back, and open the log again.")
        now = Stamp.of(path)
        if now != self:
            raise InputError(
                f"{path}: changed since the log was opened ({self._difference(now)}). An evaluation reads a log more than "
                "once, and must find the same each time: open the log again when nobody writes to it, or copy it first."
            )

    def _difference(self, now: Stamp) -> str:
        if now.size != self.size:
            return f"it had {self.size:,} bytes, and has {now.size:,}"
        if now.inode != self.inode:
            return "another file stands under its name"
        if now.changed != self.changed:
            return f"it was written to at {datetime.fromtimestamp(now.changed / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return "its end is another"
