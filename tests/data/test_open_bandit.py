"""The published sample of the Open Bandit Dataset, read as a user would; skipped where it is not at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from offpolicy.worlds import OpenBandit

DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "open_bandit_dataset"
FOLDER = Path(os.environ.get("OPEN_BANDIT_DATASET", DEFAULT))

pytestmark = pytest.mark.skipif(
    not (FOLDER / "bts" / "all" / "all.csv").exists(),
    reason="the Open Bandit Dataset is not here; give its folder in OPEN_BANDIT_DATASET",
)


def read(policy: str, **more: object) -> op.Log:
    context = [f"user_feature_{k}" for k in range(4)]
    columns = {"context": context, "action": "item_id", "reward": "click", "propensity": "propensity_score", **more}
    return op.read_log(FOLDER / policy / "all" / "all.csv", **columns)


def test_uniform_from_the_thompson_sampling_log() -> None:
    """What the uniform policy earned in its own log is in the interval from the other log, whose verdict is cautious."""
    earned = op.evaluate(read("random"), op.Uniform(), [op.IPS()])["LoggedMean"].value
    result = op.evaluate(read("bts"), op.Uniform(), [op.SNIPS(), op.DR()])
    for name in ("SNIPS", "DR"):
        assert earned in result[name].confidence_interval(0.99)
        assert result[name].verdict is not op.Verdict.OK


def test_the_uniform_log_is_uniform() -> None:
    result = op.evaluate(read("random", by="position"), op.Uniform(), [op.IPS()])
    assert result["IPS"].value == pytest.approx(result["LoggedMean"].value, rel=1e-12)
    assert sum(part["IPS"].n for part in result.slices.values()) == len(read("random"))


def test_thompson_sampling_went_on_learning() -> None:
    """The propensities in its log are not the probabilities from its priors: their correlation is 0.07."""
    world = OpenBandit(FOLDER, behaviour="bts")
    batch = world.sample(50_000, 0).head(50_000)
    prior = world.thompson_chances().ravel()[batch.action]
    assert np.corrcoef(prior, batch.propensity)[0, 1] == pytest.approx(0.07, abs=0.02)


def test_the_log_of_the_world_is_the_file() -> None:
    """IPS on the whole log, for the frequencies of the other log: no rows are drawn."""
    world = OpenBandit(FOLDER, thompson="logged")
    assert len(world.log()) == len(read("random"))
    result = op.evaluate(world.log(), world.target, [op.IPS()])
    assert result["LoggedMean"].value == world.value(world.logging) == pytest.approx(0.0038)
    assert world.value(world.target) in result["IPS"].confidence_interval(0.99)
