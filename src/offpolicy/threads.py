"""How many cores there are, and doing the same to several things on all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel(function: Callable[..., T], *items: Iterable[Any]) -> list[T]:
    """`map`, in threads where there is more than one core."""
    if cores() == 1:
        return list(map(function, *items))
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(function, *items))
