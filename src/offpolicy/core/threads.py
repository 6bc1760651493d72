"""The number of cores, and work on all of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_share: list[int] = []


def share_cores(processes: int) -> None:
    """Limit this process to its share of the cores, when `processes` processes share the machine."""
    _share[:] = [max(1, cores() // processes)]


def cores() -> int:
    """The number of cores that this process may use."""
    if _share:
        return _share[0]
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel(function: Callable[..., T], *items: Iterable[Any]) -> list[T]:
    """`map`, in threads if there is more than one core."""
    if cores() == 1:
        return list(map(function, *items))
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(function, *items))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run each matrix product on one thread, for many small products in threads that already use all cores."""
    import scipy.linalg  # noqa: F401  (loads its own BLAS, which would not be limited if it came later)

    _limited.enter("torch" in sys.modules)
    try:
        yield
    finally:
        _limited.leave()


class _Limited:
    """The limit applies to the whole process: the first user sets it, and the last one restores it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limits = threading.Lock(), 0, dict[bool, Any]()

    def enter(self, torch: bool) -> None:
        with self._lock:
            self._inside += 1
            if torch not in self._limits:
                self._limits[torch] = _controller(torch).limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            while not self._inside and self._limits:
                self._limits.popitem()[1].restore_original_limits()  # in reverse order


_limited = _Limited()


@cache
def _controller(torch: bool) -> ThreadpoolController:  # noqa: ARG001
    """The loaded libraries: searched once, and again after PyTorch has loaded its own."""
    return ThreadpoolController()
