"""Logging densities that nobody logged: estimated, cross-fitted, tested, and used like logged ones."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core.hashing import buckets
from offpolicy.models.conditional_density import Data, LinearNormal, Located, kernel_density
from offpolicy.models.densities import FittedDensity
from offpolicy.models.propensities import estimate_logging

BOX = op.Box(0, 10)
MODELS = ["normal", "kernel"]
RULE = op.Deterministic(lambda x: np.clip(5 + x[:, 0], 0, 10))


def columns(n: int = 1_500, seed: int = 0) -> tuple[Any, Any, Any]:
    """Doses 4 + x ± 1.5 within the box, by rejection."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    a = np.full(n, -1.0)
    while (out := (a < 0) | (a > 10)).any():
        a[out] = 4 + x[out, 0] + 1.5 * rng.normal(size=out.sum())
    return x, a, 1 - (a - 5 - x[:, 0]) ** 2 / 20 + rng.normal(size=n) / 10


def log(model: str | None = None, n: int = 1_500, **settings: Any) -> op.Log:
    x, a, r = columns(n)
    return op.Log(x, a, r, actions=BOX, logging=op.EstimatedLogging(model, **settings))  # type: ignore[arg-type]


def fitted(of: op.Log) -> FittedDensity:
    policy = estimate_logging(of, op.Local(threads=1), 0).logging
    assert isinstance(policy, FittedDensity)
    return policy


@pytest.mark.parametrize(("model", "most"), [("normal", 0.12), ("kernel", 0.3)])
def test_the_estimates_are_near_the_density_and_integrate_to_1(model: str, most: float) -> None:
    batch = log().head(1_500)
    true = op.Normal(lambda x: 4 + x[:, 0], 1.5).likelihood(batch)
    policy = fitted(log(model))
    assert np.sqrt(np.mean(np.log(policy.likelihood(batch) / true) ** 2)) < most
    grid = (np.arange(2_000) + 0.5) / 200
    part = batch.take(np.arange(5))
    density = policy.entries(part, np.repeat(np.arange(5), 2_000), np.tile(grid, 5)).reshape(5, -1)  # type: ignore[arg-type]
    np.testing.assert_allclose(density.mean(axis=1) * 10, 1, atol=2e-3)
    nodes = policy.nodes(part)
    np.testing.assert_allclose(nodes.weights.sum(axis=1), 1)
    assert policy.report["model"] == model
    assert 0.2 < policy.report["variance_explained"][0] < 0.4


def test_a_truncated_normal_regression_finds_its_parameters_where_least_squares_does_not() -> None:
    """Half of the distribution lies below the box."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60_000, 1))
    a = 0.1 * x[:, 0] + 0.4 * rng.normal(size=60_000)
    keep = (a >= 0) & (a <= 1)
    model = LinearNormal.fit(Data(x[keep], a[keep], np.ones(keep.sum())))
    assert model.intercept + model.slopes @ (-model.mean / model.scale) == pytest.approx(0, abs=0.03)
    assert model.sd == pytest.approx(0.4, abs=0.01)
    assert np.polyfit(x[keep, 0], a[keep], 1)[0] < 0.05 < 0.09 < model.slopes[0] / model.scale[0]


def test_a_kernel_density_by_hand() -> None:
    """200 points at 0 and at 10, of weights 1 and 3: sd 4.34, below 10 / 1.34, so that the width is 0.9 · 4.34 · 400^−1/5."""
    start, step, values = kernel_density(np.repeat([0.0, 10.0], 200), np.repeat([1.0, 3.0], 200))
    at, sd = start + step * np.arange(len(values)), np.sqrt(0.25 * 0.75 * 100)
    h = 0.9 * sd * 400**-0.2
    expected = [np.exp(-((at - point) ** 2) / (2 * h * h)) / (np.sqrt(2 * np.pi) * h) for point in (0, 10)]
    np.testing.assert_allclose(values, 0.25 * expected[0] + 0.75 * expected[1], atol=2e-3 * values.max())


def test_a_spread_that_changes_with_the_context_is_found_by_the_kernel_model_only() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, size=(4_000, 1))
    a = np.clip(0.5 + 0.05 * np.exp(x[:, 0]) * rng.standard_t(5, 4_000), 0.001, 0.999)
    data = Data(x, a, np.ones(len(a)))
    shapes = {kind: kind.fit(data).shapes(np.array([[-0.9], [0.9]]))[1] for kind in (LinearNormal, Located)}
    assert shapes[LinearNormal][0] == shapes[LinearNormal][1]
    assert 4 < shapes[Located][1] / shapes[Located][0] < 9  # e^1.8 is 6


@pytest.mark.parametrize("model", MODELS)
def test_the_density_of_a_round_does_not_depend_on_its_own_unit(model: str) -> None:
    x, a, r = columns(400)
    of = {"actions": BOX, "logging": op.EstimatedLogging(model, folds=3)}  # type: ignore[arg-type]
    batch = op.Log(x, a, r, **of).head(400)  # type: ignore[arg-type]
    inside = buckets(batch.unit, 0) * 3 // 4096 == 0
    changed = op.Log(x, np.where(inside, 10 - a, a), r, **of)  # type: ignore[arg-type]
    before, after = (fitted(each).likelihood(batch) for each in (op.Log(x, a, r, **of), changed))  # type: ignore[arg-type]
    np.testing.assert_array_equal(before[inside], after[inside])
    assert np.abs(before - after)[~inside].max() > 0.001


@pytest.mark.parametrize("model", MODELS)
def test_the_unit_of_the_actions_does_not_matter(model: str) -> None:
    x, a, r = columns(600)
    one = op.evaluate(op.Log(x, a, r, actions=BOX, logging=op.EstimatedLogging(model)), RULE, op.KernelSNIPS(0.5))  # type: ignore[arg-type]
    cents = op.Log(x, 100 * a, r, actions=op.Box(0, 1_000), logging=op.EstimatedLogging(model))  # type: ignore[arg-type]
    rule = op.Deterministic(lambda x: 100 * np.clip(5 + x[:, 0], 0, 10))
    other = op.evaluate(cents, rule, op.KernelSNIPS(50))
    assert other["KernelSNIPS"].value == pytest.approx(one["KernelSNIPS"].value, rel=1e-5)


def test_estimates_with_it_are_near_those_with_the_logged_density_and_say_so() -> None:
    x, a, r = columns(3_000)
    known = op.Log(x, a, r, actions=BOX, logging=op.Normal(lambda x: 4 + x[:, 0], 1.5))
    targets = {"rule": RULE, "higher": op.Shift(by=0.5)}
    right, guessed = (op.evaluate(each, targets) for each in (known, log(n=3_000)))
    for name in targets:
        assert abs(guessed[name, "Auto"].value - right[name, "Auto"].value) < 2 * right[name, "Auto"].std_error
        assert "Densities were estimated, not logged: by a normal regression" in str(guessed[name, "Auto"].reasons)
    assert guessed.to_dict()["propensities"]["source"] == "estimated"
    assert guessed.settings["logging"] == "EstimatedLogging(model='normal')"
    assert pickle.loads(pickle.dumps(guessed))["rule", "Auto"].value == guessed["rule", "Auto"].value
    assert guessed["rule", "KernelDR"].value != right["rule", "KernelDR"].value


def test_a_bootstrap_with_refits_estimates_the_density_again() -> None:
    estimate = op.evaluate(log("kernel", n=300, folds=3), RULE, op.KernelSNIPS(1.0))["KernelSNIPS"]
    plain = estimate.confidence_interval(method="bootstrap")
    again = estimate.confidence_interval(method="bootstrap", refit=True, draws=10)
    assert estimate.value in again
    assert again != plain


def test_vectors_are_estimated_number_by_number() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2_000, 1))
    first = 0.5 + 0.1 * rng.normal(size=2_000)
    both = np.clip(np.column_stack([first, first + 0.05 * rng.normal(size=2_000)]), 0.001, 0.999)
    of = op.Log(x, both, first, actions=op.Box([0, 0], [1, 1]), logging=op.EstimatedLogging())
    z = (both - np.column_stack([np.full(2_000, 0.5), both[:, 0]])) / [0.1, 0.05]
    true = np.exp(-(z**2).sum(axis=1) / 2) / (2 * np.pi * 0.1 * 0.05)
    assert np.sqrt(np.mean(np.log(fitted(of).likelihood(of.head(2_000)) / true) ** 2)) < 0.15


def test_trimming_is_a_share_of_the_even_density() -> None:
    policy = fitted(log(trim=0.4))
    assert policy.likelihood(log().head(1_500)).min() == pytest.approx(0.4 / 10)
    reasons = op.evaluate(log(trim=0.4), RULE, op.KernelSNIPS())["KernelSNIPS"].reasons
    assert "had a density below 0.4 of the even density, raised to it." in str(reasons)


def refused(of: Any, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.evaluate(of(), RULE, op.KernelSNIPS())


def test_what_cannot_be_estimated_is_refused() -> None:
    x, a, r = columns(500)
    refused(
        lambda: op.Log(x, 5 + x[:, 0] / 9, r, actions=BOX, logging=op.EstimatedLogging()), "looks deterministic: the context"
    )
    clipped = np.where(a > 5, 5.0, a)
    refused(
        lambda: op.Log(x, clipped, r, actions=BOX, logging=op.EstimatedLogging()),
        r"^action: \d+ of 500 rounds have exactly the action 5, which therefore has a probability",
    )
    points = op.Box(0, 10, points=[5])
    refused(
        lambda: op.Log(x, clipped, r, actions=points, logging=op.EstimatedLogging()),
        "does not estimate probabilities of single",
    )
    refused(
        lambda: log("logistic"),
        '\'logistic\' is for other actions than numbers, which the log has; use "normal" or "kernel"',
    )
    discrete = op.Log(x, a > 5, r, logging=op.EstimatedLogging("normal"))
    with pytest.raises(op.InputError, match="'normal' is for other actions than discrete"):
        op.evaluate(discrete, op.Uniform())
    few = op.Log(x[:40], a[:40], r[:40], actions=BOX, logging=op.EstimatedLogging())
    refused(lambda: few, "rounds remain, which is too few to fit on")


def test_a_log_without_densities_is_told_of_the_remedy() -> None:
    x, a, r = columns(500)
    bare = op.Log(x, a, r, actions=BOX)
    with pytest.raises(op.InputError, match=r"^KernelDR cannot be computed: .* neither .*logging=op.EstimatedLogging"):
        op.evaluate(bare, RULE, op.KernelDR())
    with pytest.raises(op.InputError, match="^Shift needs the density of the logging policy .* op.EstimatedLogging"):
        op.evaluate(bare, op.Shift(by=1))
    result = op.evaluate(bare, RULE)
    assert "logging=op.EstimatedLogging" in str(result.skipped)
    assert result.headline.estimator == "DM"
