"""Array types, and the limits within which products and quotients stay finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.imports import torch
from offpolicy.core.threads import parallel

UInt64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Array = Any
"""An array, or a tensor on a device."""
LARGEST_NUMBER = 1e30
LARGEST_SINGLE = float(np.finfo(np.float32).max)
NEXT_TO_NOTHING = 1e-100
"""Smaller values count as 0 when they would be a divisor."""


COPIED_AT_ONCE = 1 << 24
"""Bytes that one thread copies from a device at a time."""
IN_MEMORY = (1, 3)
"""The devices of DLPack whose memory the processor reads: its own, and pinned memory."""


def on_host(values: Any) -> Any:
    """A tensor on a GPU (anything with `__dlpack__`) as an array in memory; other values as they are."""
    device = getattr(values, "__dlpack_device__", None)
    if device is None or device()[0] in IN_MEMORY:
        return values
    needed = "tensors on a GPU are read by PyTorch, which is not installed; pass them as NumPy arrays."
    library = torch(needed)
    tensor = library.from_dlpack(values)
    if not tensor.ndim or tensor.nbytes <= COPIED_AT_ONCE:
        return tensor.cpu().numpy()
    # In threads and through pinned memory: most of the time goes into memory that is used for the first time.
    out, step = np.empty(tensor.shape, tensor[:0].cpu().numpy().dtype), COPIED_AT_ONCE * len(tensor) // tensor.nbytes + 1

    def copy(k: int) -> None:
        part = tensor[k : k + step]
        out[k : k + step] = library.empty(part.shape, dtype=part.dtype, pin_memory=part.is_cuda).copy_(part).numpy()

    parallel(copy, range(0, len(out), step))
    return out


def library(values: Array) -> Any:
    """The module whose functions apply to an array: NumPy, or PyTorch for a tensor. Many have the same name in both."""
    return np if isinstance(values, (np.ndarray, np.generic)) else torch("PyTorch is not installed.")


def sent(values: npt.ArrayLike, other: Array) -> Array:
    """Values as an array of the library and on the device of another; through pinned memory, so that nothing waits."""
    if library(other) is np:
        return np.asarray(values)
    tensor = library(other).as_tensor(values)
    pinned = tensor.pin_memory() if other.is_cuda and not tensor.is_cuda else tensor
    return pinned.to(other.device, non_blocking=True)


def like(values: npt.ArrayLike, other: Array) -> Array:
    """The same, of the type of another."""
    return np.asarray(values) if library(other) is np else sent(values, other).to(other.dtype)


def zeros(shape: tuple[int, ...], other: Array) -> Array:
    """Zeros as an array of the library, on the device and of the type of another."""
    return np.zeros(shape) if library(other) is np else other.new_zeros(shape)


def to_numpy(values: Array) -> FloatArray:
    """An array or a tensor as an array."""
    return np.asarray(on_host(values), dtype=np.float64)


def wide(columns: int) -> int:
    """The next multiple of 4: products with that many columns take up to a quarter less time."""
    return -(-columns // 4) * 4


def sums_by(key: npt.NDArray[np.integer[Any]], values: FloatArray, keys: int) -> FloatArray:
    """Sum the values of each key from 0 to `keys` − 1."""
    return np.asarray(np.bincount(key, values, keys), dtype=np.float64)


def rows_of(values: FloatArray, rows: IntArray) -> FloatArray:
    """Some rows, to be read only; neighbouring ones are not copied."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        neighbours = values[rows[0] : rows[-1] + 1]
        neighbours.flags.writeable = False
        return neighbours
    return values[rows]


def ratios(probability: FloatArray, propensity: FloatArray) -> FloatArray:
    """How much more probable one is than the other; 0 where it is negligible, so that nothing is divided by it later."""
    w: FloatArray = probability / propensity
    negligible = w < NEXT_TO_NOTHING
    if negligible.any():
        w[negligible] = 0.0
    return w


def rounded_to_24_bits(values: FloatArray) -> npt.NDArray[np.float32]:
    """Numbers whose sum needs no rounding if they have the same exponent and there are fewer than 2²⁹ of them."""
    with np.errstate(over="ignore", under="ignore"):
        rounded: npt.NDArray[np.float32] = values.astype(np.float32)
    return np.clip(rounded, -LARGEST_SINGLE, LARGEST_SINGLE) if not np.isfinite(rounded.sum()) else rounded


def finite_or_none(value: float) -> float | None:
    """A number for JSON, which has neither NaN nor infinity."""
    return float(value) if np.isfinite(value) else None
