"""Policies for whole batches: how often, with how many rounds and from which threads their functions are called."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.engines.base import BATCH_ROWS

ROUNDS, ACTIONS = 30_000, 200


class Recorded:
    """Scores, and the rounds and the thread of each call."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.threads: set[int] = set()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        time.sleep(0.001)  # for other threads to begin
        self.rows.append(len(x))
        self.threads.add(threading.get_ident())
        return x @ np.random.default_rng(0).normal(size=(2, ACTIONS))

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        p = np.exp(self(x))
        return np.asarray(p / p.sum(axis=1, keepdims=True))


def make(**columns: Any) -> op.Log:
    rng = np.random.default_rng(1)
    table = {
        "x0": rng.normal(size=ROUNDS), "x1": rng.normal(size=ROUNDS), "action": rng.integers(0, ACTIONS, ROUNDS),
        "reward": rng.normal(size=ROUNDS), **columns,
    }  # fmt: skip
    return op.read_log(
        pa.table(table), context=["x0", "x1"], action="action", reward="reward", n_actions=ACTIONS, logging=op.Uniform()
    )


def sizes(log: op.Log) -> list[int]:
    """The rounds of each batch."""
    return [len(batch) for part in log.partitions() for batch in part.batches(BATCH_ROWS)]


@pytest.mark.parametrize("estimator", [op.IPS(), op.DR(), op.MRDR(), op.LearnedMIPS()], ids=lambda each: each.name)
def test_a_function_is_called_with_whole_batches_from_this_thread(estimator: op.Estimator) -> None:
    log, blocks, batches = make(), Recorded(), Recorded()
    expected = op.evaluate(log, blocks.probabilities, estimator, engine=op.Local(threads=2))[estimator.name]
    result = op.evaluate(log, op.WholeBatches(batches.probabilities), estimator, engine=op.Local(threads=2))[estimator.name]
    assert (result.value, result.std_error) == pytest.approx((expected.value, expected.std_error), rel=1e-9)
    assert batches.rows == sizes(log) * (2 if estimator.name == "MRDR" else 1)
    assert batches.threads == {threading.get_ident()}
    assert len(blocks.rows) >= len(batches.rows)


def test_the_memory_budget_bounds_the_batches() -> None:
    rng, rows = np.random.default_rng(3), list[int]()
    log = op.Log(rng.normal(size=(5_000, 1)), rng.integers(0, 2_000, 5_000), rng.normal(size=5_000), logging=op.Uniform())

    def policy(x: np.ndarray) -> np.ndarray:
        rows.append(len(x))
        return np.full((len(x), 2_000), 1 / 2_000)

    op.evaluate(log, op.WholeBatches(policy), op.IPS(), memory="300MB", engine=op.Local(threads=2))
    assert 262_144 / 2_000 < max(rows) < max(sizes(log))
    assert sum(rows) == 5_000


@pytest.mark.parametrize("wrap", [
    lambda f: op.WholeBatches(op.Softmax(f)),
    lambda f: op.WholeBatches(op.Softmax(f, candidates="items")),
    lambda f: op.WholeBatches(op.EpsilonGreedy(f, 0.1)),
    lambda f: op.Mixture([op.WholeBatches(op.Softmax(f)), op.Uniform()], [0.5, 0.5]),
], ids=["softmax", "candidates", "greedy", "mixture"])  # fmt: skip
def test_every_policy_with_a_function_can_be_wrapped(wrap: Any) -> None:
    items = np.arange(ACTIONS)
    log = make(items=pa.ListArray.from_arrays(np.arange(ROUNDS + 1) * ACTIONS, np.tile(items, ROUNDS)))
    scores = Recorded()
    result = op.evaluate(log, wrap(scores), [op.DR()])
    assert np.isfinite(result["DR"].std_error)
    assert scores.threads == {threading.get_ident()}
    assert set(sizes(log)) <= set(scores.rows)
    assert len(scores.rows) < 3 * len(sizes(log))


def test_a_logging_policy_can_be_wrapped() -> None:
    logging = Recorded()
    rng = np.random.default_rng(2)
    x, a, r = rng.normal(size=(ROUNDS, 2)), rng.integers(0, ACTIONS, ROUNDS), rng.normal(size=ROUNDS)
    log = op.Log(x, a, r, logging=op.WholeBatches(op.Softmax(logging)))
    op.evaluate(log, op.Uniform(), [op.SNIPS(), op.DR()])
    assert logging.threads == {threading.get_ident()}
    assert set(sizes(log)) <= set(logging.rows)
