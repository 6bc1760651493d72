"""Standard errors of learned weights against the spread of the values over many logs.

In a file of its own: the workers of the tests share out files, and this one takes as long as `test_spread_over_logs.py`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import offpolicy as op
from offpolicy.worlds import Linear

PREDICTIVE = op.Ridge("prediction")
LEARNED = {
    "Logistic": op.LearnedMIPS("identity", PREDICTIVE, op.Logistic()),
    "Logistic, normalised": op.LearnedMIPS("identity", PREDICTIVE, op.Logistic(), normalised=True),
    "Logistic, cross-fitted": op.LearnedMIPS("identity", PREDICTIVE, op.Logistic(), cross_fit=5),
    "least squares": op.LearnedMIPS("identity", op.Ridge(0), op.Logistic()),
    "features": op.LearnedMIPS("features", PREDICTIVE, op.Logistic()),
    "both": op.LearnedMIPS("both", PREDICTIVE, op.Logistic()),
    "kernel": op.LearnedMIPS("identity", PREDICTIVE, op.Gaussian(0.5)),
    "estimation covariance": op.LearnedMIPS("identity", PREDICTIVE, op.Gaussian()),
    "LDA": op.LearnedMIPS("features", PREDICTIVE, op.Gaussian()),
    "MDR, identity": op.LearnedMDR("identity", PREDICTIVE, op.Logistic()),
    "MDR, kernel": op.LearnedMDR("identity", posterior=op.Gaussian(0.5)),
    "MIPS": op.MIPS(),
    "MIPS, LDA": op.MIPS(op.Gaussian()),
    "MR": op.MR(),
    "MR, in sample": op.MR(cross_fit=0),
}


@pytest.fixture(scope="module")
def embedded() -> dict[str, np.ndarray]:
    """Value, standard error and what it covers, over many logs of the same world with features seen in each round."""
    world = Linear(8, context=2, overlap=0.85)
    every = [dataclasses.replace(estimator, name=name) for name, estimator in LEARNED.items()]
    rows: dict[str, list[tuple[float, float, bool]]] = {}
    for seed in range(200):
        batch = next(iter(world.sample(1_000, seed).partitions()[0].batches(1_000)))
        category = (batch.action + np.random.default_rng(seed).integers(0, 2, 1_000)) % 4
        log = op.Log(batch.context, batch.action, batch.reward, logging=world.logging, n_actions=8, action_features=category)
        for e in op.evaluate(log, world.target, every, engine=op.Local(threads=1)):
            rows.setdefault(e.estimator, []).append((e.value, e.std_error, e.error_covers == "sampling+fit"))
    return {name: np.array(values, dtype=float) for name, values in rows.items()}


@pytest.mark.parametrize("name", [name for name in LEARNED if name != "features"])
def test_the_standard_error_of_learned_weights_covers_the_fit(embedded: dict[str, np.ndarray], name: str) -> None:
    value, error, covered = embedded[name].T
    assert covered.all()
    assert error.mean() == pytest.approx(value.std(), rel=0.2)


def test_the_standard_error_of_features_alone_is_too_wide_here(embedded: dict[str, np.ndarray]) -> None:
    """Axes of the embedding along which little varies turn from refit to refit, which slopes take for a move."""
    value, error, _ = embedded["features"].T
    assert 1.0 < error.mean() / value.std() < 1.5
