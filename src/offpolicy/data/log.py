"""`Log`: the logged rounds, from arrays in memory or from any `Source`, and how they stream in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, UInt64Array
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.hashing import hash_rows, hash_values
from offpolicy.data import checks
from offpolicy.data.batch import Batch, Partition, Source, chunks, context_place, numbered
from offpolicy.data.encoding import is_flag, too_many_categories
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.preprocessing import AS_THEY_ARE, EncodedContext, Missing, Preprocessing
from offpolicy.data.schema import Dimension, Preparation, Schema, dimensions
from offpolicy.data.spaces import ActionSpace, Discrete, discrete, named_space
from offpolicy.data.subset import SelectedPartition, Subset

FEWEST_IDS = 10
"""The first file may be short: fewer equal ids can be a row that was logged twice."""


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
        return self.whole.with_columns(columns, self.schema.context).take(slice(0, rows))

    def where(self, row: int) -> str:
        return str(row)

    def check_columns(self, columns: Sequence[str]) -> None:
        for name in columns:
            context_place(name, self.schema.context)

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        whole = self.whole.with_columns(columns, self.schema.context)
        return [_Slice(whole, *ends) for ends in chunks(self.rows)]


@dataclass(frozen=True)
class _Slice:
    whole: Batch
    start: int
    stop: int

    def batches(self, rows: int) -> Iterator[Batch]:
        for start in range(self.start, self.stop, rows):
            yield self.whole.take(slice(start, min(start + rows, self.stop)))


class Log:
    """Logged rounds (context, action, reward) with the propensity of each logged action.

    Parameters
    ----------
    context : array of float or None
        What was known before the action was taken: rounds × columns. None if there was no context.
    action : array
        The logged action of each round: codes 0..n−1, labels, or numbers for `actions=op.Box(…)` (rounds × dimensions if
        actions are vectors).
    reward : array of float
        One reward per round, or rounds × rewards.
    propensity : array of float, optional
        The probability (or density) of each logged action under the logging policy.
    logging : policy or EstimatedLogging, optional
        The whole logging policy, or how to estimate it. With it, `propensity` is not needed.
    actions : ActionSpace, sequence or "labels", optional
        The action space, or all labels in order. "labels" treats integers as labels instead of codes.
    n_actions : int, optional
        The number of actions, if they are codes and not all of them occur.
    action_features : array, optional
        Features of the logged action, rounds × features. Integers are categories.
    catalog : array, optional
        Features of each action, actions × features. Integers are categories, unless they are 0 and 1.
    cluster : array, optional
        The unit of each round, such as the user, if rounds of one unit are dependent.
    row_id : array, optional
        A unique id per round, which makes folds and resamples independent of the order of rows.
    weight : array of float, optional
        A weight per round, 0 or more.
    by : array, optional
        A slice per round, such as the country; results are also given per slice.
    reward_range : tuple of float, optional
        The smallest and the largest possible reward, for intervals that need them.
    missing, dates, levels : optional
        How to prepare missing values, dates and text in the context, as in `read_log`. If one of them is given, columns of
        the context may have any plain type, and text is one-hot encoded.

    Examples
    --------
    >>> log = Log(context=[[0.1], [0.2]], action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> len(log), log.actions.tolist()
    (2, ['a', 'b'])
    """

    source: Source
    subset: Subset | None = None
    """The units that belong to the log; None if all units of the source do."""

    def __init__(  # noqa: PLR0913
        self,
        context: npt.ArrayLike | None,
        action: npt.ArrayLike,
        reward: npt.ArrayLike,
        *,
        propensity: npt.ArrayLike | None = None,
        logging: Any = None,
        actions: ActionSpace | Sequence[Any] | npt.NDArray[Any] | str | None = None,
        n_actions: int | None = None,
        action_features: npt.ArrayLike | None = None,
        catalog: npt.ArrayLike | None = None,
        cluster: npt.ArrayLike | None = None,
        row_id: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        by: npt.ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
        missing: Missing | None = None,
        dates: str | Sequence[str] = (),
        levels: int | None = None,
    ) -> None:
        preprocessing = Preprocessing.of(missing, dates, levels)
        taken = checks.array(action, "action")
        shape = () if (named := named_space(actions)) is None else named.shape
        if taken.shape[1:] != shape or not taken.ndim:
            expected = "one action per round is" if not shape else f"rounds × {' × '.join(map(str, shape))} is"
            raise InputError(f"action has shape {taken.shape}; {expected} expected.")
        n = len(taken)
        known, known_dimensions = _feature_matrix(catalog, "catalog", None, "c")
        n_actions = len(known) if n_actions is None and known is not None else n_actions
        n_actions = None if n_actions is None else checks.whole("n_actions", n_actions, 1)
        encoded, space = _encode_actions(taken, actions, n_actions)
        x = _encode_context(context, n, preprocessing)
        r = checks.checked("reward", "reward", checks.matrix(reward, "reward", n))
        if not r.shape[1]:
            raise InputError("reward has no columns; give at least one reward per round.")
        p = checks.numbers(propensity, "propensity", n, space.likelihood)
        omega = checks.numbers(weight, "weight", n)
        features, feature_dimensions = _feature_matrix(action_features, "action_features", n, "e")
        clusters, ids = _hashed(cluster, "cluster", n), _hashed(row_id, "row_id", n)
        slices = checks.column(by, "by", n)
        slice_labels, slice_codes = (
            (None, None) if slices is None else np.unique(checks.texts(slices, "by"), return_inverse=True)
        )
        batch = Batch(
            row=np.arange(n),
            unit=next((unit for unit in (clusters, ids) if unit is not None), hash_rows("", 0, n)),
            action=encoded,
            reward=r,
            context_parts=(x.matrix,),
            space=space,
            propensity=p,
            weight=omega,
            slice_code=slice_codes,
            feature_parts=() if features is None else (features,),
            row_id=ids,
        )
        schema = Schema(
            space=space,
            context=x.names,
            rewards=("reward",) if r.shape[1] == 1 else tuple(f"reward_{j}" for j in range(r.shape[1])),
            slices=None if slice_labels is None else tuple(slice_labels.tolist()),
            slice_name=None if by is None else "by",
            propensity=p is not None,
            weighted=omega is not None,
            clustered=cluster is not None,
            identified=row_id is not None,
            features=numbered("e", features),
            feature_dimensions=feature_dimensions,
            catalog=known,
            catalog_names=numbered("c", known),
            catalog_dimensions=known_dimensions,
            preparation=Preparation(preprocessing.settings, x.notes),
        )
        self.source = _checked(ArraySource(batch, schema), logging)
        self.logging, self.reward_range = logging, checks.reward_range(reward_range)

    @classmethod
    def from_source(cls, source: Source, *, logging: Any = None, reward_range: tuple[float, float] | None = None) -> Log:
        """A log over any `Source`. Use `read_log` for files and tables.

        Parameters
        ----------
        source : Source
            Where the rounds come from.
        logging : policy or EstimatedLogging, optional
            The logging policy, or how to estimate it.
        reward_range : tuple of float, optional
            The smallest and the largest possible reward.

        Returns
        -------
        Log
            The log.
        """
        log = cls.__new__(cls)
        log.source = _checked(source, logging)
        log.logging, log.reward_range = logging, checks.reward_range(reward_range)
        return log

    def limited_to(self, subset: Subset) -> Log:
        """The same log with only some of its units.

        Parameters
        ----------
        subset : Subset
            The units, and the number of their rounds.

        Returns
        -------
        Log
            The rounds of these units. They keep their row numbers.
        """
        log = copy(self)
        log.subset = subset
        return log

    def with_logging(self, logging: Any) -> Log:
        """The same log with another logging policy.

        Parameters
        ----------
        logging : policy
            The logging policy.

        Returns
        -------
        Log
            The same rounds.
        """
        log = copy(self)
        log.source, log.logging = _checked(self.source, logging), logging
        return log

    @property
    def schema(self) -> Schema:
        """The names of the columns, and the meaning of every code."""
        return self.source.schema

    @property
    def space(self) -> ActionSpace:
        """The possible actions."""
        return self.schema.space

    @property
    def described(self) -> str:
        """Where the rounds come from, for reports."""
        return self.source.described if self.subset is None else f"{self.source.described}, {self.subset.described}"

    def __len__(self) -> int:
        return self.source.rows if self.subset is None else self.subset.rows

    @property
    def actions(self) -> npt.NDArray[Any]:
        """The label of each action code, which is the order of columns in policies and tables."""
        return discrete(self.space, "log.actions").to_numpy()

    @property
    def n_actions(self) -> int:
        """The number of actions; only for discrete actions."""
        return discrete(self.space, "log.n_actions").n_actions

    def where(self, row: int) -> str:
        """The place of a row, for messages.

        Parameters
        ----------
        row : int
            The number of the row in the log, from 0.

        Returns
        -------
        str
            Its file, and its number there from 0.
        """
        return self.source.where(row)

    def check_row_ids(self) -> None:
        """Raise if `row_id` has the same value in all of the first rows, so that it cannot identify them."""
        ids = self.head().row_id if self.schema.identified else None
        if ids is not None and len(ids) >= min(len(self), FEWEST_IDS) and (ids == ids[0]).all():
            raise InputError(
                f"row_id: all of the first {len(ids):,} rows have the same value, but a row_id identifies each row. Name "
                "another column, or leave out row_id; if the column identifies units with several rounds, use it as "
                "`cluster`."
            )

    def check_actions(self) -> None:
        """Raise if the first rows show that their actions are not what the action space describes."""
        self.space.check_sample(self.head().action)

    def check_ordered(self, name: str, instead: str) -> None:
        """Raise if the rows of the log have no order, so that an array cannot have one row for each of them.

        Parameters
        ----------
        name : str
            What has one row per round of the log.
        instead : str
            What to do instead.
        """
        if not self.source.ordered:
            raise InputError(
                f"{name} has one row per round of the log, but the rows of a Spark DataFrame have no order. {instead}"
            )

    def head(self, rows: int = 1024, columns: tuple[str, ...] = ()) -> Batch:
        """Some first rounds, without a pass over the log. Those of a log that was split are of the whole log.

        Parameters
        ----------
        rows : int, default 1,024
            The largest number of rounds.
        columns : tuple of str, default ()
            Columns to read in addition to those of the log.

        Returns
        -------
        Batch
            The rounds.
        """
        return self.source.head(rows, columns)

    def partitions(self, columns: tuple[str, ...] = ()) -> Sequence[Partition]:
        """The parts of the log, which can be read in parallel.

        Parameters
        ----------
        columns : tuple of str, default ()
            Columns to read in addition to those of the log.

        Returns
        -------
        sequence of Partition
            Each yields its batches.
        """
        whole = self.source.partitions(columns)
        return whole if self.subset is None else [SelectedPartition(partition, self.subset) for partition in whole]

    def batches(self, rows: int = 65_536) -> Iterator[Batch]:
        """Iterate over all rounds in order, for example for your own estimators.

        Parameters
        ----------
        rows : int, default 65,536
            The largest number of rounds per batch.

        Yields
        ------
        Batch
            Some rounds.

        Examples
        --------
        >>> log = Log(None, action=[0, 1, 1], reward=[1, 0, 1], propensity=[0.5, 0.5, 0.5])
        >>> float(sum((0.5 / b.propensity * b.reward[:, 0]).sum() for b in log.batches()) / len(log))
        0.6666666666666666
        """
        for partition in self.partitions():
            yield from partition.batches(rows)

    @cached_property
    def reward_origin(self) -> FloatArray:
        """A typical value of each reward (the median of the first rows), which is subtracted before summing.

        Any constant gives the same estimates; one near the rewards preserves all digits when rewards are around 1e8.
        """
        origin: FloatArray = np.median(self.head().reward, axis=0)
        return origin

    def __repr__(self) -> str:
        s = self.schema
        return f"Log({len(self):,} rounds, {self.space.described}, context {len(s.context)}, rewards {list(s.rewards)})"


def _encode_context(context: npt.ArrayLike | None, rows: int, preprocessing: Preprocessing) -> EncodedContext:
    """Numbers as they are; with options, columns of any plain type. (Dates are refused there, with advice.)"""
    if context is None or (preprocessing == AS_THEY_ARE and checks.array(context, "context").dtype.kind != "M"):
        given = np.empty((rows, 0)) if context is None else context
        x = checks.checked("context", "context", checks.matrix(given, "context", rows))
        return EncodedContext(x, numbered("x", x), ())
    return EncodedContext.of(context, rows, preprocessing)


def _encode_actions(taken: npt.NDArray[Any], actions: Any, n_actions: int | None) -> tuple[npt.NDArray[Any], ActionSpace]:
    """Encode the actions. If `actions` names no space, integers are codes, unless it is "labels", and others are labels."""
    column = checks.to_arrow(taken, "action")
    missing = np.asarray(column.is_null()) | (taken != taken).reshape(len(taken), -1).any(axis=1)
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
    values: npt.ArrayLike | None, name: str, rows: int | None, letter: str
) -> tuple[FloatArray | None, tuple[Dimension, ...]]:
    """Features as numbers: floats are used as they are, integers are one-hot encoded unless a catalog has 0 and 1."""
    if values is None:
        return None, ()
    whole_numbers = checks.array(values, name).dtype.kind in "iub"
    matrix = checks.matrix(values, name, rows)
    if not whole_numbers:
        numbers = [(f"{letter}{j}", 1, False) for j in range(matrix.shape[1])]
        return checks.checked("features", name, matrix), dimensions(numbers)
    parts, named = [], []
    for j, column in enumerate(matrix.T):
        if name == "catalog" and is_flag(column):
            parts.append(column[:, None])
            named.append((f"{letter}{j}", 1, True))
            continue
        categories, code = np.unique(column, return_inverse=True)
        too_many_categories(f"{name} {j}", len(categories))
        parts.append(np.equal.outer(code, np.arange(len(categories))).astype(np.float64))
        named.append((f"{letter}{j}", len(categories), True))
    return np.hstack(parts), dimensions(named)


def _hashed(values: Any, name: str, rows: int) -> UInt64Array | None:
    """The hash of each row's cluster or id."""
    column = checks.column(values, name, rows)
    return None if column is None else hash_values(checks.to_arrow(column, name))


def _checked(source: Source, logging: Any) -> Source:
    """Return the source if its rounds can be evaluated with this logging policy, and raise otherwise."""
    if source.rows < 2:
        raise InputError(f"the log has fewer than 2 rounds ({source.rows}); a standard error needs at least 2.")
    space = source.schema.space
    if space.count is not None and space.count < 2:
        raise InputError(
            "the log has only one action, so that all policies are the same. If other actions could have been taken, "
            "list them with `actions=` or `n_actions=` (--catalog, --n-actions)."
        )
    if isinstance(logging, EstimatedLogging) and (mismatch := logging.mismatch(space)):
        raise InputError(
            f"logging: EstimatedLogging estimates the probabilities of {mismatch}; give their {space.likelihood} as "
            "`propensity=`, or the logging policy itself."
        )
    if source.schema.propensity and isinstance(logging, EstimatedLogging):
        raise InputError(
            "logging: the log has propensities, and EstimatedLogging estimates them; give one of the two. (To check whether "
            "the logged ones are plausible, evaluate with each and compare.)"
        )
    return source
