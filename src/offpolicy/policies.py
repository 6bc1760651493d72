"""The kinds of policies: the chance of each action in each round, asked batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offpolicy.batch import Batch, FloatArray
from offpolicy.errors import InputError, RowsError
from offpolicy.log import Log
from offpolicy.policy import SUM_TOLERANCE, Policy, blocks, check_probabilities, check_sums
from offpolicy.units import IntArray

Score = Callable[[FloatArray], npt.ArrayLike]


@final
@dataclass(frozen=True)
class Uniform(Policy):
    """Every action alike."""

    def _all(self, batch: Batch) -> FloatArray:
        return np.full((len(batch), batch.n_actions), 1 / batch.n_actions)

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        return np.full(actions.shape, 1 / batch.n_actions)


@final
class Fixed(Policy):
    """Context-free: one probability an action, in the order of `log.actions`, or as {label: probability}."""

    def __init__(self, probabilities: npt.ArrayLike | Mapping[Any, float]) -> None:
        if isinstance(probabilities, Mapping):
            self._labels: list[Any] | None = list(probabilities)
            self._given = np.array(list(probabilities.values()), dtype=np.float64)
        else:
            self._labels, self._given = None, np.asarray(probabilities, dtype=np.float64)
        if self._given.ndim != 1 or not (self._given >= 0).all() or abs(self._given.sum() - 1) > SUM_TOLERANCE:
            raise InputError(
                f"Fixed: probabilities must be a flat list of numbers ≥ 0 that sum to 1; these have shape "
                f"{self._given.shape} and sum to {self._given.sum():.6g}."
            )

    def check(self, log: Log) -> None:
        self._vector(log.schema.actions)

    def _vector(self, actions: Any) -> FloatArray:
        if self._labels is None:
            if len(self._given) != actions.count:
                raise InputError(f"Fixed: {len(self._given)} probabilities for {actions.count} actions.")
            return self._given
        codes, bad = actions.encode(pa.array(self._labels))
        if bad.any():
            raise InputError(f"Fixed: {self._labels[int(np.argmax(bad))]!r} is not an action of this log.")
        vector = np.zeros(actions.count)
        vector[codes] = self._given
        return vector

    def _all(self, batch: Batch) -> FloatArray:
        return np.broadcast_to(self._vector(batch.actions), (len(batch), batch.n_actions))

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        return self._vector(batch.actions)[actions]


@final
class Table(Policy):
    """A rounds × actions matrix whose rows are the rounds of the log, in its order."""

    def __init__(self, probabilities: npt.ArrayLike) -> None:
        self._matrix = np.asarray(probabilities, dtype=np.float64)
        if self._matrix.ndim != 2:
            raise InputError(f"Table: shape {self._matrix.shape}; rounds × actions is expected.")

    def check(self, log: Log) -> None:
        """Look at every row once, in the order of memory, so that the passes over the log need not."""
        log.check_ordered("Table", "Give a function of the context, or the probabilities as columns of the DataFrame.")
        if self._matrix.shape != (len(log), log.n_actions):
            raise InputError(
                f"Table: shape {self._matrix.shape}, but the log has {len(log)} rounds × {log.n_actions} actions."
            )
        ones = np.ones(log.n_actions)
        sums = np.empty(len(log))
        negative: list[int] = []
        for rows in blocks(len(log), log.n_actions):
            p = self._matrix[rows]
            sums[rows] = p @ ones
            if not p.min(initial=0.0) >= 0:  # also true where some value is NaN
                negative += (rows.start + np.flatnonzero(~(p >= 0).all(axis=1))).tolist()
        if negative:
            where = [log.where(row) for row in negative[:3]]
            raise RowsError(
                "Table", "have a negative or NaN probability", negative, "Probabilities must be 0 or more.", where=where
            )
        check_sums(sums, np.arange(len(log)), "Table", log.where)

    def _all(self, batch: Batch) -> FloatArray:
        return self._matrix[batch.row]

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        rows = batch.row if actions.ndim == 1 else batch.row[:, None]
        chances: FloatArray = self._matrix[rows, actions]
        return chances


@final
@dataclass(frozen=True)
class Function(Policy):
    """A plain callable: contexts (rounds × features) to probabilities (rounds × actions)."""

    function: Score

    def _all(self, batch: Batch) -> FloatArray:
        return check_probabilities(_called(self.function, batch, "policy function"), batch, "policy function")


def _called(function: Score, batch: Batch, name: str) -> FloatArray:
    """What the user's function says of a batch; what it raises is told with the rows it was asked about."""
    try:
        return np.asarray(function(batch.context), dtype=np.float64)
    except InputError:
        raise
    except Exception as error:
        asked = f"rows {batch.row.min()} to {batch.row.max()}, contexts of shape {batch.context.shape}"
        raise InputError(f"{name}: the function raised {type(error).__name__}: {error} ({asked}).") from error


def _scores(score: Score, batch: Batch, name: str) -> FloatArray:
    scores = _called(score, batch, name)
    if scores.shape != (len(batch), batch.n_actions):
        raise InputError(
            f"{name}: the scores have shape {scores.shape} where rounds × actions is {(len(batch), batch.n_actions)}."
        )
    return scores


@final
@dataclass(frozen=True)
class Softmax(Policy):
    """π(a|x) ∝ exp(score(x)_a / temperature)."""

    score: Score
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(f"Softmax: temperature is {self.temperature}; it must be above 0 (EpsilonGreedy is its limit).")

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        scores = _scores(self.score, batch, "Softmax")
        top = scores.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():  # NaN spreads through max; +∞ has no softmax; −∞ is a chance of 0
            rows = batch.row[~np.isfinite(top[:, 0])]
            raise RowsError("Softmax", "have a NaN or infinite score", rows, "Check the score function on those rows.")
        p = scores - top
        if self.temperature != 1.0:
            p *= 1 / self.temperature
        np.exp(p, out=p)
        return p, True

    def _all(self, batch: Batch) -> FloatArray:
        p, _ = self.proportional(batch)
        p /= p.sum(axis=1, keepdims=True)
        return p


@final
@dataclass(frozen=True)
class EpsilonGreedy(Policy):
    """The action of highest score with chance 1 − ε, else any action alike (the best one included)."""

    score: Score
    epsilon: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise InputError(f"EpsilonGreedy: epsilon is {self.epsilon}; it must lie between 0 and 1.")

    def _best(self, batch: Batch) -> IntArray:
        scores = _scores(self.score, batch, "EpsilonGreedy")
        bad = np.isnan(scores).any(axis=1)
        if bad.any():
            raise RowsError("EpsilonGreedy", "have a NaN score", batch.row[bad], "Check the score function on those rows.")
        best: IntArray = scores.argmax(axis=1)
        return best

    def _all(self, batch: Batch) -> FloatArray:
        p = np.full((len(batch), batch.n_actions), self.epsilon / batch.n_actions)
        p[np.arange(len(batch)), self._best(batch)] += 1 - self.epsilon
        return p

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        out = np.full(actions.shape, self.epsilon / batch.n_actions)
        for rows in blocks(len(batch), batch.n_actions):
            best = self._best(batch.take(rows))
            out[rows] += (1 - self.epsilon) * (best == actions[rows].T).T
        return out


@final
class Column(Policy):
    """Only π(a_t|x_t) of the logged action is known: the name of a column, or an array. Enough for the IPS family."""

    def __init__(self, probability: str | npt.ArrayLike) -> None:
        self._name = probability if isinstance(probability, str) else None
        self._values = None if isinstance(probability, str) else np.asarray(probability, dtype=np.float64)

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self._name is None else (self._name,)

    @property
    def whole(self) -> bool:
        return False

    def check(self, log: Log) -> None:
        if self._values is not None:
            log.check_ordered("Column", "Put the probabilities into the DataFrame, and give the column's name.")
        if self._values is not None and self._values.shape != (len(log),):
            raise InputError(f"Column: shape {self._values.shape}, but the log has {len(log)} rounds.")

    def _all(self, batch: Batch) -> FloatArray:  # noqa: ARG002
        raise InputError("a Column policy knows the chance of the logged action only.")

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        if actions is not batch.action:
            return self._all(batch)
        if self._values is not None:
            p = self._values[batch.row]
        else:
            p = _as_numbers(batch.extra[self.columns[0]], self.columns[0])
        if not (p.min(initial=0.0) >= 0 and p.max(initial=1.0) <= 1):
            rows = batch.row[~((p >= 0) & (p <= 1))]
            raise RowsError(
                self._name or "Column", "have a target probability that is missing or outside 0..1", rows,
                "It must be the chance that the new policy gives the logged action.",
            )  # fmt: skip
        return p


@final
class Candidates(Policy):
    """Two list columns: the actions that were eligible in the round, and the probability of each."""

    def __init__(self, actions: str | Sequence[Any], probabilities: str | Sequence[Any]) -> None:
        self._named = isinstance(actions, str) and isinstance(probabilities, str)
        if not self._named and (isinstance(actions, str) or isinstance(probabilities, str)):
            raise InputError("Candidates: give two column names, or two sequences of lists.")
        self._pair: Any = (actions, probabilities) if self._named else (pa.array(actions), pa.array(probabilities))

    @property
    def columns(self) -> tuple[str, ...]:
        return self._pair if self._named else ()

    def check(self, log: Log) -> None:
        if not self._named:
            log.check_ordered("Candidates", "Put the lists into the DataFrame, and give the names of the two columns.")
        if not self._named and not len(self._pair[0]) == len(self._pair[1]) == len(log):
            raise InputError(f"Candidates: {len(self._pair[0])} and {len(self._pair[1])} lists for {len(log)} rounds.")

    def _flat(self, batch: Batch) -> tuple[IntArray, IntArray, FloatArray]:
        """Row (within the batch), action code and probability of each candidate."""
        if self._named:
            actions, chances = (batch.extra[name] for name in self._pair)
        else:
            actions, chances = (column.take(pa.array(batch.row)) for column in self._pair)
        for what, column in (("actions", actions), ("probabilities", chances)):
            if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
                raise InputError(f"Candidates: the column of {what} holds {column.type}, not lists.")
        lengths = [_list_lengths(column) for column in (actions, chances)]
        if not np.array_equal(lengths[0], lengths[1]):
            rows = batch.row[lengths[0] != lengths[1]]
            raise RowsError("Candidates", "have lists of different lengths", rows, "Give each candidate one probability.")
        codes, unknown = batch.actions.encode(actions.flatten())
        row = np.repeat(np.arange(len(batch)), lengths[0])
        if unknown.any():
            what, advice = batch.actions.unknown(actions.flatten().filter(pa.array(unknown)).slice(0, 3).to_pylist())
            raise RowsError("Candidates", what, np.unique(batch.row[row[unknown]]), advice)
        p = _as_numbers(chances.flatten(), "Candidates")
        if not p.min(initial=0.0) >= 0:
            rows = np.unique(batch.row[row[~(p >= 0)]])
            raise RowsError(
                "Candidates",
                "have a negative or missing probability",
                rows,
                "Probabilities must be 0 or more.",
            )
        check_sums(_sums_by(row, p, len(batch)), batch.row, "Candidates")
        return row, codes, p

    def _all(self, batch: Batch) -> FloatArray:
        row, codes, p = self._flat(batch)
        size = len(batch) * batch.n_actions
        return _sums_by(row * batch.n_actions + codes, p, size).reshape(len(batch), batch.n_actions)

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        row, codes, p = self._flat(batch)
        if actions.ndim == 1:
            match = codes == actions[row]
            return _sums_by(row[match], p[match], len(batch))
        return np.column_stack([self._some(batch, column) for column in actions.T])


def _as_numbers(column: pa.Array, name: str) -> FloatArray:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        raise InputError(f"{name}: holds lists. Candidates need two columns: the actions, and their probabilities.")
    try:
        values: FloatArray = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise InputError(f"{name}: holds {column.type}, but probabilities are numbers.") from None
    return values


def _sums_by(key: IntArray, values: FloatArray, keys: int) -> FloatArray:
    sums: FloatArray = np.bincount(key, values, keys).astype(np.float64, copy=False)
    return sums


def _list_lengths(column: pa.Array) -> IntArray:
    lengths: IntArray = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


@final
class Mixture(Policy):
    """Several policies, each followed with a fixed chance."""

    def __init__(self, policies: Sequence[Any], weights: npt.ArrayLike) -> None:
        self._policies = [as_policy(policy) for policy in policies]
        self._weights = np.asarray(weights, dtype=np.float64)
        if self._weights.shape != (len(self._policies),) or not (self._weights >= 0).all():
            raise InputError("Mixture: give each policy one weight of 0 or more.")
        if abs(self._weights.sum() - 1) > SUM_TOLERANCE:
            raise InputError(f"Mixture: the weights sum to {self._weights.sum():.6g}, not 1.")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for policy in self._policies for name in policy.columns))

    @property
    def whole(self) -> bool:
        return all(policy.whole for policy in self._policies)

    def check(self, log: Log) -> None:
        for policy in self._policies:
            policy.check(log)

    def _all(self, batch: Batch) -> FloatArray:
        return self._mix(policy.probabilities(batch) for policy in self._policies)

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        return self._mix(policy.probabilities(batch, actions) for policy in self._policies)

    def _mix(self, parts: Iterator[FloatArray]) -> FloatArray:
        mixed = [weight * part for weight, part in zip(self._weights, parts, strict=True)]
        total: FloatArray = np.sum(mixed, axis=0)
        return total


def as_policy(policy: Any) -> Policy:
    """A policy from what users write: a policy, a column's name, a pair of list columns, a matrix, a callable."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        return Column(policy)
    if isinstance(policy, tuple) and len(policy) == 2 and all(isinstance(name, str) for name in policy):
        return Candidates(*policy)
    if isinstance(policy, type):
        raise InputError(f"{policy.__name__} is a class; write {policy.__name__}(…).")
    if callable(policy):
        return Function(policy)
    shape = np.shape(policy)
    if len(shape) == 2:
        return Table(policy)
    if len(shape) == 1:
        raise InputError(
            "a flat list of numbers could be one probability an action (say `Fixed(...)`) or the chance of each logged "
            "action (say `Column(...)`)."
        )
    raise InputError(
        f"cannot read a policy from {type(policy).__name__}; give a policy, a callable, a rounds × actions matrix, "
        "a column's name, or a pair of list columns."
    )
