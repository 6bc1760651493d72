"""Worlds: the log agrees with the world's own value, and runs are independent."""

from __future__ import annotations

import numpy as np
import pytest

from offpolicy.worlds import Linear


@pytest.mark.parametrize("clicks", [False, True])
def test_the_log_is_of_the_same_world_as_the_value(clicks: bool) -> None:
    z = []
    for seed in range(30):
        world = Linear(12, clicks=clicks, seed=seed)
        value, error = world.value_with_error(world.logging)
        reward = next(iter(world.sample(5000, seed).partitions()[0].batches(5000))).reward[:, 0]
        z.append((reward.mean() - value) / np.hypot(error, reward.std() / np.sqrt(5000)))
    assert abs(np.mean(z)) < 3.5 / np.sqrt(30)
    assert 0.6 < np.std(z) < 1.5


def test_a_seed_is_a_log() -> None:
    world = Linear(10)
    a, b, c = (next(iter(world.sample(2000, seed).partitions()[0].batches(2000))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.action, b.action)
    np.testing.assert_array_equal(a.reward, b.reward)
    chance = (np.bincount(a.action, minlength=10) / 2000) @ (np.bincount(c.action, minlength=10) / 2000)
    assert (a.action == c.action).mean() == pytest.approx(chance, abs=4 * np.sqrt(chance / 2000))
