"""Policies from scores: `Softmax` and `EpsilonGreedy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray, wide
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.threads import parallel
from offpolicy.data.batch import Batch
from offpolicy.data.checks import array
from offpolicy.data.log import Log
from offpolicy.policies.base import Factors, Policy
from offpolicy.policies.blocks import Listed, blocks
from offpolicy.policies.candidates import Eligible, check_candidates
from offpolicy.policies.functions import Score, called, columns_of, with_columns
from offpolicy.policies.two_tower import TwoTower, best_of_towers, runs

SAFE = 50.0
"""exp(±50) times a billion actions does not overflow in single precision."""


def scores_of(score: Score, batch: Batch, name: str) -> FloatArray:
    """Rounds × actions: what a user's function returns, checked."""
    scores = called(score, batch, name).astype(np.float64, copy=False)
    if scores.shape != (len(batch), batch.n_actions):
        raise InputError(
            f"{name}: the scores have shape {scores.shape}; rounds × actions, {(len(batch), batch.n_actions)}, is expected."
        )
    return scores


def eligible_scores(score: Score, batch: Batch, eligible: Eligible, name: str) -> FloatArray:
    """The scores of the candidates, computed for them alone if the score allows it."""
    if isinstance(score, TwoTower):
        return score.some(score.vectors(batch, name), eligible.row, eligible.codes)
    out = np.empty(len(eligible.codes))
    for rows in blocks(len(batch), batch.n_actions):
        some = slice(eligible.starts[rows.start], eligible.starts[rows.stop])
        scores = scores_of(score, batch.take(rows), name)
        out[some] = scores[eligible.row[some] - rows.start, eligible.codes[some]]
    return out


class _Scored(Policy):
    """What policies from scores share. `candidates` is the list column of the eligible actions, if there is one."""

    score: Score
    candidates: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        listed = () if self.candidates is None else (self.candidates,)
        return tuple(dict.fromkeys((*listed, *columns_of(self.score))))

    @property
    def lists(self) -> bool:
        return self.candidates is not None

    @property
    def accuracy(self) -> float:
        return 1e-3 if isinstance(self.score, TwoTower) and self.score.single else super().accuracy

    def check(self, log: Log) -> None:
        check_candidates(type(self).__name__, self.candidates)
        if isinstance(self.score, TwoTower):
            self.score.check(log.n_actions)


@final
@dataclass(frozen=True, init=False)
class Softmax(_Scored):
    """A policy with π(a|x) ∝ exp(score(x)_a / temperature), over all actions or the candidates of each round.

    Parameters
    ----------
    score : callable, TwoTower or array of float
        Maps contexts (rounds × columns, as in `log.schema.context`) to scores (rounds × actions). A matrix W of context
        columns × actions stands for the scores x·W.
    temperature : float, default 1.0
        Divides the scores; must be positive.
    candidates : str, optional
        A list column of the eligible actions of each round. If omitted, all actions.
    columns : sequence of str, default ()
        Columns of the log that `score` is called with, as a dict of arrays, instead of the contexts.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.0], [1.0]], action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> policy = op.Softmax(lambda x: np.column_stack([x, -x]))
    >>> round(op.evaluate(log, policy, [op.IPS()])["IPS"].value, 3)
    0.5
    """

    score: Score
    temperature: float = 1.0
    candidates: str | None = None

    def __init__(
        self,
        score: Score | npt.ArrayLike,
        temperature: float = 1.0,
        candidates: str | None = None,
        *,
        columns: Sequence[str] = (),
    ) -> None:
        if not callable(score):
            score = _linear(score)
        if not temperature > 0:
            raise InputError(f"Softmax: temperature is {temperature}; it must be above 0 (EpsilonGreedy is the limit).")
        vars(self).update(score=with_columns(score, columns, "Softmax"), temperature=temperature, candidates=candidates)

    @property
    def bilinear(self) -> bool:
        return isinstance(self.score, TwoTower) and not self.lists

    def factors(self, batch: Batch) -> Factors:
        assert isinstance(self.score, TwoTower)
        users = self.score.vectors(batch, "Softmax")
        return Factors(users if self.temperature == 1 else users / float(self.temperature), self.score.padded_items)

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        if self.lists:
            return self.listed(batch).grid(batch.n_actions), False
        scores = scores_of(self.score, batch, "Softmax")
        top = scores.max(axis=1, keepdims=True)
        check_top(top[:, 0], batch)
        p = scores - top
        if self.temperature != 1.0:
            p *= 1 / self.temperature
        np.exp(p, out=p)
        return p, True

    def distribution(self, batch: Batch) -> FloatArray:
        p, unnormalised = self.proportional(batch)
        if unnormalised:
            p /= p.sum(axis=1, keepdims=True)
        return p

    def listed(self, batch: Batch) -> Listed:
        assert self.candidates is not None
        eligible = Eligible.required(self.candidates, batch, "Softmax")
        scores = eligible_scores(self.score, batch, eligible, "Softmax") / self.temperature
        starts, lengths = eligible.starts[:-1], np.diff(eligible.starts)
        top = np.maximum.reduceat(scores, starts)
        check_top(top, batch)
        p = np.exp(scores - np.repeat(top, lengths))
        p /= np.repeat(np.add.reduceat(p, starts), lengths)
        return eligible.with_probabilities(p)

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        if self.lists or not isinstance(self.score, TwoTower):
            return super().answers(batch, values, row, code)
        users = self.score.vectors(batch, "Softmax") / float(self.temperature)
        size = values.shape[1]
        padded = np.zeros((len(values), wide(size + 1)), users.dtype)
        padded[:, :size], padded[:, size] = values, 1.0
        sums, top = np.empty((len(batch), padded.shape[1])), np.empty(len(batch))

        def run(rows: slice) -> None:
            assert isinstance(self.score, TwoTower)
            sums[rows], top[rows] = self._summed(self.score, users[rows], padded)

        parallel(run, runs(len(batch)))  # a log of few rounds is one partition, and its policy may take most of the time
        check_top(top, batch)
        p = np.exp(self.score.some(users, row, code) - top[row]) / sums[row, size]
        np.minimum(p, 1.0, out=p)  # rounding
        return sums[:, :size] / sums[:, size, None], p

    @staticmethod
    def _summed(score: TwoTower, users: npt.NDArray[Any], padded: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Σ_a exp(score − top)·padded_a, and the top score, one block of actions at a time."""
        if score.bound(users) <= SAFE:  # nothing can overflow, so 0 can serve as the top
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


def _linear(weights: npt.ArrayLike) -> TwoTower:
    """The scores x·W: the context is the user vector, and the columns of W are the item vectors."""
    matrix = array(weights, "Softmax: score")
    if matrix.ndim != 2:
        raise InputError(
            f"Softmax: score has shape {matrix.shape}; give a function, an op.TwoTower, or a matrix of context columns × "
            "actions."
        )
    return TwoTower(matrix.T)


def check_top(top: FloatArray, batch: Batch, name: str = "Softmax") -> None:
    if not np.isfinite(top).all():  # max propagates NaN; +∞ has no softmax; −∞ is a probability of 0
        rows = batch.row[~np.isfinite(top)]
        raise RowsError(name, "have a NaN or infinite score", rows, "Check the score function on those rows.")


@final
@dataclass(frozen=True, init=False)
class EpsilonGreedy(_Scored):
    """A policy that takes the action with the highest score with probability 1 − ε, and any action uniformly otherwise.

    Ties go to the first action: the lowest code, or the first in the list of candidates.

    Parameters
    ----------
    score : callable or TwoTower
        Maps contexts (rounds × columns, as in `log.schema.context`) to scores (rounds × actions).
    epsilon : float, default 0.05
        The probability of a uniform choice, from 0 to 1.
    candidates : str, optional
        A list column of the eligible actions of each round. If omitted, all actions.
    columns : sequence of str, default ()
        Columns of the log that `score` is called with, as a dict of arrays, instead of the contexts.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.0], [1.0]], action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> policy = op.EpsilonGreedy(lambda x: np.column_stack([1 - x, x]), epsilon=0.1)
    >>> round(op.evaluate(log, policy, [op.IPS()])["IPS"].value, 3)
    0.95
    """

    score: Score
    epsilon: float = 0.05
    candidates: str | None = None

    def __init__(
        self, score: Score, epsilon: float = 0.05, candidates: str | None = None, *, columns: Sequence[str] = ()
    ) -> None:
        if not 0 <= epsilon <= 1:
            raise InputError(f"EpsilonGreedy: epsilon is {epsilon}; it must lie between 0 and 1.")
        vars(self).update(score=with_columns(score, columns, "EpsilonGreedy"), epsilon=epsilon, candidates=candidates)

    def _best(self, batch: Batch) -> IntArray:
        if isinstance(self.score, TwoTower):
            users = self.score.vectors(batch, "EpsilonGreedy")
            return np.concatenate([best_of_towers(self.score, users[rows]) for rows in runs(len(batch))])
        scores = scores_of(self.score, batch, "EpsilonGreedy")
        _check_scores(np.asarray(np.isnan(scores).any(axis=1)), batch)
        best: IntArray = scores.argmax(axis=1)
        return best

    def listed(self, batch: Batch) -> Listed:
        assert self.candidates is not None
        eligible = Eligible.required(self.candidates, batch, "EpsilonGreedy")
        scores = eligible_scores(self.score, batch, eligible, "EpsilonGreedy")
        starts, lengths = eligible.starts[:-1], np.diff(eligible.starts)
        top: FloatArray = np.maximum.reduceat(scores, starts)
        _check_scores(np.asarray(np.isnan(top)), batch)
        highest = np.flatnonzero(scores == np.repeat(top, lengths))
        p = np.repeat(self.epsilon / lengths, lengths)
        p[highest[np.searchsorted(highest, starts)]] += 1 - self.epsilon  # the first of them
        return eligible.with_probabilities(p)

    def distribution(self, batch: Batch) -> FloatArray:
        if self.lists:
            return self.listed(batch).grid(batch.n_actions)
        p = np.full((len(batch), batch.n_actions), self.epsilon / batch.n_actions)
        p[np.arange(len(batch)), self._best(batch)] += 1 - self.epsilon
        return p

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        if self.lists:
            return super().answers(batch, values, row, code)
        if isinstance(self.score, TwoTower):
            best = self._best(batch)
        else:
            best = np.concatenate([self._best(batch.take(rows)) for rows in blocks(len(batch), batch.n_actions)])
        sums = (1 - self.epsilon) * values[best] + self.epsilon * values.mean(axis=0)
        return sums, self.epsilon / batch.n_actions + (1 - self.epsilon) * (best[row] == code)


def _check_scores(bad: npt.NDArray[np.bool_], batch: Batch) -> None:
    if bad.any():
        raise RowsError("EpsilonGreedy", "have a NaN score", batch.row[bad], "Check the score function on those rows.")
