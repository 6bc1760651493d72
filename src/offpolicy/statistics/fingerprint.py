"""A fingerprint of the rounds: the same for the same data, whatever the files, their order, the batches and the engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, UInt64Array
from offpolicy.core.hashing import mix
from offpolicy.data.batch import Batch
from offpolicy.data.spaces import ActionSpace
from offpolicy.statistics.base import State

_HALF = np.uint64(32)
_ODD = np.uint64(1)
AT_ONCE = 1 << 15
"""Rows, or numbers of a table, that are combined at a time, so that what is computed stays in the cache."""


@dataclass(frozen=True)
class Fingerprint:
    """The sum over rounds, modulo 2⁶⁴, of a hash of the columns of the log, without those that only policies read.

    Attributes
    ----------
    clustered : bool
        Whether units are clusters, and so part of the data; otherwise they only identify the row.
    """

    clustered: bool = False

    def zero(self) -> State:
        return {"sum": np.zeros(1, np.uint64)}

    def fold(self, state: State, batch: Batch) -> State:
        codes = [batch.action, batch.unit if self.clustered else None, batch.slice_code, batch.logger_code]
        slots = () if batch.slots is None else batch.slots.parts
        parts = [*batch.context_parts, *batch.feature_parts, batch.reward, batch.propensity, batch.weight, *slots]
        # Column by column, not by part: it must not matter whether columns share an array.
        tables = [part.reshape(len(batch), -1).view(np.uint64) for part in (*codes, *parts) if part is not None]
        sums = state["sum"].copy()
        for start in range(0, len(batch), AT_ONCE):
            sums += mix(_combined([table[start : start + AT_ONCE] for table in tables])).sum(dtype=np.uint64)
        return {"sum": sums}

    @staticmethod
    def digest(state: State, rows: int, roles: Mapping[str, Any], space: ActionSpace, catalog: FloatArray | None) -> str:
        """16 hexadecimal digits for the rounds, the roles of the columns, the action space and the catalog."""
        digest = hashlib.blake2b(state["sum"].tobytes(), digest_size=8)
        digest.update(repr((rows, sorted(roles.items()), space.count)).encode())
        digest.update(space.fingerprint())
        if catalog is not None:
            digest.update(np.ascontiguousarray(catalog).tobytes())
        return digest.hexdigest()


def _combined(tables: Sequence[UInt64Array]) -> UInt64Array:
    """Per row, the sum of the bits of each column times its own odd number; both halves of the bits affect all of it."""
    odd = _odd_numbers(sum(table.shape[1] for table in tables))
    rows, room = np.zeros(len(tables[0]), np.uint64), np.empty(len(tables[0]), np.uint64)
    for table in tables:
        own, odd = odd[: table.shape[1]], odd[table.shape[1] :]
        if len(own) > 1 and table.flags.c_contiguous:
            step = AT_ONCE // len(own) + 1
            for some in (slice(start, start + step) for start in range(0, len(rows), step)):
                rows[some] += np.einsum("ij,j->i", _mixed(table[some], np.empty_like(table[some])), own)
            continue
        for column, factor in zip(table.T, own, strict=True):
            _mixed(column, room)
            room *= factor
            rows += room
    return rows


@cache
def _odd_numbers(count: int) -> UInt64Array:
    """The factor of each column."""
    return mix(np.arange(count).astype(np.uint64)) | _ODD


def _mixed(bits: UInt64Array, out: UInt64Array) -> UInt64Array:
    """The bits, with their upper half in the lower one."""
    np.right_shift(bits, _HALF, out=out)
    out ^= bits
    return out
