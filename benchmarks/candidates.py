"""A log in which each round has some candidates out of many actions, in Parquet with list columns.

Each action a has a latent vector v_a, and each round a vector u = x·M computed from its context. The mean reward is a
function of u·v_a and v_a, so that actions with similar vectors have similar rewards. Both policies are softmax over
the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import CONTEXT, cached

LATENT = 5
CHUNK = 20_000
"""Rows generated at a time: 200 candidates of 5 numbers each take 80 MB."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shop:
    """Numbers of rounds, of actions, and of candidates per round."""

    rounds: int
    n_actions: int
    candidates: int
    seed: int = 0

    def path(self) -> Path:
        """The log's file, written on first use."""
        return cached(f"candidates-{self.rounds}-{self.n_actions}-{self.candidates}-{self.seed}.parquet", self.write)

    def write(self, path: Path) -> None:
        rng = np.random.default_rng(self.seed)
        vectors = rng.normal(size=(self.n_actions, LATENT)).astype(np.float32)
        mixing = rng.normal(size=(len(CONTEXT), LATENT)) / np.sqrt(len(CONTEXT) * LATENT)  # u·v_a has variance 1
        writer: pq.ParquetWriter | None = None
        for start in range(0, self.rounds, CHUNK):
            made = self._chunk(rng, min(CHUNK, self.rounds - start), vectors, mixing)
            # Random numbers, so that neither side spends its time on decompression.
            writer = writer or pq.ParquetWriter(path, made.schema, compression="none", use_dictionary=False)
            writer.write_table(made)
        assert writer is not None
        writer.close()

    def _chunk(self, rng: np.random.Generator, n: int, vectors: npt.NDArray[np.float32], mixing: Floats) -> pa.Table:
        x = rng.normal(size=(n, len(CONTEXT)))
        items = self._items(rng, n)
        there = vectors[items]
        liking = np.einsum("nck,nk->nc", there, (x @ mixing).astype(np.float32), optimize=True)
        p_old, p_new = softmax(0.3 * liking), softmax(liking)
        place = np.minimum((p_old.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), self.candidates - 1)
        rows = np.arange(n)
        mean = 0.5 * liking[rows, place] + 0.3 * there[rows, place, 0]
        columns = {name: x[:, j] for j, name in enumerate(CONTEXT)}
        columns |= {"action": items[rows, place], "reward": mean + rng.normal(size=n)}
        # Rounding changes each probability by a relative error of at most 6e-8, and so their sum by no more.
        lists = {"items": items, "p_old": p_old.astype(np.float32), "p_new": p_new.astype(np.float32)}
        return pa.table(columns | {name: as_lists(values) for name, values in lists.items()})

    def _items(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.int32]:
        """Distinct actions in each row: one from each of as many equal ranges. Their order has no meaning."""
        ends = np.linspace(0, self.n_actions, self.candidates + 1).astype(np.int32)
        return rng.integers(ends[:-1], ends[1:], size=(n, self.candidates), dtype=np.int32)


def softmax(scores: npt.NDArray[np.floating]) -> Floats:
    p = np.exp(scores - scores.max(axis=1, keepdims=True), dtype=np.float64)
    return p / p.sum(axis=1, keepdims=True)


def as_lists(values: npt.NDArray[np.generic]) -> pa.ListArray:
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))
