"""Standard errors and intervals against the spread of the values over many logs."""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op
from offpolicy.worlds import Linear
from tests.logs import DISCRETE

LOGS = 500
"""A share of intervals that hold is known to ±1% (one standard error) from 500 logs: 0.92 to 0.98 is three of them each way."""
SOME = 250
"""A spread is known to 1/√(2·250) = 4.5% from 250 logs: the 15% allowed are more than three of them."""
BY_EMBEDDINGS = {"LearnedMIPS", "LearnedMDR", "MIPS", "MDR", "GroupIPS", "OffCEM", "MR"}
BY_ACTIONS = sorted(set(DISCRETE) - BY_EMBEDDINGS)
UNBIASED = ["IPS", "SNIPS", "DR", "SNDR", "MRDR", "DM, no penalty"]


@pytest.fixture(scope="module")
def many() -> dict[str, np.ndarray]:
    """Value, standard error and coverage of every estimator over many logs of one world with good overlap.

    Those whose intervals are counted see all of the logs, the rest (of which some try many candidates) a half.
    """
    world = Linear(8, context=2, overlap=0.85)
    truth = world.value(world.target)
    every = [DISCRETE[name]() for name in BY_ACTIONS]
    every += [
        op.DM(op.Ridge(0), name="DM, no penalty"),
        op.SwitchDR(threshold=1.5, name="Switch 1.5"),
        op.CAB(clip=1, name="CAB 1"),
    ]
    rows: dict[str, list[tuple[float, float, bool, bool]]] = {}
    for seed in range(LOGS):
        asked = every if seed < SOME else [e for e in every if e.name in UNBIASED]
        result = op.evaluate(world.sample(1_000, seed), world.target, asked, engine=op.Local(threads=1))
        for e in result:
            rows.setdefault(e.estimator, []).append(
                (e.value, e.std_error, truth in e.interval, e.interval.method == "cressie-read")
            )
    return {name: np.array(values, dtype=float) for name, values in rows.items()} | {"truth": np.array([truth])}


@pytest.mark.parametrize("name", [*BY_ACTIONS, "DM, no penalty", "Switch 1.5", "CAB 1"])
def test_the_spread_is_the_standard_error(many: dict[str, np.ndarray], name: str) -> None:
    value, error, *_ = many[name].T
    assert error.mean() == pytest.approx(value.std(), rel=0.15)


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_where_it_should_be(many: dict[str, np.ndarray], name: str) -> None:
    """The model of this world is linear, so that the direct method is unbiased too."""
    value = many[name][:, 0]
    assert len(value) == LOGS
    assert abs(value.mean() - many["truth"][0]) < 3.5 * value.std() / np.sqrt(LOGS)


@pytest.mark.parametrize("name", UNBIASED)
def test_intervals_cover(many: dict[str, np.ndarray], name: str) -> None:
    """Those of IPS and SNIPS allow for a row that was not seen, and may cover more."""
    assert 0.92 <= many[name][:, 2].mean() <= (0.98 if many[name][0, 3] == 0 else 1.0)
