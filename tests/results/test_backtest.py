"""Backtests: by hand, with a known coverage and a known factor, on awkward input, and on real logs."""

from __future__ import annotations

import contextlib
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import offpolicy as op
from offpolicy.inference.intervals import Interval, normal_quantile
from offpolicy.inference.widening import widening
from tests.docs import pages

Z = normal_quantile(0.975)
WORLD = op.worlds.Linear(n_actions=5, clicks=True, seed=0)
DATA = Path(os.environ.get("OPEN_BANDIT_DATASET", Path(__file__).parents[3] / "shared" / "data" / "open_bandit_dataset"))


def outcome(value: float, error: float, earned: float, earned_error: float = 0.0, **changes: Any) -> op.Outcome:
    """An estimate with a normal interval, beside the truth."""
    interval = Interval(value - Z * error, value + Z * error, 0.95, "normal", value)
    return op.Outcome(**{"pair": "p", "estimator": "E", "value": value, "std_error": error, "interval": interval,
                         "earned": earned, "earned_error": earned_error, **changes})  # fmt: skip


def test_by_hand() -> None:
    """Errors of 1, −2 and 3 standard errors: two of three miss, and c² is the mean of 1, 4 and 9."""
    row = op.Backtest.of([outcome(11, 1, 10), outcome(8, 1, 10), outcome(13, 1, 10)], 0.95)["E"]
    assert (row.pairs, row.held, row.coverage, row.undefined) == (3, 1, 1 / 3, 0)
    assert (row.bias, row.bias_error) == pytest.approx((2 / 3, math.sqrt(3) / 3))
    assert (row.factor, row.factor_error) == pytest.approx((math.sqrt(14 / 3), math.sqrt(14 / 3) / math.sqrt(6)))
    assert row.factor_low == pytest.approx(math.sqrt(14 / stats.chi2.ppf(0.975, 3)))
    assert row.factor_high == pytest.approx(math.sqrt(14 / stats.chi2.ppf(0.025, 3)))
    low = stats.beta.ppf(0.025, 1, 3)  # Clopper and Pearson
    assert (row.coverage_low, row.coverage_high) == pytest.approx((low, stats.beta.ppf(0.975, 2, 2)))


def test_the_error_of_the_truth_counts() -> None:
    """Both errors are 3 and 4 in one unit, so that the difference has 5; c² 9 + 16 = 100 gives c = √84/3."""
    assert outcome(10, 3, 0).held is False
    assert outcome(9.7, 3, 0, 4).held
    assert not outcome(9.9, 3, 0, 4).held
    row = op.Backtest.of([outcome(10, 3, 0, 4)], 0.95)["E"]
    assert row.factor == pytest.approx(math.sqrt(84) / 3)
    assert row.bias_error == pytest.approx(5)
    assert row.factor_error == pytest.approx(math.sqrt(2) * 100 / (2 * row.factor * 9))
    within = op.Backtest.of([outcome(3, 3, 0, 4)], 0.95)["E"]  # the truth's own error explains all of it
    assert (within.factor, within.factor_low) == (0, 0)
    assert math.isnan(within.factor_error)


def test_an_interval_counts_on_the_side_of_the_truth() -> None:
    """An interval from 0 to 4 about 1 reaches 3 up and 1 down."""
    lopsided = Interval(0.0, 4.0, 0.95, "made up")
    assert outcome(1, 1, 3.5, interval=lopsided).held
    assert not outcome(1, 1, -0.5, interval=lopsided).held
    above, below = (outcome(1, 1, earned, interval=lopsided).own_error for earned in (2.0, 0.0))
    assert (above, below) == pytest.approx((3 / Z, 1 / Z))
    outside = outcome(5, 1, 3.9, interval=lopsided)
    assert outside.held
    assert outside.error == pytest.approx(1.1)


def test_no_finite_interval_did_not_hold() -> None:
    nothing = Interval(math.nan, math.nan, 0.95, "student")
    found = op.Backtest.of([outcome(1, 1, 1), outcome(1, math.nan, 1, interval=nothing, pair="q")], 0.95)
    row = found["E"]
    assert (row.pairs, row.held, row.undefined, row.bias) == (2, 1, 1, 0)
    assert "Without a finite interval, which counts as not held: E (1)" in str(found)
    found.plot()
    alone = op.Backtest.of([outcome(1, math.nan, 1, interval=nothing)], 0.95)["E"]
    assert math.isnan(alone.bias)
    assert math.isnan(alone.factor)
    certain = op.Backtest.of([outcome(0, 0, 1)], 0.95)["E"]  # an interval without width cannot be widened
    assert (certain.held, certain.factor) == (0, math.inf)


def test_a_known_coverage_and_a_known_factor() -> None:
    """Intervals that are half as wide as they should be, and truths with an error of their own."""
    rng, count = np.random.default_rng(7), 2_000
    stated, truth = rng.uniform(0.5, 2.0, count), rng.uniform(0.0, 1.0, count)
    distance = rng.normal(size=count) * np.hypot(2 * stated, truth)
    found = op.Backtest.of([outcome(*three) for three in zip(distance, stated, np.zeros(count), truth, strict=True)], 0.95)
    expected = (2 * stats.norm.cdf(Z * np.hypot(stated, truth) / np.hypot(2 * stated, truth)) - 1).mean()
    row = found["E"]
    assert abs(row.coverage - expected) < 3 * math.sqrt(expected * (1 - expected) / count)
    assert abs(row.factor - 2) < 3 * row.factor_error
    assert row.factor_low < 2 < row.factor_high


def test_the_interval_of_the_factor_holds_for_five_pairs() -> None:
    """400 backtests of five pairs: 95% of the intervals contain the factor."""
    rng, stated, truth = np.random.default_rng(11), np.array([1.0, 2.0, 0.5, 1.0, 1.5]), np.full(5, 0.3)
    found = [widening(rng.normal(size=5) * np.hypot(1.5 * stated, truth), stated, truth, 0.95) for _ in range(400)]
    held = sum(each.low <= 1.5 <= each.high for each in found) / 400
    assert abs(held - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 400)


def test_estimates_of_a_world_hold() -> None:
    """60 tests; the truth is once known and once the log of B, whose own error counts."""
    earned, error = WORLD.value_with_error(WORLD.target)
    pairs = []
    for k in range(60):
        x = WORLD.sample(400, seed=k)
        rewards = (np.random.default_rng(1_000 + k).random(400) < earned).astype(float)
        log_of_b = op.Log(None, np.zeros(400, dtype=int), rewards, n_actions=5)
        pairs.append(op.Pair(x, WORLD.target, log_of_b) if k % 2 else op.Pair(x, WORLD.target, earned, error))
    found = op.backtest(pairs, op.DR())
    row = found["DR"]
    assert [each.estimator for each in found.outcomes] == ["DR"] * 60  # the logged mean is no estimate of B
    assert row.coverage_low < 0.95 < row.coverage_high
    assert row.factor_low < 1 < row.factor_high
    assert abs(row.bias) < 3 * row.bias_error
    rewards = found.outcomes[1]
    assert rewards.earned_error == pytest.approx(math.sqrt(rewards.earned * (1 - rewards.earned) / 399), rel=0.01)


def test_a_biased_estimator_is_noticed() -> None:
    """Weights of 0 and 2, clipped at 1, halve the value, 0.5; the bias shows, and so does the factor."""
    pairs = []
    for k in range(10):
        rng = np.random.default_rng(k)
        action = rng.integers(2, size=500)
        reward = (rng.random(500) < 0.3 + 0.2 * action).astype(float)
        log = op.Log(np.zeros((500, 1)), action, reward, propensity=np.full(500, 0.5))
        pairs.append(op.Pair(log, op.Fixed([0.0, 1.0]), 0.5, 0.01))
    row = op.backtest(pairs, op.ClippedIPS(clip=1)).rows[0]
    assert row.coverage == 0
    assert row.factor_low > 1
    assert abs(row.bias + 0.25) < 3 * row.bias_error


def test_a_backtest_is_plain_values_and_a_plot() -> None:
    pairs = [op.Pair(WORLD.sample(300, seed=k), WORLD.target, 0.24, 0.01, name=f"week {k}") for k in range(2)]
    found = op.backtest(pairs, [op.IPS(), op.SNIPS()], level=0.9)
    told = found.to_dict()
    assert (told["schema"], told["level"], len(told["rows"]), len(told["outcomes"])) == ("offpolicy.backtest/1", 0.9, 2, 4)
    assert told["outcomes"][0]["interval"]["level"] == 0.9
    assert told["outcomes"][0]["pair"] == "week 0"
    assert "2 past tests: how often 90% intervals held." in str(found)
    labels = [label.get_text() for label in found.plot().get_yticklabels()]
    assert labels == ["IPS, week 0", "SNIPS, week 0", "IPS, week 1", "SNIPS, week 1"]
    with pytest.raises(op.InputError, match="DR"):
        found["DR"]


LOG = WORLD.sample(50, seed=0)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "there are no pairs"),
        (None, "pairs is a NoneType; give a list of op.Pair"),
        (op.Pair(LOG, WORLD.target, 0.2, 0.1), "pairs is a Pair; give a list"),
        ([op.Pair("a.parquet", WORLD.target, 0.2, 0.1)], "pair 1: log is a str; create it with op.read_log"),  # type: ignore[arg-type]
        ([op.Pair(LOG, WORLD.target, op.Log(None, [[0, 1], [1, 0]], [1.0, 0.0], actions=op.Slate(2)))], "pair 1, log of B: .*as a number"),
        ([(LOG, WORLD.target, 0.2)], r"pairs has a tuple; give op.Pair"),
        ([op.Pair(LOG, WORLD.target, 0.2)], "pair 1: std_error is missing"),
        ([op.Pair(LOG, WORLD.target, 0.2, -1.0)], "pair 1: std_error is -1.0"),
        ([op.Pair(LOG, WORLD.target, math.nan, 0.1)], "pair 1: earned is nan"),
        ([op.Pair(LOG, WORLD.target, None, 0.1, name="May")], "May: earned is None"),  # type: ignore[arg-type]
        ([op.Pair(LOG, WORLD.target, LOG, 0.1)], "std_error is computed from the log of B"),
        ([op.Pair(LOG, WORLD.target, 0.2, 0.1, name="a")] * 2, "two of them have the same name"),
        ([op.Pair(LOG, op.Column("p_new"), 0.2, 0.1)], "pair 1: .*p_new"),
        ([op.Pair(op.Log(None, [0, 1], [[1, 0], [0, 1]], propensity=[0.5, 0.5]), WORLD.target, 0.2, 0.1)], "has 2 rewards"),
    ],
)  # fmt: skip
def test_awkward_input(pairs: Any, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.backtest(pairs, op.SNIPS())


def test_the_logged_mean_alone_is_refused() -> None:
    with pytest.raises(op.InputError, match="name another estimator"):
        op.backtest([op.Pair(LOG, WORLD.target, 0.2, 0.1)], op.LoggedMean())


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the Open Bandit Dataset in {DATA}")
def test_open_bandit_in_both_directions() -> None:
    """The page's last block, which prints what it shows, and what the page concludes from it."""
    code, shown = [block.body for block in pages.blocks((pages.ROOT / "docs" / "backtest.md").read_text())][-2:]
    printed, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(printed):
        exec(code.replace('"open_bandit_dataset"', repr(str(DATA))), names)
    assert printed.getvalue().strip() == shown.strip()
    found = op.backtest(names["pairs"], [op.IPS(), op.SNIPS(), op.DR()])
    assert all(row.held == row.pairs == 2 and row.coverage_low < 0.2 for row in found.rows)
    assert all(row.factor_low < 0.1 and row.factor_high > 3 for row in found.rows)
