"""Tests of densities, in ranges of actions: what correct ones pass and wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.diagnostics.cells import ActionCells, BoxCells
from offpolicy.worlds import Doses, Pricing

WORLDS = {"pricing": Pricing(), "doses": Doses(3)}
N = 3_000


def seen(name: str, **given: Any) -> list[str]:
    """What is found about the densities of a world's log, with others in their place."""
    world = WORLDS[name]
    batch = world.sample(N, seed=1).head(N)
    assert batch.propensity is not None
    given = {"propensity": batch.propensity * given.pop("times", 1.0), **given}
    given = given if "logging" not in given else {"logging": given["logging"]}
    of = op.Log(batch.context, batch.action, batch.reward, actions=world.space, **given)
    checks = op.evaluate(of, world.target, op.KernelSNIPS(0.1 * float(world.space.ranges[0])))["KernelSNIPS"].reasons
    return [check.seen for check in checks if check.code == "propensities" and check.verdict is op.Verdict.DO_NOT_TRUST]


@pytest.mark.parametrize("name", WORLDS)
def test_correct_densities_pass(name: str) -> None:
    assert seen(name) == []


def test_densities_that_are_too_small_are_found() -> None:
    assert "The mean of 1/density" in seen("pricing", times=0.01)[0]  # per cent, and the actions are in dollars
    assert "cannot exceed the length of the box, 1" in seen("doses", times=0.1)[0]  # the probability of a tenth


def test_a_logging_density_is_tested_at_all_actions() -> None:
    assert seen("pricing", logging=op.Normal(lambda x: 24 + 3 * x[:, 0], 5)) == []
    assert "and their mean probability is" in seen("pricing", logging=op.Normal(lambda x: 26 + 3 * x[:, 0], 5))[0]
    assert (
        "Ranges of actions with a probability near" in seen("pricing", logging=op.Normal(lambda x: 24 + 3 * x[:, 0], 7))[0]
    )
    wrong = op.Density(lambda x, a: np.full(len(a), 1 / 30))
    assert "the densities of the logging policy do not integrate to 1 over the box" in seen("pricing", logging=wrong)[0]


def test_densities_that_are_too_large_lower_the_mean_weight() -> None:
    """From logged densities alone, they cannot be told from a policy that seldom goes where the target does."""
    world = WORLDS["doses"]
    batch = world.sample(N, seed=1).head(N)
    assert batch.propensity is not None
    of = op.Log(batch.context, batch.action, batch.reward, propensity=3 * batch.propensity, actions=world.space)
    found = [c for c in op.evaluate(of, world.target, op.KernelSNIPS(0.1))["KernelSNIPS"].reasons if c.code == "mean weight"]
    assert found[0].verdict is op.Verdict.DO_NOT_TRUST
    assert "if the propensities are right" in found[0].why


def test_a_density_too_narrow_to_integrate_raises_no_alarm() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 0.9, size=(1_000, 1))
    a = x[:, 0] + 1e-4 * rng.normal(size=1_000)
    of = op.Log(x, a, a, actions=op.Box(0, 1), logging=op.Normal(lambda x: x[:, 0], 1e-4))
    reasons = op.evaluate(of, op.Deterministic(lambda x: x[:, 0]), op.KernelSNIPS(1e-4))["KernelSNIPS"].reasons
    assert "propensities" not in {check.code for check in reasons}


def test_cells_and_their_names() -> None:
    cells = BoxCells(op.Box(0, 10, points=[5]))
    assert cells.of(np.array([0, 0.49, 0.5, 5, 10])).tolist() == [0, 0, 1, 20, 19]
    assert cells.sizes.tolist() == [0.5] * 20 + [1]
    assert [cells.named(k) for k in (0, 20)] == ["Actions from 0 to 0.5", "The action 5"]
    assert cells.all == "the length of the box, 10, and 1 for each of the 1 points"
    two = BoxCells(op.Box([0, 0], [6, 60]))
    assert two.of(np.array([[0.5, 55.0], [5.5, 5.0]])).tolist() == [5, 30]
    assert two.named(5) == "Actions from 0 to 1 and from 50 to 60"
    assert two.sizes.sum() == 360
    assert ActionCells(op.Discrete(["a", "b"])).names == ["a", "b"]
