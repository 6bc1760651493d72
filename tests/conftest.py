"""Fixtures that the tests share."""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op
from tests.logs import ACTION, REWARD, Small, make_small


@pytest.fixture
def five() -> op.Log:
    """Five rows, two actions, a uniform logging policy."""
    return op.Log(None, ACTION, REWARD, propensity=np.full(5, 0.5), logging=op.Uniform(), reward_range=(0, 3))


@pytest.fixture
def small() -> Small:
    return make_small()


@pytest.fixture(scope="module")
def both() -> tuple[Small, Small]:
    """Two logs of one world: one to fit on, one to evaluate."""
    w = make_small(n=900, seed=3)
    cut = [Small(*(getattr(w, f)[rows] for f in w.__dataclass_fields__)) for rows in (slice(0, 500), slice(500, 900))]
    return cut[0], cut[1]
