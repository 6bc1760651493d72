"""`Embedding`: each action, or each round, as a few numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from offpolicy.core import storage
from offpolicy.core.arrays import Array, FloatArray, library, like, to_numpy
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.core.imports import pandas
from offpolicy.data.batch import Batch
from offpolicy.data.checks import places
from offpolicy.data.features import Combinations, Features

SAME = 1e-11
"""Embeddings whose spread is below this fraction of their size are equal up to rounding."""
MATRICES = ("values", "published", "scaled")
METADATA = b"offpolicy"
SUFFIXES = (".parquet", ".pq")


class RowEmbeddings(Protocol):
    """Embeddings that vary within an action: one per round."""

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

    @property
    def by_action(self) -> bool:
        """Whether rounds with the same features, but different actions, may differ."""
        return self.features.catalog is not None or not (self.own == self.own[0]).all()

    def combinations(self, most: int) -> Combinations | None:
        """The combinations of categories, if the embedding depends on nothing else, and not more than `most`."""
        return None if self.by_action else self.features.combinations(most)

    def mapped(self, matrix: FloatArray) -> FeatureMap:
        return FeatureMap(self.own @ matrix, self.shared @ matrix, self.features)


@dataclass(frozen=True)
class Embedding:
    """The embedding of each action and, if features vary within an action, of each round.

    Parameters
    ----------
    table : array of shape (n_actions, k)
        The embedding of each action, at its mean features if these vary; a tensor if it was fitted on a device.
    counts : array of shape (n_actions,)
        The rounds of each action in the fit; 0 for an action that was never logged.
    common : bool, default=False
        Whether all dimensions have the unit of the reward; if not, each has its own unit.
    own_units : array of shape (k, k), optional
        e·own_units is the embedding in the units of the columns of the log, as published; None if it already is.
    varying : RowEmbeddings, optional
        The embedding of each round.
    covariance : array of shape (k, k), optional
        The covariance of the estimation error of e, averaged over the rounds.
    turned : bool, default=False
        Whether the axes are arbitrary, such as principal axes, which a refit may rotate or flip.
    reward : array of shape (n_actions,), optional
        The expected reward of each action at the mean context.
    within : array of shape (k, k), optional
        The covariance of the rounds' embeddings around that of their action, if they vary.
    """

    table: Array
    counts: FloatArray
    common: bool = False
    own_units: FloatArray | None = None
    varying: RowEmbeddings | None = None
    covariance: FloatArray | None = None
    turned: bool = False
    reward: FloatArray | None = None
    within: FloatArray | None = field(default=None, repr=False)

    def on_host(self) -> Embedding:
        """With arrays in memory."""
        return replace(self, table=to_numpy(self.table))

    def turned_to(self, other: Embedding) -> Embedding:
        """The embedding rotated to the axes of another fit, as closely as possible (Procrustes)."""
        share = self.counts / max(float(self.counts.sum()), 1e-300)
        mine, theirs = self.table - share @ self.table, other.table - share @ other.table
        left, _, right = np.linalg.svd((mine * share[:, None]).T @ theirs)
        turn = left @ right
        varying = self.varying.mapped(turn) if isinstance(self.varying, FeatureMap) else self.varying
        return replace(self, table=self.table @ turn, varying=varying)

    def check(self, name: str) -> None:
        """Raise if no weights can be computed from it."""
        low, high = _range(self.table)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            bad = np.flatnonzero(~np.isfinite(to_numpy(self.table)).all(axis=1))
            raise InputError(
                f"{name}: the embedding of {len(bad):,} actions is NaN or infinite, first that of code {bad[0]}. Check the "
                "reward model: the usual cause is a learning rate that is too high."
            )
        if not (self.counts > 0).all():
            low, high = _range(self.table[self.counts > 0])
        size, spread = np.maximum(np.abs(low), np.abs(high)), high - low
        if isinstance(self.varying, FeatureMap):
            spread = spread + np.abs(self.varying.shared).max(axis=0)
        if (spread <= SAME * (size.max() if self.common else size)).all():
            raise InputError(
                f"{name}: the embedding is the same for every action, so its weights would give the mean of the log. The "
                "reward does not distinguish the actions: check that it varies, and that the penalty is not too large."
            )


def _range(table: Array) -> tuple[FloatArray, FloatArray]:
    """The smallest and the largest value of each column; NaN if one is."""
    xp = library(table)
    return to_numpy(xp.amin(table, axis=0)), to_numpy(xp.amax(table, axis=0))


@dataclass(frozen=True)
class Affine:
    """z = (e − shift)·matrix: embeddings on a common scale."""

    shift: FloatArray
    matrix: FloatArray

    def __call__(self, e: Array) -> Array:
        return (e - like(self.shift, e)) @ like(self.matrix, e)

    @classmethod
    def of(cls, embedding: Embedding, scaled: bool) -> Affine:
        """Scale dimensions that share a unit to a mean variance of 1, by one number; others each to a variance of 1.

        The variance is that over the logged rounds. If not `scaled`, the embedding is as published.
        """
        size = embedding.table.shape[1]
        if not scaled:
            return cls(np.zeros(size), np.eye(size) if embedding.own_units is None else embedding.own_units)
        share = like(embedding.counts / embedding.counts.sum(), embedding.table)
        mean = share @ embedding.table
        shift, variance = to_numpy(mean), to_numpy(share @ (embedding.table - mean) ** 2)
        if embedding.within is not None:
            variance = variance + np.diag(embedding.within)
        if embedding.common:
            variance = np.full(size, variance.mean())
        return cls(shift, np.diag(1 / np.sqrt(np.where(variance > 0, variance, 1.0))))


@dataclass(frozen=True)
class LabelledEmbedding:
    """A fitted embedding with the labels of its actions, from which the public table is made on demand."""

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
    """The embedding of every action, such as `result["LearnedMIPS"].embedding`.

    Parameters
    ----------
    actions : array of shape (n_actions,)
        The labels of the actions.
    counts : array of shape (n_actions,)
        The rounds of each action in the fit.
    reward : array of shape (n_actions,) or None
        The expected reward of each action at the mean context; None if the embedding was not learned.
    values : array of shape (n_actions, k)
        The embedding. For a ridge model, the effect of one standard deviation of each context column, then the level at the
        mean context, all in the unit of the reward.
    published : array of shape (n_actions, k)
        The same in the units of the context columns, with the level at a context of 0, as in the paper.
    scaled : array of shape (n_actions, k)
        `values` on the common scale on which `nearest` measures distances.
    model : str, default=""
        The model that learned it, in words.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.embed(op.worlds.Toy(10).sample(1_000, seed=0))
    EmbeddingTable(10 actions × 6, 10 of them logged)
    """

    actions: npt.NDArray[Any]
    counts: FloatArray
    reward: FloatArray | None
    values: FloatArray
    published: FloatArray
    scaled: FloatArray
    model: str = ""

    def __repr__(self) -> str:
        logged = int((self.counts > 0).sum())
        return f"EmbeddingTable({len(self):,} actions × {self.values.shape[1]}, {logged:,} of them logged)"

    def __len__(self) -> int:
        return len(self.actions)

    def nearest(self, action: Any, count: int = 10) -> list[tuple[Any, float]]:
        """Return the actions closest to one, each with its distance on the common scale.

        Parameters
        ----------
        action : label
            An action of the log.
        count : int, default=10
            How many to return.

        Returns
        -------
        list of (label, float)
            The closest first.
        """
        at = np.flatnonzero(self.actions == action)
        if not len(at):
            raise InputError(f"{action!r} is not an action of this log.")
        distance = np.sqrt(((self.scaled - self.scaled[at[0]]) ** 2).sum(axis=1))
        order = [k for k in np.argsort(distance, kind="stable") if k != at[0]][:count]
        return [(self.actions[k : k + 1].tolist()[0], float(distance[k])) for k in order]

    def to_arrow(self) -> Any:
        """Return a pyarrow table with one row per action: label, count, estimated reward, and e0, e1, and so on."""
        import pyarrow as pa

        columns: dict[str, Any] = {"action": self.actions, "count": self.counts}
        if self.reward is not None:
            columns["reward"] = self.reward
        columns |= {f"e{j}": self.values[:, j] for j in range(self.values.shape[1])}
        return pa.table(columns)

    def aligned(self, labels: npt.ArrayLike) -> EmbeddingTable:
        """Return the table for other labels, in their order, so that `.values` is a catalog for a log with these actions.

        Parameters
        ----------
        labels : array-like
            Labels of actions, such as `log.actions`.
        """
        at = places(self.actions, np.asarray(labels), "the embedding")
        parts = {name: getattr(self, name)[at] for name in ("actions", "counts", *MATRICES)}
        return replace(self, **parts, reward=None if self.reward is None else self.reward[at])

    def save(self, path: str | Path) -> None:
        """Save as Parquet: the columns of `to_arrow`, `published`, `scaled`, and a checksum.

        Parameters
        ----------
        path : str or Path
            Must end in .parquet or .pq.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise InputError(f"{path}: an embedding is saved as Parquet; the name must end in .parquet.")
        parts = [self.counts, *(getattr(self, name) for name in MATRICES), *([] if self.reward is None else [self.reward])]
        if not all(np.isfinite(part).all() for part in parts):
            raise InputError("the embedding contains NaN or infinite numbers, so it was not saved.")
        table = self.to_arrow()
        for name in ("published", "scaled"):
            table = table.append_column(name, pa.array(list(getattr(self, name)), pa.list_(pa.float64())))
        about = {**storage.stamp("embedding"), "model": self.model, "sha256": storage.digest(*_content(self))}
        with whole_file(path) as draft:
            pq.write_table(table.replace_schema_metadata({METADATA: json.dumps(about)}), draft)

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per action."""
        pandas("to_arrow()")
        return self.to_arrow().to_pandas()


def _content(table: EmbeddingTable) -> Iterator[bytes]:
    """The content that the checksum covers."""
    yield storage.exact([table.model, table.values.shape, [str(label) for label in table.actions.tolist()]])
    for part in (table.counts, table.values, table.published, table.scaled, table.reward):
        yield b"" if part is None else np.ascontiguousarray(part, dtype="<f8").tobytes()


def load_embedding(path: str | Path) -> EmbeddingTable:
    """Load an embedding that `EmbeddingTable.save` wrote, and check its version, sizes, numbers and checksum.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    EmbeddingTable
        The embedding of every action.

    Raises
    ------
    InputError
        If the file is missing, damaged, or of a newer version.

    Examples
    --------
    >>> import tempfile, offpolicy as op
    >>> table = op.embed(op.worlds.Toy(10).sample(1_000, seed=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.save(f"{folder}/items.parquet")
    ...     len(op.load_embedding(f"{folder}/items.parquet"))
    10
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    try:
        with pq.ParquetFile(path) as file:
            header = (file.schema_arrow.metadata or {}).get(METADATA)
            about = {} if header is None else storage.as_json(path, header)
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
        flat, expected = column, pa.float64()
        if width is not None:
            flat, expected = (column.flatten() if pa.types.is_list(column.type) else column), pa.list_(pa.float64())
        values = None if column.type != expected or column.null_count else flat.to_numpy(zero_copy_only=False)
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
