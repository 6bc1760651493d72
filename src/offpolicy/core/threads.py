"""How many cores there are, and doing the same to several things on all of them."""

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
    """This process is one of so many at the same work, and uses its share of the cores."""
    _share[:] = [max(1, cores() // processes)]


def cores() -> int:
    """The cores that this process may use."""
    if _share:
        return _share[0]
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel(function: Callable[..., T], *items: Iterable[Any]) -> list[T]:
    """`map`, in threads where there is more than one core."""
    if cores() == 1:
        return list(map(function, *items))
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(function, *items))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products on one thread each, where there are many small ones and threads of ours keep the cores busy."""
    import scipy.linalg  # noqa: F401  (brings a BLAS of its own: what is loaded later would not be limited)

    _limited.enter("torch" in sys.modules)
    try:
        yield
    finally:
        _limited.leave()


class _Limited:
    """The limit is one of the whole process: the first that wants it sets it, and the last that leaves takes it back."""

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
                self._limits.popitem()[1].restore_original_limits()  # the last first


_limited = _Limited()


@cache
def _controller(torch: bool) -> ThreadpoolController:  # noqa: ARG001
    """The libraries that are loaded: looked for once, and again when PyTorch has brought its own."""
    return ThreadpoolController()
