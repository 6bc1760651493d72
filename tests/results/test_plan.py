"""How many rounds are needed: by hand, against realised widths, and under exploration."""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op
from offpolicy.inference.intervals import normal_quantile

P_OLD, P_NEW, RATES = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6]), np.array([0.2, 0.3, 0.5])


def log_of(n: int, seed: int = 0, p_old: np.ndarray = P_OLD) -> op.Log:
    rng = np.random.default_rng(seed)
    action = rng.choice(3, n, p=p_old)
    reward = (rng.random(n) < RATES[action]).astype(float)
    return op.Log(None, action, reward, propensity=p_old[action], n_actions=3)


def test_by_hand() -> None:
    result = op.evaluate(log_of(2_000), {"new": op.Fixed(P_NEW)}, op.IPS())
    (row,) = result.plan(0.01, explore=0).rows
    z, error = normal_quantile(0.975), result["new", "IPS"].std_error
    assert row.rounds == pytest.approx(2_000 * (z * error / 0.01) ** 2)
    assert row.rounds_low < row.rounds < row.rounds_high
    lift = result.lift(estimator="IPS")
    assert row.decision_rounds == pytest.approx(2_000 * ((z + normal_quantile(0.8)) * lift.std_error / lift.value) ** 2)


def test_exploration_by_the_exact_variance() -> None:
    """With ε = 0.2 the variance of IPS per round is E[π²r²/π0'] − V²; the log of 40,000 rounds tells it to 5%."""
    result = op.evaluate(log_of(40_000), op.Fixed(P_NEW), [op.IPS(), op.SNIPS()])
    value, mixed = float(P_NEW @ RATES), 0.8 * P_OLD + 0.2 / 3
    now, explored = (float((P_NEW**2 / p * RATES).sum()) - value**2 for p in (P_OLD, mixed))
    few = result.plan(0.01, explore=(0, 0.2), estimator="IPS").rows
    assert few[1].rounds / few[0].rounds == pytest.approx(explored / now, rel=0.05)
    snips = (float((P_NEW**2 / p * (RATES * (1 - value) ** 2 + (1 - RATES) * value**2)).sum()) for p in (mixed, P_OLD))
    rows = result.plan(0.01, explore=(0, 0.2), estimator="SNIPS").rows
    assert rows[1].rounds / rows[0].rounds == pytest.approx(next(snips) / next(snips), rel=0.05)


def test_predicted_widths_are_realised() -> None:
    """From 1,000 rounds, the width at 4,000: the mean over 20 logs is within 10% (benchmarks.planning has five worlds)."""
    predicted = [
        op.evaluate(log_of(1_000, seed), op.Fixed(P_NEW), op.SNIPS()).plan(0.02, explore=0).rows[0].rounds
        for seed in range(20)
    ]
    realised = op.evaluate(log_of(40_000, 99), op.Fixed(P_NEW), op.SNIPS())["SNIPS"]
    needed = 40_000 * (normal_quantile(0.975) * realised.std_error / 0.02) ** 2
    assert np.mean(np.sqrt(predicted)) == pytest.approx(np.sqrt(needed), rel=0.1)


def test_what_it_says_and_refuses() -> None:
    policies = {"new": op.Fixed(P_NEW), "old": op.Fixed(P_OLD)}
    result = op.evaluate(log_of(2_000), policies, op.SNIPS())
    plan = result.plan(0.01, baseline="old", explore=(0, 0.1))
    assert "exploration" in str(plan)
    assert len(plan.rows) == 4
    assert plan.rows[-1].decision_rounds == np.inf
    assert "never" in str(plan)
    assert plan.to_dict()["baseline"] == "old"
    ax = plan.plot()
    assert ax.get_yticklabels()[0].get_text() == "new, 0% exploration"
    assert "decided against old" in [text.get_text() for text in ax.get_legend().get_texts()]
    for arguments, message in (
        ({"half_width": 0}, "half_width"),
        ({"half_width": 0.1, "explore": (0, 2)}, "explore"),
        ({"half_width": 0.1, "explore": None}, "explore"),
        ({"half_width": 0.1, "estimator": "DRR"}, "DRR"),
        ({"half_width": 0.1, "baseline": "odl"}, "odl"),
    ):
        with pytest.raises(op.InputError, match=message):
            result.plan(**arguments)
    with pytest.raises(op.InputError, match="reads the log again"):
        result.detach().plan(0.01)
    assert result.detach().plan(0.01, explore=0).rows[0].rounds == result.plan(0.01, explore=0).rows[0].rounds
