"""Reward models against dense solutions of the same problem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import offpolicy as op
from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor
from offpolicy.models.rewards.ridge.model import _least, _lightest
from tests.logs import Ragged, Small, make_small


def fit(model: op.RewardModel, context: np.ndarray, action: np.ndarray, reward: np.ndarray, n_actions: int) -> Fits:
    log = op.Log(context, action, reward, n_actions=n_actions, propensity=np.full(len(action), 0.5))
    shape = FitShape(n_actions, context.shape[1], 1, 20, 0)
    return model.fits(shape, [op.Local().reduce(log, statistic) for statistic in model.statistics(shape)])


def dense(context: np.ndarray, action: np.ndarray, reward: np.ndarray, n_actions: int, penalty: float) -> np.ndarray:
    """Penalised least squares an action on z̃ = ((x − μ)/s, 1), towards the pooled fit, by stacked rows; gives q(x, ·)."""
    centre, scale = context.mean(axis=0), context.std(axis=0)
    z = np.column_stack([(context - centre) / scale, np.ones(len(context))])
    pool = np.linalg.lstsq(z, reward, rcond=None)[0]
    q = np.empty((len(z), n_actions))
    for a in range(n_actions):
        rows = action == a
        stacked = np.vstack([z[rows], np.sqrt(penalty) * np.eye(z.shape[1])])
        goal = np.concatenate([reward[rows], np.sqrt(penalty) * pool])
        q[:, a] = z @ np.linalg.lstsq(stacked, goal, rcond=None)[0]
    return q


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 100), st.integers(1, 4), st.sampled_from([0.01, 1.0, 30.0]))
def test_ridge_is_the_dense_solution(seed: int, n: int, d: int, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    context, action, reward = rng.normal(size=(n, d)) * 3 + 1, rng.integers(0, 6, n), rng.normal(size=n) * 2 + 5
    linear = fit(op.Ridge(penalty), context, action, reward, 8).on_all(0)
    batch = op.Log(context, action, reward, n_actions=8).head(n)
    np.testing.assert_allclose(linear.all(batch), dense(context, action, reward, 8, penalty), rtol=1e-8, atol=1e-8)


def test_penalty_zero_is_ordinary_least_squares(small: Small) -> None:
    linear = fit(op.Ridge(0), small.context, small.action, small.reward, 4).on_all(0)
    batch = next(iter(small.log().partitions()[0].batches(1000)))
    for a in range(4):
        rows = small.action == a
        expected = LinearRegression().fit(small.context[rows], small.reward[rows]).predict(small.context)
        np.testing.assert_allclose(linear.all(batch)[:, a], expected, atol=1e-9)


def test_penalty_zero_is_of_minimum_norm_where_rounds_are_few() -> None:
    rng = np.random.default_rng(0)
    context, action, reward = rng.normal(size=(9, 5)), np.array([0, 0, 0, 1, 2, 2, 2, 2, 2]), rng.normal(size=9)
    linear = fit(op.Ridge(0), context, action, reward, 3).on_all(0)
    for a in range(3):
        rows = action == a
        by_sklearn = LinearRegression().fit(context[rows], reward[rows])
        np.testing.assert_allclose(linear.coef[a, :-1], by_sklearn.coef_, atol=1e-9)


def test_an_action_never_logged_is_the_pools_or_zero(small: Small) -> None:
    prior = fit(op.Ridge(5.0), small.context, small.action, small.reward, 6).on_all(0)
    pool = LinearRegression().fit(small.context, small.reward)
    np.testing.assert_allclose(prior.coef[5, :-1], pool.coef_, atol=1e-8)
    zero = fit(op.Ridge(5.0, unseen="zero"), small.context, small.action, small.reward, 6).on_all(0)
    assert (zero.coef[4:] == 0).all()


def test_units_of_the_context_do_not_matter(small: Small) -> None:
    estimators = [op.DM(), op.DR()]
    moved = small.context * [1000.0, 0.01] + [1e6, -3]
    a = op.evaluate(small.log(), small.target, estimators)
    b = op.evaluate(op.Log(moved, small.action, small.reward, logging=small.logging), small.target, estimators)
    for before, after in zip(a, b, strict=True):
        assert after.value == pytest.approx(before.value, rel=1e-6)


def test_leaving_a_fold_out_is_fitting_without_it() -> None:
    w = make_small(n=500)
    from offpolicy.core.hashing import buckets, group_of_bucket

    batch = next(iter(w.log().partitions()[0].batches(500)))
    fold = group_of_bucket(5)[buckets(batch.unit, 0)]
    fits = fit(op.Ridge(2.0), w.context, w.action, w.reward, 4)
    for k in range(5):
        rows = fold != k
        own = fit(op.Ridge(2.0), w.context[rows], w.action[rows], w.reward[rows], 4).on_all(0)
        left_out = fits.without_fold(0, k, 5)
        np.testing.assert_allclose(left_out.all(batch), own.all(batch), rtol=1e-8, atol=1e-8)


def test_auto_penalty_follows_the_data() -> None:
    rng = np.random.default_rng(0)
    context, action = rng.normal(size=(4000, 3)), rng.integers(0, 200, 4000)
    theta = rng.normal(size=(200, 3))
    alike = context @ [1.0, 2.0, 3.0] + rng.normal(size=4000)
    different = (context * theta[action]).sum(axis=1) * 5 + rng.normal(size=4000)
    rewards = (alike, different)
    best = [fit(op.Ridge("prediction"), context, action, r, 200).diagnostics(0)["penalty"] for r in rewards]
    assert best[0] > 1_000 > 2 > best[1]
    lighter = [fit(op.Ridge(), context, action, r, 200).diagnostics(0)["penalty"] for r in rewards]
    assert best[0] > lighter[0] > 10 * lighter[1]


def test_auto_penalty_is_the_lightest_that_predicts_nearly_as_well() -> None:
    grid, errors = np.array([0.1, 1.0, 10.0, 100.0]), np.array([2.0, 1.1, 1.0, 1.4])
    assert _least(grid, errors) == pytest.approx(10**0.7, rel=0.01)
    assert _lightest(grid, errors) == pytest.approx(10 ** (0.5))  # half way from 1.1 to 1.0, the error is 1.05
    assert _lightest(grid, np.array([1.0, 1.1, 1.2, 1.3])) == 0.1


def test_a_model_that_no_weight_corrects_is_light(small: Small) -> None:
    log = small.log()
    result = op.evaluate(
        log, small.target, [op.DM(), op.DM(op.Ridge(0.1), name="light"), op.DM(op.Ridge("prediction"), name="prediction")]
    )
    assert result["DM"].value == result["light"].value != result["prediction"].value


def test_no_intercept(small: Small) -> None:
    linear = fit(op.Ridge(0, intercept=False), small.context, small.action, small.reward, 4).on_all(0)
    assert isinstance(linear, LinearPredictor)
    for a in range(4):
        rows = small.action == a
        expected = np.linalg.lstsq(small.context[rows], small.reward[rows], rcond=None)[0]
        np.testing.assert_allclose(linear.coef[a, :-1], expected, atol=1e-9)


def test_a_scikit_learn_regressor_is_cross_fitted(small: Small) -> None:
    """A tree that learns every row by heart has no residual in sample, and honest ones out of fold."""
    deep = DecisionTreeRegressor(random_state=0)
    result = op.evaluate(small.log(), small.target, [op.DR(deep), op.DR(deep, cross_fit=0, name="in sample")])
    assert result["in sample"].diagnostics["reward_model"]["r2"] is None
    assert result["DR"].diagnostics["reward_model"]["r2"] < 0.9
    assert abs(result["DR"].value - result["in sample"].value) > 1e-6


def test_a_regressor_with_many_actions() -> None:
    w = make_small(n=800, actions=60)
    result = op.evaluate(w.log(), w.target, [op.DM(LinearRegression()), op.DR(LinearRegression())])
    assert result["DM"].diagnostics["fit_not_covered"]
    assert result["DM"].error_covers == "sampling"
    again = op.evaluate(w.log(), w.target, [op.DR(LinearRegression())], engine=Ragged(17))
    assert again["DR"].value == pytest.approx(result["DR"].value, rel=1e-9)


def test_a_sample_of_rows_does_not_depend_on_batches() -> None:
    w = make_small(n=500)
    model = op.Regressor(LinearRegression(), rows=100)
    values = [op.evaluate(w.log(), w.target, [op.DM(model)], engine=Ragged(rows))["DM"].value for rows in (500, 13)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)
    assert op.evaluate(w.log(), w.target, [op.DM(model)])["DM"].diagnostics["reward_model"]["fitted_rows"] == 100


def test_given_as_a_function_is_given_as_a_matrix(small: Small) -> None:
    def q(x: np.ndarray) -> np.ndarray:
        return x @ np.ones((2, 4)) + np.arange(4)

    result = op.evaluate(small.log(), small.target, [op.DR(op.Given(q)), op.DR(op.Given(q(small.context)), name="matrix")])
    assert result["DR"].value == pytest.approx(result["matrix"].value, rel=1e-12)


def test_the_unit_of_row_weights_does_not_matter(small: Small) -> None:
    values = [
        op.evaluate(small.log(weight=np.full(400, scale)), small.target, [op.DM(), op.DR()])["DM"].value
        for scale in (1.0, 1e-6, 1e3)
    ]
    assert values == pytest.approx([values[0]] * 3, rel=1e-9)


@pytest.mark.parametrize("folds", [2, 3, 7, 23, 49])
def test_any_number_of_folds_leaves_rows_out(folds: int) -> None:
    """On pure noise no number of folds may make the model look good, or choose a small penalty."""
    rng = np.random.default_rng(0)
    log = op.Log(rng.normal(size=(800, 5)), rng.integers(0, 20, 800), rng.normal(size=800), propensity=np.full(800, 0.05))
    seen = op.evaluate(log, op.Uniform(), [op.DR(cross_fit=folds)])["DR"].diagnostics["reward_model"]
    assert seen["r2"] < 0.05
    assert seen["penalty"] > 10


def test_least_squares_in_any_unit(small: Small) -> None:
    values = [
        op.evaluate(small.log(), small.target, [op.DM(op.Ridge(0))])["DM"].value,
        op.evaluate(
            op.Log(small.context * [1.0, 1e7], small.action, small.reward, logging=small.logging),
            small.target,
            [op.DM(op.Ridge(0))],
        )["DM"].value,
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-6)
