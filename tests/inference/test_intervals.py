"""Standard errors and intervals against formulas, and of differences against the spread of many logs."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import offpolicy as op
from offpolicy.estimators import REGISTRY
from offpolicy.inference.intervals import degrees_of_freedom
from offpolicy.worlds import Linear
from tests.logs import Small, make_small


def test_a_context_free_direct_method_is_not_called_exact(small: Small) -> None:
    """Every row has the same baseline, so the delta method alone would say 0."""
    log = op.Log(None, small.action, small.reward, propensity=small.propensity, n_actions=4)
    estimate = op.evaluate(log, op.Fixed([0.4, 0.3, 0.2, 0.1]), [op.DM(op.Ridge(0))])["DM"]
    counts = np.bincount(small.action)
    spread = np.array([small.reward[small.action == a].var(ddof=1) for a in range(4)])
    by_formula = np.sqrt((np.array([0.4, 0.3, 0.2, 0.1]) ** 2 * spread / counts).sum())
    assert estimate.error_covers == "sampling+fit"
    assert estimate.std_error == pytest.approx(by_formula, rel=0.5)


def test_clusters_widen_the_interval_as_they_should() -> None:
    """500 users of 10 rounds with an effect of their own: the clustered error is the spread of the users' means."""
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(500), 10)
    reward = rng.normal(size=500)[user] * 2 + rng.normal(size=5000)
    action = rng.integers(0, 2, 5000)

    def error(**more: object) -> float:
        log = op.Log(None, action, reward, propensity=np.full(5000, 0.5), **more)
        return op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"].std_error

    by_user = reward.reshape(500, 10).mean(axis=1)
    assert error(cluster=user) == pytest.approx(by_user.std(ddof=1) / np.sqrt(500), rel=0.15)
    assert error() < 0.6 * error(cluster=user)
    assert error(cluster=[f"u{k}" for k in user]) == pytest.approx(error(cluster=user), rel=0.15)


def test_bootstrap_agrees_with_normal_where_things_are_normal() -> None:
    w = make_small(n=5000)
    estimate = op.evaluate(w.log(), w.logging, [op.SNIPS()])["SNIPS"]
    a, b = estimate.confidence_interval(method="normal"), estimate.confidence_interval(method="bootstrap")
    width = a.high - a.low
    assert b.low == pytest.approx(a.low, abs=0.1 * width)
    assert b.high == pytest.approx(a.high, abs=0.1 * width)


def test_bernstein_by_formula(five: op.Log) -> None:
    from tests.logs import TARGET

    estimate = op.evaluate(five, TARGET, [op.IPS()])["IPS"]
    terms = np.array([0.4, 0, 2, 1.8, 3.6])
    log = np.log(4 / 0.05)
    half = np.sqrt(2 * log * terms.var(ddof=1) / 5) + 7 * (1.8 * 3) * log / (3 * 4)
    evidence = estimate.evidence
    assert evidence is not None
    unlimited = replace(evidence, value_range=None)
    assert unlimited.interval(0.95, "bernstein").high == pytest.approx(1.56 + half, rel=1e-12)
    assert estimate.confidence_interval(method="bernstein").high == 3  # the end of the range of the rewards


class TestStudent:
    def test_by_formula(self) -> None:
        """Five rounds, each in a bucket of its own: from the mean square and the fourth power of w·r − V."""
        log = op.Log(None, [0, 1, 0, 1, 1], [1.0, 0.0, 2.0, 3.0, 1.0], propensity=[0.5, 0.5, 0.25, 0.5, 0.75], n_actions=2)
        found = op.evaluate(log, op.Fixed([0.25, 0.75]), op.IPS())["IPS"].confidence_interval(0.9, method="student")
        parts = np.array([0.5, 0.0, 2.0, 4.5, 1.0])
        moved = parts - parts.mean()
        kurtosis = (moved**4).mean() / (moved**2).mean() ** 2
        freedom = 4 * 1 / (kurtosis - 1)  # that of five normal numbers is 2 on average
        half = stats.t.ppf(0.95, freedom) * parts.std(ddof=1) / np.sqrt(5)
        assert 1 < freedom < 4
        assert (found.low, found.high) == pytest.approx((parts.mean() - half, parts.mean() + half), rel=1e-9)
        assert (found.method, found.value) == ("student", pytest.approx(1.6))

    def test_is_normal_if_the_variance_is_well_known(self) -> None:
        w = make_small(n=5000)
        estimate = op.evaluate(w.log(), w.logging, [op.LoggedMean()])["LoggedMean"]
        a, b = (estimate.confidence_interval(method=method) for method in ("normal", "student"))
        assert b.high == pytest.approx(a.high, abs=0.001 * (a.high - a.low))
        assert b.high > a.high

    def test_one_round_that_dominates_leaves_two_degrees_of_freedom(self) -> None:
        n = 200
        log = op.Log(
            None, np.zeros(n, int), np.eye(1, n)[0] * 1000 + np.tile([0.1, -0.1], n // 2), propensity=np.ones(n), n_actions=2
        )
        estimate = op.evaluate(log, op.Uniform(), [op.LoggedMean()])["LoggedMean"]
        assert estimate.evidence is not None
        assert degrees_of_freedom(estimate.evidence.functional, estimate.evidence.sums) == pytest.approx(2, abs=0.05)
        ends = estimate.confidence_interval(method="student")
        assert ends.high - estimate.value == pytest.approx(stats.t.ppf(0.975, 2) * estimate.std_error, rel=0.05)

    def test_without_spread_it_is_a_point(self) -> None:
        log = op.Log(None, np.zeros(50, int), np.ones(50), propensity=np.ones(50), n_actions=2)
        ends = op.evaluate(log, op.Uniform(), [op.LoggedMean()])["LoggedMean"].interval
        assert (ends.low, ends.high) == (1, 1)


class TestTheDefault:
    def test_goes_by_what_the_estimate_is(self, small: Small) -> None:
        every = [op.IPS(), op.SNIPS(), op.ClippedIPS(), op.DR(), op.DM(), op.LearnedMIPS(), op.Auto()]
        result = op.evaluate(small.log(), {"a": small.target, "b": small.logging}, every)
        methods = {e.estimator: e.interval.method for e in result}
        weighs = {name for name, method in methods.items() if method == "cressie-read"}
        assert weighs == {"IPS", "SNIPS"}
        assert set(methods.values()) == {"cressie-read", "student"}
        assert result.difference("a", "b", estimator="SNIPS").interval.method == "student"
        assert result["a", "SNIPS"].confidence_interval(method="auto") == result["a", "SNIPS"].interval
        assert result.settings["interval"] == "auto"

    def test_no_warning_for_rewards_without_a_range(self, small: Small) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert op.evaluate(small.log(), small.target, [op.SNIPS()])["SNIPS"].interval.method == "cressie-read"

    def test_a_method_chosen_by_name_serves_differences_too(self, small: Small) -> None:
        result = op.evaluate(small.log(), {"a": small.target, "b": small.logging}, [op.SNIPS()]).with_interval("normal")
        assert result["a", "SNIPS"].interval.method == result.difference("a", "b").interval.method == "normal"


def test_a_cressie_read_interval_belongs_to_the_regression_estimate(small: Small) -> None:
    """The mean of w·r moved along its regression on w to where the mean of w is 1; in the middle if nothing is unseen."""
    w = (small.target / small.logging)[np.arange(len(small.action)), small.action]
    y = w * small.reward
    slope = np.cov(y, w)[0, 1] / w.var(ddof=1)
    result = op.evaluate(small.log(), small.target, [op.IPS(), op.SNIPS()])
    assert result["IPS"].interval.value == pytest.approx(y.mean() + slope * (1 - w.mean()), rel=1e-9)
    by_hand = y.sum() / w.sum()
    slope = np.cov(w * (small.reward - by_hand), w)[0, 1] / w.var(ddof=1) / w.mean()
    assert result["SNIPS"].interval.value == pytest.approx(by_hand + slope * (1 - w.mean()), rel=1e-9)
    assert result["IPS"].confidence_interval(method="normal").value == result["IPS"].value


@pytest.mark.parametrize(("share", "method"), [(1.0, "cressie-read"), (0.5, "student")])
def test_a_mean_weight_is_not_moved_to_1_where_the_log_lacks_actions(share: float, method: str) -> None:
    """Ten of twenty actions are logged, and the policy takes the others with probability 1 − share."""
    rng = np.random.default_rng(0)
    action = rng.integers(10, size=1_000)
    reward = rng.binomial(1, 0.3 + action / 50).astype(float)
    log = op.Log(None, action, reward, propensity=np.full(1_000, 0.1), n_actions=20, reward_range=(0, 1))
    target = op.Fixed(np.concatenate([share / 10 * np.linspace(0.5, 1.5, 10), np.full(10, (1 - share) / 10)]))
    snips = op.evaluate(log, target, [op.SNIPS()])["SNIPS"]
    assert snips.interval.method == method
    assert snips.confidence_interval(0.8).method == method
    assert snips.value in snips.interval
    if share < 1:
        assert snips.confidence_interval(method="cressie-read").low > snips.interval.high  # an extrapolation


def test_cressie_read_solves_its_problem() -> None:
    """Against a numerical search: reweight the rows (and one unseen row) with mean weight 1 inside the divergence ball."""
    from scipy.optimize import minimize

    w = make_small(n=40, actions=2, features=1, seed=4)
    ratio = (w.target / w.logging)[np.arange(40), w.action]
    log = op.Log(None, w.action, w.reward, propensity=w.propensity, reward_range=(-8, 8))
    column = w.target[np.arange(40), w.action]
    ci = op.evaluate(log, op.Column(column), [op.IPS()])["IPS"].confidence_interval(0.9, method="cressie-read")
    radius = 1.6448536269514722**2 / 41

    def end(sign: float, unseen: tuple[float, float]) -> float:
        weights, y = np.append(ratio, unseen[0]), np.append(ratio * w.reward, unseen[1])
        least = (1 - weights.mean()) ** 2 / weights.var()  # what the mean weight alone costs
        found = minimize(
            lambda e: -sign * ((1 + e) * y).mean(),
            np.zeros(41),
            constraints=[
                {"type": "eq", "fun": lambda e: e.sum()},
                {"type": "eq", "fun": lambda e: ((1 + e) * weights).mean() - 1},
                {"type": "ineq", "fun": lambda e: radius + least - (e**2).mean()},
            ],
            options={"maxiter": 500, "ftol": 1e-12},
        )
        return float(((1 + found.x) * y).mean())

    top = ratio.max()
    assert ci.high == pytest.approx(max(end(1, (0, 0)), end(1, (top, 8 * top))), rel=0.02)
    assert ci.low == pytest.approx(min(end(-1, (0, 0)), end(-1, (top, -8 * top))), rel=0.02)


def test_reward_range_is_taken_from_the_data_with_a_warning(small: Small) -> None:
    estimate = op.evaluate(small.log(), small.target, [op.IPS()])["IPS"]
    with pytest.warns(op.InputWarning, match="no reward_range"):
        estimate.confidence_interval(method="bernstein")
    given = op.evaluate(small.log(reward_range=(-10, 10)), small.target, [op.IPS()])["IPS"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given.confidence_interval(method="cressie-read")


def test_differences_are_tighter_than_two_intervals() -> None:
    w = make_small(n=3000)
    near = 0.9 * w.target + 0.1 * w.logging
    result = op.evaluate(w.log(), {"a": w.target, "b": near}, [op.SNIPS(), op.DM()])
    for name in ("SNIPS", "DM"):
        apart = np.hypot(result["a", name].std_error, result["b", name].std_error)
        assert result.difference("a", "b", estimator=name).std_error < 0.3 * apart
    assert result.difference("a", "b", estimator="DM").error_covers == "sampling+fit"
    with pytest.raises(op.InputError, match="not for a difference"):
        result.difference("a", "b").confidence_interval(method="bernstein")


def test_auto_settings_pick_a_member(small: Small) -> None:
    result = op.evaluate(
        small.log(), small.target, [op.ClippedIPS(), op.SwitchDR(), op.DRos(), op.CAB(), op.SubGaussianIPS()]
    )
    for name, setting in [("ClippedIPS", "clip"), ("SwitchDR", "threshold"), ("DRos", "shrinkage"), ("CAB", "clip")]:
        chosen = result[name].diagnostics[setting]
        alone = op.evaluate(small.log(), small.target, [REGISTRY[name](**{setting: chosen})])[name]
        assert alone.value == pytest.approx(result[name].value, rel=1e-10)


def test_paired_differences_know_that_fit_and_sampling_move_together() -> None:
    """DM − DR and DM − SNIPS: the reported error is the spread over logs."""
    world = Linear(6, context=2, overlap=0.7)
    pairs = [("DM", "DR"), ("DM", "SNIPS"), ("DRos", "DR")]
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {pair: [] for pair in pairs}
    model = op.Ridge(1.0)  # the choice of a penalty, counted for DM and not for DR, would hide what is tested
    every = [op.SNIPS(), op.DM(model), op.DR(model), op.DRos(model, shrinkage=1)]
    for seed in range(200):
        result = op.evaluate(world.sample(800, seed), world.target, every, engine=op.Local(threads=1))
        for pair in pairs:
            difference = result.difference(*pair)
            seen[pair].append((difference.value, difference.std_error))
    for pair, rows in seen.items():
        value, error = np.array(rows).T
        ratio = np.sqrt((error**2).mean()) / value.std()
        # Where two nearly cancel (each has five times the spread of DM − DR), 20 groups see more than there is, never less.
        assert 0.85 < ratio < 1.6, (pair, ratio)


def test_errors_of_slices_cover_the_fit() -> None:
    """Half of the log as a slice: the direct method's error there is about that of the slice's share of the fit."""
    w = make_small(n=2000)
    by = np.where(w.context[:, 0] > 0, "right", "left")
    result = op.evaluate(w.log(by=by), w.target, [op.DM(), op.SwitchDR(threshold=1)])
    for name in ("DM", "SwitchDR"):
        for part in result.slices.values():
            assert part[name].error_covers == "sampling+fit"
            assert part[name].std_error > 0.5 * result[name].std_error


@pytest.mark.parametrize("method", ["normal", "bootstrap", "cressie-read"])
@pytest.mark.parametrize("name", ["IPS", "SNIPS", "DR"])
def test_the_unit_of_row_weights_does_not_matter(small: Small, method: str, name: str) -> None:
    ends = []
    for scale in (1.0, 1e-3, 250.0):
        log = small.log(weight=np.full(len(small.action), scale), reward_range=(-20, 20))
        ci = op.evaluate(log, small.target, [REGISTRY[name]()])[name].confidence_interval(method=method)
        ends.append((ci.low, ci.high))
    assert ends[1] == pytest.approx(ends[0], rel=1e-6)
    assert ends[2] == pytest.approx(ends[0], rel=1e-6)


def test_bernstein_counts_units_not_rows() -> None:
    w = make_small(n=200)
    each = np.repeat(np.arange(200), 50)
    halves = []
    for rows in (np.arange(200), each):
        log = op.Log(
            None,
            w.action[rows],
            w.reward[rows],
            propensity=w.propensity[rows],
            cluster=rows,
            reward_range=(-20, 20),
            n_actions=4,
        )
        estimate = op.evaluate(log, op.Column(w.target[np.arange(200), w.action][rows]), [op.IPS()])["IPS"]
        ci = estimate.confidence_interval(method="bernstein")
        halves.append(ci.high - ci.low)
    assert halves[1] == pytest.approx(halves[0], rel=0.1)
    with pytest.raises(op.InputError, match="does not support row weights"):
        op.evaluate(w.log(weight=np.arange(1.0, 201), reward_range=(-20, 20)), w.target, [op.IPS()])[
            "IPS"
        ].confidence_interval(method="bernstein")


def test_cab_leaves_ips_where_the_tail_was_never_logged() -> None:
    """An action that the log all but never takes, and the target often: only the model can speak of it."""
    rng = np.random.default_rng(0)
    logging = np.array([0.9999, 0.0001])
    action = np.zeros(2000, int)
    log = op.Log(None, action, 1 + rng.normal(size=2000) * 0.1, logging=op.Fixed(logging), n_actions=2)
    result = op.evaluate(log, op.Fixed([0.95, 0.05]), [op.CAB()])
    assert result["CAB"].diagnostics["clip"] < 1000
    assert result["CAB"].value == pytest.approx(1.0, abs=0.02)


def test_tables_with_few_clusters_and_many_rows() -> None:
    rng = np.random.default_rng(0)
    n = 120_000
    log = op.Log(None, rng.integers(0, 3, n), rng.normal(size=n), propensity=np.full(n, 1 / 3), cluster=np.arange(n) % 12)
    for seed in range(6):
        assert op.evaluate(log, op.Fixed([0.5, 0.3, 0.2]), [op.DM()], seed=seed)["DM"].std_error > 0
