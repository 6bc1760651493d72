"""`Device`: where tensors are computed, and with how many digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from offpolicy.core.arrays import Array
from offpolicy.core.errors import InputError
from offpolicy.core.imports import torch

Precision = Literal["tf32", "high", "float64"]
EXTRA = "install the extra `gpu` (pip install 'offpolicy[gpu]')"


@dataclass(frozen=True)
class Device:
    """A device of PyTorch, and the precision of the products of scores on it.

    Attributes
    ----------
    name : str
        Such as "cuda", "cuda:1", or "cpu".
    precision : {"tf32", "high", "float64"}
        "tf32" rounds the factors of a product to 11 significant bits on a GPU, "high" to 22; sums are in single precision.
        On the CPU both are single precision.
    """

    name: str
    precision: Precision = "tf32"

    def check(self) -> None:
        """Raise unless the device can be used with this precision."""
        if self.precision not in get_args(Precision):
            raise InputError(f'GPU: precision is {self.precision!r}; give "tf32", "high" or "float64".')
        try:
            kind = self.torch.device(self.name).type
        except (RuntimeError, TypeError):
            raise InputError(f'GPU: device is {self.name!r}; give "cuda", "cuda:1" and so on, or "cpu".') from None
        if kind not in ("cuda", "cpu"):
            raise InputError(f'GPU: device is {self.name!r}; only "cuda" and "cpu" are supported.')
        if kind == "cuda" and not self.torch.cuda.is_available():
            raise InputError(
                f"GPU: device is {self.name!r}, but PyTorch finds no GPU here. Check the driver and that PyTorch was built "
                'for CUDA, or use device="cpu", which runs the same code without one.'
            )

    @property
    def torch(self) -> Any:
        """The module `torch`."""
        return torch(f"GPU: PyTorch is not installed; {EXTRA}.")

    @property
    def cuda(self) -> bool:
        return self.name.startswith("cuda")

    @property
    def described(self) -> str:
        """The device in words."""
        return str(self.torch.cuda.get_device_name(self.name)) if self.cuda else "CPU tensors"

    @property
    def kind(self) -> Any:
        """The type of the numbers that are summed."""
        return self.torch.float64 if self.precision == "float64" else self.torch.float32

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Let PyTorch copy and convert small arrays on one thread each, for threads that already use all cores."""
        threads = self.torch.get_num_threads()
        self.torch.set_num_threads(1)
        try:
            yield
        finally:
            self.torch.set_num_threads(threads)

    def load_solvers(self) -> None:
        """Let PyTorch load its solvers for the device, which fails if two threads that solve are the first to need them."""
        one = self.torch.ones((1, 1, 1), dtype=self.torch.float64, device=self.name)
        self.torch.linalg.solve(self.torch.linalg.cholesky(one), one)

    def tensor(self, values: Array, kind: Any = None) -> Any:
        """An array on the device, sent from pinned memory so that the copy does not wait for the processor."""
        if not isinstance(values, np.ndarray):  # it is a tensor
            return values.to(self.name, kind)
        if not values.flags.c_contiguous and values.T.flags.c_contiguous:
            return self.tensor(values.T, kind).T.contiguous()  # sent as it is stored, since a device is faster at turning it
        kind = kind or self.torch.from_numpy(np.empty(0, values.dtype)).dtype
        room = self.torch.empty(values.shape, dtype=kind, pin_memory=self.cuda)
        room.numpy()[...] = values
        return room.to(self.name, non_blocking=True)
