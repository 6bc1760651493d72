"""Bounds that hold at every look: by hand, against exact products, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from offpolicy.inference.betting import (
    EXPONENTS,
    PRIOR,
    BinnedCapital,
    SharedCapital,
    UnitCapital,
    log_products,
    lower_bound,
)
from offpolicy.statistics.signed_histogram import Bins, SignedHistogram


def bins_of(values: np.ndarray) -> Bins:
    return Bins.of(SignedHistogram.fold(SignedHistogram.zero(), values))


def test_capital_by_hand() -> None:
    """Scores 0, 1 and 2 and λ = 1: Π (1 + s) = 1·2·3, divided by (1 + θ)³."""
    bins = bins_of(np.array([0.0, 1.0, 2.0]))
    expected = sum(
        prior * (1 + lam) * (1 + 2 * lam) / (1 + 0.5 * lam) ** 3 for prior, lam in zip(PRIOR, 2.0**EXPONENTS, strict=True)
    )
    assert np.exp(BinnedCapital(bins).log_at(0.5)) == pytest.approx(expected, rel=1e-3)
    assert BinnedCapital(bins).log_at(0.0) > BinnedCapital(bins).log_at(1.0)


def test_products_are_bounded_from_below_and_tightly() -> None:
    values = np.random.default_rng(0).lognormal(0, 1.5, 20_000)
    grid = 2.0**EXPONENTS
    exact = np.log1p(np.multiply.outer(grid, values)).sum(axis=1)
    ours = log_products(bins_of(values), grid)
    assert (ours <= exact + 1e-4).all()  # rounding to 24 bits
    assert ours == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("floor", [1.0, 5.0])
def test_scores_with_a_floor(floor: float) -> None:
    values = np.random.default_rng(1).uniform(-floor, 1, 5_000)
    grid = 0.9 / floor * 2.0 ** -np.arange(10.0)
    exact = np.log1p(np.multiply.outer(grid, values)).sum(axis=1)
    ours = log_products(bins_of(values), grid, floor)
    assert (ours <= exact + 1e-6).all()
    loss = (exact - ours) / (grid**2 * (values**2).sum())  # in units of the variance of the bets
    assert loss.max() < 0.02


def test_shared_capital_is_the_mean() -> None:
    one, two = BinnedCapital(bins_of(np.array([1.0]))), BinnedCapital(bins_of(np.array([2.0, 2.0])))
    assert np.exp(SharedCapital([one, two]).log_at(0.3)) == pytest.approx(
        (np.exp(one.log_at(0.3)) + np.exp(two.log_at(0.3))) / 2
    )


def test_units_of_one_round_bet_as_the_formula() -> None:
    sums = np.array([0.5, 2.0, 0.0])
    capital = UnitCapital(sums, np.ones(3))
    grid = np.minimum(2.0**EXPONENTS, 0.9)
    expected = (PRIOR * np.prod(1 + np.multiply.outer(grid, sums - 0.4), axis=1)).sum()
    assert np.exp(capital.log_at(0.4)) == pytest.approx(expected)


def test_a_bound_is_where_the_capital_reaches_its_limit() -> None:
    capital = BinnedCapital(bins_of(np.random.default_rng(0).exponential(0.5, 2_000)))
    bound = lower_bound(capital, 0.05, 0.0, 1.0)
    assert 0.4 < bound < 0.5
    assert capital.log_at(bound) == pytest.approx(np.log(20), abs=1e-6)
    assert lower_bound(BinnedCapital(bins_of(np.zeros(10))), 0.05, 0.0, 1.0) == 0.0


def test_peeking_rarely_misses() -> None:
    """300 streams with weights of heavy tails, looked at 40 times: an error probability of 10% is a bound, not a target."""
    rng, missed, peeked = np.random.default_rng(3), 0, 0
    limit = np.log(10)
    for _ in range(300):
        phi = np.minimum(rng.pareto(1.8, 4_000), 1e6) * 0.8 * (rng.random(4_000) < 0.3)  # mean 0.8·0.3/0.8 = 0.3
        state, miss = SignedHistogram.zero(), False
        for part in np.array_split(phi, 40):
            state = SignedHistogram.fold(state, part)
            miss |= BinnedCapital(Bins.of(state)).log_at(0.3) >= limit
        missed += miss
        ends = np.cumsum(phi)[99::100] / np.arange(100, 4_001, 100)
        peeked += bool((ends > 0.3 + 1.28 * phi.std() / np.sqrt(np.arange(100, 4_001, 100))).any())
    assert missed <= 0.1 * 300 + 2 * np.sqrt(0.1 * 0.9 * 300)
    assert peeked > 2 * missed
