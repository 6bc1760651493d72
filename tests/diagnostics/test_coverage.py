"""The committed results of the studies: the page, the packaged numbers and what must hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

import offpolicy as op
from docs.pictures import coverage as study_page
from offpolicy.experiments.config import STUDIES, load

AT_95 = 1


def held(name: str, world: str, estimator: str, method: str = "normal") -> float:
    return float(study_page.summary(name)["coverage"][world][estimator][method]["held"][AT_95])


def test_the_page_shows_what_was_measured() -> None:
    page = study_page.PAGE.read_text()
    assert study_page.filled(page) == page, "run python -m docs.pictures.coverage"
    assert json.loads(study_page.PACKAGED.read_text()) == study_page.packaged(study_page.summary("coverage"))


@pytest.mark.parametrize("name", STUDIES)
def test_results_are_those_of_the_settings(name: str) -> None:
    assert study_page.summary(name)["key"] == load(name).key


@pytest.mark.parametrize("estimator", ["IPS", "SNIPS", "DR", "MIPS (true)"])
def test_nearly_unbiased_intervals_cover_where_there_is_enough_data(estimator: str) -> None:
    """Where the answer is in the log: 500 effective rounds, 100 rewards, full support, named clusters."""
    told = study_page.summary("coverage")
    able = [w["world"] for w in told["worlds"] if w["effective_rounds"] >= 500 and w["rewards"] >= 100]
    fair = [world for world in able if world in study_page.FAIR]
    assert len(fair) >= 4
    for world in fair:
        assert 0.92 <= held("coverage", world, estimator) <= 0.98, (world, estimator)


@pytest.mark.parametrize("estimator", ["IPS", "SNIPS", "DR"])
def test_clusters_are_covered_if_they_are_named_and_not_otherwise(estimator: str) -> None:
    assert 0.92 <= held("coverage", "clustered users", estimator) <= 0.98
    assert held("coverage", "clusters ignored", estimator) < 0.9


def test_dr_covers_with_estimated_propensities() -> None:
    assert held("propensities", "estimated", "DR") >= 0.9


def test_measured_coverage_stands_in_the_reasons() -> None:
    world = op.worlds.Synthetic(10, beta=-0.5, epsilon=0.2)
    result = op.evaluate(
        world.sample(2000, 1),
        world.target,
        [op.DM(op.Ridge("prediction")), op.LearnedMIPS(posterior=op.Logistic()), op.GroupIPS(), op.OffCEM(), op.DR()],
    )
    packaged = json.loads(study_page.PACKAGED.read_text())
    for name in ("DM", "LearnedMIPS", "GroupIPS", "OffCEM"):
        seen = packaged[name]
        said = f"contained the true value in {seen['least']:.0%} to {seen['most']:.0%} of the runs"
        told = [reason for reason in result[name].reasons if reason.code == "own bias"]
        assert not told or said in told[0].why
        assert result[name].diagnostics["measured_coverage_of_95%_intervals"] == seen
    assert "measured_coverage_of_95%_intervals" not in result["DR"].diagnostics
    assert any(reason.code == "own bias" for name in ("DM", "OffCEM") for reason in result[name].reasons)
    assert np.isfinite(result["DM"].value)
