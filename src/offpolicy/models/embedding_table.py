"""`Embedding`: what is known of each action, or of each round, in a few numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from offpolicy.core import storage
from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.core.imports import pandas
from offpolicy.data.batch import Batch
from offpolicy.data.checks import places
from offpolicy.data.features import Features

SAME = 1e-11
"""Embeddings whose spread is below this part of their size are the same but for rounding."""
MATRICES = ("values", "published", "scaled")
METADATA = b"offpolicy"
SUFFIXES = (".parquet", ".pq")


class RowEmbeddings(Protocol):
    """Embeddings that vary within an action: one a round."""

    def rows(self, batch: Batch) -> FloatArray: ...


@dataclass(frozen=True)
class FeatureMap:
    """own_a + φ·shared: linear in the action's identity and in the features φ of the round."""

    own: FloatArray
    shared: FloatArray
    features: Features

    def rows(self, batch: Batch) -> FloatArray:
        rows: FloatArray = self.own[batch.action] + self.features.rows(batch) @ self.shared
        return rows

    def mapped(self, matrix: FloatArray) -> FeatureMap:
        return FeatureMap(self.own @ matrix, self.shared @ matrix, self.features)


@dataclass(frozen=True)
class Embedding:
    """The embedding of each action and, where features vary within an action, of each round."""

    table: FloatArray
    """Actions × k; at each action's mean features where `varying` gives one a round."""
    counts: FloatArray
    """The rounds of each action behind it; 0 where the action was never logged."""
    common: bool = False
    """Whether all dimensions have one unit, that of the reward; else each has its own."""
    own_units: FloatArray | None = None
    """k × k: e·own_units is the embedding in the units of the log's columns, as it is published. None: it is already."""
    varying: RowEmbeddings | None = None
    covariance: FloatArray | None = None
    """k × k: with which e is estimated, averaged over the rounds."""
    turned: bool = False
    """Whether its axes are a choice, such as principal ones, which the next fit may turn or flip."""
    reward: FloatArray | None = None
    """The reward that the model expects of each action at the mean context."""
    within: FloatArray | None = field(default=None, repr=False)
    """k × k: the covariance of the rounds' embeddings around that of their action, where they vary."""

    def turned_to(self, other: Embedding) -> Embedding:
        """The same with its axes turned to those of another fit, as well as a rotation can (Procrustes)."""
        share = self.counts / max(float(self.counts.sum()), 1e-300)
        mine, theirs = self.table - share @ self.table, other.table - share @ other.table
        left, _, right = np.linalg.svd((mine * share[:, None]).T @ theirs)
        turn = left @ right
        varying = self.varying.mapped(turn) if isinstance(self.varying, FeatureMap) else self.varying
        return replace(self, table=self.table @ turn, varying=varying)

    def check(self, name: str) -> None:
        """Raise where no weights can come of it."""
        if not np.isfinite(self.table).all():
            bad = np.flatnonzero(~np.isfinite(self.table).all(axis=1))
            raise InputError(
                f"{name}: the embedding of {len(bad):,} actions is NaN or infinite, the first with code {bad[0]}. "
                "Check the reward model: a learning rate that is too high is the usual cause."
            )
        logged = self.table[self.counts > 0]
        size, spread = np.abs(logged).max(axis=0), np.ptp(logged, axis=0)
        if isinstance(self.varying, FeatureMap):
            spread = spread + np.abs(self.varying.shared).max(axis=0)
        if (spread <= SAME * (size.max() if self.common else size)).all():
            raise InputError(
                f"{name}: the embedding is the same for every action, so weights by it would give the mean of the log. "
                "The reward does not tell the actions apart: check that it varies, and that the penalty is not too large."
            )


@dataclass(frozen=True)
class Affine:
    """z = (e − shift)·matrix: embeddings on a common scale."""

    shift: FloatArray
    matrix: FloatArray

    def __call__(self, e: FloatArray) -> FloatArray:
        z: FloatArray = (e - self.shift) @ self.matrix
        return z

    @classmethod
    def of(cls, embedding: Embedding, scaled: bool) -> Affine:
        """One number brings all dimensions to a mean variance of 1 where they share a unit; else each has variance 1.

        The spread is that of the logged rounds. Not `scaled`: the embedding as it is published.
        """
        size = embedding.table.shape[1]
        if not scaled:
            return cls(np.zeros(size), np.eye(size) if embedding.own_units is None else embedding.own_units)
        share = embedding.counts / embedding.counts.sum()
        shift = share @ embedding.table
        variance = share @ (embedding.table - shift) ** 2
        if embedding.within is not None:
            variance = variance + np.diag(embedding.within)
        if embedding.common:
            variance = np.full(size, variance.mean())
        return cls(shift, np.diag(1 / np.sqrt(np.where(variance > 0, variance, 1.0))))


@dataclass(frozen=True)
class LabelledEmbedding:
    """A fitted embedding with the labels of its actions, from which a table is made when somebody looks at it."""

    actions: npt.NDArray[Any]
    embedding: Embedding
    learned: bool
    model: str = ""

    def table(self) -> EmbeddingTable:
        e = self.embedding
        published = e.table if e.own_units is None else e.table @ e.own_units
        scaled = Affine.of(e, scaled=True)(e.table)
        return EmbeddingTable(
            self.actions, e.counts, e.reward if self.learned else None, e.table, published, scaled, self.model
        )  # fmt: skip


@dataclass(frozen=True, repr=False)
class EmbeddingTable:
    """The embedding of every action, to look at: `result["LearnedMIPS"].embedding`."""

    actions: npt.NDArray[Any]
    counts: FloatArray
    reward: FloatArray | None
    """The reward that the model expects of each action at the mean context; None where the embedding was not learned."""
    values: FloatArray
    """Actions × k. Of a ridge model: the effect of one standard deviation of each context column, then the level at the mean
    context, all in the unit of the reward."""
    published: FloatArray
    """Actions × k: the same in the units of the context's columns, with the level at a context of 0, as the paper has it."""
    scaled: FloatArray
    """Actions × k: `values` on the common scale in which `nearest` takes distances."""
    model: str = ""
    """What it was learned by, in words."""

    def __repr__(self) -> str:
        logged = int((self.counts > 0).sum())
        return f"EmbeddingTable({len(self):,} actions × {self.values.shape[1]}, {logged:,} of them logged)"

    def __len__(self) -> int:
        return len(self.actions)

    def nearest(self, action: Any, count: int = 10) -> list[tuple[Any, float]]:
        """The actions closest to one, each with its distance on the common scale."""
        at = np.flatnonzero(self.actions == action)
        if not len(at):
            raise InputError(f"{action!r} is not an action of this log.")
        distance = np.sqrt(((self.scaled - self.scaled[at[0]]) ** 2).sum(axis=1))
        order = [k for k in np.argsort(distance, kind="stable") if k != at[0]][:count]
        return [(self.actions[k : k + 1].tolist()[0], float(distance[k])) for k in order]

    def to_arrow(self) -> Any:
        """One row an action: label, count, estimated reward, e0, e1, …"""
        import pyarrow as pa

        columns: dict[str, Any] = {"action": self.actions, "count": self.counts}
        if self.reward is not None:
            columns["reward"] = self.reward
        columns |= {f"e{j}": self.values[:, j] for j in range(self.values.shape[1])}
        return pa.table(columns)

    def aligned(self, labels: npt.ArrayLike) -> EmbeddingTable:
        """The same for other labels, in their order, such as `log.actions`: `.values` is then a catalog for that log."""
        at = places(self.actions, np.asarray(labels), "the embedding")
        parts = {name: getattr(self, name)[at] for name in ("actions", "counts", *MATRICES)}
        return replace(self, **parts, reward=None if self.reward is None else self.reward[at])

    def save(self, path: str | Path) -> None:
        """As Parquet, which any tool reads: the columns of `to_arrow`, `published`, `scaled`, and a checksum."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise InputError(f"{path}: an embedding is saved as Parquet; the name must end in .parquet.")
        parts = [self.counts, *(getattr(self, name) for name in MATRICES), *([] if self.reward is None else [self.reward])]
        if not all(np.isfinite(part).all() for part in parts):
            raise InputError("the embedding holds NaN or infinite numbers, so it is not saved.")
        table = self.to_arrow()
        for name in ("published", "scaled"):
            table = table.append_column(name, pa.array(list(getattr(self, name)), pa.list_(pa.float64())))
        about = {**storage.stamp("embedding"), "model": self.model, "sha256": storage.digest(*_content(self))}
        with whole_file(path) as draft:
            pq.write_table(table.replace_schema_metadata({METADATA: json.dumps(about)}), draft)

    def to_frame(self) -> Any:
        """The same as a pandas data frame."""
        pandas("to_arrow()")
        return self.to_arrow().to_pandas()


def _content(table: EmbeddingTable) -> Iterator[bytes]:
    """What the checksum is taken of."""
    yield storage.exact([table.model, table.values.shape, [str(label) for label in table.actions.tolist()]])
    for part in (table.counts, table.values, table.published, table.scaled, table.reward):
        yield b"" if part is None else np.ascontiguousarray(part, dtype="<f8").tobytes()


def load_embedding(path: str | Path) -> EmbeddingTable:
    """What `EmbeddingTable.save` wrote, checked: its format and version, its sizes, its numbers and its checksum."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    try:
        with pq.ParquetFile(path) as file:
            told = (file.schema_arrow.metadata or {}).get(METADATA)
            about = {} if told is None else storage.as_json(path, told)
            storage.check_stamp(path, "embedding", about if isinstance(about, dict) else {})
            names = file.schema_arrow.names
            groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
            storage.check_room(path, 8.0 * sum(g.column(j).num_values for g in groups for j in range(g.num_columns)))
            table = file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise storage.damaged(path, f"it cannot be read as Parquet ({str(error).splitlines()[0]})") from None
    size = sum(name.startswith("e") and name[1:].isdigit() for name in names)
    rewarded = ["reward"] if "reward" in names else []
    if names != ["action", "count", *rewarded, *(f"e{j}" for j in range(size)), "published", "scaled"]:
        raise storage.damaged(path, f"its columns are {', '.join(names)}")

    def numbers(name: str, width: int | None = None) -> FloatArray:
        column = table.column(name).combine_chunks()
        flat, wanted = column, pa.float64()
        if width is not None:
            flat, wanted = (column.flatten() if pa.types.is_list(column.type) else column), pa.list_(pa.float64())
        values = None if column.type != wanted or column.null_count else flat.to_numpy(zero_copy_only=False)
        if values is None or len(values) != len(table) * (width or 1) or not np.isfinite(values).all():
            raise storage.damaged(path, f"the column {name!r} does not hold a finite number for every action")
        return np.asarray(values if width is None else values.reshape(len(table), width), dtype=np.float64)

    loaded = EmbeddingTable(
        actions=table.column("action").to_numpy(),
        counts=numbers("count"),
        reward=numbers("reward") if rewarded else None,
        values=np.column_stack([np.empty((len(table), 0)), *(numbers(f"e{j}") for j in range(size))]),
        published=numbers("published", size),
        scaled=numbers("scaled", size),
        model=str(about.get("model", "")),
    )
    storage.check_digest(path, about.get("sha256"), *_content(loaded))
    return loaded
