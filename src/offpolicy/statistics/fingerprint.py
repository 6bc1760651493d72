"""A fingerprint of the rounds: the same for the same data, whatever the files, their order, the batches and the engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, UInt64Array
from offpolicy.core.hashing import mix
from offpolicy.data.batch import Batch
from offpolicy.data.spaces import ActionSpace
from offpolicy.statistics.base import State

_HALF = np.uint64(32)
_ODD = np.uint64(1)
AT_ONCE = 1 << 16
"""Numbers that are hashed at a time: 512 KB."""


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
        rows, place = np.zeros(len(batch), np.uint64), 0
        for part in (part.reshape(len(batch), -1) for part in (*codes, *parts) if part is not None):
            _add(part, place, rows)
            place += part.shape[1]
        return {"sum": state["sum"] + mix(rows).sum(dtype=np.uint64)}

    @staticmethod
    def digest(state: State, rows: int, roles: Mapping[str, Any], space: ActionSpace, catalog: FloatArray | None) -> str:
        """16 hexadecimal digits for the rounds, the roles of the columns, the action space and the catalog."""
        digest = hashlib.blake2b(state["sum"].tobytes(), digest_size=8)
        digest.update(repr((rows, sorted(roles.items()), space.count)).encode())
        digest.update(space.fingerprint())
        if catalog is not None:
            digest.update(np.ascontiguousarray(catalog).tobytes())
        return digest.hexdigest()


def _add(part: npt.NDArray[Any], place: int, rows: UInt64Array) -> None:
    """Add the bits of each column times its own odd number; both halves of the bits affect the whole product.

    Some rows at a time, so that what is computed stays in the cache.
    """
    odd = mix(np.arange(place, place + part.shape[1]).astype(np.uint64)) | _ODD
    together = part.shape[1] > 1 and part.flags.c_contiguous
    step = max(1, AT_ONCE // (part.shape[1] if together else 1))
    room = np.empty((step, part.shape[1]) if together else step, np.uint64)
    for some in (slice(start, start + step) for start in range(0, len(rows), step)):
        if together:
            rows[some] += np.einsum("ij,j->i", _mixed(part[some], room), odd)
        else:
            for column, factor in zip(part[some].T, odd, strict=True):
                mixed = _mixed(np.ascontiguousarray(column), room)
                mixed *= factor
                rows[some] += mixed


def _mixed(values: npt.NDArray[Any], room: UInt64Array) -> UInt64Array:
    """The bits, with their upper half in the lower one."""
    bits = values.view(np.uint64)
    out = room[: len(bits)]
    np.right_shift(bits, _HALF, out=out)
    out ^= bits
    return out
