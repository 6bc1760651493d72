"""Several policies compared at once: the choice, and what is said of it in every output."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import offpolicy as op
from offpolicy.worlds import Linear

WORLD = Linear(8, clicks=True, overlap=0.6, seed=0)
POLICIES = {
    "new": WORLD.target,
    "old": WORLD.logging,
    "uniform": op.Uniform(),
    "little": op.Mixture([WORLD.target, WORLD.logging], [0.05, 0.95]),
}


@pytest.fixture(scope="module")
def result() -> op.Evaluation:
    return op.evaluate(WORLD.sample(4_000, seed=5), POLICIES, [op.SNIPS(), op.DR()])


def test_the_choice_and_the_rows(result: op.Evaluation) -> None:
    best = result.best("old")
    assert (best.choice, best.estimator, best.level) == ("new", "DR", 0.95)
    assert [row.policy for row in best.rows] == sorted(POLICIES, key=lambda p: -result[p, "DR"].value)
    assert best.may_be_best == ("new",)
    assert best["old"].conclusion == "baseline"
    for row in best.rows:
        alone = result[row.policy, "DR"].interval
        assert row.interval.low < alone.low < row.value < alone.high < row.interval.high
        if row.policy != "old":
            paired = result.difference(row.policy, "old", estimator="DR")
            assert (row.difference, row.difference_error) == pytest.approx((paired.value, paired.std_error))
            assert row.difference_interval.low < paired.interval.low
            decided = (
                "better" if row.difference_interval.low > 0 else "worse" if row.difference_interval.high < 0 else "undecided"
            )
            assert row.conclusion == decided


def test_how_many_rounds_would_show_that_a_policy_is_better() -> None:
    ahead = op.Mixture([WORLD.logging, WORLD.target], [0.9, 0.1])
    best = op.evaluate(WORLD.sample(100, seed=3), {"ahead": ahead, "same": WORLD.logging}, op.SNIPS()).best()
    row = best["ahead"]
    assert row.conclusion == "undecided"
    half = (row.difference_interval.high - row.difference_interval.low) / 2
    expected = 100 * ((half + 0.8416 * row.difference_error) / row.difference) ** 2
    assert row.decision_rounds == pytest.approx(expected, rel=1e-3)
    assert best["same"].decision_rounds is None  # it is what was logged
    assert "or log more rounds. If ahead earns as much as it seems to, about " in " ".join(str(best).split())


def test_without_a_baseline_policies_are_compared_with_the_log(result: op.Evaluation) -> None:
    best = result.best(estimator="SNIPS")
    assert best.baseline is None
    assert best.logged == result["old", "LoggedMean"].value
    assert best["old"].difference == pytest.approx(0, abs=1e-9)
    assert best["old"].conclusion == "undecided"
    assert best["new"].difference == pytest.approx(result.lift("new", estimator="SNIPS").value)


def test_the_baseline_is_kept_if_nothing_is_better() -> None:
    worse = op.Mixture([WORLD.logging, op.Fixed([1, 0, 0, 0, 0, 0, 0, 0])], [0.95, 0.05])
    result = op.evaluate(WORLD.sample(500, seed=1), {"a": worse, "b": WORLD.logging}, op.SNIPS())
    assert result.best("b").choice == "b"
    assert result.best().choice is None
    assert "earn more than b: keep b." in str(result.best("b"))  # a is worse: more rounds would not help it
    assert "keep the logging policy" in str(result.best())


def test_a_higher_level_decides_less(result: op.Evaluation) -> None:
    sure, bold = result.best("old", 0.999), result.best("old", 0.5)
    assert set(sure.better) <= set(result.best("old").better) <= set(bold.better)
    assert sure["new"].interval.low < bold["new"].interval.low
    for level in (0, 1, 2, "high"):
        with pytest.raises(op.InputError, match="between 0 and 1"):
            result.best(level=level)


def test_more_policies_make_wider_intervals_but_copies_of_one_do_not() -> None:
    log = WORLD.sample(2_000, seed=2)

    def width(policies: dict[str, op.Policy]) -> float:
        row = op.evaluate(log, {"new": WORLD.target, **policies}, op.SNIPS()).best()["new"]
        return row.interval.high - row.interval.low

    alone, copies = width({}), width({str(k): WORLD.target for k in range(8)})
    rng = np.random.default_rng(0)
    others = width({str(k): op.Fixed(rng.dirichlet(np.ones(8))) for k in range(8)})
    assert copies == pytest.approx(alone, rel=0.02)
    assert others > 1.2 * alone


def test_an_estimate_that_should_not_be_trusted_is_never_chosen() -> None:
    """It takes the one action that was logged twice, with luck."""
    n = 400
    action = np.r_[2, 2, np.arange(n - 2) % 2]
    reward = np.r_[1.0, 1.0, np.arange(n - 2) // 2 % 10 == 0]
    log = op.Log(np.zeros((n, 1)), action, reward, propensity=np.where(action == 2, 0.005, 0.4975), n_actions=3)
    policies = {"rare": op.Fixed([0, 0, 1]), "usual": op.Fixed([0.5, 0.5, 0]), "other": op.Fixed([0.7, 0.3, 0])}
    result = op.evaluate(log, policies, op.SNIPS())
    assert result["rare", "SNIPS"].verdict is op.Verdict.DO_NOT_TRUST
    best = result.best("usual")
    assert best["rare"].conclusion == "not compared"
    assert best.choice == "usual"
    assert "rare" not in best.may_be_best
    assert "Not compared, because their estimates should not be trusted: rare." in str(best)
    against = result.best("rare")
    assert {row.conclusion for row in against.rows} == {"baseline", "not compared"}
    assert "No policy can be compared with rare" in str(against)


def test_every_output_shows_it(result: op.Evaluation, tmp_path: Path) -> None:
    shown = result.with_best("old")
    told = json.loads(json.dumps(shown.to_dict()))["best"]
    assert told == json.loads(json.dumps(result.best("old").to_dict()))
    assert "best" not in result.to_dict()
    shown.write_html(tmp_path / "r.html")
    for text in (str(shown), shown.to_markdown(), (tmp_path / "r.html").read_text(), str(result.best("old"))):
        assert "Choose new: it earns at least" in text
        assert "best of them" in text


def test_a_saved_result_compares_alike(result: op.Evaluation, tmp_path: Path) -> None:
    shown = result.with_best("old", 0.9)
    shown.save(tmp_path / "r.json")
    again = op.load_result(tmp_path / "r.json")
    assert str(again) == str(shown)
    assert again.best("uniform").to_dict() == result.best("uniform").to_dict()
    assert again.with_best().to_dict()["best"] == result.with_best().to_dict()["best"]


def test_every_reward_is_compared() -> None:
    batch = WORLD.sample(1_000, seed=3).head()
    reward = np.column_stack([batch.reward[:, 0], 1 - batch.reward[:, 0]])
    both = op.Log(batch.context, batch.codes, reward, propensity=batch.propensity, n_actions=8)
    shown = op.evaluate(both, POLICIES, op.SNIPS()).with_best("old")
    other = shown.rewards["reward_1"]
    assert other.to_dict()["best"]["reward"] == "reward_1"
    assert other.best("old")["new"].difference == pytest.approx(-shown.best("old")["new"].difference)


def test_pictures(result: op.Evaluation) -> None:
    ax = Figure().subplots()
    assert result.plot.best(ax, baseline="old") is ax
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [row.policy for row in result.best("old").rows]
    assert "old" in [text.get_text() for text in ax.texts]
    assert result.best().plot(other := Figure().subplots()) is other


def test_wrong_requests(result: op.Evaluation) -> None:
    with pytest.raises(op.InputError, match="newer"):
        result.best("newer")
    with pytest.raises(op.InputError, match="DRR"):
        result.best(estimator="DRR")
    quick = op.evaluate(WORLD.sample(500, seed=0), POLICIES, op.SNIPS(), errors=False)
    with pytest.raises(op.InputError, match="errors=False"):
        quick.best()
    old = Path(__file__).parents[1] / "golden" / "format_1" / "result.json"
    with pytest.raises(op.InputError, match="without sums"):
        op.load_result(old).best()
