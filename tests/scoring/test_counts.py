"""What a fixed small job costs, in counts: times on shared machines prove nothing, and these do not depend on the machine.

A count may grow by a tenth. If more work is meant, raise the number here, and say in the commit what it buys; if a count has
fallen, lower it, so that the gain is kept.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.data.batch import Batch
from offpolicy.models.posteriors.logistic import Problem

ROUNDS, ACTIONS, COLUMNS = 6_000, 300, 5
CELLS = ROUNDS * ACTIONS
ALLOWED = 1.1


@dataclass
class Costs:
    """What one evaluation did.

    `products` has, by the number of columns of a table that probabilities are multiplied with, the probabilities that were.
    """

    read: int = 0
    evaluated: Counter[str] = field(default_factory=Counter)
    products: Counter[int] = field(default_factory=Counter)
    losses: int = 0
    peak: int = 0

    def counts(self) -> dict[str, float]:
        """In passes over the log, evaluations of all probabilities, and megabytes."""
        products = {f"products with {columns} columns": n / CELLS for columns, n in sorted(self.products.items())}
        evaluated = {f"evaluations of the {name} policy": n / ROUNDS for name, n in self.evaluated.items()}
        losses = {"evaluations of the logistic loss": self.losses} if self.losses else {}
        return {"passes over the log": self.read / ROUNDS, **evaluated, **products, **losses, "peak, MB": self.peak / 1e6}


class Probabilities(np.ndarray):
    """Probabilities, or a transformation of them, that count the matrix products they take part in."""

    costs: Costs

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, Probabilities):
            self.costs = source.costs

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **more: Any) -> Any:
        plain = [np.asarray(each) for each in inputs]
        if out:
            more["out"] = tuple(np.asarray(each) for each in out)
        result = getattr(ufunc, method)(*plain, **more)
        if ufunc is np.matmul:
            largest = max(part.size for part in plain)
            self.costs.products[result.size * plain[0].shape[-1] // largest] += largest
            return result
        return self._watched(result) if np.ndim(result) == 2 else result

    def _watched(self, values: np.ndarray) -> np.ndarray:
        watched = values.view(Probabilities)
        watched.costs = self.costs
        return watched


class Watched(op.Policy):
    """A linear softmax that counts the rounds it is evaluated for."""

    def __init__(self, name: str, weights: np.ndarray, costs: Costs) -> None:
        self.name, self.weights, self.costs = name, weights, costs

    def distribution(self, batch: Batch) -> np.ndarray:
        self.costs.evaluated[self.name] += len(batch)
        p = np.exp(batch.context @ self.weights)
        p = (p / p.sum(axis=1, keepdims=True)).view(Probabilities)
        p.costs = self.costs
        return p


class Reader(op.Local):
    """The local engine on one thread, counting the rows that it reads."""

    costs = Costs()

    def reduce(self, log: op.Log, statistic: Any, progress: Any = None) -> Any:
        return super().reduce(log, statistic, self.read)

    def read(self, rows: int) -> None:
        self.costs.read += rows


def cost(estimators: Sequence[op.Estimator], errors: bool = True) -> Costs:
    """Of evaluating a policy by these on the small job."""
    rng, costs = np.random.default_rng(0), Costs()
    x = rng.normal(size=(ROUNDS, COLUMNS))
    old, new = (rng.normal(size=(COLUMNS, ACTIONS)) / 4 for _ in "ab")
    scores = x @ old
    action = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    reward = np.sin(action) * x[:, 0] + rng.normal(size=ROUNDS)
    log = op.Log(x, action, reward, logging=Watched("logging", old, costs), n_actions=ACTIONS)
    engine, loss = Reader(threads=1), Problem.loss

    def counted(problem: Problem, theta: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        costs.losses += 1
        return loss(problem, theta, z)

    engine.costs.read = 0
    del scores
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Problem, "loss", counted)
            op.evaluate(log, Watched("target", new, costs), estimators, engine=engine, progress=False, errors=errors)
        costs.peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    costs.read = engine.costs.read
    return costs


VALUES = "values alone"
JOBS: dict[str, tuple[list[op.Estimator], dict[str, float]]] = {
    "models": (
        [op.SNIPS(), op.DM(), op.DR()],
        {
            "passes over the log": 2.0,
            "evaluations of the target policy": 1.0,
            "evaluations of the logging policy": 2.33,
            "products with 0 columns": 1.0,
            "products with 1 columns": 1.0,
            "products with 6 columns": 1.0,
            "products with 16 columns": 1.0,
            "peak, MB": 28.7,
        },
    ),
    "embeddings": (
        [
            op.LearnedMIPS(posterior=op.Gaussian()),
            op.LearnedMDR(posterior=op.Gaussian()),
            op.LearnedMIPS(posterior=op.Logistic(), name="logistic"),
        ],
        {
            "passes over the log": 2.0,
            "evaluations of the target policy": 1.0,
            "evaluations of the logging policy": 1.33,
            "products with 1 columns": 1.0,
            "products with 6 columns": 4.0,
            "products with 8 columns": 1.0,
            "products with 14 columns": 3.0,
            "evaluations of the logistic loss": 29,
            "peak, MB": 35.4,
        },
    ),
    VALUES: (
        [op.DR(), op.LearnedMIPS(posterior=op.Logistic())],
        {
            "passes over the log": 2.0,
            "evaluations of the target policy": 1.0,
            "evaluations of the logging policy": 1.0,
            "products with 8 columns": 1.0,
            "evaluations of the logistic loss": 29,
            "peak, MB": 12.2,
        },
    ),
}


def grown(found: dict[str, float], expected: dict[str, float]) -> dict[str, tuple[float, float]]:
    """The counts that are larger than a tenth above what is expected, which is nothing for a kind of work that is new."""
    limits = {name: ALLOWED * expected.get(name, 0.0) for name in found}
    return {name: (count, expected.get(name, 0.0)) for name, count in found.items() if count > limits[name]}


@pytest.mark.parametrize("job", JOBS)
def test_no_count_grows_by_more_than_a_tenth(job: str) -> None:
    estimators, expected = JOBS[job]
    cost(estimators, job != VALUES)  # what is imported and cached on first use is not counted
    assert not grown(cost(estimators, job != VALUES).counts(), expected)


def test_more_work_is_noticed() -> None:
    estimators, expected = JOBS["models"]
    more = grown(cost([*estimators, op.MRDR(), op.CAB(clip=2.0)]).counts(), expected)
    assert {"evaluations of the target policy", "products with 20 columns", "peak, MB"} <= more.keys()
    assert grown({"peak, MB": 32.0}, expected) == {"peak, MB": (32.0, 28.7)}
    assert not grown({"peak, MB": 31.5}, expected)
