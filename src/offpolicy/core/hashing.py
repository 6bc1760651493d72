"""Randomness as a hash of (seed, unit), independent of order, batching and partitioning.

A *unit* is what is drawn independently: a user (`cluster`), else a `row_id`, else (file, row in file). Each unit falls
into one of 4,096 buckets. Folds and jackknife groups are unions of neighbouring buckets, so they nest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.errors import InputError

BUCKETS = 4096
AT_ONCE = 1 << 15
"""Numbers that are hashed at a time, 256 KB, so that what is computed stays in the cache."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def mix(values: UInt64Array) -> UInt64Array:
    """Scramble 64-bit integers with the finaliser of SplitMix64; equal inputs give equal outputs."""
    mixed = np.add(values, _GOLDEN, order="C")
    flat = mixed.reshape(-1)
    room = np.empty(min(len(flat), AT_ONCE), np.uint64)
    for start in range(0, len(flat), AT_ONCE):
        z = flat[start : start + AT_ONCE]
        shifted = room[: len(z)]
        z ^= np.right_shift(z, np.uint64(30), out=shifted)
        z *= _MIX_1
        z ^= np.right_shift(z, np.uint64(27), out=shifted)
        z *= _MIX_2
        z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return mixed


def hash_name(name: str) -> np.uint64:
    """Hash one string, such as a file name."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def hash_rows(name: str, start: int, count: int) -> UInt64Array:
    """Hash rows start..start+count of the file called `name`."""
    rows = np.arange(start, start + count, dtype=np.uint64)
    rows ^= hash_name(name)
    return mix(rows)


def hash_places(file: IntArray, row: IntArray, names: Mapping[int, str]) -> UInt64Array:
    """Hash rows of several files; `names` maps the number of each file to its name.

    >>> bool((hash_places(np.array([7, 7]), np.array([3, 4]), {7: "a"}) == hash_rows("a", 3, 2)).all())
    True
    """
    files, which = np.unique(file, return_inverse=True)
    if not all(int(each) in names for each in files):
        raise InputError("a file was added after the log was opened. Run it again when nobody writes to the folder.")
    hashes = np.array([hash_name(names[int(each)]) for each in files], dtype=np.uint64)
    return mix(row.astype(np.uint64) ^ hashes[which])


def hash_values(column: pa.Array) -> UInt64Array:
    """Hash the values of a column of any plain type.

    >>> a, b = hash_values(pa.array([7, 8])), hash_values(pa.array(["7", "a longer text"]))
    >>> len({*a.tolist(), *b.tolist()})
    4
    """
    if pa.types.is_dictionary(column.type):
        hashes: UInt64Array = hash_values(column.dictionary)[column.indices.to_numpy(zero_copy_only=False)]
        return hashes
    if pa.types.is_integer(column.type):
        return mix(column.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64))
    if pa.types.is_floating(column.type):
        exact = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # −0.0 becomes 0.0
        return mix(exact.view(np.uint64) ^ _MIX_1)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        try:
            column = pc.cast(column, pa.string())
        except pa.ArrowException:
            raise InputError(f"values of type {column.type} cannot be compared; bytes must be UTF-8 text.") from None
    return _hash_strings(column.cast(pa.large_string()))


def _hash_strings(column: pa.LargeStringArray) -> UInt64Array:
    """Hash strings eight bytes at a time, directly from Arrow's buffers."""
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    padded = np.concatenate([np.frombuffer(data or b"", np.uint8), np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), buffer=padded, strides=(1,))  # every 8-byte window
    state = mix(lengths.astype(np.uint64) ^ _MIX_2)
    position, alive = 0, np.flatnonzero(lengths > 0)
    while len(alive):
        left = np.minimum(lengths[alive] - position, 8).astype(np.uint64)
        mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - np.uint64(8) * left)
        state[alive] = mix(state[alive] ^ (words[starts[alive] + position] & mask))
        position += 8
        alive = alive[lengths[alive] > position]
    return state


def buckets(unit: UInt64Array, seed: int) -> IntArray:
    """The bucket of each unit, 0..4095."""
    salt = mix(np.array([seed], dtype=np.int64).view(np.uint64))[0]
    mixed = mix(unit ^ salt)
    mixed >>= np.uint64(64 - 12)
    return mixed.view(np.int64)


def group_of_bucket(groups: int) -> IntArray:
    """The group of each bucket, where each of `groups` groups is a run of neighbouring buckets.

    >>> group_of_bucket(4)[[0, 1023, 1024, 4095]].tolist()
    [0, 0, 1, 3]
    """
    return np.arange(BUCKETS, dtype=np.int64) * groups // BUCKETS


_POISSON = np.cumsum(np.exp(-1) / np.cumprod(np.concatenate([[1.0], np.arange(1.0, 20.0)])))
"""The distribution function of a Poisson variable with mean 1 at 0, 1, 2, …"""


def drawn_counts(unit: UInt64Array, seed: int, draw: int) -> IntArray:
    """How often each unit occurs in a resampled log: Poisson with mean 1, from the hash of (seed, draw, unit).

    >>> drawn_counts(hash_rows("a", 0, 8), seed=0, draw=0).tolist() == drawn_counts(hash_rows("a", 0, 8), 0, 0).tolist()
    True
    """
    return np.searchsorted(_POISSON, uniform(unit, seed, f"draw {draw}"), side="right").astype(np.int64)


def uniform(unit: UInt64Array, seed: int, purpose: str) -> FloatArray:
    """A number in [0, 1) for each unit, from the hash of (seed, purpose, unit); purposes are independent of each other."""
    salt = mix(mix(np.array([seed], dtype=np.int64).view(np.uint64)) ^ hash_name(purpose))[0]
    numbers: FloatArray = (mix(unit ^ salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers
