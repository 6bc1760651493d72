"""The prior of how lists are read: what the blend does with differences, and Auto on lists."""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op
from offpolicy.estimators.selection import CandidateEstimates
from offpolicy.ratios.interactions import Missed, missed_of_window
from offpolicy.worlds import Diverse, Ranking

NAMES = ("SIPS", "RIPS", "IIPS")
SLOTS = 5
MISSED = [
    (*missed.shares, 0.0)
    for missed in (Missed.of(np.ones((SLOTS, SLOTS)), 1.0), missed_of_window(SLOTS, SLOTS, 0), missed_of_window(SLOTS, 0, 0))
]


def estimates(values: list[float], errors: list[float], evidence: float = 1e6) -> CandidateEstimates:
    """Of SIPS, RIPS and IIPS, with independent errors."""
    covariance = np.diag(np.square(errors))
    return CandidateEstimates(
        NAMES, np.array(values), covariance, covariance[None], (True, False, False), (True,) * 3, (0.0, 1.0, 1.0), (0.0,) * 3,
        logged=0.0, evidence=evidence, resampled=lambda k, counts: counts[:, 0], buckets=1, missed=np.array(MISSED),
    )  # fmt: skip


def test_candidates_that_agree_leave_the_weight_to_the_most_precise() -> None:
    choice = op.ReadingPrior().choose(estimates([1.0, 1.0, 1.0], [0.05, 0.03, 0.001]))
    assert choice.weights[2] == max(choice.weights)
    assert choice.weights.sum() == pytest.approx(1)


def test_items_above_that_matter_leave_iips_without_weight() -> None:
    """IIPS is far from the others, which agree."""
    choice = op.ReadingPrior().choose(estimates([1.0, 1.0, 1.5], [0.05, 0.01, 0.001]))
    assert choice.weights[2] < 0.02
    assert choice.weights[1] > 0.2  # the next test has a case in which it gets nothing
    assert choice.details["slots above matter"] == max(
        choice.details[name] for name in choice.details if name.endswith(("matter", "other"))
    )


def test_items_below_that_matter_leave_only_the_whole_list() -> None:
    choice = op.ReadingPrior().choose(estimates([1.0, 1.5, 1.5], [0.01, 0.001, 0.001]))
    assert choice.weights[0] > 0.98
    assert choice.biases[1] == pytest.approx(0.5, abs=0.02)


def test_what_sampling_does_not_explain_of_the_distance_counts_as_bias() -> None:
    given = estimates([1.0, 1.2, 1.2], [0.1, 0.01, 0.01])
    choice = op.ReadingPrior().choose(given)
    assert choice.variance is not None
    distance = choice.weights @ given.values - 1.0
    unexplained = distance**2 - given.variance(choice.weights - choice.anchor)
    assert unexplained > 0.01
    assert choice.variance > given.variance(choice.weights) + unexplained
    agree = op.ReadingPrior().choose(estimates([1.0, 1.0, 1.0], [0.1, 0.01, 0.01]))
    assert agree.variance is not None
    assert agree.variance < unexplained


def test_few_effective_lists_cannot_contradict() -> None:
    sure, unsure = (
        op.ReadingPrior().choose(estimates([1.0, 1.0, 1.3], [0.1, 0.05, 0.01], evidence)).weights[2]
        for evidence in (1e6, 1.0)
    )
    assert unsure > sure


@pytest.mark.parametrize("name", ["least", "unlikely", "together", "model", "evidence"])
def test_settings_out_of_range(name: str) -> None:
    with pytest.raises(op.InputError, match=f"ReadingPrior: {name} is -1"):
        op.ReadingPrior(**{name: -1})
    with pytest.raises(op.InputError, match="least is 0; give a number above 0"):
        op.ReadingPrior(least=0)


def test_auto_is_the_default_on_lists_and_names_what_it_leaves_out() -> None:
    world = Ranking("cascade", 3, 4, policies="plackett-luce")
    result = op.evaluate(world.sample(500, seed=0), world.target)
    assert result.headline.estimator == "Auto"
    details = result["Auto"].diagnostics["blend"] if "blend" in result["Auto"].diagnostics else result["Auto"].to_dict()
    assert "PairIPS" in str(details)


def test_what_the_log_lacks_widens_the_interval() -> None:
    """An item that is hardly ever logged: the share of the policy that it has may earn anything."""
    rng = np.random.default_rng(0)
    a = rng.integers(3, size=(400, 2))
    log = op.Log(
        rng.normal(size=400), a, rng.normal(size=(400, 2)), logging=op.Factored(op.Fixed([0.333, 0.333, 0.333, 0.001])),
        actions=op.Slate(2, 4),
    )  # fmt: skip
    auto = op.evaluate(log, op.Factored(op.Fixed([0.2, 0.2, 0.2, 0.4])))["Auto"]
    assert np.isfinite(auto.std_error)
    assert auto.std_error > 0.3


def test_auto_beats_the_whole_list_where_pairs_of_slots_matter() -> None:
    """Ten logs of the published world of AIPS; `offpolicy reproduce rankings` has hundreds."""
    world, truth = Diverse(), 6.662
    errors: dict[str, list[float]] = {}
    for seed in range(10):
        for estimate in op.evaluate(world.sample(2_000, seed=seed), world.target, [op.Auto(), op.SIPS(True)]):
            errors.setdefault(estimate.estimator, []).append((estimate.value / truth - 1) ** 2)
    assert np.mean(errors["Auto"]) < 0.5 * np.mean(errors["SIPS"])
