"""Pareto k from a histogram: the published fit of the raw weights, the same on any partitioning, undefined for ties."""

from __future__ import annotations

from math import ceil, floor, sqrt

import numpy as np
import pytest

import offpolicy as op
from offpolicy.diagnostics.pareto import ParetoTail, fitted_shape
from offpolicy.statistics.histogram import LogHistogram

histogram = LogHistogram()


def of(weights: np.ndarray) -> ParetoTail:
    return ParetoTail.of(histogram.fold(histogram.zero(), weights))


def published(weights: np.ndarray) -> float:
    """Vehtari et al. (2024), appendix, step by step on the sorted weights."""
    size = ceil(min(len(weights) / 5, 3 * sqrt(len(weights))))
    *_, cutoff = np.sort(weights)[:-size]
    excess = np.sort(weights)[-size:] - cutoff
    m, quartile = 30 + floor(sqrt(size)), excess[floor(size / 4 + 0.5) - 1]
    thetas = [1 / excess[-1] + (1 - sqrt(m / (j - 0.5))) / (3 * quartile) for j in range(1, m + 1)]
    shapes = [np.mean(np.log1p(-theta * excess)) for theta in thetas]
    likelihoods = [size * (np.log(-theta / k) - k - 1) for theta, k in zip(thetas, shapes, strict=True)]
    shares = np.exp(np.array(likelihoods) - max(likelihoods))
    theta = np.dot(thetas, shares) / shares.sum()
    return float((size * np.mean(np.log1p(-theta * excess)) + 10 * 0.5) / (size + 10))


@pytest.mark.parametrize("k", [0.2, 0.5, 0.7, 1.0, 1.5])
def test_it_is_the_published_fit_up_to_the_bins(k: float) -> None:
    weights = np.random.default_rng(0).pareto(1 / k, 50_000) + 1
    assert of(weights).k == pytest.approx(published(weights), abs=0.02)
    assert of(weights).k == pytest.approx(k, abs=0.15)  # about 2.5 standard errors, (1 + k)/√670


def test_an_exponential_tail_has_k_near_zero() -> None:
    rng = np.random.default_rng(1)
    found = of(rng.exponential(size=50_000)).k
    assert found is not None
    assert abs(found) < 0.1


def test_repeated_excesses_count_as_often() -> None:
    excess, counts = np.array([0.1, 0.5, 2.0, 7.0]), np.array([3.0, 2.0, 2.0, 1.0])
    assert fitted_shape(excess, counts) == pytest.approx(fitted_shape(np.repeat(excess, counts.astype(int)), np.ones(8)))


def test_any_order_and_partitioning_gives_the_same_bytes() -> None:
    rng = np.random.default_rng(2)
    weights = rng.lognormal(0, 1.5, 10_000)
    parts = [histogram.fold(histogram.zero(), part) for part in np.array_split(rng.permutation(weights), 13)]
    merged = histogram.zero()
    for part in reversed(parts):
        merged = histogram.merge(merged, part)
    assert ParetoTail.of(merged) == of(weights)


def test_scale_does_not_matter_and_zeros_do_not_count() -> None:
    weights = np.random.default_rng(3).pareto(2, 5_000) + 1
    assert of(4 * weights).k == pytest.approx(of(weights).k, rel=1e-12)
    assert of(np.concatenate([weights, np.zeros(20_000)])) == of(weights)


@pytest.mark.parametrize("weights", [np.ones(1000), np.tile([0.4, 1.0, 2.5], 500), 1 + 0.001 * np.arange(10)])
def test_ties_have_a_reason(weights: np.ndarray) -> None:
    found = of(weights)
    assert found.k is None
    assert found.undefined is not None
    assert "tied" in found.undefined or "too few" in found.undefined


def test_no_weights_have_a_reason() -> None:
    assert of(np.zeros(100)) == ParetoTail(None, "There are too few positive weights.")


def test_it_is_shown_and_never_judges() -> None:
    """A target whose action is often improbable, and many effective rounds: k is high, and no finding is about it."""
    rng = np.random.default_rng(4)
    often = rng.random(200_000) ** 3.3
    action = (rng.random(200_000) < often).astype(int)
    propensity = np.where(action == 1, often, 1 - often)
    log = op.Log(None, action, rng.random(200_000), propensity=propensity)
    estimate = op.evaluate(log, op.Column(action.astype(float)), [op.SNIPS()])["SNIPS"]
    assert estimate.diagnostics["pareto_k"] == pytest.approx(of(action / propensity).k, rel=1e-9)
    assert estimate.diagnostics["pareto_k"] > 0.7
    assert estimate.diagnostics["pareto_k_undefined"] is None
    assert estimate.diagnostics["effective_sample_size"] > 500
    assert {reason.code for reason in estimate.reasons} == {"mean weight", "concentration"}
    even = op.evaluate(log, op.Column(propensity), [op.SNIPS()])["SNIPS"].diagnostics
    assert even["pareto_k"] is None
    assert "tied" in even["pareto_k_undefined"]
