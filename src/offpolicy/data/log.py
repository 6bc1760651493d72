"""`Log`: the logged rounds, from arrays in memory or from any `Source`, and how they stream in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, UInt64Array, on_host
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.hashing import hash_rows, hash_values
from offpolicy.data import checks
from offpolicy.data.batch import Batch, Partition, Source, chunks, context_place, numbered
from offpolicy.data.encoding import is_flag, too_many_categories
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.loggers import logging_of
from offpolicy.data.monte_carlo import MonteCarlo, estimated, impossible, refusal
from offpolicy.data.preprocessing import AS_THEY_ARE, EncodedContext, Missing, Preprocessing
from offpolicy.data.schema import Dimension, Preparation, Schema, dimensions
from offpolicy.data.slate import Gain, as_lists, logged_lists
from offpolicy.data.slots import Logged
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
        for piece in self.pieces(rows):
            yield self.whole.take(slice(piece.start, piece.stop))

    def pieces(self, rows: int) -> list[_Slice]:
        starts = range(self.start, self.stop, rows)
        return [_Slice(self.whole, start, min(start + rows, self.stop)) for start in starts]


class Log:
    """Logged rounds (context, action, reward) with the propensity of each logged action.

    Parameters
    ----------
    context : array of float or None
        What was known before the action was taken: rounds × columns. None if there was no context.
    action : array
        The logged action of each round: codes 0..n−1, labels, numbers for `actions=op.Box(…)` (rounds × dimensions if
        actions are vectors), or lists for `actions=op.Slate(…)`.
    reward : array of float
        One reward per round, or rounds × rewards. For lists: one reward per list, lists of one reward per slot, or rounds ×
        slots × rewards.
    propensity : array of float or MonteCarlo, optional
        The probability (or density) of each logged action under the logging policy, or the draws that estimate it. For
        lists: of each item given the items above it, or of the whole list.
    position_propensity : array of float, optional
        For lists: the probability of each item in its slot, whatever stands above it.
    logging : policy, EstimatedLogging or dict, optional
        The whole logging policy, or how to estimate it. With it, `propensity` is not needed. With `logger`, a dict of
        policies by logger.
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
    gain : {"sum", "dcg"} or sequence of float, default "sum"
        For lists with rewards per slot: how much the reward of each slot counts. "dcg" is 1 / log2(1 + slot).
    logger : array, optional
        Which of several logging policies took the action of each round, such as a version.
    loggers : {"balanced", "own", "weighted"}, optional
        How the weights of several loggers are combined, as in `read_log`.
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
        propensity: npt.ArrayLike | MonteCarlo | None = None,
        position_propensity: npt.ArrayLike | None = None,
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
        gain: Gain = "sum",
        logger: npt.ArrayLike | None = None,
        loggers: str | None = None,
        missing: Missing | None = None,
        dates: str | Sequence[str] = (),
        levels: int | None = None,
    ) -> None:
        preprocessing = Preprocessing.of(missing, dates, levels)
        named = named_space(actions)
        lists = named is not None and named.slots is not None
        taken = as_lists(action, "action") if lists else _column(action, () if named is None else named.shape)
        n = len(taken)
        known, known_dimensions = _feature_matrix(catalog, "catalog", None, "c")
        n_actions = len(known) if n_actions is None and known is not None else n_actions
        n_actions = None if n_actions is None else checks.whole("n_actions", n_actions, 1)
        encoded, space = _encode_actions(taken, named, actions, n_actions)
        x = _encode_context(context, n, preprocessing)
        logged = _logged(space, encoded, reward, propensity, position_propensity, gain)
        r = logged.reward
        omega = checks.numbers(weight, "weight", n)
        features, feature_dimensions = _feature_matrix(action_features, "action_features", n, "e")
        clusters, ids = _hashed(cluster, "cluster", n), _hashed(row_id, "row_id", n)
        slice_labels, slice_codes = _levels(by, "by", n)
        logger_labels, logger_codes = _levels(logger, "logger", n)
        batch = Batch(
            row=np.arange(n),
            unit=next((unit for unit in (clusters, ids) if unit is not None), hash_rows("", 0, n)),
            action=encoded,
            reward=r,
            context_parts=(x.matrix,),
            space=space,
            propensity=logged.propensity,
            slots=logged.slots,
            weight=omega,
            slice_code=slice_codes,
            logger_code=logger_codes,
            wins=logged.wins,
            feature_parts=() if features is None else (features,),
            row_id=ids,
        )
        schema = Schema(
            space=space,
            context=x.names,
            rewards=("reward",) if r.shape[1] == 1 else tuple(f"reward_{j}" for j in range(r.shape[1])),
            slices=slice_labels,
            slice_name=None if by is None else "by",
            loggers=logger_labels,
            draws=propensity if isinstance(propensity, MonteCarlo) else None,
            propensity=logged.propensity is not None,
            slot_propensity=logged.slots is not None and logged.slots.propensity is not None,
            position_propensity=position_propensity is not None,
            gain=logged.gain,
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
        self.logging = logging_of(logging, loggers, schema)
        self.source = _checked(ArraySource(batch, schema), self.logging)
        self.reward_range = checks.reward_range(reward_range)

    @classmethod
    def from_source(
        cls,
        source: Source,
        *,
        logging: Any = None,
        reward_range: tuple[float, float] | None = None,
        loggers: str | None = None,
    ) -> Log:
        """A log over any `Source`. Use `read_log` for files and tables.

        Parameters
        ----------
        source : Source
            Where the rounds come from.
        logging : policy, EstimatedLogging or dict, optional
            The logging policy, or how to estimate it; a dict of policies if the source has loggers.
        reward_range : tuple of float, optional
            The smallest and the largest possible reward.
        loggers : {"balanced", "own", "weighted"}, optional
            How the weights of several loggers are combined.

        Returns
        -------
        Log
            The log.
        """
        log = cls.__new__(cls)
        log.logging = logging_of(logging, loggers, source.schema)
        log.source, log.reward_range = _checked(source, log.logging), checks.reward_range(reward_range)
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

    def with_range(self, reward_range: tuple[float, float] | None) -> Log:
        """The same log with another range of the rewards.

        Parameters
        ----------
        reward_range : tuple of float, optional
            The smallest and the largest possible reward.

        Returns
        -------
        Log
            The same rounds.
        """
        log = copy(self)
        log.reward_range = checks.reward_range(reward_range)
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
        """The label of each action code, which is the order of columns in policies and tables. For lists, of each item."""
        return (self.space.items or discrete(self.space, "log.actions")).to_numpy()

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

    @cached_property
    def slot_origin(self) -> FloatArray | None:
        """The same for the rewards of the slots of a list: rewards × slots."""
        slots = self.head().slots
        return None if slots is None or slots.reward is None else np.median(slots.reward, axis=0)

    def __repr__(self) -> str:
        s = self.schema
        return f"Log({len(self):,} rounds, {self.space.described}, context {len(s.context)}, rewards {list(s.rewards)})"


def _encode_context(context: npt.ArrayLike | None, rows: int, preprocessing: Preprocessing) -> EncodedContext:
    """Numbers as they are; with options, columns of any plain type. (Dates are refused there, with advice.)"""
    context = on_host(context)
    if context is None or (preprocessing == AS_THEY_ARE and checks.array(context, "context").dtype.kind != "M"):
        given = np.empty((rows, 0)) if context is None else context
        x = checks.checked("context", "context", checks.matrix(given, "context", rows))
        return EncodedContext(x, numbered("x", x), ())
    return EncodedContext.of(context, rows, preprocessing)


def _column(action: npt.ArrayLike, shape: tuple[int, ...]) -> pa.Array:
    """One action per round."""
    taken = checks.labels(action, "action") if not shape else checks.array(action, "action")
    if taken.shape[1:] != shape or not taken.ndim:
        one = "one action per round is" if not shape else f"rounds × {' × '.join(map(str, shape))} is"
        hint = "" if shape else ", or lists and actions=op.Slate(…)"
        raise InputError(f"action has shape {taken.shape}; {one} expected{hint}.")
    column = checks.to_arrow(taken, "action")
    _refuse_missing(np.asarray(column.is_null()) | (taken != taken).any(axis=tuple(range(1, taken.ndim))))
    return column


def _refuse_missing(missing: npt.NDArray[np.bool_]) -> None:
    if missing.any():
        raise RowsError("action", "are missing", np.flatnonzero(missing), "Every round needs the action that was taken.")


def _encode_actions(
    column: pa.Array, named: ActionSpace | None, actions: Any, n_actions: int | None
) -> tuple[npt.NDArray[Any], ActionSpace]:
    """Encode the actions. If `actions` names no space, integers are codes, unless it is "labels", and others are labels."""
    _refuse_missing(np.asarray(column.is_null()))
    space = named
    if space is None or not space.found:
        values = column if space is None else space.values(column)
        if actions != "labels" and pt.is_integer(values.type):
            largest = pc.max(values).as_py() if len(values) else -1
            seen = Discrete.codes(largest, len(column), "action") if n_actions is None else Discrete(n_actions)
        else:
            seen = Discrete.seen(values)
        space = seen if space is None else space.over(seen)
    encoded, bad = space.encode(column)
    if bad.any():
        what, advice = space.unknown(column.filter(pa.array(bad)).slice(0, 3).to_pylist())
        raise RowsError("action", what, np.flatnonzero(bad), advice)
    return encoded, space


def _logged(  # noqa: PLR0913
    space: ActionSpace, encoded: npt.NDArray[Any], reward: Any, propensity: Any, position_propensity: Any, gain: Gain
) -> Logged:
    """Rewards and propensities, of single actions or of lists."""
    if isinstance(propensity, MonteCarlo):
        discrete(space, "MonteCarlo")
    if space.slots is not None:
        return logged_lists(space, encoded, reward, propensity, position_propensity, gain)
    if position_propensity is not None or not isinstance(gain, str) or gain != "sum":
        raise InputError("position_propensity= and gain= are for lists; give actions=op.Slate(…), or leave them out.")
    r = checks.checked("reward", "reward", checks.matrix(reward, "reward", len(encoded)))
    if not r.shape[1]:
        raise InputError("reward has no columns; give at least one reward per round.")
    p, wins = _propensities(propensity, len(encoded), space)
    return Logged(r, p, wins=wins)


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


def _propensities(
    propensity: npt.ArrayLike | MonteCarlo | None, rows: int, space: ActionSpace
) -> tuple[FloatArray | None, FloatArray | None]:
    """The propensity of each round and, if it comes from draws, how often its action won."""
    if not isinstance(propensity, MonteCarlo):
        return checks.numbers(propensity, "propensity", rows, space.likelihood), None
    wins, draws = (checks.numbers(getattr(propensity, name), name, rows, "reward") for name in ("wins", "draws"))
    if wins is None or draws is None:
        raise InputError("MonteCarlo: give both `wins` and `draws`.")
    if (bad := impossible(propensity, wins, draws)).any():
        what, advice = refusal(propensity, wins[bad], draws[bad])
        raise RowsError("propensity", what, np.flatnonzero(bad), advice)
    return estimated(propensity, wins, draws), wins


def _levels(values: Any, name: str, rows: int) -> tuple[tuple[str, ...] | None, npt.NDArray[Any] | None]:
    """The sorted values of a column, as text, and the position of each row's value among them."""
    column = checks.column(values, name, rows)
    if column is None:
        return None, None
    labels, codes = np.unique(checks.texts(column, name), return_inverse=True)
    return tuple(labels.tolist()), codes


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
