"""Statements that hold together: by hand where the answer is known, and by simulation where it is a probability."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from offpolicy.core.arrays import FloatArray
from offpolicy.inference.functionals import Functional, ScoreSums, functional
from offpolicy.inference.simultaneous import Family
from offpolicy.scoring.plan import Terms

normal = NormalDist()


def sums_of(columns: FloatArray, buckets: int = 4096) -> ScoreSums:
    """Of rows with these numbers and the row weight 1, each row in a random bucket."""
    columns = np.vstack([np.ones(columns.shape[1]), columns])
    means, bucket = columns.mean(axis=1), np.random.default_rng(0).integers(buckets, size=columns.shape[1])
    centred = columns - means[:, None]
    by_bucket = np.column_stack([np.bincount(bucket, column, buckets) for column in columns])
    moments = {"n": np.array(float(columns.shape[1])), "mean": means, "m2": centred @ centred.T}
    return ScoreSums(moments, by_bucket, np.ones(1), False, 0)


def means_of(sums: ScoreSums) -> list[Functional]:
    """The mean of every column."""
    means = sums.moments["mean"]
    return [functional(Terms(None, k, 0, True, None, False), means, 0.0) for k in range(1, len(means))]


def family(columns: FloatArray) -> Family:
    sums = sums_of(columns)
    return Family(means_of(sums), sums)


def normals(k: int, n: int = 20_000, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((k, n))


def test_of_one_estimate_the_level_is_its_own() -> None:
    assert family(normals(1)).pointwise_level(0.95) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("k", [2, 20])
def test_independent_estimates_need_the_level_of_sidak(k: int, level: float) -> None:
    found = family(normals(k)).pointwise_level(level)
    assert 1 - found == pytest.approx(1 - level ** (1 / k), rel=0.12)


def test_the_same_estimate_many_times_costs_nothing() -> None:
    one = normals(1)
    alone, many = family(one), family(np.repeat(one, 30, axis=0))
    assert many.pointwise_level(0.95) == pytest.approx(alone.pointwise_level(0.95), abs=0.005)


def test_two_correlated_estimates_need_the_level_of_their_bivariate_distribution() -> None:
    a, b = normals(2, 200_000)
    rho = 0.9
    found = family(np.stack([a, rho * a + np.sqrt(1 - rho**2) * b])).pointwise_level(0.95)
    x, y = normals(2, 2_000_000, seed=1)
    largest = np.maximum(np.abs(x), np.abs(rho * x + np.sqrt(1 - rho**2) * y))
    assert normal.inv_cdf((1 + found) / 2) == pytest.approx(np.quantile(largest, 0.95), abs=0.03)


def test_an_estimate_without_error_does_not_matter() -> None:
    columns = normals(3)
    with_constant = np.vstack([columns, np.full((1, columns.shape[1]), 0.3)])
    assert family(with_constant).pointwise_level(0.95) == pytest.approx(family(columns).pointwise_level(0.95), abs=0.005)


def test_errors_other_than_sampling_count_as_independent() -> None:
    sums = sums_of(np.repeat(normals(1), 20, axis=0))
    alike = means_of(sums)
    apart = [Functional(f.value, f.gradient, f.evaluate, extra=10.0) for f in alike]  # nearly all of the error
    assert 1 - Family(apart, sums).pointwise_level(0.95) == pytest.approx(1 - 0.95 ** (1 / 20), rel=0.12)
    assert 1 - Family(alike, sums).pointwise_level(0.95) == pytest.approx(0.05, abs=0.005)


def test_what_may_be_largest_by_hand() -> None:
    """Three independent means with standard error 0.01: 0 is 0.05 below the largest, 0.04 only 0.01."""
    columns = normals(3, 10_000)
    columns += np.array([0.0, 0.04, 0.05])[:, None] - columns.mean(axis=1, keepdims=True)
    assert family(columns).may_be_largest(0.95) == [False, True, True]
    assert family(columns).may_be_largest(0.9999) == [True, True, True]
    assert family(columns[:1]).may_be_largest(0.95) == [True]


def test_the_largest_is_rarely_ruled_out_and_the_levels_hold_together() -> None:
    """In 200 samples of ten means, equal but for the first, the levels hold to within two standard errors."""
    rng = np.random.default_rng(2)
    shared, missed, ruled_out = 0.7, 0, 0
    truth = np.array([0.04, *([0.0] * 9)])
    for _ in range(200):
        noise = np.sqrt(shared) * rng.standard_normal(500) + np.sqrt(1 - shared) * rng.standard_normal((10, 500))
        each = family(noise + truth[:, None])
        reach = normal.inv_cdf((1 + each.pointwise_level(0.9)) / 2) / np.sqrt(500)
        missed += bool((np.abs([f.value for f in each.functionals] - truth) > reach).any())
        ruled_out += not each.may_be_largest(0.9)[0]
    assert missed / 200 == pytest.approx(0.1, abs=0.042)
    assert ruled_out / 200 <= 0.142
