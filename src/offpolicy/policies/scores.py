"""Policies from scores, `Softmax` and `EpsilonGreedy`, and the score of two towers, whose actions come in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.hashing import IntArray
from offpolicy.core.threads import parallel
from offpolicy.data.batch import Batch, FloatArray
from offpolicy.data.checks import NUMBERS, array, floats
from offpolicy.data.log import Log
from offpolicy.policies.base import Listed, Policy, blocks
from offpolicy.policies.candidates import Eligible, answers_of, grid_of

Score = Callable[[FloatArray], npt.ArrayLike]
ROWS_AT_ONCE = 512
ACTIONS_AT_ONCE = 512
"""A block of scores of two towers: it stays in a core's cache between the product, the exponential and the sums."""


SAFE = 50.0
"""exp(±50) times a billion actions is a number in single precision, too."""


def called(function: Score, batch: Batch, name: str) -> npt.NDArray[Any]:
    """What the user's function says of a batch; what it raises is told with the rows it was asked about."""
    asked = f"rows {batch.row.min()} to {batch.row.max()}, contexts of shape {batch.context.shape}"
    try:
        said = function(batch.context)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{name}: the function raised {type(error).__name__}: {error} ({asked}).") from error
    try:
        read = np.asarray(said)
        return read if read.dtype.kind in NUMBERS else floats(said, name)
    except ValueError:  # InputError among them
        kind = type(said).__name__
        raise InputError(f"{name}: the function gave a {kind} that is no array of numbers ({asked}).") from None


@final
class TwoTower:
    """The score user vector · item vector (+ bias), for very many actions: `op.Softmax(op.TwoTower(items, users))`.

    `items` is actions × k in the order of `log.actions`, and `users` a function of the contexts (rounds × features) that
    gives rounds × k; without one the context is the user vector. Policies over it never hold rounds × actions: they go
    through blocks of actions. It is computed in the precision of `items`: float32 takes half the time of float64, and
    chances are then right to about 1 part in 10,000.
    """

    def __init__(self, items: npt.ArrayLike, users: Score | None = None, *, bias: npt.ArrayLike | None = None) -> None:
        if isinstance(items, Mapping) or not _plain_index(items):
            raise InputError(
                "TwoTower: items has labels of its own, which are not looked at. Give a plain matrix with its rows in the "
                "order of `log.actions`, such as frame.loc[log.actions].to_numpy()."
            )
        if users is not None and not callable(users):
            raise InputError(
                "TwoTower: users must be a function of the contexts (rounds × features) that gives a vector a round; for "
                "vectors that are in the log already, name their columns as `context` and leave `users` out."
            )
        vectors = array(items, "TwoTower: items")
        kind = np.float32 if vectors.dtype == np.float32 else np.float64
        if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.number):
            raise InputError(
                f"TwoTower: items must be a finite matrix, actions × k, of numbers; this is {vectors.dtype} of shape "
                f"{vectors.shape}."
            )
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise InputError(
                f"TwoTower: items must be a finite matrix; {len(bad):,} rows hold NaN or infinity, the first is row "
                f"{bad[0]}."
            )
        level = np.zeros(len(vectors)) if bias is None else floats(bias, "TwoTower: bias")
        if level.shape != (len(vectors),) or not np.isfinite(level).all():
            raise InputError(f"TwoTower: bias must be one finite number an item; it has shape {level.shape}.")
        self._items: npt.NDArray[Any] = (
            np.column_stack([vectors, level]).astype(kind) if bias is not None else vectors.astype(kind)
        )
        self._users, self._bias = users, bias is not None

    def __call__(self, context: FloatArray) -> npt.NDArray[Any]:
        """Rounds × actions, for those who want them all."""
        users = np.asarray(context if self._users is None else self._users(context))
        scores: npt.NDArray[Any] = self._padded(users) @ self._items.T
        return scores

    def _padded(self, users: npt.NDArray[Any]) -> npt.NDArray[Any]:
        wanted = self._items.shape[1] - self._bias
        if users.ndim != 2 or users.shape[1] != wanted:
            raise InputError(f"TwoTower: user vectors of shape {users.shape}, but the items have {wanted} dimensions.")
        users = users.astype(self._items.dtype, copy=False)
        return np.column_stack([users, np.ones(len(users), users.dtype)]) if self._bias else users

    @property
    def single(self) -> bool:
        """Whether it is computed in single precision."""
        return self._items.dtype == np.float32

    def check(self, n_actions: int) -> None:
        if len(self._items) != n_actions:
            raise InputError(
                f"TwoTower: {len(self._items):,} item vectors for {n_actions:,} actions. Rows follow `log.actions`; where "
                "there are items that were never logged, list all labels with `actions=` or `catalog=` when the log is read."
            )

    def vectors(self, batch: Batch, name: str) -> npt.NDArray[Any]:
        """The user vector of each round."""
        self.check(batch.n_actions)
        users = batch.context if self._users is None else called(self._users, batch, name)
        users = self._padded(np.asarray(users))
        if len(users) != len(batch):
            raise InputError(f"{name}: {len(users)} user vectors for {len(batch)} rounds.")
        bad = ~np.isfinite(users).all(axis=1)
        if bad.any():
            raise RowsError(name, "have a NaN or infinite user vector", batch.row[bad], "Check the function of users.")
        return users

    def bound(self, users: npt.NDArray[Any]) -> float:
        """No score of these users is larger in size: |u|·|v| at their largest."""
        return float(np.sqrt((users.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)) * self._longest)

    @cached_property
    def _longest(self) -> float:
        return float(np.sqrt((self._items.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)))

    def some(self, users: npt.NDArray[Any], row: IntArray, code: IntArray) -> FloatArray:
        """Scores of some (round, action)."""
        out = np.empty(len(row))
        for start in range(0, len(row), ROWS_AT_ONCE * 32):
            some = slice(start, start + ROWS_AT_ONCE * 32)
            out[some] = np.einsum("ij,ij->i", users[row[some]], self._items[code[some]])
        return out

    def each(self, users: npt.NDArray[Any]) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Blocks of actions with their scores: rounds × some actions. The array is used again for the next block."""
        room = np.empty((len(users), ACTIONS_AT_ONCE), users.dtype)
        for start in range(0, len(self._items), ACTIONS_AT_ONCE):
            some = slice(start, min(start + ACTIONS_AT_ONCE, len(self._items)))
            out = (
                room if some.stop - some.start == ACTIONS_AT_ONCE else np.empty((len(users), some.stop - start), users.dtype)
            )
            yield some, np.matmul(users, self._items[some].T, out=out)


def _plain_index(items: Any) -> bool:
    """Whether rows are known by their place alone."""
    index = getattr(items, "index", None)
    return index is None or callable(index) or list(index) == list(range(len(items)))


def _runs(rows: int) -> Iterator[slice]:
    """Runs of about equal length."""
    count = max(1, -(-rows // ROWS_AT_ONCE))
    return (slice(a, b) for a, b in pairwise(rows * k // count for k in range(count + 1)))


def _scores(score: Score, batch: Batch, name: str) -> FloatArray:
    scores = called(score, batch, name).astype(np.float64, copy=False)
    if scores.shape != (len(batch), batch.n_actions):
        raise InputError(
            f"{name}: the scores have shape {scores.shape} where rounds × actions is {(len(batch), batch.n_actions)}."
        )
    return scores


def _eligible(batch: Batch, column: str, name: str) -> Eligible:
    eligible = Eligible.named(column, batch, name)
    empty = np.diff(eligible.starts) == 0
    if empty.any():
        raise RowsError(name, "have no candidate", batch.row[empty], f"Every round needs one in {column!r}.")
    return eligible


def _eligible_scores(score: Score, batch: Batch, eligible: Eligible, name: str) -> FloatArray:
    """The scores of the candidates alone where the score can do that."""
    if isinstance(score, TwoTower):
        return score.some(score.vectors(batch, name), eligible.row, eligible.codes)
    out = np.empty(len(eligible.codes))
    for rows in blocks(len(batch), batch.n_actions):
        some = slice(eligible.starts[rows.start], eligible.starts[rows.stop])
        scores = _scores(score, batch.take(rows), name)
        out[some] = scores[eligible.row[some] - rows.start, eligible.codes[some]]
    return out


@dataclass(frozen=True)
class _Scored(Policy):
    """What policies from scores share: `candidates` names a list column of the actions that are eligible in each round."""

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self._column is None else (self._column,)

    @property
    def lists(self) -> bool:
        return self._column is not None

    @property
    def _column(self) -> str | None:
        column: str | None = getattr(self, "candidates", None)
        return column

    @property
    def accuracy(self) -> float:
        score = getattr(self, "score", None)
        return 1e-3 if isinstance(score, TwoTower) and score.single else super().accuracy

    def check(self, log: Log) -> None:
        if self._column is not None and not isinstance(self._column, str):
            raise InputError(
                f"{type(self).__name__}: candidates must be the name of one list column of the log; where the lists are in "
                "memory, put them into the table and read that with `read_log`, or use op.Candidates."
            )
        score = getattr(self, "score", None)
        if isinstance(score, TwoTower):
            score.check(log.n_actions)


@final
@dataclass(frozen=True)
class Softmax(_Scored):
    """π(a|x) ∝ exp(score(x)_a / temperature), over all actions or over the `candidates` of each round."""

    score: Score
    temperature: float = 1.0
    candidates: str | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(f"Softmax: temperature is {self.temperature}; it must be above 0 (EpsilonGreedy is its limit).")

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        if self.lists:
            return grid_of(self.listed(batch), batch.n_actions), False
        scores = _scores(self.score, batch, "Softmax")
        top = scores.max(axis=1, keepdims=True)
        _check_top(top[:, 0], batch)
        p = scores - top
        if self.temperature != 1.0:
            p *= 1 / self.temperature
        np.exp(p, out=p)
        return p, True

    def _all(self, batch: Batch) -> FloatArray:
        p, loose = self.proportional(batch)
        if loose:
            p /= p.sum(axis=1, keepdims=True)
        return p

    def listed(self, batch: Batch) -> Listed:
        assert self.candidates is not None
        eligible = _eligible(batch, self.candidates, "Softmax")
        scores = _eligible_scores(self.score, batch, eligible, "Softmax") / self.temperature
        starts, lengths = eligible.starts[:-1], np.diff(eligible.starts)
        top = np.maximum.reduceat(scores, starts)
        _check_top(top, batch)
        p = np.exp(scores - np.repeat(top, lengths))
        p /= np.repeat(np.add.reduceat(p, starts), lengths)
        return eligible.with_chances(p)

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        if self.lists:
            return answers_of(self.listed(batch), batch.n_actions, values, row, code)
        if not isinstance(self.score, TwoTower):
            return super().answers(batch, values, row, code)
        users = self.score.vectors(batch, "Softmax") / float(self.temperature)
        padded = np.column_stack([values, np.ones(len(values))]).astype(users.dtype, copy=False)
        sums, top = np.empty((len(batch), padded.shape[1])), np.empty(len(batch))

        def run(rows: slice) -> None:
            assert isinstance(self.score, TwoTower)
            sums[rows], top[rows] = self._summed(self.score, users[rows], padded)

        parallel(run, _runs(len(batch)))  # a log of few rounds is one partition, and its policy may be all the work
        _check_top(top, batch)
        chances = np.exp(self.score.some(users, row, code) - top[row]) / sums[row, -1]
        np.minimum(chances, 1.0, out=chances)  # rounding
        return sums[:, :-1] / sums[:, -1:], chances

    @staticmethod
    def _summed(score: TwoTower, users: npt.NDArray[Any], padded: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Σ_a exp(score − top)·padded_a, and the top: each block of actions is added as it is made, and forgotten."""
        if score.bound(users) <= SAFE:  # then nothing can overflow, and 0 will do as the top
            safe = np.zeros((len(users), padded.shape[1]))
            for some, scores in score.each(users):
                safe += np.exp(scores, out=scores) @ padded[some]
            return safe, np.zeros(len(users))
        sums, top = np.zeros((len(users), padded.shape[1])), np.full(len(users), -np.inf)
        for some, scores in score.each(users):
            higher = np.maximum(top, scores.max(axis=1))
            scores -= higher[:, None].astype(scores.dtype)
            np.exp(scores, out=scores)
            with np.errstate(invalid="ignore"):
                sums *= np.where(top == higher, 1.0, np.exp(top - higher))[:, None]
            sums += scores @ padded[some]
            top = higher
        return sums, top


def _check_top(top: FloatArray, batch: Batch) -> None:
    if not np.isfinite(top).all():  # NaN spreads through max; +∞ has no softmax; −∞ is a chance of 0
        rows = batch.row[~np.isfinite(top)]
        raise RowsError("Softmax", "have a NaN or infinite score", rows, "Check the score function on those rows.")


@final
@dataclass(frozen=True)
class EpsilonGreedy(_Scored):
    """The action of highest score with chance 1 − ε, else any action (or any of the round's `candidates`) alike.

    Among several of the same score it is the first: the lowest code, or the first in the list.
    """

    score: Score
    epsilon: float = 0.05
    candidates: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise InputError(f"EpsilonGreedy: epsilon is {self.epsilon}; it must lie between 0 and 1.")

    def _best(self, batch: Batch) -> IntArray:
        if isinstance(self.score, TwoTower):
            users = self.score.vectors(batch, "EpsilonGreedy")
            return np.concatenate([_best_of_towers(self.score, users[rows]) for rows in _runs(len(batch))])
        scores = _scores(self.score, batch, "EpsilonGreedy")
        _check_scores(np.asarray(np.isnan(scores).any(axis=1)), batch)
        best: IntArray = scores.argmax(axis=1)
        return best

    def listed(self, batch: Batch) -> Listed:
        assert self.candidates is not None
        eligible = _eligible(batch, self.candidates, "EpsilonGreedy")
        scores = _eligible_scores(self.score, batch, eligible, "EpsilonGreedy")
        starts, lengths = eligible.starts[:-1], np.diff(eligible.starts)
        top: FloatArray = np.maximum.reduceat(scores, starts)
        _check_scores(np.asarray(np.isnan(top)), batch)
        highest = np.flatnonzero(scores == np.repeat(top, lengths))
        p = np.repeat(self.epsilon / lengths, lengths)
        p[highest[np.searchsorted(highest, starts)]] += 1 - self.epsilon  # the first of them
        return eligible.with_chances(p)

    def _all(self, batch: Batch) -> FloatArray:
        if self.lists:
            return grid_of(self.listed(batch), batch.n_actions)
        p = np.full((len(batch), batch.n_actions), self.epsilon / batch.n_actions)
        p[np.arange(len(batch)), self._best(batch)] += 1 - self.epsilon
        return p

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        if self.lists:
            return answers_of(self.listed(batch), batch.n_actions, values, row, code)
        if isinstance(self.score, TwoTower):
            best = self._best(batch)
        else:
            best = np.concatenate([self._best(batch.take(rows)) for rows in blocks(len(batch), batch.n_actions)])
        sums = (1 - self.epsilon) * values[best] + self.epsilon * values.mean(axis=0)
        return sums, self.epsilon / batch.n_actions + (1 - self.epsilon) * (best[row] == code)


def _check_scores(bad: npt.NDArray[np.bool_], batch: Batch) -> None:
    if bad.any():
        raise RowsError("EpsilonGreedy", "have a NaN score", batch.row[bad], "Check the score function on those rows.")


def _best_of_towers(score: TwoTower, users: npt.NDArray[Any]) -> IntArray:
    """The first action of highest score, from blocks of actions."""
    best, top = np.zeros(len(users), np.int64), np.full(len(users), -np.inf)
    for some, scores in score.each(users):
        at = scores.argmax(axis=1)
        higher = scores[np.arange(len(at)), at]
        better = higher > top
        best[better], top[better] = at[better] + some.start, higher[better]
    return best
