"""Fixtures that the tests share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

import offpolicy as op
from tests.logs import ACTION, REWARD, Small, labelled, make_small

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


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


@pytest.fixture(scope="module")
def awkward_result(both: tuple[Small, Small]) -> op.Evaluation:
    """Two policies, four estimators and slices, with names that are no names in HTML."""
    by = np.where(np.arange(500) % 3 == 0, "<b>third</b>", "rest")
    log = labelled(both[0], by=by, logging=both[0].logging)
    policies = {"new": both[0].target, "old <i>": op.Uniform()}
    return op.evaluate(log, policies, [op.SNIPS(), op.DR(), op.LearnedMIPS(), op.Auto()])
