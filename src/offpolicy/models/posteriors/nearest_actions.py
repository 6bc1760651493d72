"""The actions nearest to each action: if there are very many, the others contribute almost nothing to a round."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.threads import parallel

Some = npt.NDArray[np.bool_]
BLOCK_ELEMENTS = 1 << 20
SAMPLE = 4_096
ROOM = 1.3
SINGLE = 1e4
"""Single precision is enough for squared distances up to this."""


@dataclass(frozen=True)
class Near:
    """The codes of the logged actions nearest to each action, itself included (actions × neighbours).

    Actions that were never logged often share one embedding, that of the pooled model. Then one of them represents all in
    the last column, with their total probability, and `unseen` marks them.
    """

    codes: npt.NDArray[np.int32]
    unseen: Some | None = None

    @property
    def count(self) -> int:
        return int(self.codes.shape[1]) - (self.unseen is not None)


def nearest(points: FloatArray, precision: FloatArray, seen: Some, requested: Some, count: int) -> Near:
    """By (z − z')ᵀ·precision·(z − z'). Actions that are not `requested` have only themselves as neighbours."""
    values, vectors = np.linalg.eigh(precision)
    positive = values > values.max(initial=0.0) * 1e-12
    z = points @ (vectors[:, positive] * np.sqrt(values[positive]))
    rows = np.flatnonzero(seen & requested)
    alike = not seen.all() and not np.ptp(points[~seen], axis=0).any()
    among = np.flatnonzero(seen) if alike else np.arange(len(points))
    count = min(count, len(among))
    out = np.repeat(np.arange(len(points), dtype=np.int32)[:, None], count + alike, axis=1)
    codes = among[nearest_of(z[among], z[rows], count)]
    itself = (codes == rows[:, None]).any(axis=1)
    codes[~itself, -1] = rows[~itself]  # it may be missing if many are at the same point
    out[rows, :count] = codes
    if alike:
        out[:, -1] = np.flatnonzero(~seen)[0]
    return Near(out, ~seen if alike else None)


def nearest_of(points: FloatArray, queries: FloatArray, count: int) -> IntArray:
    """The indices of the points nearest to each query (queries × count), by brute force in blocks.

    Only distances below a limit estimated from a sample are sorted. (benchmarks/neighbours.py compares with a k-d tree and
    with an approximate index.)
    """
    middle = points.mean(axis=0)
    points, queries = points - middle, queries - middle
    squares = np.einsum("ij,ij->i", points, points)
    kind: Any = np.float32 if squares.max(initial=0.0) < SINGLE else np.float64
    table = np.column_stack([points, squares]).astype(kind).T.copy()
    sample = table[:, np.random.default_rng(0).permutation(len(points))[:SAMPLE]]
    enough = min(sample.shape[1] - 1, int(np.ceil(ROOM * count * sample.shape[1] / len(points))) + 4)
    out = np.empty((len(queries), count), np.int64)
    step = max(1, BLOCK_ELEMENTS // len(points))

    def block(start: int) -> None:
        some = queries[start : start + step]
        query: Any = np.column_stack([-2 * some, np.ones(len(some))]).astype(kind)
        limit = np.partition(query @ sample, enough, axis=1)[:, enough]
        distance = query @ table  # minus |query|², which is the same for all points
        flat = np.flatnonzero(distance <= limit[:, None])
        edges = np.searchsorted(flat, np.arange(len(some) + 1) * len(points))
        for i, (a, b) in enumerate(pairwise(edges)):
            few = flat[a:b] - i * len(points) if b - a >= count else np.arange(len(points))
            out[start + i] = few[np.argpartition(distance[i, few], count - 1)[:count]]

    parallel(block, range(0, len(queries), step))
    return out
