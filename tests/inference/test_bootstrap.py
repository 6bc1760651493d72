"""The bootstrap that fits again in each draw: against the spread over logs, and the laws of its draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.core.hashing import buckets, drawn_counts, hash_rows
from offpolicy.engines.resampling import Resampled
from offpolicy.inference.functionals import unresampled_variance
from offpolicy.inference.intervals import Interval, refitted_interval
from offpolicy.worlds import Linear
from tests.logs import DISCRETE, Small, make_small

ALONE = op.Local(threads=1)


def test_every_draw_counts_the_same_reproduces_every_value(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log in which each unit was drawn once is the log: to the last digit, for every estimator."""
    every = [DISCRETE[name]() for name in sorted(DISCRETE)]
    log = small.log(action_features=small.features, weight=np.linspace(0.5, 1.5, 400))
    once = op.evaluate(log, small.target, every, engine=ALONE).values()
    monkeypatch.setattr("offpolicy.engines.resampling.drawn_counts", lambda unit, seed, draw: np.ones(len(unit), np.int64))
    assert op.evaluate(log, small.target, every, engine=Resampled(ALONE, 0, 0)).values() == once


def test_a_unit_drawn_twice_is_a_row_twice(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a log in which the copies are written out, with one unit for the copies of a row."""
    counts = np.array([0, 1, 2, 1] * 100)
    kept = np.repeat(np.arange(400), counts)

    def log(rows: np.ndarray) -> op.Log:
        return op.Log(
            small.context[rows], small.action[rows], small.reward[rows], propensity=small.propensity[rows],
            n_actions=4, cluster=rows,
        )  # fmt: skip

    estimators = [op.DM(), op.DR(), op.MRDR(), op.MR(), op.SwitchDR()]
    target = op.Softmax(lambda x: x @ np.arange(8.0).reshape(2, 4) / 5)
    written = op.evaluate(log(kept), target, estimators, engine=ALONE).values()
    by_unit = dict(zip(log(np.arange(400)).head(400).unit.tolist(), counts.tolist(), strict=True))
    monkeypatch.setattr(
        "offpolicy.engines.resampling.drawn_counts",
        lambda unit, seed, draw: np.array([by_unit[u] for u in unit.tolist()], np.int64),
    )
    drawn = op.evaluate(log(np.arange(400)), target, estimators, engine=Resampled(ALONE, 0, 0)).values()
    for key, value in written.items():
        assert drawn[key] == pytest.approx(value, rel=1e-9), key


def test_counts_are_poisson_and_belong_to_the_unit() -> None:
    unit = hash_rows("log", 0, 200_000)
    counts = drawn_counts(unit, seed=3, draw=5)
    assert counts.mean() == pytest.approx(1, abs=0.01)
    assert counts.var() == pytest.approx(1, abs=0.02)
    assert (drawn_counts(unit[::-1], 3, 5) == counts[::-1]).all()
    for other in (drawn_counts(unit, 3, 6), drawn_counts(unit, 4, 5)):
        assert abs(np.corrcoef(counts, other)[0, 1]) < 0.01
    assert abs(np.corrcoef(counts, buckets(unit, 3))[0, 1]) < 0.01  # folds are drawn apart


def test_the_spread_of_a_direct_method_over_logs() -> None:
    """A regressor's fit is in no other interval: context-free, a plain bootstrap calls the direct method exact."""
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    chances, means, target = np.array([0.6, 0.3, 0.1]), np.array([0.0, 1.0, 3.0]), op.Fixed([0.1, 0.2, 0.7])

    def sampled() -> op.Log:
        action = rng.choice(3, 300, p=chances)
        return op.Log(None, action, means[action] + rng.normal(size=300), propensity=chances[action], n_actions=3)

    def evaluated(log: op.Log) -> op.Estimate:
        return op.evaluate(log, target, [op.DM(LinearRegression())], engine=ALONE)["DM"]

    spread = float(np.std([evaluated(sampled()).value for _ in range(200)]))  # known to 5%
    law = float(np.sqrt((np.array([0.1, 0.2, 0.7]) ** 2 / (300 * chances)).sum()))
    assert spread == pytest.approx(law, rel=0.15)
    widths, plain = [], []
    for _ in range(5):
        estimate = evaluated(sampled())
        refitted = estimate.confidence_interval(0.6827, method="bootstrap", refit=True)
        assert refitted.method == "bootstrap, refitted"
        assert estimate.value in refitted
        widths.append(refitted.high - refitted.low)
        ci = estimate.confidence_interval(0.6827, method="bootstrap")
        plain.append(ci.high - ci.low)
    assert np.mean(widths) / 2 == pytest.approx(spread, rel=0.2)
    assert max(plain) < 0.2 * np.mean(widths)
    result = op.evaluate(sampled(), target, [op.DM(LinearRegression())], engine=ALONE)
    assert "does not include the error of what was fitted" in " ".join(reason.seen for reason in result["DM"].reasons)
    shown = result.with_interval("bootstrap", refit=True)
    assert "not in this interval" not in " ".join(reason.seen for reason in shown["DM"].reasons)
    assert "DM *" in str(result)
    assert "DM *" not in str(shown)


def test_a_ridge_s_jackknife_and_its_refits_agree() -> None:
    world = Linear(8, context=2, overlap=0.85)
    estimate = op.evaluate(world.sample(1_000, 1), world.target, [op.DM(op.Ridge(1.0))], engine=ALONE)["DM"]
    refitted = estimate.confidence_interval(0.6827, method="bootstrap", refit=True)
    assert (refitted.high - refitted.low) / 2 == pytest.approx(estimate.std_error, rel=0.3)


def test_clusters_are_drawn_whole() -> None:
    """100 users of 10 rounds who agree with themselves: the interval is that of 100 rounds."""
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(100), 10), rng.integers(0, 2, 1000)
    reward = np.repeat(rng.normal(size=100), 10)

    def width(**more: object) -> float:
        log = op.Log(None, action, reward, propensity=np.full(1000, 0.5), **more)
        ci = op.evaluate(log, op.Uniform(), [op.DM()], engine=ALONE)["DM"].confidence_interval(
            0.6827, method="bootstrap", refit=True
        )
        return (ci.high - ci.low) / 2

    assert width(cluster=user) == pytest.approx(reward.std() / np.sqrt(100), rel=0.3)
    assert width() < 0.5 * width(cluster=user)


def test_draws_do_not_depend_on_threads_or_batches_and_are_made_once(small: Small) -> None:
    def interval(engine: op.Local, seed: int = 0) -> Interval:
        result = op.evaluate(small.log(), small.target, [op.DM(), op.LearnedMIPS()], engine=engine, seed=seed)
        return result["LearnedMIPS"].confidence_interval(method="bootstrap", refit=True, draws=10)

    first = interval(ALONE)
    other = interval(op.Local(threads=2, batch_rows=37))
    assert (other.low, other.high) == pytest.approx((first.low, first.high), rel=1e-9)
    assert interval(ALONE, seed=1) != first


def test_draws_serve_differences_slices_and_rewards(small: Small) -> None:
    log = op.Log(
        small.context, small.action, np.column_stack([small.reward, -small.reward]), propensity=small.propensity,
        logging=small.logging, n_actions=4, by=np.where(np.arange(400) % 2, "odd", "even"),
    )  # fmt: skip
    result = op.evaluate(log, {"new": small.target, "old": small.logging}, [op.DM(), op.IPS()], engine=ALONE)
    settings = {"method": "bootstrap", "refit": True, "draws": 20}
    of = result["new", "DM"].confidence_interval(**settings)
    mirrored = result.rewards["reward_1"]["new", "DM"].confidence_interval(**settings)
    assert (mirrored.low, mirrored.high) == pytest.approx((-of.high, -of.low), rel=1e-6)
    odd = result.slices["odd"]["new", "DM"].confidence_interval(**settings)
    assert odd.high - odd.low > of.high - of.low
    assert (odd.low, odd.high) != (of.low, of.high)
    lift = result.lift("new", estimator="DM")
    assert lift.value in lift.confidence_interval(**settings)
    assert lift.confidence_interval(**settings).method == "bootstrap, refitted"
    same = result.difference(("new", "DM"), ("new", "DM")).confidence_interval(**settings)
    assert (same.low, same.high) == (0, 0)
    assert result.slices["odd"].lift("new", estimator="DM").confidence_interval(**settings).method == "bootstrap, refitted"
    table = result.with_interval("bootstrap", refit=True)
    assert table.settings["interval"] == "bootstrap, refitted"


def test_where_nothing_is_fitted_it_is_the_plain_bootstrap(small: Small) -> None:
    result = op.evaluate(small.log(), small.target, [op.SNIPS(), op.DR(op.Given(lambda x: x @ np.ones((2, 4))))])
    for name in ("SNIPS", "DR", "LoggedMean"):
        plain = result[name].confidence_interval(method="bootstrap")
        assert result[name].confidence_interval(method="bootstrap", refit=True) == plain
    plain = result.lift(estimator="SNIPS").confidence_interval(method="bootstrap")
    assert result.lift(estimator="SNIPS").confidence_interval(method="bootstrap", refit=True) == plain


def test_what_cannot_be_is_said(small: Small) -> None:
    result = op.evaluate(small.log(), small.target, [op.DM()])
    for method in ("normal", "bernstein", "cressie-read"):
        with pytest.raises(op.InputError, match="in each draw of a bootstrap"):
            result["DM"].confidence_interval(method=method, refit=True)
    with pytest.raises(op.InputError, match="in each draw of a bootstrap"):
        result.lift().confidence_interval(refit=True)
    for draws in (3, 10.5, True, "20"):
        with pytest.raises(op.InputError, match=f"draws is {draws!r}; give a whole number from 10"):
            result["DM"].confidence_interval(method="bootstrap", refit=True, draws=draws)
    asked = {"method": "bootstrap", "refit": True}
    assert result["DM"].confidence_interval(**asked, draws=np.int64(10)) == result["DM"].confidence_interval(
        **asked, draws=10
    )
    with pytest.raises(op.InputError, match="to the bootstrap, not to normal"):
        result.with_interval("normal", refit=True)


def test_a_log_that_is_gone(tmp_path: Path) -> None:
    w = make_small()
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"x": w.context[:, 0], "a": w.action, "r": w.reward, "p": w.propensity}), path)
    log = op.read_log(path, context=["x"], action="a", reward="r", propensity="p")
    result = op.evaluate(log, op.Uniform(), [op.DM()])
    path.unlink()
    with pytest.raises(op.InputError, match=r"reads the log again .*draw 0 failed.*without refit=True"):
        result["DM"].confidence_interval(method="bootstrap", refit=True)


def test_a_saved_model_is_not_fitted_again(small: Small) -> None:
    """Nothing of DM is fitted then: it is the plain bootstrap, and says what it does not hold."""
    q = op.fit_rewards(make_small(seed=1).log(action_features=small.features))
    log = small.log(action_features=small.features)
    mdr = op.LearnedMDR(rewards=q, posterior=op.Logistic())
    result = op.evaluate(log, small.target, [op.DM(q), op.SwitchDR(q), mdr], engine=ALONE)
    plain, shown = result.with_interval("bootstrap"), result.with_interval("bootstrap", refit=True)
    assert shown["DM"].confidence_interval() == plain["DM"].confidence_interval()
    assert shown["DM"].reasons == plain["DM"].reasons
    assert shown["LearnedMDR"].evidence.fitted
    for name in ("DM", "SwitchDR", "LearnedMDR"):  # thresholds and weights are found again, the model is what it was
        found = next(reason for reason in shown[name].reasons if reason.code == "fit not covered")
        assert "leaves a saved model as it is" in found.do
        assert f"{name} *" in str(shown)


def test_estimated_propensities_are_estimated_again() -> None:
    """SNIPS by counts, whose draws by hand: the log drawn anew has counts of its own."""
    rng = np.random.default_rng(0)
    action = rng.choice(2, 200, p=[0.7, 0.3])
    reward = action + rng.normal(size=200)
    log = op.Log(None, action, reward, n_actions=2, logging=op.EstimatedLogging("counts", 2))
    target = np.array([0.4, 0.6])
    result = op.evaluate(log, op.Fixed(target), [op.SNIPS()], engine=ALONE)
    unit = log.head(200).unit
    fold = buckets(unit, 0) * 2 // 4096
    expected = []
    for draw in range(10):
        kept = np.repeat(np.arange(200), drawn_counts(unit, 0, draw))
        a, k = action[kept], fold[kept]
        chance = np.array([(a[k != own] == its).mean() for its, own in zip(a, k, strict=True)])
        expected.append(np.average(reward[kept], weights=target[a] / chance))
    estimate = result["SNIPS"]
    np.testing.assert_allclose(estimate.evidence.refitted(10), expected, rtol=1e-9)  # type: ignore[misc]
    refitted = estimate.confidence_interval(method="bootstrap", refit=True, draws=10)
    assert refitted.method == "bootstrap, refitted"
    assert result["LoggedMean"].confidence_interval(method="bootstrap", refit=True).method == "bootstrap"

    def why(estimate: op.Estimate) -> str:
        return next(reason.why for reason in estimate.reasons if reason.code == "estimated propensities")

    assert "does not include the error of that fit" in why(estimate)
    assert "includes the error of that fit" in why(result.with_interval("bootstrap", refit=True)["SNIPS"])


def test_as_many_draws_of_a_blend_as_one_likes(small: Small) -> None:
    """A blend adds a normal number to each draw."""
    blend = op.evaluate(small.log(), small.target, [op.Auto()], engine=ALONE)["Auto"]
    spread = float(np.sqrt(unresampled_variance(blend.evidence.functional, blend.evidence.sums)))
    of = refitted_interval(blend.evidence.functional, blend.evidence.sums, 0.6827, np.zeros(2_500))
    assert (of.low, of.high) == pytest.approx((-spread, spread), rel=0.1)
    assert spread > 0


def test_a_draw_in_which_the_log_earned_nothing(small: Small) -> None:
    """One reward in 400 rounds: some draws lack it. Relative to nothing there is no number, and no warning."""
    reward = np.zeros(400)
    reward[7] = 1.0
    log = op.Log(small.context, small.action, reward, propensity=small.propensity, n_actions=4)
    result = op.evaluate(log, small.target, [op.DM()], engine=ALONE)
    dm, logged = result["DM"].evidence, result["LoggedMean"].evidence
    assert dm is not None
    assert logged is not None
    assert np.isnan(dm.relative_to(logged).interval(0.95, "bootstrap", draws=20).low)
