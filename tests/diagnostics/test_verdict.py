"""The verdict: each finding appears when it should, and says what was seen, why it matters and what to do."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

import offpolicy as op
from offpolicy.diagnostics.estimates import as_precise, own_bias
from offpolicy.diagnostics.overlap import Overlap
from offpolicy.diagnostics.verdict import Measure
from offpolicy.statistics.histogram import LogHistogram
from offpolicy.worlds import Ranking
from tests.logs import Small, make_small


def codes(estimate: op.Estimate) -> set[str]:
    return {reason.code for reason in estimate.reasons}


@pytest.fixture
def large() -> Small:
    return make_small(n=4000)


def test_nothing_to_say_of_a_good_log(large: Small) -> None:
    every = [op.Auto(), op.LoggedMean(), op.IPS(), op.SNIPS(), op.DM(), op.DR()]
    result = op.evaluate(large.log(), 0.1 * large.target + 0.9 * large.logging, every)
    for name in ("Auto", "IPS", "SNIPS", "DR"):
        assert result[name].verdict is op.Verdict.OK, result[name].reasons
    assert codes(result["LoggedMean"]) == {"naive"}
    assert codes(result["DM"]) <= {"own bias"}


def test_few_effective_rounds() -> None:
    rng = np.random.default_rng(0)
    log = op.Log(None, rng.integers(0, 500, 1000), rng.normal(size=1000), propensity=np.full(1000, 0.002), n_actions=500)
    one = np.zeros(500)
    one[7] = 1
    result = op.evaluate(log, op.Fixed(one), [op.SNIPS(), op.DM()])
    assert result["SNIPS"].diagnostics["effective_sample_size"] < 5
    assert result["SNIPS"].verdict is op.Verdict.DO_NOT_TRUST
    assert {"effective sample size", "top weights"} <= codes(result["SNIPS"])
    reason = result["SNIPS"].reasons[0]
    assert reason.seen.startswith("The 1,000 rounds are worth")
    assert reason.measure is not None
    enough = int(reason.do.split("about ")[1].split(" in all")[0].replace(",", ""))
    assert 0 <= enough - 1000 * 500 / reason.measure <= 0.1 * enough  # two digits, rounded up
    assert "effective sample size" not in codes(result["DM"])


def test_actions_never_logged(large: Small) -> None:
    """A fifth action exists that nobody took, and the target likes it."""
    target = np.column_stack([large.target * 0.8, np.full(4000, 0.2)])
    log = op.Log(large.context, large.action, large.reward, propensity=large.propensity, n_actions=5)
    result = op.evaluate(log, target, [op.IPS(), op.DR()])
    assert result["IPS"].diagnostics["target_mass_never_logged"] == pytest.approx(0.2)
    assert {"support", "mean weight"} <= codes(result["IPS"])
    assert result["IPS"].verdict is op.Verdict.DO_NOT_TRUST
    assert "rests on the reward model alone" in next(r.why for r in result["DR"].reasons if r.code == "support")


@pytest.mark.parametrize(("ones", "missing"), [(50, 0.5 - 2 * 0.5 / 99**0.5), (97, 0.0)])
def test_effective_rounds_do_not_count_what_the_log_lacks(ones: int, missing: float) -> None:
    """Weights of 1 and 0: below a mean of 1 by chance, or because a share d of the policy is missing, at most 1/d² rounds."""
    action = np.arange(100) % 2
    propensity = np.where(np.arange(100) < ones, 0.5, 1.0)
    target = np.column_stack([np.full(100, 0.5), np.full(100, 0.5)]) * (np.arange(100) < ones)[:, None]
    log = op.Log(None, action, np.arange(100.0), propensity=propensity, n_actions=3)
    whole = np.column_stack([target, 1 - target.sum(axis=1)])
    estimate = op.evaluate(log, whole, [op.SNIPS()])["SNIPS"]
    assert estimate.diagnostics["target_mass_missing"] == pytest.approx(missing, abs=1e-9)
    assert estimate.diagnostics["effective_sample_size"] == pytest.approx(ones / (1 + ones * missing**2))
    seen = [reason.seen.split(": ")[1] for reason in estimate.reasons if reason.code == "mean weight"]
    assert seen == (["the log lacks at least 39.9% of what the new policy does."] if missing else [])


def test_an_interval_of_a_blend_allows_for_what_the_log_lacks(large: Small) -> None:
    """A third of the policy is an action that was never logged: rewards there may be off by their standard deviation."""
    logging = np.column_stack([large.logging, np.zeros(4000)])
    log = op.Log(large.context, large.action, large.reward, logging=logging, n_actions=5)
    target = np.column_stack([large.target * 2 / 3, np.full(4000, 1 / 3)])
    found = op.evaluate(log, target, [op.Auto(), op.StackedDR(), op.LearnedMIPS(inputs="identity"), op.SNDR(), op.DM()])
    missing = found["Auto"].diagnostics["target_mass_missing"]
    assert 0.2 < missing < 1 / 3
    for name in ("Auto", "StackedDR"):
        assert found[name].std_error > missing * large.reward.std()
    for name in ("Auto", "StackedDR", "LearnedMIPS", "SNDR"):
        assert "mean weight" in codes(found[name])
        assert found[name].verdict is not op.Verdict.OK
    assert "missing share" in codes(found["DM"])


def test_no_support_in_some_contexts(large: Small) -> None:
    """The logging policy never takes action 0 where x₀ > 0; it does elsewhere, so the action is in the log."""
    logging = large.logging.copy()
    logging[large.context[:, 0] > 0, 0] = 0
    logging /= logging.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(1)
    action = (logging.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    result = op.evaluate(op.Log(large.context, action, large.reward, logging=logging), large.target, [op.DR()])
    mass = (large.target * (logging == 0)).sum(axis=1).mean()
    assert result["DR"].diagnostics["target_mass_without_support"] == pytest.approx(mass)
    assert "support" in codes(result["DR"])


def test_wrong_propensities_are_seen(large: Small) -> None:
    log = op.Log(large.context, large.action, large.reward, propensity=np.clip(large.propensity * 2, 0, 1))
    estimate = op.evaluate(log, large.target, [op.SNIPS()])["SNIPS"]
    assert "mean weight" in codes(estimate)
    assert estimate.verdict is op.Verdict.DO_NOT_TRUST


def test_an_error_that_is_nearly_all_of_the_fit() -> None:
    """Rewards of noise: what is learned from them hangs by a thread, and the first-order error says so, loudly."""
    world = op.worlds.Synthetic(10, beta=-0.5, epsilon=0.2)
    noisy = op.LearnedMDR("identity", op.Ridge("prediction"), op.Logistic())
    result = op.evaluate(world.sample(1000, 3), world.target, [noisy, op.DR(), op.DM()])
    reason = next(r for r in result["LearnedMDR"].reasons if r.code == "uncertain fit")
    assert reason.verdict is op.Verdict.CAUTION
    assert "refit=True" in reason.do
    assert "uncertain fit" not in codes(result["DR"]) | codes(result["DM"])


def test_one_round_that_decides(large: Small) -> None:
    propensity = np.full(4000, 0.5)
    propensity[5] = 1e-5
    log = op.Log(None, large.action % 2, large.reward, propensity=propensity)
    assert "largest weight" in codes(op.evaluate(log, op.Uniform(), [op.SNIPS()])["SNIPS"])


def test_few_rewards() -> None:
    rng = np.random.default_rng(0)
    reward = np.zeros(5000)
    reward[:30] = 1
    log = op.Log(None, rng.integers(0, 2, 5000), rng.permutation(reward), propensity=np.full(5000, 0.5))
    estimate = op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"]
    assert codes(estimate) == {"few rewards"}
    assert "Only 30 of 5,000 rounds" in estimate.reasons[0].seen
    assert estimate.reasons[0].do.startswith("Log more rounds (about 17,000 in all, with the present logging), or")


def test_how_many_rounds_are_enough() -> None:
    """In proportion, to two digits, rounded up; no number where none follows, or where there are enough."""
    assert Measure("effective rounds", 394.0).more_rounds(5000).startswith("Log more rounds (about 6,400 in all")
    assert Measure("effective rounds", 499.99).more_rounds(60).startswith("Log more rounds (about 61 in all")
    for enough in (0.0, 500.0):
        assert Measure("effective rounds", enough).more_rounds(5000) == "Log more rounds"


def test_a_model_that_explains_nothing(large: Small) -> None:
    rng = np.random.default_rng(0)
    q = 20 + rng.normal(size=(4000, 4)) * 10
    result = op.evaluate(large.log(), large.target, [op.SNIPS(), op.DM(op.Given(q)), op.DR(op.Given(q))])
    assert {"reward model", "disagreement"} <= codes(result["DM"])
    assert "reward model" in codes(result["DR"])


def test_a_model_that_nothing_checks(large: Small) -> None:
    """Without propensities the direct method is all there is, and nothing would show that it is wrong."""
    log = op.Log(large.context, large.action, large.reward, n_actions=4)
    found = op.evaluate(log, large.target, [op.DM()])["DM"]
    assert found.verdict is op.Verdict.CAUTION
    assert "unchecked model" in [reason.code for reason in found.reasons]


def test_few_clusters(large: Small) -> None:
    log = large.log(cluster=np.arange(4000) % 4)
    estimate = op.evaluate(log, large.logging, [op.IPS()])["IPS"]
    (reason,) = [each for each in estimate.reasons if each.code == "few clusters"]
    assert reason.do.startswith("Log more rounds (about 10,000 in all, with the present logging) in new clusters")  # 10 of 4
    assert estimate.verdict is op.Verdict.DO_NOT_TRUST


def test_rounds_that_make_another_estimate_as_precise() -> None:
    """Three times the standard error takes nine times the rounds."""
    assert "(about 45,000 in all" in as_precise("SNIPS", 0.3, 0.1, 5_000)
    assert as_precise("SNIPS", 0.1, 0.3, 5_000) == ""
    assert "would make SNIPS alone as precise" in own_bias("SNIPS", 0.0, (0.3, 0.1, 0.3), 5_000).do


def test_no_overlap_at_all(small: Small) -> None:
    log = op.Log(None, np.arange(400) % 2, small.reward, propensity=np.full(400, 0.5), n_actions=3)
    result = op.evaluate(log, op.Fixed([0, 0, 1.0]), [op.IPS(), op.SNIPS()])
    assert np.isnan(result["SNIPS"].value)
    assert "undefined" in codes(result["SNIPS"])
    assert result["SNIPS"].verdict is op.Verdict.DO_NOT_TRUST
    assert "undefined" in str(result)
    assert np.isnan(result["SNIPS"].confidence_interval(method="bootstrap").low)


def test_one_huge_reward(large: Small) -> None:
    reward = large.reward.copy()
    reward[17] = 1e9
    estimate = op.evaluate(op.Log(None, large.action, reward, propensity=large.propensity), op.Uniform(), [op.SNIPS()])[
        "SNIPS"
    ]
    assert "concentration" in codes(estimate)
    assert estimate.verdict is op.Verdict.DO_NOT_TRUST


def test_the_mean_weight_of_clusters() -> None:
    """40 clusters of one action each: a mean weight of 0.94 is no surprise, though thousands of rows say it."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(60), 100)
    action = rng.integers(0, 2, 60)[cluster]
    log = op.Log(None, action, rng.normal(size=6000), propensity=np.full(6000, 0.5), cluster=cluster)
    estimate = op.evaluate(log, op.Fixed([0.9, 0.1]), [op.SNIPS()])["SNIPS"]
    assert abs(estimate.diagnostics["mean_weight_z"]) < 4


def test_words_below_the_table(large: Small) -> None:
    """Every doubt is in words, labels stay on one line, and the logged mean stands once."""
    by = np.where(large.context[:, 0] > 0, "a\nb" + "c" * 100, "rest")
    log = op.Log(large.context, large.action, np.column_stack([large.reward, large.reward**2]), logging=large.logging, by=by)
    result = op.evaluate(log, {"new": large.target, "old": large.logging}, [op.SNIPS(), op.ClippedIPS(0.2)])
    shown = str(result)
    assert shown.count("LoggedMean") == 2  # two rewards; slices have a table of their own
    assert "a b" + "c" * 36 + "…" in shown
    assert "ClippedIPS for old: It differs from SNIPS" in " ".join(shown.split())
    assert "new: SNIPS estimates" in shown
    assert "\nold: SNIPS estimates" in shown
    assert max(map(cell_len, shown.splitlines())) <= 80


def test_concentration_names_parts_that_exist() -> None:
    """A log of 3,000 rounds has no 4,096th part."""
    rng = np.random.default_rng(0)
    reward = rng.random(3_000)
    reward[17] = 1e6
    log = op.Log(None, rng.integers(0, 2, 3_000), reward, propensity=np.full(3_000, 0.5))
    reason = next(r for r in op.evaluate(log, op.Uniform(), op.SNIPS())["SNIPS"].reasons if r.code == "concentration")
    parts = int(reason.seen.split()[2].replace(",", ""))
    assert 1_500 < parts < 3_000
    assert "(about 1 round) carries 100%" in reason.seen


def test_a_policy_trained_on_the_log_gets_advice_of_its_own() -> None:
    """It favours the actions that happened to be logged: the mean weight is above 1. On other rounds it is not."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(4_000, 3)), rng.integers(0, 5, 4_000)
    reward = (rng.random(4_000) < 0.3).astype(float)
    cell = (np.digitize(x[:, 0], np.linspace(-2, 2, 20)) * 21 + np.digitize(x[:, 1], np.linspace(-2, 2, 20))) % 441
    seen = np.full((441, 5), 0.2)
    np.add.at(seen, (cell[:2_000], action[:2_000]), reward[:2_000])
    policy = seen[cell] / seen[cell].sum(axis=1, keepdims=True)

    def mean_weight(rows: slice) -> list[op.Finding]:
        log = op.Log(x[rows], action[rows], reward[rows], propensity=np.full(2_000, 0.2), n_actions=5)
        return [r for r in op.evaluate(log, policy[rows], op.SNIPS())["SNIPS"].reasons if r.code == "mean weight"]

    (found,) = mean_weight(slice(0, 2_000))
    assert found.verdict is op.Verdict.DO_NOT_TRUST
    assert "trained on" in found.why
    assert "op.split" in found.do
    assert "never took" not in found.do
    assert not mean_weight(slice(2_000, 4_000))


def test_an_estimate_outside_the_range_of_the_rewards(large: Small) -> None:
    """Weights that are twice too large double the mean of IPS, not that of SNIPS."""
    reward = (large.reward > -2).astype(float)
    log = op.Log(large.context, large.action, reward, propensity=large.propensity / 2, n_actions=4)
    result = op.evaluate(log, large.logging, [op.IPS(), op.SNIPS(), op.Auto([op.IPS(), op.SNIPS()])])
    assert result["IPS"].value > 1.5
    (found,) = (r for r in result["IPS"].reasons if r.code == "out of range")
    assert found.verdict is op.Verdict.DO_NOT_TRUST
    assert "outside the range of the rewards, 0 to 1" in found.seen
    assert f"off by at least {result['IPS'].value - 1:.2g}" in found.why
    assert "out of range" not in codes(result["SNIPS"])
    assert "out of range" in {check.code for check in result["SNIPS"].checks}
    assert result["IPS"].value in result["IPS"].interval  # not cut where nothing would be left of it


def test_a_value_just_outside_the_range_calls_for_caution() -> None:
    action = np.array([0] * 205 + [1] * 195)  # IPS gives 2 · 205 / 400
    log = op.Log(None, action, np.r_[np.ones(399), 0.0], propensity=np.full(400, 0.5))
    estimate = op.evaluate(log, op.Fixed([1.0, 0.0]), op.IPS())["IPS"]
    assert estimate.value == pytest.approx(1.025)
    assert [r.verdict for r in estimate.reasons if r.code == "out of range"] == [op.Verdict.CAUTION]


def test_a_cautious_count_of_effective_lists_by_hand() -> None:
    """Of the weights 0, 1 and 4, two thirds are positive, with the geometric mean 2."""
    share, typical = LogHistogram.geometric_mean(LogHistogram().fold(LogHistogram().zero(), np.array([0.0, 1.0, 4.0])))
    assert share == pytest.approx(2 / 3)
    assert typical == pytest.approx(2, rel=0.01)
    assert LogHistogram.geometric_mean(LogHistogram().zero()) == (0, 0)
    few, more, plenty = (Overlap(500, ess, 1.0, 0.0, lognormal=80) for ess in (60, 240, 2_000))
    assert [o.cautious for o in (few, more, plenty)] == [60, 80, 400]
    assert Overlap(500, 240, 1.0, 0.0).cautious is None


def test_a_log_of_lists_that_lacks_the_largest_weights_by_chance_is_not_ok() -> None:
    """It is worth 50 lists, and seems to be worth 204."""
    world = Ranking("mixed", clicks=True, slots=4, n_actions=6, shift=0.6, interaction=3.0, seed=1)
    auto = op.evaluate(world.sample(653, seed=10_003), world.target, [op.Auto()])["Auto"]
    assert auto.diagnostics["effective_sample_size"] > 200
    assert codes(auto) == {"uncertain effective lists"}
