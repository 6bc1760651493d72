"""Standard errors and intervals against the spread of the values over many logs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import offpolicy as op
from offpolicy.estimators import REGISTRY
from offpolicy.worlds import Linear

LOGS = 500
"""A share of intervals that hold is known to ±1% (one standard error) from 500 logs: 0.92 to 0.98 is three of them each way."""
SOME = 250
"""A spread is known to 1/√(2·250) = 4.5% from 250 logs: the 15% allowed are more than three of them."""
BY_EMBEDDINGS = {"LearnedMIPS", "LearnedMDR", "MIPS", "MDR", "GroupIPS", "OffCEM", "MR"}
BY_ACTIONS = sorted(set(REGISTRY) - BY_EMBEDDINGS)
UNBIASED = ["IPS", "SNIPS", "DR", "SNDR", "MRDR", "DM, no penalty"]

# Workers of the tests that share out single tests would each make these fixtures, which take a minute.
by_actions = pytest.mark.xdist_group("spread by actions")
by_embeddings = pytest.mark.xdist_group("spread by embeddings")


@pytest.fixture(scope="module")
def many() -> dict[str, np.ndarray]:
    """Value, standard error and coverage of every estimator over many logs of one world with good overlap.

    Those whose intervals are counted see all of the logs, the rest (of which some try many candidates) a half.
    """
    world = Linear(8, context=2, overlap=0.85)
    truth = world.value(world.target)
    every = [REGISTRY[name]() for name in BY_ACTIONS]
    every += [
        op.DM(op.Ridge(0), name="DM, no penalty"),
        op.SwitchDR(threshold=1.5, name="Switch 1.5"),
        op.CAB(clip=1, name="CAB 1"),
    ]
    rows: dict[str, list[tuple[float, float, bool]]] = {}
    for seed in range(LOGS):
        asked = every if seed < SOME else [e for e in every if e.name in UNBIASED]
        result = op.evaluate(world.sample(1_000, seed), world.target, asked, engine=op.Local(threads=1))
        for e in result:
            rows.setdefault(e.estimator, []).append((e.value, e.std_error, truth in e.confidence_interval()))
    return {name: np.array(values, dtype=float) for name, values in rows.items()} | {"truth": np.array([truth])}


@by_actions
@pytest.mark.parametrize("name", [*BY_ACTIONS, "DM, no penalty", "Switch 1.5", "CAB 1"])
def test_the_spread_is_the_standard_error(many: dict[str, np.ndarray], name: str) -> None:
    value, error, _ = many[name].T
    assert error.mean() == pytest.approx(value.std(), rel=0.15)


@by_actions
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_where_it_should_be(many: dict[str, np.ndarray], name: str) -> None:
    """The model of this world is linear, so that the direct method is unbiased too."""
    value = many[name][:, 0]
    assert len(value) == LOGS
    assert abs(value.mean() - many["truth"][0]) < 3.5 * value.std() / np.sqrt(LOGS)


@by_actions
@pytest.mark.parametrize("name", UNBIASED)
def test_intervals_cover(many: dict[str, np.ndarray], name: str) -> None:
    assert 0.92 <= many[name][:, 2].mean() <= 0.98


LEARNED = {
    "Logistic": op.LearnedMIPS("identity"),
    "Logistic, normalised": op.LearnedMIPS("identity", normalised=True),
    "Logistic, cross-fitted": op.LearnedMIPS("identity", cross_fit=5),
    "least squares": op.LearnedMIPS("identity", op.Ridge(0)),
    "features": op.LearnedMIPS("features"),
    "both": op.LearnedMIPS("both"),
    "kernel": op.LearnedMIPS("identity", posterior=op.Gaussian(0.5)),
    "estimation covariance": op.LearnedMIPS("identity", posterior=op.Gaussian()),
    "LDA": op.LearnedMIPS("features", posterior=op.Gaussian()),
    "MDR, identity": op.LearnedMDR("identity"),
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


@by_embeddings
@pytest.mark.parametrize("name", [name for name in LEARNED if name != "features"])
def test_the_standard_error_of_learned_weights_covers_the_fit(embedded: dict[str, np.ndarray], name: str) -> None:
    value, error, covered = embedded[name].T
    assert covered.all()
    assert error.mean() == pytest.approx(value.std(), rel=0.2)


@by_embeddings
def test_the_standard_error_of_features_alone_is_too_wide_here(embedded: dict[str, np.ndarray]) -> None:
    """Axes of the embedding along which little varies turn from refit to refit, which slopes take for a move."""
    value, error, _ = embedded["features"].T
    assert 1.0 < error.mean() / value.std() < 1.5
