"""How policies are called: what docs/own.md promises of rounds at a time, of threads, and of rounds that are left out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import offpolicy as op

MOST = 2_097_152
"""Probabilities at a time, as in docs/own.md."""


class Recorded(op.Policy):
    """Uniform, and remembers its calls. The first ones wait until `together` threads are inside at once."""

    def __init__(self, together: int = 1) -> None:
        self.sizes: list[int] = []
        self.threads: set[int] = set()
        self.rows: set[int] = set()
        self._lock, self._gate, self._waiting = threading.Lock(), threading.Barrier(together), together

    def distribution(self, batch: Any) -> np.ndarray:
        with self._lock:
            self.sizes.append(len(batch))
            self.threads.add(threading.get_ident())
            self.rows.update(batch.row.tolist())
            waits, self._waiting = self._waiting > 0, self._waiting - 1
        if waits:
            self._gate.wait(timeout=60)
        return np.full((len(batch), batch.n_actions), 1 / batch.n_actions)


def log_of(rounds: int, actions: int, **more: Any) -> op.Log:
    rng = np.random.default_rng(0)
    action, reward = rng.integers(0, actions, rounds), rng.normal(size=rounds)
    settings = {"propensity": np.full(rounds, 1 / actions), "n_actions": actions, **more}
    return op.Log(rng.normal(size=(rounds, 2)), action, reward, **settings)


@pytest.mark.parametrize(
    ("rounds", "actions", "estimators", "memory"),
    [
        (70_000, 3, [op.SNIPS()], None),
        (20_000, 300, [op.SNIPS(), op.DR(), op.MRDR(), op.MR()], None),
        (6_000, 300, [op.DR(), op.LearnedMIPS(), op.CAB()], None),
        (500, 20_000, [op.DR(op.Ridge(1.0))], "400MB"),  # sums in the place of all probabilities
    ],
)
def test_every_round_is_asked_for_and_never_too_many_at_once(
    rounds: int, actions: int, estimators: Sequence[op.Estimator], memory: str | None
) -> None:
    target, logging = Recorded(), Recorded()
    op.evaluate(log_of(rounds, actions, logging=logging), target, estimators, memory=memory)
    for policy in (target, logging):
        assert policy.rows == set(range(rounds))
        assert max(policy.sizes) <= max(1, MOST // actions)
        assert len(policy.sizes) > 1


def test_one_round_at_a_time_where_a_round_is_large() -> None:
    target = Recorded()
    op.evaluate(log_of(4, MOST + 1), target, [op.IPS()])
    assert set(target.sizes) == {1}


def test_functions_are_bounded_in_the_same_way() -> None:
    sizes: list[int] = []

    def score(x: np.ndarray) -> np.ndarray:
        sizes.append(len(x))
        return np.zeros((len(x), 300))

    op.evaluate(log_of(20_000, 300), {"soft": op.Softmax(score), "greedy": op.EpsilonGreedy(score)}, [op.IPS(), op.DR()])
    assert max(sizes) <= MOST // 300


def test_threads_share_a_policy() -> None:
    target = Recorded(together=3)
    op.evaluate(log_of(40_000, 5), target, [op.IPS()], engine=op.Local(threads=3))
    assert len(target.threads) == 3
    assert threading.get_ident() not in target.threads


def test_one_thread_is_that_of_the_caller() -> None:
    target = Recorded()
    op.evaluate(log_of(40_000, 5), target, [op.IPS(), op.DR()], engine=op.Local(threads=1))
    assert target.threads == {threading.get_ident()}
