"""A small part of the paper's table; all of it is `python -m benchmarks.toy`."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.toy import PUBLISHED, of_function

from offpolicy.worlds import Toy


def test_a_part_of_the_table() -> None:
    """30 reward functions with 100 actions: within 3.5 standard errors of the published entries."""
    rows = [of_function((100, seed)) for seed in range(30)]
    for name, (mean, error) in PUBLISHED[100].items():
        each = np.array([row[name] for row in rows])
        assert abs(each.mean() - mean) < 3.5 * np.hypot(error, each.std(ddof=1) / np.sqrt(len(each)))


def test_the_value_by_quadrature_is_that_by_monte_carlo() -> None:
    world = Toy(20, seed=4)
    x = np.random.default_rng(0).normal(size=(200_000, 5))
    means = world.mean_reward(x).mean(axis=1)
    assert world.value(world.target) == pytest.approx(means.mean(), abs=4 * means.std() / np.sqrt(len(x)))
