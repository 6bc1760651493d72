"""`Normal`, `Density`, `Shift`, `Uniform` and `Mixture` over numbers: densities, nodes, values by hand, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import offpolicy as op
from offpolicy.policies.base import Policy

N = 200
BOX = op.Box(0, 10)
RNG = np.random.default_rng(0)
X, A = RNG.normal(size=N), RNG.uniform(0, 10, N)
R = A - X


def log(box: op.Box = BOX, **given: Any) -> op.Log:
    given = {"propensity": np.full(N, 0.1), "actions": box, **given}
    return op.Log(X, given.pop("action", A), R, **given)


def expectation(policy: Any, f: Callable[..., np.ndarray], of: op.Log | None = None) -> np.ndarray:
    """E f(a) in each round, by the nodes."""
    of = log() if of is None else of
    nodes = policy.on(of).nodes(of.head())
    np.testing.assert_allclose(nodes.weights.sum(axis=1), 1, rtol=1e-12)
    return nodes.mean(f(nodes.actions))


def test_a_normal_density_is_that_of_scipy() -> None:
    mean = X * 4  # many of them outside the box
    policy = op.Normal(lambda x: 4 * x[:, 0], 2.0)
    truth = stats.truncnorm((0 - mean) / 2, (10 - mean) / 2, mean, 2)
    np.testing.assert_allclose(policy.likelihood(log().head()), truth.pdf(A), rtol=1e-9)
    grid = np.linspace(0, 10, 4_001)
    squares = np.trapezoid(stats.norm(mean[:, None], 2).pdf(grid) * grid**2, grid) / (
        stats.norm.cdf(5 - mean / 2) - stats.norm.cdf(-mean / 2)
    )
    np.testing.assert_allclose(expectation(policy, lambda a: a**2), squares, rtol=1e-5)


@pytest.mark.parametrize(
    ("policy", "mean"),
    [
        (op.Uniform(), 5.0),
        (op.Density(lambda x, a: a / 50), 20 / 3),
        (op.Mixture([op.Uniform(), op.Density(lambda x, a: a / 50)], [0.5, 0.5]), 35 / 6),
        (op.Mixture([op.Uniform(), op.Deterministic(lambda x: np.full(len(x), 1.0))], [0.5, 0.5]), 3.0),
        (op.WholeBatches(op.Uniform()), 5.0),
    ],
)
def test_nodes_integrate_exactly(policy: Policy, mean: float) -> None:
    np.testing.assert_allclose(expectation(policy, lambda a: a), mean, rtol=1e-10)


def test_ips_by_hand_on_five_rows() -> None:
    five = op.Log(np.zeros(5), [1, 2, 4, 6, 8], [1, 0, 2, 1, 3], propensity=[0.1, 0.2, 0.1, 0.05, 0.1], actions=BOX)
    target = op.Density(lambda x, a: a / 50)  # weights are 0.2, 0.2, 0.8, 2.4 and 1.6
    result = op.evaluate(five, target, [op.IPS(), op.SNIPS(), op.DR(op.Given(lambda x, a: a / 2), cross_fit=0)])
    assert result["IPS"].value == pytest.approx((0.2 + 1.6 + 2.4 + 4.8) / 5, rel=1e-12)
    assert result["SNIPS"].value == pytest.approx(9 / 5.2, rel=1e-12)
    residuals = np.array([1 - 0.5, 0 - 1, 2 - 2, 1 - 3, 3 - 4])
    dr = 10 / 3 + np.mean(np.array([0.2, 0.2, 0.8, 2.4, 1.6]) * residuals)  # E a/2 = (20/3)/2
    assert result["DR"].value == pytest.approx(dr, rel=1e-12)


def test_rescaling_actions_and_densities_changes_nothing() -> None:
    every = [op.IPS(), op.SNIPS(), op.DM(), op.DR()]
    one = op.evaluate(log(), op.Normal(6, 1.5), every)
    other = op.evaluate(log(op.Box(0, 1000), action=A * 100, propensity=np.full(N, 0.001)), op.Normal(600, 150), every)
    for e in every:
        assert other[e.name].value == pytest.approx(one[e.name].value, rel=1e-9)
        assert other[e.name].std_error == pytest.approx(one[e.name].std_error, rel=1e-6)


def test_a_shift_moves_the_logging_policy() -> None:
    """10% higher: a uniform density becomes 1/11 up to 10, and actions above 100/11 stay where they are."""
    of = log(propensity=None, logging=op.Uniform())
    shifted = op.Shift(times=1.1).on(of)
    np.testing.assert_allclose(shifted.likelihood(of.head()), 1 / 11 + np.where(A > 100 / 11, 0.1, 0), rtol=1e-12)
    moved = 1.1 * 50 / 11 * 10 / 11 + (100 / 11 + 10) / 2 * (10 - 100 / 11) / 10
    np.testing.assert_allclose(expectation(op.Shift(times=1.1), lambda a: a, of), moved, rtol=1e-3)
    result = op.evaluate(of, op.Shift(by=0.0), [op.IPS()])
    assert result["IPS"].value == pytest.approx(R.mean(), rel=1e-9)


def test_vectors_have_densities_per_dimension() -> None:
    both = np.column_stack([A, A[::-1] / 10])
    space = op.Box([0, 0], [10, 1])
    of = log(space, action=both)
    normal = stats.truncnorm(-2.5, 2.5, 5, 2).pdf(both[:, 0]) * stats.truncnorm(-1, 1, 0.5, 0.5).pdf(both[:, 1])
    np.testing.assert_allclose(op.Normal([5, 0.5], [2, 0.5]).likelihood(of.head()), normal, rtol=1e-9)
    means = expectation(op.Normal([5, 0.5], [2, 0.5]), lambda a: a[..., 0] * a[..., 1], of)
    np.testing.assert_allclose(means, 2.5, rtol=1e-6)
    result = op.evaluate(of, op.Uniform(), [op.IPS(), op.DM(), op.DR()])
    assert result["IPS"].value == pytest.approx(R.mean(), rel=1e-9)
    table = pa.table({"x": X, "a": pa.FixedSizeListArray.from_arrays(both.ravel(), 2), "r": R, "p": np.full(N, 0.1)})
    read = op.read_log(table, context="x", action="a", reward="r", propensity="p", actions=space)
    for e in ("IPS", "DM", "DR"):
        again = op.evaluate(read, op.Uniform(), [op.IPS(), op.DM(), op.DR()])[e].value
        assert again == pytest.approx(result[e].value, rel=1e-6 if e == "IPS" else 0.05)  # folds follow the source


def test_points_have_probabilities() -> None:
    """Half of the rounds keep the price 4; the others are uniform. The target always takes 4, or is uniform."""
    a = np.where(np.arange(N) % 2, A, 4.0)
    p = np.where(np.arange(N) % 2, 0.05, 0.5)
    of = log(op.Box(0, 10, points=[4]), action=a, propensity=p)
    stay = op.Deterministic(lambda x: np.full(len(x), 4.0))
    mixed = op.Mixture([stay, op.Uniform()], [0.25, 0.75])
    np.testing.assert_allclose(mixed.on(of).likelihood(of.head()), np.where(a == 4, 0.25, 0.075), rtol=1e-12)
    value = op.evaluate(of, mixed, [op.IPS()])["IPS"].value
    assert value == pytest.approx(np.mean(np.where(a == 4, 0.5, 1.5) * R), rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (op.Normal(lambda x: 1e3 * x[:, 0], 1), r"^Normal: \d+ rows have a mean so far outside the numbers from 0 to 10"),
        (op.Normal("x9", 1), "no column 'x9'|unknown column|x9"),
        (op.Normal(5, lambda x: x[:, 0]), r"^Normal: sd: \d+ rows are not a positive number"),
        (op.Density(lambda x, a: np.full(len(a), 0.2)), r"^Density: \d+ rows have a density that does not integrate to 1"),
        (op.Density(lambda x, a: -a), r"^Density: \d+ rows have a negative, infinite or missing density"),
        (op.Density(lambda x, a: 1.0), "return one density per action"),
        (op.Shift(by=1), "^Shift needs the density of the logging policy at every action"),
        (op.Column(np.full(N, -1.0)), "have a target density that is missing or negative"),
    ],
)
def test_what_is_refused(policy: Policy, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.evaluate(log(), policy, [op.DM(op.Given(lambda x, a: a)) if policy.whole else op.IPS()])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: op.Normal(5, -1), "^Normal: sd is -1; give a positive number"),
        (lambda: op.Normal([["a"]], 1), "^Normal: mean is"),
        (lambda: op.Shift(), "give one of by= and times="),
        (lambda: op.Shift(times=-1), "give a positive number"),
        (lambda: op.Density(3), "is not a function"),
        (lambda: op.Box([0, 0], 1), "give both for the same dimensions"),
        (lambda: op.Box(0, 1, points=[2]), "^Box: points is"),
    ],
)
def test_settings_that_are_refused(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        made()


def test_actions_that_are_not_varied_are_refused() -> None:
    with pytest.raises(op.InputError, match="^action: the first 200 rounds all have the action 5"):
        op.evaluate(log(action=np.full(N, 5.0)), op.Uniform(), [op.IPS()])
    with pytest.raises(op.InputError, match=r"only 2 different actions \(2, 3, …\), which have probabilities"):
        op.evaluate(log(action=2.0 + np.arange(N) % 2), op.Uniform(), [op.IPS()])
    with pytest.raises(op.InputError, match=r"^action has shape \(200,\); rounds × 2 is expected"):
        log(op.Box([0, 0], [1, 1]))


def test_models_of_numbers_find_the_reward() -> None:
    """r = a − x is linear, so that every model predicts the mean action of the target less the mean of x."""
    from sklearn.linear_model import LinearRegression

    target, truth = op.Normal(7, 0.5), 7 - X.mean()
    models = {"ridge": op.Ridge(), "light": op.Ridge(0.1), "sklearn": LinearRegression()}
    every = [kind(model, name=f"{kind.__name__} {name}") for name, model in models.items() for kind in (op.DM, op.DR)]
    result = op.evaluate(log(), target, every)
    for e in every:
        assert result[e.name].value == pytest.approx(truth, abs=0.02 if "sklearn" not in e.name else 1e-6)
    assert result["DM ridge"].error_covers == "sampling+fit"
