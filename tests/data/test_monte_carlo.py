"""Propensities from draws: unbiased where they claim it, their variance counted, and reported where draws are too few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, nbinom

import offpolicy as op
from offpolicy.data.monte_carlo import estimated


def mean_inverse(sampling: Any, p: float, m: int) -> float:
    """p·E[1/p̂], summed over all outcomes of the draws."""
    counts = op.MonteCarlo("k", "m", sampling)
    if sampling == "inverse":  # m wins
        n = np.arange(m, 40 * int(m / p))
        return float(p * (nbinom.pmf(n - m, m, p) / estimated(counts, np.full(len(n), m), n)).sum())
    own = int(sampling == "included")  # one of the draws is the action that was taken
    k = np.arange(m - own + 1)
    return float(p * (binom.pmf(k, m - own, p) / estimated(counts, k + own, np.full(len(k), m))).sum())


def test_the_exact_bias_of_each_form() -> None:
    assert mean_inverse("separate", 0.01, 1024) == pytest.approx(1 - 0.99**1025)
    assert mean_inverse("separate", 0.01, 1024) == pytest.approx(1, abs=4e-5)
    assert mean_inverse("separate", 0.001, 1024) == pytest.approx(0.64, abs=0.005)
    assert mean_inverse("included", 0.01, 1024) == pytest.approx(1 - 0.99**1024)
    assert mean_inverse("inverse", 0.01, 3) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("sampling", ["separate", "included"])
@pytest.mark.parametrize("m", [10, 100, 1000])
def test_the_bias_is_at_most_one_percent_from_five_expected_wins(sampling: str, m: int) -> None:
    assert 0.99 <= mean_inverse(sampling, 5 / m, m) <= 1


def test_inverse_sampling_multiplies_the_mean_square_as_stated() -> None:
    p, j = 0.05, 4
    n = np.arange(j, 20_000)
    square = p**2 * (nbinom.pmf(n - j, j, p) * (n / j) ** 2).sum()
    assert square == pytest.approx(1 + (1 - p) / j, rel=1e-6)


def log_of(expected: float, sampling: str, seed: int = 0, n: int = 4_000, m: int = 200) -> op.Log:
    """Actions of probability p under logging; counts of m draws, or of draws until the fifth win."""
    rng = np.random.default_rng(seed)
    p = np.array([expected / m, 1 - expected / m])
    action = rng.choice(2, n, p=p)
    taken = p[action]
    if sampling == "inverse":
        wins, draws = np.full(n, 5), 5 + rng.negative_binomial(5, taken)
    else:
        own = sampling == "included"
        wins, draws = rng.binomial(m - own, taken) + own, np.full(n, m)
    return op.Log(None, action, 2.0 - action, propensity=op.MonteCarlo(wins, draws, sampling))  # type: ignore[arg-type]


def finding(estimate: op.Estimate) -> op.Finding | None:
    return next((reason for reason in estimate.reasons if reason.code == "draws"), None)


@pytest.mark.parametrize("sampling", ["separate", "included"])
def test_too_few_draws_are_a_finding(sampling: str) -> None:
    target = op.Fixed([0.5, 0.5])
    assert finding(op.evaluate(log_of(10, sampling), target, op.SNIPS())["SNIPS"]) is None
    few = finding(op.evaluate(log_of(3, sampling, n=40_000), target, op.SNIPS())["SNIPS"])
    assert few is not None
    assert few.verdict is op.Verdict.CAUTION
    worse = finding(op.evaluate(log_of(0.5, sampling, n=40_000), target, op.SNIPS())["SNIPS"])
    assert worse is not None
    assert worse.verdict is op.Verdict.DO_NOT_TRUST


def test_inverse_sampling_has_no_bias_to_report() -> None:
    estimate = op.evaluate(log_of(3, "inverse"), op.Fixed([0.5, 0.5]), op.IPS())["IPS"]
    assert finding(estimate) is None
    assert 0.1 < estimate.diagnostics["share_of_squared_weights_from_draws"] < 0.2  # about (1/5) / (1 + 1/5)


def test_the_variance_of_the_draws_is_counted() -> None:
    found = [
        op.evaluate(log_of(8, "inverse", seed, 1_000, 40), op.Fixed([0.5, 0.5]), op.IPS())["IPS"] for seed in range(100)
    ]
    spread, counted = np.std([e.value for e in found], ddof=1), np.mean([e.std_error for e in found])
    assert spread == pytest.approx(counted, rel=2 / np.sqrt(2 * 99))
    assert np.mean([e.value for e in found]) == pytest.approx(1.5, abs=2 * spread / 10)


FRAME = pd.DataFrame({"item": ["a", "b", "a", "b"], "click": [1, 0, 1, 1], "k": [3, 0, 1, 2], "m": [7, 7, 9, 3]})
COLUMNS: dict[str, Any] = {"context": (), "action": "item", "reward": "click"}


def test_columns_and_arrays_give_the_same_propensities() -> None:
    log = op.read_log(FRAME, propensity=op.MonteCarlo("k", "m"), **COLUMNS)
    assert log.head().propensity == pytest.approx([0.5, 0.125, 0.2, 0.75])
    assert log.source.roles["propensity"] == "k of m"
    arrays = op.Log(None, FRAME["item"], FRAME["click"], propensity=op.MonteCarlo(FRAME["k"], FRAME["m"]))
    assert arrays.head().propensity == pytest.approx(log.head().propensity)


@pytest.mark.parametrize(
    ("changed", "sampling", "message"),
    [
        (
            {"k": [3, 0, 10, 2]},
            "separate",
            r"k: 1 row has impossible counts \(the first: 10 wins in 9 draws\)",
        ),
        ({"k": [3, 0.5, 1, 2]}, "separate", "0.5 wins in 7 draws"),
        ({"m": [7, 0, 9, 3], "k": [3, 0, 1, 2]}, "separate", "0 wins in 0 draws"),
        ({}, "included", "the action taken is one of the draws"),
        ({}, "inverse", "draws end with a win"),
        ({"k": [3, None, 1, 2]}, "separate", "k: 1 row is missing, NaN or infinite"),
        ({}, "twice", "'twice'"),
    ],
)
def test_impossible_counts_are_refused(changed: dict[str, Any], sampling: Any, message: str) -> None:
    def evaluated() -> None:
        log = op.read_log(FRAME.assign(**changed), propensity=op.MonteCarlo("k", "m", sampling), **COLUMNS)
        op.evaluate(log, op.Uniform(), op.IPS())

    with pytest.raises(op.InputError, match=message):
        evaluated()
