"""`Log` and `Batch`: the logged rounds, their checks, and how they stream in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow.types as pt

from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.hashing import hash_rows, hash_values
from offpolicy.data import checks as given
from offpolicy.data.batch import Batch, FloatArray
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.labels import Actions, to_arrow

CHUNK_ROWS = 262_144
"""Rows of a log that one thread takes at a time; fixed, so that results do not depend on the number of threads."""


FEW_ROWS = 4_096
FEW_CHUNKS = 8


def chunks(rows: int) -> Iterator[tuple[int, int]]:
    """Where each chunk of a table in memory starts and stops: several also of a small one, so that no core stands idle."""
    size = min(CHUNK_ROWS, max(FEW_ROWS, -(-rows // FEW_CHUNKS)))
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


class Partition(Protocol):
    """A part of the log that one thread reads from its start to its end."""

    def batches(self, rows: int) -> Iterator[Batch]:
        """The rounds, at most `rows` at a time."""
        ...


@dataclass(frozen=True)
class Dimension:
    """One pre-defined feature: columns start..stop, several where its categories are one-hot encoded."""

    name: str
    start: int
    stop: int
    categorical: bool

    @property
    def width(self) -> int:
        return self.stop - self.start

    def moved(self, by: int) -> Dimension:
        return Dimension(self.name, self.start + by, self.stop + by, self.categorical)


def dimensions(named: Sequence[tuple[str, int | None]]) -> tuple[Dimension, ...]:
    """Dimensions side by side, from names and numbers of categories (None: a number, used as it is)."""
    found, start = [], 0
    for name, categories in named:
        stop = start + (1 if categories is None else categories)
        found.append(Dimension(name, start, stop, categories is not None))
        start = stop
    return tuple(found)


@dataclass(frozen=True)
class Schema:
    """What a log holds: the meaning of every code and column."""

    actions: Actions
    context: tuple[str, ...]
    rewards: tuple[str, ...]
    slices: tuple[str, ...] | None = None
    slice_name: str | None = None
    propensity: bool = False
    weighted: bool = False
    clustered: bool = False
    features: tuple[str, ...] = ()
    feature_dimensions: tuple[Dimension, ...] = ()
    catalog: FloatArray | None = None
    catalog_names: tuple[str, ...] = ()
    catalog_dimensions: tuple[Dimension, ...] = ()


class Source(Protocol):
    """Where a log comes from."""

    @property
    def described(self) -> str:
        """In a few words, for reports."""
        ...

    @property
    def roles(self) -> Mapping[str, str]:
        """The columns that play a role alone, such as the action; none where there are no names."""
        ...

    def where(self, row: int) -> str:
        """A row's place in words: its file and its number there, from 0."""
        ...

    @property
    def schema(self) -> Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def ordered(self) -> bool:
        """Whether rows stand in one order, so that row i of an array can belong to row i of the log."""
        ...

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        """Some first rows, at most so many: any will do that come without a pass over the log."""
        ...

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        """The parts of the log, each batch with the extra named `columns`."""
        ...


class Log:
    """Logged rounds (context, action, reward) with the propensity of each logged action.

    >>> log = Log(context=[[0.1], [0.2]], action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> len(log), log.actions.tolist()
    (2, ['a', 'b'])
    """

    def __init__(
        self,
        context: npt.ArrayLike | None,
        action: npt.ArrayLike,
        reward: npt.ArrayLike,
        *,
        propensity: npt.ArrayLike | None = None,
        logging: Any = None,
        actions: Sequence[Any] | npt.NDArray[Any] | str | None = None,
        n_actions: int | None = None,
        action_features: npt.ArrayLike | None = None,
        catalog: npt.ArrayLike | None = None,
        cluster: npt.ArrayLike | None = None,
        row_id: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        by: npt.ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        source = _ArraySource.build(
            context, action, reward, propensity, actions, n_actions, action_features, catalog, cluster, row_id, weight, by
        )  # fmt: skip
        self._set(source, logging, reward_range)

    @classmethod
    def from_source(cls, source: Source, *, logging: Any = None, reward_range: tuple[float, float] | None = None) -> Log:
        """A log over any `Source`; `read_log` makes them for files and tables."""
        log = cls.__new__(cls)
        log._set(source, logging, reward_range)
        return log

    def _set(self, source: Source, logging: Any, reward_range: tuple[float, float] | None) -> None:
        if source.rows < 2:
            raise InputError(f"the log has fewer than 2 rounds ({source.rows}); an estimate with an error needs them.")
        if source.schema.actions.count < 2:
            raise InputError(
                "the log has one action only, so every policy is the same. If other actions could have been taken, "
                "name them with `actions=` or `n_actions=` (--catalog, --n-actions)."
            )
        if source.schema.propensity and isinstance(logging, EstimatedLogging):
            raise InputError(
                "logging: the log has propensities, and EstimatedLogging estimates them; give one of the two (evaluate both "
                "ways, and compare, to see whether the logged ones are plausible)."
            )
        self._source, self.logging, self.reward_range = source, logging, given.reward_range(reward_range)

    @property
    def schema(self) -> Schema:
        return self._source.schema

    def __len__(self) -> int:
        return self._source.rows

    @property
    def actions(self) -> npt.NDArray[Any]:
        """The label of each action code: the order of every column of every policy and table."""
        return self.schema.actions.to_numpy()

    @property
    def n_actions(self) -> int:
        return self.schema.actions.count

    def where(self, row: int) -> str:
        """A row's place in words: its file and its number there, from 0."""
        return self._source.where(row)

    @property
    def source(self) -> Source:
        """Where the rounds come from, for engines that read it in their own way."""
        return self._source

    def check_ordered(self, name: str, instead: str) -> None:
        """Raise where `name` has one row for each row of the log, and those stand in no order."""
        if not self._source.ordered:
            raise InputError(
                f"{name}: one row for each of the log, but the rows of a Spark DataFrame have no order. {instead}"
            )

    def head(self, rows: int = 1024, columns: tuple[str, ...] = ()) -> Batch:
        """Some first rounds, without a pass over the log."""
        return self._source.head(rows, columns)

    def partitions(self, columns: tuple[str, ...] = ()) -> Sequence[Partition]:
        """The parts of the log, with the extra named columns that a policy reads."""
        return self._source.partitions(columns)

    def batches(self, rows: int = 65_536) -> Iterator[Batch]:
        """All rounds in order, at most `rows` at a time: for estimators of your own.

        >>> log = Log(None, action=[0, 1, 1], reward=[1, 0, 1], propensity=[0.5, 0.5, 0.5])
        >>> float(sum((0.5 / b.propensity * b.reward[:, 0]).sum() for b in log.batches()) / len(log))
        0.6666666666666666
        """
        for partition in self.partitions():
            yield from partition.batches(rows)

    @cached_property
    def anchor(self) -> FloatArray:
        """A typical value of each reward (the median of the first rows), from which sums are taken.

        Any constant gives the same estimates; one near the rewards keeps all digits when they lie around 1e8.
        """
        anchor: FloatArray = np.median(self.head().reward, axis=0)
        return anchor

    def __repr__(self) -> str:
        s = self.schema
        return f"Log({len(self):,} rounds, {self.n_actions:,} actions, context {len(s.context)}, rewards {list(s.rewards)})"


def _encode_actions(taken: npt.NDArray[Any], actions: Any, n_actions: int | None) -> tuple[npt.NDArray[np.int64], Actions]:
    """Integers are codes 0..n−1 unless `actions` lists labels (or is "labels"); other labels are sorted."""
    column = to_arrow(taken, "action")
    missing = np.asarray(column.is_null()) | (taken != taken)
    if missing.any():
        raise RowsError("action", "are missing", np.flatnonzero(missing), "Every round needs the action that was taken.")
    if isinstance(actions, str) and actions != "labels":
        raise InputError(f'`actions` is {actions!r}; give a list of labels, or "labels" to number those that occur.')
    if actions is not None and not isinstance(actions, str):
        book = Actions.listed(actions)
    elif actions is None and pt.is_integer(column.type):
        book = (
            Actions(n_actions)
            if n_actions is not None
            else Actions.codes(int(taken.max()) if len(taken) else -1, len(taken), "action")
        )
    else:
        book = Actions.seen(column)
    codes, bad = book.encode(column)
    if bad.any():
        what, advice = book.unknown(taken[bad][:3].tolist())
        raise RowsError("action", what, np.flatnonzero(bad), advice)
    return codes, book


MOST_CATEGORIES = 1_000


def _feature_matrix(
    values: npt.ArrayLike, name: str, rows: int | None, letter: str
) -> tuple[FloatArray, tuple[Dimension, ...]]:
    """Floats as they are; integers are categories, and are one-hot encoded."""
    whole_numbers = given.array(values, name).dtype.kind in "iub"
    matrix = given.matrix(values, name, rows)
    if not whole_numbers:
        return given.checked("features", name, matrix), dimensions([(f"{letter}{j}", None) for j in range(matrix.shape[1])])
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
        column = given.column(values, name, rows)
        if column is not None:
            return hash_values(to_arrow(column, name))
    return hash_rows("", 0, rows)


@dataclass(frozen=True)
class _ArraySource:
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
        self.partitions(columns)  # says what to do where columns are named
        return self.whole.take(slice(0, rows))

    def where(self, row: int) -> str:
        return str(row)

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        if columns:
            raise InputError(
                f"the log is in memory and has no column {columns[0]!r}; give the policy the array itself, "
                "or read the table with `read_log`."
            )
        return [_Slice(self.whole, *ends) for ends in chunks(self.rows)]

    @classmethod
    def build(
        cls, context: Any, action: Any, reward: Any, propensity: Any, actions: Any, n_actions: int | None,
        action_features: Any, catalog: Any, cluster: Any, row_id: Any, weight: Any, by: Any,
    ) -> _ArraySource:  # fmt: skip
        taken = given.array(action, "action")
        if taken.ndim != 1:
            raise InputError(f"action: shape {taken.shape}; one action a round is expected.")
        n = len(taken)
        catalog_dimensions: tuple[Dimension, ...] = ()
        if catalog is not None:
            catalog, catalog_dimensions = _feature_matrix(catalog, "catalog", None, "c")
            n_actions = len(catalog) if n_actions is None else n_actions
        n_actions = None if n_actions is None else given.whole("n_actions", n_actions, 1)
        codes, book = _encode_actions(taken, actions, n_actions)
        if catalog is not None and len(catalog) != book.count:
            raise InputError(f"catalog: {len(catalog)} rows for {book.count} actions; it needs one row an action.")
        x = given.checked("context", "context", given.matrix(np.empty((n, 0)) if context is None else context, "context", n))
        r = given.checked("reward", "reward", given.matrix(reward, "reward", n))
        if not r.shape[1]:
            raise InputError("reward: has no column; give at least one reward a round.")
        p, omega = given.numbers(propensity, "propensity", n), given.numbers(weight, "weight", n)
        features, feature_dimensions = (
            (None, ()) if action_features is None else _feature_matrix(action_features, "action_features", n, "e")
        )
        slices = given.column(by, "by", n)
        slice_labels, slice_codes = (
            (None, None) if slices is None else np.unique(given.texts(slices, "by"), return_inverse=True)
        )
        unit = _units(cluster, row_id, n)
        batch = Batch(
            row=np.arange(n),
            unit=unit,
            action=codes,
            reward=r,
            context_parts=(x,),
            actions=book,
            propensity=p,
            weight=omega,
            slice_code=slice_codes,
            feature_parts=() if features is None else (features,),
        )
        schema = Schema(
            actions=book,
            context=tuple(f"x{j}" for j in range(x.shape[1])),
            rewards=("reward",) if r.shape[1] == 1 else tuple(f"reward_{j}" for j in range(r.shape[1])),
            slices=None if slice_labels is None else tuple(slice_labels.tolist()),
            slice_name=None if by is None else "by",
            propensity=p is not None,
            weighted=omega is not None,
            clustered=cluster is not None,
            features=() if features is None else tuple(f"e{j}" for j in range(features.shape[1])),
            feature_dimensions=feature_dimensions,
            catalog=catalog,
            catalog_names=() if catalog is None else tuple(f"c{j}" for j in range(catalog.shape[1])),
            catalog_dimensions=catalog_dimensions,
        )
        return cls(batch, schema)


@dataclass(frozen=True)
class _Slice:
    whole: Batch
    start: int
    stop: int

    def batches(self, rows: int) -> Iterator[Batch]:
        for start in range(self.start, self.stop, rows):
            yield self.whole.take(slice(start, min(start + rows, self.stop)))
