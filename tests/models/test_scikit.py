"""Embeddings from a scikit-learn regressor, what it sees of an action, and reward models without PyTorch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

import offpolicy as op
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.models.rewards import sample
from offpolicy.models.rewards.base import Fits, FitShape, RewardModel, embedding_of
from offpolicy.models.rewards.scikit import Regressor
from offpolicy.models.rewards.torch import AdamW, Torch, two_layer
from tests.logs import Ragged

N_ACTIONS = 5


def fit(model: RewardModel, log: op.Log, inputs: str = "identity") -> Fits:
    shape = FitShape(log.n_actions, len(log.schema.context), 1, 20, 0, inputs=inputs, features=Features.of(log.schema))
    return model.fits(shape, [Ragged(97).reduce(log, s) for s in model.statistics(shape)])


def rows_of(log: op.Log) -> Batch:
    return log.head(len(log))


def make_log(*, per_round: bool = False, catalog: bool = False, n: int = 400, n_actions: int = N_ACTIONS) -> op.Log:
    """The last action is never logged."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(n, 2)) + 3, rng.integers(0, n_actions - 1, n)
    seen, table = rng.normal(size=(n, 2)) + action[:, None], rng.normal(size=(n_actions, 3))
    reward = x @ [1.0, -1.0] + action + seen @ [2.0, 0.5] + table[action, 0] + 0.1 * rng.normal(size=n)
    more = ({"action_features": seen} if per_round else {}) | ({"catalog": table} if catalog else {})
    return op.Log(x, action, reward, n_actions=n_actions, **more)


def hidden_layer(network: MLPRegressor, inputs: np.ndarray) -> np.ndarray:
    return np.maximum(inputs @ network.coefs_[0] + network.intercepts_[0], 0)


def test_a_hidden_layer() -> None:
    log = make_log()
    batch = rows_of(log)
    mlp = MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, tol=1e9, n_iter_no_change=1, random_state=0)
    fitted = fit(Regressor(mlp, embedding=hidden_layer), log).on_all(0)
    embedding = embedding_of(fitted, "LearnedMIPS")
    at_mean = np.hstack([np.tile(batch.context.mean(axis=0), (N_ACTIONS, 1)), np.eye(N_ACTIONS)])
    np.testing.assert_allclose(embedding.table, hidden_layer(fitted.predict.regressor, at_mean), atol=1e-12)
    np.testing.assert_allclose(embedding.reward, fitted.predict.regressor.predict(at_mean), atol=1e-12)
    np.testing.assert_array_equal(embedding.counts, np.bincount(batch.action, minlength=N_ACTIONS))
    assert not embedding.common
    assert embedding.varying is None
    assert fitted.embedding is fitted.embedding


def test_the_leaves_of_trees() -> None:
    forest = RandomForestRegressor(4, max_depth=3, random_state=0)
    fitted = fit(Regressor(forest, embedding=lambda f, inputs: f.apply(inputs)), make_log(), "identity").without_fold(
        0, 1, 5
    )
    assert fitted.embedding.table.shape == (N_ACTIONS, 4)
    assert fitted.embedding.counts.sum() < 400


def test_without_a_function_there_is_no_embedding() -> None:
    fitted = fit(Regressor(LinearRegression()), make_log()).on_all(0)
    assert fitted.embedding is None
    with pytest.raises(op.InputError, match="has no embedding"):
        embedding_of(fitted, "LearnedMIPS")


@pytest.mark.parametrize("inputs", ["identity", "features", "both"])
@pytest.mark.parametrize(("per_round", "catalog"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("n_actions", [N_ACTIONS, 60])
def test_what_the_regressor_sees(inputs: str, per_round: bool, catalog: bool, n_actions: int) -> None:
    log = make_log(per_round=per_round, catalog=catalog, n_actions=n_actions)
    batch, features = rows_of(log), Features.of(log.schema)
    fitted = fit(Regressor(LinearRegression(), embedding=lambda f, inputs: inputs), log, inputs).on_all(0)
    identity = 0 if inputs == "features" else 1 if n_actions > 50 else n_actions
    width = 2 + identity + (features.size if inputs != "identity" else 0)
    table = fitted.embedding.table
    assert table.shape == (n_actions, width)
    np.testing.assert_allclose(table[:, :2], np.tile(batch.context.mean(axis=0), (n_actions, 1)))
    seen = table[:, 2 + identity :]
    if inputs != "identity":
        phi = features.rows(batch)
        np.testing.assert_allclose(seen[3], phi[batch.action == 3].mean(axis=0))
        if catalog:
            np.testing.assert_array_equal(seen[:, -3:], log.schema.catalog)
        if per_round:
            np.testing.assert_allclose(seen[-1, :2], phi[:, :2].mean(axis=0))
    varying = fitted.embedding.varying
    assert (varying is not None) == (per_round and inputs != "identity")
    if varying is not None:
        rows = varying.rows(batch)
        np.testing.assert_allclose(rows[:, :2], np.tile(batch.context.mean(axis=0), (400, 1)))
        np.testing.assert_allclose(rows[:, 2 + identity :], features.rows(batch))


def test_features_of_the_round_improve_what_is_predicted() -> None:
    log = make_log(per_round=True)
    batch = rows_of(log)
    fits = {inputs: fit(Regressor(LinearRegression()), log, inputs).on_all(0) for inputs in ("identity", "features", "both")}
    error = {inputs: ((fitted.taken(batch) - batch.reward[:, 0]) ** 2).mean() for inputs, fitted in fits.items()}
    assert error["both"] < 0.02 < 0.1 < error["features"] < error["identity"]
    whole = fits["both"].all(batch)
    blind = whole[np.arange(400), batch.action]
    np.testing.assert_allclose(blind.mean(), batch.reward.mean(), atol=1e-9)  # at mean features: right on average
    assert ((blind - batch.reward[:, 0]) ** 2).mean() > 1


def test_blocks_of_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()
    fitted = fit(Regressor(DecisionTreeRegressor(random_state=0)), log).on_all(0)
    whole = fitted.all(rows_of(log))
    monkeypatch.setattr(sample, "PAIRS", 7)
    np.testing.assert_array_equal(fitted.all(rows_of(log)), whole)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda f, inputs: np.zeros(len(inputs)), r"an array of shape \(5,\) for 5 input rows; it must be \(5, k\)"),
        (lambda f, inputs: np.zeros((3, 2)), r"shape \(3, 2\) for 5 input rows"),
        (lambda f, inputs: np.zeros((5, 0)), r"shape \(5, 0\)"),
        (lambda f, inputs: None, r"shape \(\)"),
        (lambda f, inputs: sparse.csr_matrix(np.eye(5)), "toarray"),
    ],
)
def test_embeddings_of_the_wrong_shape(function: object, message: str) -> None:
    fitted = fit(Regressor(LinearRegression(), embedding=function), make_log()).on_all(0)
    with pytest.raises(op.InputError, match=message):
        _ = fitted.embedding


def test_an_embedding_that_is_no_function() -> None:
    with pytest.raises(op.InputError, match="embedding is a ndarray; give a function"):
        Regressor(LinearRegression(), embedding=np.zeros((5, 2)))


@pytest.mark.parametrize("model", [AdamW(), Torch(two_layer())])
def test_models_that_need_pytorch_say_so(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(op.InputError, match=r'this reward model needs PyTorch: pip install "offpolicy\[torch\]"'):
        fit(model, make_log())


def clicks(n: int = 600) -> tuple[op.Log, float]:
    """Rewards of 0 and 1, and the value of the uniform policy."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(n, 1)), rng.integers(0, 4, n)
    rate = 0.1 + 0.1 * action
    return op.Log(x, action, (rng.random(n) < rate).astype(float), propensity=np.full(n, 0.25)), 0.25


@pytest.mark.parametrize("model", [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    RandomForestClassifier(20, max_depth=2, random_state=0),
])  # fmt: skip
def test_a_classifier_predicts_expected_rewards_and_not_labels(model: Any) -> None:
    """By its labels it would predict 0 for every action."""
    log, truth = clicks()
    assert op.evaluate(log, op.Uniform(), [op.DM(model)])["DM"].value == pytest.approx(truth, abs=0.04)


def test_any_two_values_are_rewards_of_a_classifier() -> None:
    log, _ = clicks()
    batch = rows_of(log)
    other = op.Log(batch.context, batch.action, 2.5 - 4 * batch.reward[:, 0], propensity=np.full(len(log), 0.25))
    values = [op.evaluate(each, op.Uniform(), [op.DM(LogisticRegression())])["DM"].value for each in (log, other)]
    assert values[1] == pytest.approx(2.5 - 4 * values[0], abs=1e-3)


def test_a_fit_with_one_value_predicts_it() -> None:
    log, _ = clicks(40)
    batch = rows_of(log)
    same = op.Log(batch.context, batch.action, np.full(40, 0.5), propensity=np.full(40, 0.25))
    assert op.evaluate(same, op.Uniform(), [op.DR(LogisticRegression())])["DR"].value == pytest.approx(0.5)


def test_classifiers_that_cannot_be_reward_models() -> None:
    with pytest.raises(
        op.InputError, match=r"LogisticRegression is a classifier, and the reward has 400 values \(.*a regressor"
    ):
        op.evaluate(make_log(), op.Uniform(), [op.DM(LogisticRegression())])
    with pytest.raises(op.InputError, match="LinearSVC is a classifier without predict_proba"):
        op.DR(LinearSVC())
