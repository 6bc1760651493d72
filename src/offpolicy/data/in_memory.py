"""A log of arrays in memory: its actions, features and units, checked and encoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, RowsError, unknown_name
from offpolicy.core.hashing import hash_rows, hash_values
from offpolicy.data import checks
from offpolicy.data.batch import Batch
from offpolicy.data.labels import to_arrow
from offpolicy.data.partitions import Partition, chunks
from offpolicy.data.schema import Dimension, Schema, dimensions
from offpolicy.data.spaces import ActionSpace, Discrete, named_space

MOST_CATEGORIES = 1_000


def _encode_actions(taken: npt.NDArray[Any], actions: Any, n_actions: int | None) -> tuple[npt.NDArray[Any], ActionSpace]:
    """Where `actions` names no space, integers are codes 0..n−1 (unless it is "labels"), and other labels are sorted."""
    column = to_arrow(taken, "action")
    missing = np.asarray(column.is_null()) | (taken != taken)
    if missing.any():
        raise RowsError("action", "are missing", np.flatnonzero(missing), "Every round needs the action that was taken.")
    space = named_space(actions)
    if space is None and actions is None and pt.is_integer(column.type):
        largest = int(taken.max()) if len(taken) else -1
        space = Discrete.codes(largest, len(taken), "action") if n_actions is None else Discrete(n_actions)
    space = Discrete.seen(column) if space is None else space
    encoded, bad = space.encode(column)
    if bad.any():
        what, advice = space.unknown(taken[bad][:3].tolist())
        raise RowsError("action", what, np.flatnonzero(bad), advice)
    return encoded, space


def _feature_matrix(
    values: npt.ArrayLike, name: str, rows: int | None, letter: str
) -> tuple[FloatArray, tuple[Dimension, ...]]:
    """Floats as they are; integers are categories, and are one-hot encoded."""
    whole_numbers = checks.array(values, name).dtype.kind in "iub"
    matrix = checks.matrix(values, name, rows)
    if not whole_numbers:
        return checks.checked("features", name, matrix), dimensions([(f"{letter}{j}", None) for j in range(matrix.shape[1])])
    parts, named = [], []
    for j, column in enumerate(matrix.T):
        categories, code = np.unique(column, return_inverse=True)
        too_many_categories(f"{name} {j}", len(categories))
        parts.append(np.equal.outer(code, np.arange(len(categories))).astype(np.float64))
        named.append((f"{letter}{j}", len(categories)))
    return np.hstack(parts), dimensions(named)


def too_many_categories(name: str, count: int) -> None:
    """Raise where a column of categories is hardly one."""
    if count > MOST_CATEGORIES:
        raise InputError(
            f"{name}: {count:,} different values are too many for one-hot encoding (at most {MOST_CATEGORIES:,}). Whole "
            "numbers and text are categories among features: make a quantity a float, or group the rare values."
        )


def _units(cluster: Any, row_id: Any, rows: int) -> npt.NDArray[np.uint64]:
    """The hash of each row's unit of randomness: its cluster, else its id, else its number."""
    for name, values in (("cluster", cluster), ("row_id", row_id)):
        column = checks.column(values, name, rows)
        if column is not None:
            return hash_values(to_arrow(column, name))
    return hash_rows("", 0, rows)


def with_context_columns(batch: Batch, names: Sequence[str], context: Sequence[str]) -> Batch:
    """The batch with some columns of its context by name, as policies read them."""
    found = {name: pa.array(batch.context[:, _place(name, context)]) for name in names}
    return replace(batch, extra={**batch.extra, **found}) if found else batch


def _place(name: str, context: Sequence[str]) -> int:
    if name not in context:
        advice = "The log is of arrays: give the policy the array itself, or read the table with `read_log`."
        raise InputError(f"{unknown_name('column', name, context)} {advice}")
    return context.index(name)


def context_names(context: FloatArray) -> tuple[str, ...]:
    """The columns of an array have no names of their own."""
    return tuple(f"x{j}" for j in range(context.shape[1]))


@dataclass(frozen=True)
class ArraySource:
    """A log in memory. Batches are views of its arrays."""

    whole: Batch
    schema: Schema
    ordered: bool = True
    described: str = "arrays in memory"
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.whole)

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        return with_context_columns(self.whole, columns, self.schema.context).take(slice(0, rows))

    def where(self, row: int) -> str:
        return str(row)

    def check_columns(self, columns: Sequence[str]) -> None:
        for name in columns:
            _place(name, self.schema.context)

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        whole = with_context_columns(self.whole, columns, self.schema.context)
        return [_Slice(whole, *ends) for ends in chunks(self.rows)]


@dataclass(frozen=True)
class _Slice:
    whole: Batch
    start: int
    stop: int

    def batches(self, rows: int) -> Iterator[Batch]:
        for start in range(self.start, self.stop, rows):
            yield self.whole.take(slice(start, min(start + rows, self.stop)))


@dataclass(frozen=True)
class LogArrays:
    """What `Log` is given, one array per role, before anything is checked."""

    context: Any
    action: Any
    reward: Any
    propensity: Any
    actions: Any
    n_actions: int | None
    action_features: Any
    catalog: Any
    cluster: Any
    row_id: Any
    weight: Any
    by: Any

    def source(self) -> ArraySource:
        """The checked and encoded log."""
        taken = checks.array(self.action, "action")
        if taken.ndim != 1:
            raise InputError(f"action: shape {taken.shape}; one action a round is expected.")
        n = len(taken)
        catalog, catalog_dimensions = (
            (None, ()) if self.catalog is None else _feature_matrix(self.catalog, "catalog", None, "c")
        )
        n_actions = len(catalog) if self.n_actions is None and catalog is not None else self.n_actions
        n_actions = None if n_actions is None else checks.whole("n_actions", n_actions, 1)
        encoded, space = _encode_actions(taken, self.actions, n_actions)
        context = np.empty((n, 0)) if self.context is None else self.context
        x = checks.checked("context", "context", checks.matrix(context, "context", n))
        r = checks.checked("reward", "reward", checks.matrix(self.reward, "reward", n))
        if not r.shape[1]:
            raise InputError("reward: has no column; give at least one reward a round.")
        p = checks.numbers(self.propensity, "propensity", n, space.likelihood)
        omega = checks.numbers(self.weight, "weight", n)
        features, feature_dimensions = (
            (None, ()) if self.action_features is None else _feature_matrix(self.action_features, "action_features", n, "e")
        )
        slices = checks.column(self.by, "by", n)
        slice_labels, slice_codes = (
            (None, None) if slices is None else np.unique(checks.texts(slices, "by"), return_inverse=True)
        )
        batch = Batch(
            row=np.arange(n),
            unit=_units(self.cluster, self.row_id, n),
            action=encoded,
            reward=r,
            context_parts=(x,),
            space=space,
            propensity=p,
            weight=omega,
            slice_code=slice_codes,
            feature_parts=() if features is None else (features,),
        )
        schema = Schema(
            space=space,
            context=context_names(x),
            rewards=("reward",) if r.shape[1] == 1 else tuple(f"reward_{j}" for j in range(r.shape[1])),
            slices=None if slice_labels is None else tuple(slice_labels.tolist()),
            slice_name=None if self.by is None else "by",
            propensity=p is not None,
            weighted=omega is not None,
            clustered=self.cluster is not None,
            features=() if features is None else tuple(f"e{j}" for j in range(features.shape[1])),
            feature_dimensions=feature_dimensions,
            catalog=catalog,
            catalog_names=() if catalog is None else tuple(f"c{j}" for j in range(catalog.shape[1])),
            catalog_dimensions=catalog_dimensions,
        )
        return ArraySource(batch, schema)
