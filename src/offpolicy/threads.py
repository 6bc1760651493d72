"""How many cores there are, and doing the same to several things on all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
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


def one_blas_thread() -> AbstractContextManager[Any]:
    """Products on one thread each, where there are many small ones and threads of ours keep the cores busy."""
    import scipy.linalg  # noqa: F401  (brings a BLAS of its own: what is loaded later would not be limited)

    limit: AbstractContextManager[Any] = _controller("torch" in sys.modules).limit(limits=1, user_api="blas")
    return limit


@cache
def _controller(torch: bool) -> ThreadpoolController:  # noqa: ARG001
    """The libraries that are loaded: looked for once, and again when PyTorch has brought its own."""
    return ThreadpoolController()
