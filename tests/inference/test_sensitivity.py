"""Bounds where propensities are wrong: by hand, by enumeration, against the rows themselves, and over many logs."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import offpolicy as op
from offpolicy.worlds import Linear
from tests.logs import RATIO, REWARD, TARGET, Small, make_small

ALONE = op.Local(threads=1)


def exact(weight: np.ndarray, reward: np.ndarray, gamma: float) -> tuple[float, float]:
    """Both bounds from the rows: every threshold between sorted rewards is tried."""

    def largest(r: np.ndarray) -> float:
        order = np.argsort(r)
        w, r = weight[order], r[order]
        below = np.concatenate([[[0.0, 0.0]], np.cumsum(np.column_stack([w, w * r]), axis=0)])
        factors = below / gamma + (below[-1] - below) * gamma
        return float((factors[:, 1] / factors[:, 0]).max())

    return -largest(-reward), largest(reward)


def evaluated(w: Small, reward: np.ndarray | None = None, **more: object) -> op.Evaluation:
    log = op.Log(None, w.action, w.reward if reward is None else reward, propensity=w.propensity, n_actions=4, **more)
    column = op.Column(w.target[np.arange(len(w.action)), w.action])
    return op.evaluate(log, column, [op.SNIPS()], engine=ALONE)


def ratios(w: Small) -> np.ndarray:
    return (w.target / w.logging)[np.arange(len(w.action)), w.action]


@pytest.mark.parametrize("gamma", [1.0, 1.3, 2.0, 10.0])
def test_five_rows_against_all_corners(five: op.Log, gamma: float) -> None:
    """A ratio of linear functions of λ is largest at a corner: there are 2⁵."""
    corners = [np.array(c) * RATIO for c in itertools.product((1 / gamma, gamma), repeat=5)]
    values = [float(w @ REWARD / w.sum()) for w in corners]
    found = op.evaluate(five, TARGET, [op.SNIPS()]).sensitivity(gamma)
    assert (found.rows[0].low, found.rows[0].high) == pytest.approx((min(values), max(values)), rel=1e-12)
    assert found.resolution == pytest.approx(0, abs=1e-12)


def test_five_rows_by_hand(five: op.Log) -> None:
    """The log earned 1.4: weights 1 and 1.2 lie on rewards 0.6 and 1.6 above it, 0.4, 0.8 and 1.8 on 0.4, 1.4, 0.4 below."""
    found = op.evaluate(five, TARGET, [op.SNIPS()]).sensitivity([1, 2])
    assert found.value == pytest.approx(7.8 / 5.2)
    assert found.logged == pytest.approx(1.4)
    more, less = 1.0 * 0.6 + 1.2 * 1.6, 0.4 * 0.4 + 0.8 * 1.4 + 1.8 * 0.4
    assert found.claim == "better"
    assert found.holds_to == pytest.approx(math.sqrt(more / less))
    assert found.surely_to is None  # of five rows nothing is sure
    # at Γ = 2 the least value puts weights 0.8, 1.6 and 3.6 on 1, 0 and 1, and 0.5 and 0.6 on 2 and 3
    assert found.rows[1].low == pytest.approx((0.8 + 3.6 + 1.0 + 1.8) / (0.8 + 1.6 + 3.6 + 0.5 + 0.6))


def test_binary_rewards_have_a_closed_form(small: Small) -> None:
    click = (small.reward > 1).astype(float)
    w = ratios(small)
    p = float(w @ click / w.sum())
    for row in evaluated(small, click).sensitivity([1.0, 1.2, 3.0]).rows:
        square = row.gamma**2
        assert row.high == pytest.approx(square * p / (square * p + 1 - p), rel=1e-12)
        assert row.low == pytest.approx(p / (p + square * (1 - p)), rel=1e-12)


def test_no_doubt_is_snips_and_more_doubt_is_wider(small: Small) -> None:
    result = evaluated(small)
    rows = result.sensitivity(np.geomspace(1, 50, 40)).rows
    assert rows[0].low == pytest.approx(result["SNIPS"].value, rel=1e-12)
    assert rows[0].high == pytest.approx(result["SNIPS"].value, rel=1e-12)
    assert (np.diff([row.low for row in rows]) < 0).all()
    assert (np.diff([row.high for row in rows]) > 0).all()
    assert small.reward.min() < rows[-1].low < rows[-1].high < small.reward.max()
    for row in rows:
        assert row.interval_low < row.low
        assert row.high < row.interval_high


@pytest.mark.parametrize("kind", ["normal", "mostly nothing", "sorted", "near 1e8"])
def test_continuous_rewards_are_bounded_from_outside(kind: str) -> None:
    w = make_small(n=20_000)
    reward = w.reward.copy()
    if kind == "mostly nothing":  # revenue: nearly all rounds earn 0
        reward = np.where(reward > 3, np.exp(reward), 0.0)
    if kind == "near 1e8":
        reward += 1e8
    if kind == "sorted":  # the first rounds know nothing of the others
        order = np.argsort(reward)
        w, reward = Small(w.context[order], w.action[order], reward[order], w.logging[order], w.target[order]), reward[order]
    spread = reward.std()
    for row in (found := evaluated(w, reward).sensitivity([1.2, 2.0])).rows:
        low, high = exact(ratios(w), reward, row.gamma)
        slack = 1e-9 * spread
        assert low - found.resolution - slack <= row.low <= low + slack
        assert high - slack <= row.high <= high + found.resolution + slack
    assert found.resolution < (0.2 if kind == "sorted" else 0.01) * spread


def test_a_row_of_weight_two_is_two_rows(small: Small) -> None:
    twice = np.repeat(np.arange(400), 1 + np.arange(400) % 2)
    again = Small(*(part[twice] for part in (small.context, small.action, small.reward, small.logging, small.target)))
    weighed = evaluated(small, weight=1 + np.arange(400) % 2).sensitivity(1.5)
    written = evaluated(again).sensitivity(1.5)
    assert weighed.rows[0].low == pytest.approx(written.rows[0].low, abs=weighed.resolution + written.resolution)
    assert weighed.value == pytest.approx(written.value)
    assert weighed.logged == pytest.approx(written.logged)


def test_the_claim_ends_where_the_bound_meets_the_log(small: Small) -> None:
    mirrored = evaluated(small, -small.reward).sensitivity()
    found = evaluated(small).sensitivity()
    assert {found.claim, mirrored.claim} == {"better", "worse"}
    assert mirrored.holds_to == pytest.approx(found.holds_to, rel=1e-6)
    for result, reward in ((evaluated(small), 1), (evaluated(small, -small.reward), -1)):
        told = result.sensitivity()
        row = result.sensitivity(told.holds_to).rows[0]
        end = row.low if told.claim == "better" else row.high
        assert end == pytest.approx(told.logged, rel=1e-6), reward


def test_a_claim_that_nothing_can_end() -> None:
    """The target takes only what always earned more than the log's mean."""
    action = np.arange(1000) % 2
    log = op.Log(None, action, action + 1.0, propensity=np.full(1000, 0.5))
    found = op.evaluate(log, op.Fixed([0.0, 1.0]), [op.SNIPS()]).sensitivity([1, 2])
    assert found.holds_to == found.surely_to == math.inf
    assert found.rows[1].low == found.rows[1].high == 2
    told = found.to_dict()
    assert told["holds_to"] is None
    assert told["always"] == ["holds_to", "surely_to"]
    assert "at any Γ; also with the 95% interval" in str(found)


def test_errors_are_the_spread_over_logs() -> None:
    """150 logs know a spread to 6%; and the paired interval of the claim is at its level where the claim is false."""
    world = Linear(8, context=2, overlap=0.85)
    rows, sure = [], []
    for seed in range(150):
        found = op.evaluate(world.sample(1_000, seed), world.target, [op.SNIPS()], engine=ALONE).sensitivity(1.5)
        rows.append(found.rows[0])
        sure.append(found.surely_to or 1.0)
    for end, error in (("low", "low_error"), ("high", "high_error")):
        spread = np.std([getattr(row, end) for row in rows])
        assert np.mean([getattr(row, error) for row in rows]) == pytest.approx(spread, rel=0.2)
    large = op.evaluate(world.sample(300_000, 1_000), world.target, [op.SNIPS()], engine=ALONE).sensitivity(1.5)
    assert np.mean(np.array(sure) <= large.holds_to) >= 0.93  # one-sided, at a two-sided level of 95%
    assert np.median(sure) > 1.1
    held = [row.interval_low <= large.rows[0].low and large.rows[0].high <= row.interval_high for row in rows]
    assert np.mean(held) >= 0.9


def test_clusters_are_in_the_errors() -> None:
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(400), 10)
    reward = np.repeat(rng.normal(size=400), 10)
    action = rng.integers(0, 2, 4000)

    def error(**more: object) -> float:
        log = op.Log(None, action, reward, propensity=np.full(4000, 0.5), **more)
        return op.evaluate(log, op.Uniform(), [op.SNIPS()]).sensitivity(1.2).rows[0].low_error

    assert error(cluster=user) == pytest.approx(reward.std() / 20, rel=0.25)
    assert error() < 0.5 * error(cluster=user)


def test_wrong_propensities_are_bounded() -> None:
    """Recorded propensities are off by up to 1.3, the more the better the reward: SNIPS errs, its bounds hold the truth."""
    rng = np.random.default_rng(0)
    n, chances, means = 100_000, np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 2.0])
    action = rng.choice(3, n, p=chances)
    reward = means[action] + rng.normal(size=n)
    recorded = np.minimum(chances[action] * np.where(reward > 1.4, 1.3, 1 / 1.3), 1)
    log = op.Log(None, action, reward, propensity=recorded, n_actions=3)
    result = op.evaluate(log, op.Fixed([0.1, 0.2, 0.7]), [op.SNIPS()])
    truth = 1.6
    assert abs(result["SNIPS"].value - truth) > 10 * result["SNIPS"].std_error
    small, large = result.sensitivity([1.1, 1.31]).rows
    assert not small.low <= truth <= small.high
    assert large.low <= truth <= large.high


def test_several_policies_rewards_and_engines(small: Small) -> None:
    log = op.Log(
        small.context, small.action, np.column_stack([small.reward, -small.reward]), propensity=small.propensity,
        n_actions=4, by=np.where(np.arange(400) % 2, "odd", "even"),
    )  # fmt: skip
    targets = {"new": small.target, "old": small.logging}
    result = op.evaluate(log, targets, [op.SNIPS()], engine=ALONE)
    new, old = (result.sensitivity(1.5, policy=name) for name in ("new", "old"))
    assert new.policy == "new"
    assert old.value == pytest.approx(old.logged)
    flipped = result.rewards["reward_1"].sensitivity(1.5)
    assert flipped.rows[0].low == pytest.approx(-new.rows[0].high, rel=0.01)
    other = op.evaluate(log, targets, [op.SNIPS()], engine=op.Local(threads=2, batch_rows=37)).sensitivity(1.5)
    assert other.rows[0] == pytest.approx(new.rows[0], rel=1e-9)
    with pytest.raises(op.InputError, match="not for a slice"):
        result.slices["odd"].sensitivity(1.5)
    with pytest.raises(op.InputError, match="'newer'"):
        result.sensitivity(1.5, policy="newer")
    told = result.with_sensitivity([1.5]).to_dict()
    assert [each["policy"] for each in told["sensitivity"]] == ["new", "old"]
    assert told["other_rewards"]["reward_1"]["sensitivity"][0]["reward"] == "reward_1"
    assert result.to_dict()["sensitivity"] == []


@pytest.mark.parametrize(
    "gamma", [0.5, 0.999, math.nan, math.inf, -1, "2", [1.2, 0.9], [], True, None, [None], np.array(1.5)]
)
def test_a_factor_below_one_is_refused(five: op.Log, gamma: object) -> None:
    with pytest.raises(op.InputError, match="gamma is .*at least 1"):
        op.evaluate(five, TARGET, [op.SNIPS()]).sensitivity(gamma)


def test_without_weights_there_are_no_bounds(small: Small) -> None:
    log = op.Log(small.context, small.action, small.reward, n_actions=4)
    with pytest.raises(op.InputError, match="needs discrete actions and their propensities"):
        op.evaluate(log, small.target, [op.DM()]).sensitivity(1.5)
    log = op.Log(None, [0, 0, 0], [1.0, 2.0, 3.0], propensity=[0.5, 0.5, 0.5], n_actions=2)
    with pytest.raises(op.InputError, match="every weight is 0"):
        op.evaluate(log, op.Fixed([0.0, 1.0]), [op.SNIPS()]).sensitivity(1.5)


def test_in_every_form_of_the_report(small: Small) -> None:
    result = evaluated(small)
    found = result.sensitivity([1.0, 1.5])
    shown = result.with_sensitivity([1.0, 1.5])
    assert json.loads(json.dumps(shown.to_dict()))["sensitivity"] == [json.loads(json.dumps(found.to_dict()))]
    claim = f"{found.claim.capitalize()} than the "
    for form in (str(found), str(shown), shown.to_markdown(), shown._repr_html_()):
        assert claim in form.replace("&amp;#39;", "'")
        assert "Γ" in form
    assert "Γ" not in str(result) + result.to_markdown()
    assert max(map(len, str(shown).splitlines())) <= 80


def test_the_picture(small: Small) -> None:
    ax = Figure().subplots()
    plot = evaluated(small).plot
    assert plot.sensitivity(ax, gamma=2.0) is ax
    assert ax.get_xlim()[1] >= 2
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "logged mean" in labels
    assert any("up to" in text for text in labels)
    plot.sensitivity(Figure().subplots(), gamma=np.array([1, 3]))
    for wrong in (0.5, "a", None):
        with pytest.raises(op.InputError, match="at least 1"):
            plot.sensitivity(Figure().subplots(), gamma=wrong)


def test_a_policy_without_overlap_is_left_out_of_reports() -> None:
    log = op.Log(None, [0, 0, 1, 0], [1.0, 2.0, 3.0, 1.0], propensity=[0.5] * 4, n_actions=3)
    policies = {"nowhere": op.Fixed([0.0, 0.0, 1.0]), "new": op.Fixed([0.5, 0.5, 0.0])}
    result = op.evaluate(log, policies, [op.SNIPS()], engine=ALONE)
    shown = result.with_sensitivity([1.0, 1.5])
    assert [found["policy"] for found in shown.to_dict()["sensitivity"]] == ["new"]
    assert "Γ" in str(shown)
    with pytest.raises(op.InputError, match="nowhere: every weight is 0"):
        shown.sensitivity(1.5)
    with pytest.raises(op.InputError, match="gamma is"):
        result.with_sensitivity([0.5])


def test_a_saved_result_draws_what_it_holds(small: Small, tmp_path: Path) -> None:
    result = evaluated(small)
    result.save(tmp_path / "r.json")
    with pytest.raises(op.InputError, match=r"no bounds for several Γ.*with_sensitivity"):
        op.load_result(tmp_path / "r.json").plot.sensitivity(Figure().subplots())
    result.with_sensitivity([1.5, 1.0, 1.2]).save(tmp_path / "r.json")
    again = op.load_result(tmp_path / "r.json")
    ax, live = Figure().subplots(), Figure().subplots()
    assert again.plot.sensitivity(ax) is ax
    result.plot.sensitivity(live, gamma=1.5)
    ends = [sorted(path.vertices[:, 0])[-1] for axes in (ax, live) for path in axes.collections[0].get_paths()]
    assert ends == pytest.approx([1.5, 1.5])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [t.get_text() for t in live.get_legend().get_texts()]
    with pytest.raises(op.InputError, match="no policy 'newer'"):
        again.plot.sensitivity(Figure().subplots(), policy="newer")


@pytest.mark.parametrize("seed", range(5))
def test_no_claim_holds_only_below_1(seed: int) -> None:
    """The logging policy itself: its value is that of the log, and rounding must not make Γ less than 1."""
    rng = np.random.default_rng(seed)
    log = op.Log(None, rng.integers(0, 5, 3_000), rng.normal(size=3_000), propensity=np.full(3_000, 0.2), n_actions=5)
    found = op.evaluate(log, op.Uniform(), op.SNIPS(), engine=ALONE).sensitivity()
    assert found.holds_to >= 1
    assert "Γ = 0" not in str(found)
    assert f"the value is not clearly {found.claim} than the" in " ".join(str(found).split())
