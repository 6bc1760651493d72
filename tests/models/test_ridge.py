"""Ridge with identity, features and both, against one dense penalised least-squares problem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import offpolicy as op
from offpolicy.data.features import Features
from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor
from tests.logs import Ragged

N_ACTIONS = 7


def fit(model: op.Ridge, log: op.Log, inputs: str, folds: int = 1) -> Fits:
    features = Features.of(log.schema)
    first = next(iter(log.partitions()[0].batches(5)))
    origin = np.concatenate([first.context[0], features.rows(first)[0] if features.size else [], first.reward[0]])
    shape = FitShape(
        N_ACTIONS,
        len(log.schema.context),
        1,
        20,
        0,
        rows=len(log),
        inputs=inputs,
        features=features,
        folds=folds,
        origin=origin,
    )
    return model.fits(shape, [Ragged(17).reduce(log, s) for s in model.statistics(shape)])


def rows_of(log: op.Log) -> object:
    return log.head(len(log))


def make_log(seed: int, n: int, d: int, per_round: bool, weighted: bool = False) -> op.Log:
    """Random rounds; one action is never logged, one feature is the sum of two others."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, N_ACTIONS - 1, n)
    catalog = rng.normal(size=(N_ACTIONS, 3)) * [1, 5, 0.1] + 2
    catalog[:, 2] = catalog[:, 0] + catalog[:, 1]
    features = {"catalog": catalog}
    if per_round:
        seen = rng.normal(size=(n, 3)) + catalog[action]
        seen[:, 2] = seen[:, 0] + seen[:, 1]
        features = {"action_features": seen}
    weight = rng.uniform(0.5, 2, n) if weighted else None
    return op.Log(
        rng.normal(size=(n, d)) * 3 + 1, action, rng.normal(size=n) * 2 + 5, n_actions=N_ACTIONS,
        propensity=np.full(n, 0.5), weight=weight, **features,
    )  # fmt: skip


def dense(log: op.Log, inputs: str, penalty: float) -> np.ndarray:
    """q of each logged row: residuals of the pooled fit on the stacked design [one-hot ⊗ z̃, φ̃ ⊗ z̃] with a penalty."""
    batch = rows_of(log)
    omega = np.ones(len(batch)) if batch.weight is None else batch.weight / batch.weight.mean()
    share = omega / omega.sum()

    def standard(values: np.ndarray) -> np.ndarray:
        mean = share @ values
        return (values - mean) / np.sqrt(share @ (values - mean) ** 2)

    z = np.column_stack([standard(batch.context), np.ones(len(batch))])
    phi = standard(Features.of(log.schema).rows(batch))
    root = np.sqrt(omega)
    pool = np.linalg.lstsq(z * root[:, None], batch.reward[:, 0] * root, rcond=None)[0]
    one_hot = np.eye(N_ACTIONS)[batch.action]
    parts = {"identity": [one_hot], "features": [phi], "both": [one_hot, phi]}[inputs]
    design = np.hstack([(part[:, :, None] * z[:, None, :]).reshape(len(z), -1) for part in parts])
    target = batch.reward[:, 0] - z @ pool
    free = z if inputs == "features" else np.zeros((len(z), 1))  # features alone come with a mean of their own
    away = design - free @ np.linalg.lstsq(free * root[:, None], design * root[:, None], rcond=None)[0]
    if penalty > 0:
        stacked = np.vstack([away * root[:, None], np.sqrt(penalty) * np.eye(design.shape[1])])
        goal = np.concatenate([target * root, np.zeros(design.shape[1])])
        solved = np.linalg.lstsq(stacked, goal, rcond=None)[0]
    else:
        solved = np.linalg.pinv(away * root[:, None], rcond=1e-9) @ (target * root)
    return z @ pool + away @ solved


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(20, 120), st.integers(1, 4), st.sampled_from([0.01, 1.0, 30.0]),
    st.sampled_from(["identity", "features", "both"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_ridge_is_the_dense_solution(
    seed: int, n: int, d: int, penalty: float, inputs: str, per_round: bool, weighted: bool
) -> None:
    log = make_log(seed, n, d, per_round, weighted)
    linear = fit(op.Ridge(penalty), log, inputs).on_all(0)
    np.testing.assert_allclose(linear.taken(rows_of(log)), dense(log, inputs, penalty), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("inputs", ["features", "both"])
@pytest.mark.parametrize("per_round", [False, True])
@pytest.mark.parametrize("n", [15, 40, 300])
def test_no_penalty_is_the_limit_of_minimum_norm(inputs: str, per_round: bool, n: int) -> None:
    log = make_log(1, n, 2, per_round)
    linear = fit(op.Ridge(0), log, inputs).on_all(0)
    np.testing.assert_allclose(linear.taken(rows_of(log)), dense(log, inputs, 0.0), atol=1e-6)
    near = fit(op.Ridge(1e-5), log, inputs).on_all(0)
    assert np.abs(near.coef).max() < 1e4
    np.testing.assert_allclose(linear.coef, near.coef, atol=2e-3 * np.abs(near.coef).max())


@pytest.mark.parametrize("per_round", [False, True])
@pytest.mark.parametrize("inputs", ["features", "both"])
def test_without_a_fold_is_a_fit_on_the_other_rows(per_round: bool, inputs: str) -> None:
    log = make_log(2, 200, 2, per_round)
    batch = rows_of(log)
    fits = fit(op.Ridge(1.0), log, inputs, folds=5)
    shape = FitShape(N_ACTIONS, 2, 1, 20, 0)
    keep = shape.group(batch) * 5 // 20 != 2
    features = {"action_features": batch.features[keep]} if per_round else {"catalog": log.schema.catalog}
    rest = op.Log(batch.context[keep], batch.action[keep], batch.reward[keep], n_actions=N_ACTIONS, **features)
    alone = fit(op.Ridge(1.0), rest, inputs).on_all(0)
    part = fits.without_fold(0, 2, 5)
    np.testing.assert_allclose(part.taken(batch), alone.taken(batch), atol=1e-8)
    np.testing.assert_allclose(part.coef, alone.coef, atol=1e-8)


@pytest.mark.parametrize("inputs", ["features", "both"])
def test_features_of_the_round_that_never_vary_are_a_catalog(inputs: str) -> None:
    log = make_log(3, 150, 2, per_round=False)
    batch = rows_of(log)
    same = op.Log(
        batch.context, batch.action, batch.reward, n_actions=N_ACTIONS, action_features=log.schema.catalog[batch.action]
    )
    for penalty in (0.0, 0.01, 3.0):
        a, b = (fit(op.Ridge(penalty), one, inputs).on_all(0).taken(rows_of(one)) for one in (log, same))
        np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.parametrize("inputs", ["features", "both"])
@pytest.mark.parametrize("per_round", [False, True])
def test_the_penalty_is_chosen_out_of_fold(inputs: str, per_round: bool) -> None:
    """Held-out errors from sums are those of predictions on held-out rows."""
    log = make_log(4, 400, 2, per_round)
    batch = rows_of(log)
    fits = fit(op.Ridge(2.0), log, inputs)
    fold = FitShape(N_ACTIONS, 2, 1, 20, 0).group(batch) * 5 // 20
    missed = sum(((batch.reward[:, 0] - fits.without_fold(0, k, 5).taken(batch))[fold == k] ** 2).sum() for k in range(5))
    total = sum(((batch.reward[fold == k, 0] - batch.reward[fold != k, 0].mean()) ** 2).sum() for k in range(5))
    assert fits.diagnostics(0)["r2"] == pytest.approx(1 - missed / total, rel=1e-9)


def test_an_action_never_logged_gets_what_the_model_implies() -> None:
    rng = np.random.default_rng(0)
    catalog = rng.normal(size=(N_ACTIONS, 1))
    action = rng.integers(0, N_ACTIONS - 1, 5_000)
    reward = 3 * catalog[action, 0] + 0.01 * rng.normal(size=5_000)
    log = op.Log(None, action, reward, n_actions=N_ACTIONS, catalog=catalog)
    seen = catalog[action, 0]
    linear = fit(op.Ridge(1.0), log, "features").on_all(0)
    assert linear.coef[-1, -1] == pytest.approx(3 * catalog[-1, 0], abs=0.01)
    linear = fit(op.Ridge(1.0), log, "both").on_all(0)
    squares = ((catalog[:-1, 0] - seen.mean()) ** 2).sum() / seen.var()  # six actions speak for the slope, the penalty for 0
    slope = 3 * squares / (1 + squares)
    assert linear.coef[-1, -1] == pytest.approx(reward.mean() + slope * (catalog[-1, 0] - seen.mean()), abs=0.02)
    alone = fit(op.Ridge(1.0), log, "identity").on_all(0)
    assert alone.coef[-1, -1] == pytest.approx(reward.mean())
    zero: LinearPredictor = fit(op.Ridge(1.0, unseen="zero"), log, "both").on_all(0)
    assert (zero.coef[-1] == 0).all()


@pytest.mark.parametrize("inputs", ["identity", "features", "both"])
def test_rank(inputs: str) -> None:
    log = make_log(5, 2_000, 4, per_round=False)
    full = fit(op.Ridge(1.0), log, inputs).on_all(0)
    for rank in (1, 2, 3):
        linear = fit(op.Ridge(1.0, rank=rank), log, inputs).on_all(0)
        assert linear.embedding.table.shape == (N_ACTIONS, rank)
        deviation = linear.coef - linear.coef[[0]]
        assert np.linalg.matrix_rank(deviation, tol=1e-8) <= rank
    if inputs == "identity":
        whole = fit(op.Ridge(1.0, rank=5), log, inputs).on_all(0)
        np.testing.assert_allclose(whole.coef, full.coef, atol=1e-8)
    with pytest.raises(op.InputError, match="allows an embedding of at most"):
        fit(op.Ridge(rank=9), log, inputs)


def test_a_rank_finds_rewards_of_that_rank() -> None:
    rng = np.random.default_rng(6)
    x, action = rng.normal(size=(20_000, 6)), rng.integers(0, N_ACTIONS, 20_000)
    effects = rng.normal(size=(N_ACTIONS, 2)) @ rng.normal(size=(2, 6))
    reward = np.einsum("ij,ij->i", x, effects[action]) + 0.1 * rng.normal(size=20_000)
    linear = fit(op.Ridge(1.0, rank=2), op.Log(x, action, reward, n_actions=N_ACTIONS), "identity").on_all(0)
    np.testing.assert_allclose(linear.coef[:, :-1], effects, atol=0.02)
    table = linear.embedding.table
    between = np.linalg.norm(table[:, None] - table[None], axis=2)
    np.testing.assert_allclose(between, np.linalg.norm(effects[:, None] - effects[None], axis=2), atol=0.1)


def test_large_offsets_lose_no_digits() -> None:
    log = make_log(7, 300, 2, per_round=True)
    batch = rows_of(log)
    far = op.Log(
        batch.context + 1e6, batch.action, batch.reward + 1e8, n_actions=N_ACTIONS, action_features=batch.features + 1e6
    )
    for inputs in ("features", "both"):
        near = fit(op.Ridge(1.0), log, inputs).on_all(0).taken(batch)
        moved = fit(op.Ridge(1.0), far, inputs).on_all(0).taken(rows_of(far))
        np.testing.assert_allclose(moved - 1e8, near, atol=1e-4)


def test_on_numbers_the_fit_does_not_depend_on_the_origin_of_contexts() -> None:
    """Contexts are counted from a typical row, which depends on how a log is split into files."""
    rng = np.random.default_rng(2)
    x, a = rng.normal(size=(200, 2)), rng.uniform(size=200)
    reward = np.sin(3 * a) * x[:, 0] + a + rng.normal(size=200) / 5
    last_first = np.argsort(-x[:, 0])
    every = {"as it is": (x, slice(None)), "moved": (x + 1e3, slice(None)), "sorted": (x, last_first)}
    values = []
    for contexts, rows in every.values():
        log = op.Log(
            contexts[rows], a[rows], reward[rows], propensity=np.ones(200), actions=op.Box(0, 1), row_id=np.arange(200)[rows]
        )
        constant = op.Deterministic(lambda x: np.full(len(x), 0.3))
        dm = op.evaluate(log, constant, op.DM(rewards=op.Ridge(10.0), cross_fit=0), progress=False)["DM"]
        values.append((dm.value, dm.std_error))
    assert values[1] == pytest.approx(values[0], rel=1e-6)
    assert values[2] == pytest.approx(values[0], rel=1e-6)
