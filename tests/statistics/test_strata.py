"""Rows centred within strata: the variance of a stratified mean, also with row weights, and unchanged means."""

from __future__ import annotations

import numpy as np
import pytest

from offpolicy.statistics.moments import Moments
from offpolicy.statistics.strata import Strata, stratified


@pytest.mark.parametrize("weighted", [False, True])
def test_the_variance_is_that_of_a_stratified_sample(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    stratum, bucket = np.repeat([0, 1, 1], 40), rng.integers(0, 16, 120)
    omega = rng.random(120) + 0.5 if weighted else np.ones(120)
    y = rng.normal(size=120) + 5 * stratum
    values = np.stack([omega, omega * y])
    strata, moments = Strata(2, 2, 16), Moments(2)
    halves = [strata.fold(strata.zero(), values[:, s], bucket[s], stratum[s]) for s in (slice(0, 70), slice(70, 120))]
    whole = moments.fold(moments.zero(), values)
    buckets = np.stack([np.bincount(bucket, column, 16) for column in values], axis=1)
    new, centred = stratified(whole, buckets, strata.merge(*halves))
    assert centred.sum(axis=0) == pytest.approx(buckets.sum(axis=0))
    assert centred[:, 0] == pytest.approx(buckets[:, 0])

    value = (omega * y).sum() / omega.sum()
    g = np.array([-value, 1.0]) / omega.mean()
    expected = 0.0
    for k in (0, 1):
        own = stratum == k
        influence = omega[own] * (y[own] - np.average(y[own], weights=omega[own]))
        expected += len(influence) * influence.var(ddof=1) / omega.sum() ** 2
    assert g @ new["m2"] @ g / (120 * 119) == pytest.approx(expected)


def test_a_column_that_is_not_finite_does_not_affect_the_others() -> None:
    values = np.array([[1.0, 1, 1, 1], [1, 2, 3, 5], [np.nan, 1, 1, 1]])
    strata, moments = Strata(3, 2, 4), Moments(3)
    state = strata.fold(strata.zero(), values, np.arange(4), np.array([0, 0, 1, 1]))
    new, centred = stratified(moments.fold(moments.zero(), values), np.zeros((4, 3)), state)
    assert np.isfinite(new["m2"][:2, :2]).all()
    assert new["m2"][1, 1] == pytest.approx((0.5 + 2.0) * 2 * 3 / 4)
    assert np.isfinite(centred[:, :2]).all()
