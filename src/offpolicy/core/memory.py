"""`Budget`: how much memory a job may use, checked against what it needs before a row is read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from offpolicy.core.errors import InputError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {name[0]: 10 ** (3 * k) for k, name in enumerate(("KB", "MB", "GB", "TB"), start=1)}
UNITS |= {name.replace("B", "iB"): 1024**k for k, name in enumerate(("KB", "MB", "GB", "TB"), start=1)}
LEAST = 1_000_000
DEFAULT_SHARE = 0.25
"""Default budget as a share of the machine's memory."""


class OverBudgetError(InputError):
    """A job does not fit into the memory budget."""


@dataclass(frozen=True)
class Need:
    """Memory that one part of a job needs.

    Parameters
    ----------
    what : str
        What is held in memory, for messages.
    bytes : float
        Its size.
    sum : str
        How the size is computed, for messages.
    in_turn : bool, default False
        Whether its users need it one after another, so that it is counted once.
    covers : str, default ""
        The `what` of another need that fits into this one and is therefore not counted.

    Examples
    --------
    >>> Need("reward table", 8 * 1_000 * 20, "1,000 actions × 20 columns × 8 bytes").bytes
    160000
    """

    what: str
    bytes: float
    sum: str
    in_turn: bool = False
    covers: str = ""


@dataclass(frozen=True)
class Budget:
    """The largest number of bytes that a job may use.

    >>> Budget.of("1.5 GB").bytes
    1500000000
    """

    bytes: int

    @classmethod
    def of(cls, memory: str | int | float | None) -> Budget:
        """From a number of bytes or a text such as "2GB"; None means a quarter of the machine's memory."""
        if memory is None:
            return cls(int(DEFAULT_SHARE * machine_bytes()))
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*", str(memory), re.IGNORECASE)
        unit = None if match is None else next((u for u in UNITS if u.lower() == match[2].lower()), None)
        if match is None or unit is None or isinstance(memory, bool) or not 1 <= float(match[1]) * UNITS[unit] < 2**63:
            raise InputError(f'memory is {memory!r}; give a size such as "2GB", "500MB" or "1.5GiB", or a number of bytes.')
        bytes_ = int(float(match[1]) * UNITS[unit])
        if bytes_ < LEAST:
            raise InputError(f'memory is {memory!r}, which is {size(bytes_)}; did you mean "{match[1]}GB"?')
        return cls(bytes_)

    def holds(self, needs: Sequence[Need]) -> bool:
        return sum(need.bytes for need in needs) <= self.bytes

    def refusal(self, needs: Sequence[Need], advice: str) -> OverBudgetError:
        """The error for a job that does not fit, with the size of each part."""
        total = sum(need.bytes for need in needs)
        parts = sorted(needs, key=lambda need: -need.bytes)
        shown = "; ".join(f"{size(need.bytes)} {need.what} ({need.sum})" for need in parts if need.bytes >= 0.01 * total)
        return OverBudgetError(
            f"memory: the job needs about {size(total)}, but the budget is {size(self.bytes)}. Largest parts: {shown}. "
            f"{advice}"
        )


def size(count: float) -> str:
    """A number of bytes as text.

    >>> size(1_280_000_000), size(12_800_000)
    ('1.28 GB', '13 MB')
    """
    for unit in ("GB", "MB", "KB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g} {unit}" if count < 10 * UNITS[unit] else f"{count / UNITS[unit]:,.0f} {unit}"
    return f"{count:.0f} bytes"


def machine_bytes() -> int:
    """The memory of this machine, or of the container that the process runs in if that is smaller."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 * 10**9
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:  # noqa: PTH123
                limit = file.read().strip()
        except OSError:
            continue
        if limit.isdigit():
            installed = min(installed, int(limit))
    return installed
