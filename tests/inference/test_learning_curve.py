"""Learning curves of reward models: exact on parts of the log, silent where nothing is left to learn, and right where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.inference.learning_curve import PATTERNS, LearningCurve, split
from offpolicy.worlds import Linear

GROUPS = 20
FEW = Linear(30, seed=2)


class Units(op.Diagnostic):
    """Keeps the only batch of a small log, as it was scored."""

    batch: op.Batch

    def fold(self, state: Any, batch: Any, scored: Any) -> Any:
        self.batch = batch
        return state

    def findings(self, state: Any, subject: Any) -> list[op.Finding]:
        return []


def ols(x: np.ndarray, r: np.ndarray) -> np.ndarray:
    z = np.column_stack([x, np.ones(len(x))])
    return np.linalg.pinv(z.T @ z) @ z.T @ r


def by_hand(x: np.ndarray, a: np.ndarray, r: np.ndarray, target: np.ndarray, penalty: float) -> float:
    """DM with ridge regression by action towards the pooled fit, on standardised contexts."""
    z = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(len(x))])
    pooled = ols(z[:, :-1], r)
    value = 0.0
    for k in range(target.shape[1]):
        mine = z[a == k]
        own = np.linalg.solve(mine.T @ mine + penalty * np.eye(z.shape[1]), mine.T @ (r[a == k] - mine @ pooled))
        value += float((target[:, k] * (z @ (pooled + own))).mean())
    return value


def test_fits_on_half_of_the_rounds_by_hand() -> None:
    """V(n) − V(n/2), where each half has a ridge fit of its own and is evaluated on its own rounds."""
    rng = np.random.default_rng(0)
    n, penalty = 60, 0.7
    x, a = rng.normal(size=(n, 2)), rng.integers(0, 3, n)
    r = x[:, 0] * a + rng.normal(size=n)
    target = rng.dirichlet(np.ones(3), n)
    unit = Units()
    log = op.Log(x, a, r, propensity=np.full(n, 1 / 3))
    found = op.evaluate(log, target, op.DM(op.Ridge(penalty)), diagnostics=unit)["DM"].diagnostics["learning"]
    # Rounds are scored in the order of their buckets; the context tells which is which.
    order = [int(np.flatnonzero((x == each).all(axis=1))[0]) for each in unit.batch.context]
    group = np.empty(n, int)
    group[order] = group_of_bucket(GROUPS)[buckets(unit.batch.unit, 0)]
    halves = [
        sum(
            by_hand(x[m], a[m], r[m], target[m], penalty) * m.mean()
            for m in (np.isin(group, half) for half in split(GROUPS, p))
        )
        for p in PATTERNS
    ]
    assert found["whole"] == pytest.approx(by_hand(x, a, r, target, penalty))
    assert found["half"] == pytest.approx(np.mean(halves))
    assert found["std_error"] == pytest.approx(np.std(halves, ddof=1))


def test_splits_are_balanced() -> None:
    signs = np.array([np.where(np.isin(np.arange(GROUPS), split(GROUPS, p)[0]), 1, -1) for p in PATTERNS])
    assert signs.sum(axis=1).tolist() == [0, 0, 0, 0]
    assert np.abs(signs @ signs.T - GROUPS * np.eye(len(PATTERNS))).max() <= 4


@pytest.mark.parametrize("rate", [1.0, 1.5, 3.0])
def test_a_bias_that_is_a_power_of_the_rounds(rate: float) -> None:
    """V(n) = 1 − n^−γ around n = 1: the value after twice the rounds, and in the limit."""
    curve = LearningCurve(change=2**rate - 1, slope=rate, std_error=0.0)
    assert curve.rate == pytest.approx(rate, abs=0.01)
    assert curve.next_change == pytest.approx(1 - 0.5**rate, rel=0.01)
    assert curve.remaining == pytest.approx(1, rel=0.02)


def test_slower_than_one_over_n_is_not_claimed() -> None:
    assert LearningCurve(change=1.0, slope=2.0, std_error=0.1).remaining == 1.0
    assert LearningCurve(change=1.0, slope=-1.0, std_error=0.1).rate == 8.0  # the curve has turned
    assert LearningCurve(change=0.0, slope=0.0, std_error=0.0).least_bias == 0.0


def test_what_is_within_the_error_is_no_bias() -> None:
    near, far = LearningCurve(0.19, 0.19, 0.1), LearningCurve(-0.5, -0.5, 0.1)
    assert (near.seen, near.least_bias) == (False, 0.0)
    assert (far.seen, far.least_bias) == (True, pytest.approx((0.5 - 0.2) / 2))


def learning(world: Linear, n: int, model: Any, logs: int, seed: int) -> list[dict[str, float]]:
    dm = op.DM(model)
    return [op.evaluate(world.sample(n, seed=seed + k), world.target, dm)["DM"].diagnostics["learning"] for k in range(logs)]


def seen(curve: dict[str, float]) -> bool:
    return abs(curve["whole"] - curve["half"]) > 2 * curve["std_error"]


def test_silent_where_the_model_is_right_and_rounds_are_plenty() -> None:
    """At most as many false alarms as two standard errors promise (5%, and two binomial errors above it)."""
    world = Linear(5, context=2, seed=1)
    alarms = np.mean([seen(curve) for curve in learning(world, 2_000, op.Ridge(0.1), 200, 1_000)])
    assert alarms <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)


def test_a_shrunk_model_is_still_learning() -> None:
    """With few rounds per action every log shows it, and half of the rounds is what half of the rounds gives."""
    model, logs = op.Ridge(3), 16
    curves = learning(FEW, 900, model, logs, 0)
    assert all(seen(curve) and curve["half"] < curve["whole"] < curve["twice"] < curve["limit"] for curve in curves)

    def values(n: int, seed: int, logs: int) -> np.ndarray:
        dm = op.DM(model)
        return np.array(
            [op.evaluate(FEW.sample(n, seed=seed + k), FEW.target, dm, errors=False)["DM"].value for k in range(logs)]
        )

    half, much = values(450, 5_000, logs), values(60_000, 9_000, 1)
    means = {name: np.array([curve[name] for curve in curves]) for name in ("half", "whole", "twice", "limit")}
    assert abs(means["half"].mean() - half.mean()) < 3 * np.hypot(means["half"].std(), half.std()) / np.sqrt(logs)
    # The rest of the way is much longer than the errors; the extrapolation is right to within a third of it.
    rest, expected = much.mean() - means["whole"].mean(), (means["limit"] - means["whole"]).mean()
    assert rest > 5 * means["whole"].std() / np.sqrt(logs)
    assert abs(expected - rest) < rest / 3


def test_the_finding_says_what_twice_the_rounds_would_change() -> None:
    log = FEW.sample(900, seed=0)
    result = op.evaluate(log, FEW.target, [op.DM(op.Ridge(3)), op.SNDR(op.Ridge(3)), op.DRos(op.Ridge(3))])
    (finding,) = [check for check in result["DM"].checks if check.code == "learning"]
    assert finding.verdict is op.Verdict.CAUTION
    assert finding.seen.startswith("The reward model is still learning: from ")
    assert "with twice the rounds it would move by about +" in finding.seen
    assert int(finding.do.split("about ")[1].split(" in all")[0].replace(",", "")) > 900
    for corrected in ("SNDR", "DRos"):  # whose value is not that of the model
        assert all(check.code != "learning" for check in result[corrected].checks)
        assert "learning" not in result[corrected].diagnostics
    large = Linear(5, context=2, seed=1)
    quiet = op.evaluate(large.sample(4_000, seed=0), large.target, op.DM())["DM"]
    (finding,) = [check for check in quiet.checks if check.code == "learning"]
    assert finding.verdict is op.Verdict.OK


def scikit() -> Any:
    linear_model = pytest.importorskip("sklearn.linear_model")
    return linear_model.LinearRegression()


@pytest.mark.parametrize("model", [scikit, lambda: op.Given(lambda x: np.zeros((len(x), 30)))])
def test_a_model_that_cannot_be_fitted_on_a_part_is_silent(model: Callable[[], Any]) -> None:
    result = op.evaluate(FEW.sample(900, seed=0), FEW.target, op.DM(model()))["DM"]
    assert "learning" not in result.diagnostics


def test_auto_explains_it() -> None:
    log = FEW.sample(900, seed=0)
    auto = op.evaluate(log, FEW.target, op.Auto([op.SNDR(), op.DM(op.Ridge(3))]))["Auto"]
    rows = {row["name"]: row for row in auto.diagnostics["candidates"]}
    assert rows["SNDR"]["learning"] is None
    assert seen(rows["DM"]["learning"])
    words = " ".join(str(auto.explain()).split())
    assert "Still learning" in words
    assert "DM (from " in words
