"""Laws of the weights by embeddings: limits that turn one estimator into another, and the paper's identity."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.models.posteriors.logistic import Problem
from tests.logs import Ragged, Small, make_small


def value(log: op.Log, target: object, estimator: op.Estimator) -> float:
    return op.evaluate(log, target, [estimator])[estimator.name].value


def weights(log: op.Log, target: object, estimator: op.Estimator, tmp_path: object) -> np.ndarray:
    import pyarrow.parquet as pq

    path = tmp_path / "scores.parquet"
    op.evaluate(log, target, [estimator])[estimator.name].scores(path)
    return pq.read_table(path)["weight"].to_numpy()


def kernel(embedding: np.ndarray, width: float) -> np.ndarray:
    distance = ((embedding[:, None] - embedding[None]) ** 2).sum(axis=2)
    return np.exp(-distance / (2 * width**2))


@pytest.mark.parametrize("normalised", [True, False])
def test_no_bandwidth_is_ips(small: Small, normalised: bool) -> None:
    learned = op.LearnedMIPS(posterior=op.Gaussian(1e-6), normalised=normalised)
    plain = op.SNIPS() if normalised else op.IPS()
    log = small.log()
    assert value(log, small.target, learned) == pytest.approx(value(log, small.target, plain), rel=1e-12)


@pytest.mark.parametrize("normalised", [True, False])
def test_an_infinite_bandwidth_is_the_mean_of_the_log(small: Small, normalised: bool) -> None:
    learned = op.LearnedMIPS(posterior=op.Gaussian(np.inf), normalised=normalised)
    result = op.evaluate(small.log(), small.target, [learned])
    assert result["LearnedMIPS"].value == pytest.approx(small.reward.mean(), rel=1e-12)
    assert result["LearnedMIPS"].verdict is op.Verdict.DO_NOT_TRUST
    assert "complete pooling" in [reason.code for reason in result["LearnedMIPS"].reasons]


def test_exact_one_hot_embeddings_are_ips(small: Small) -> None:
    log = small.log(action_features=small.action)
    exact = op.MIPS(op.Exact([np.eye(4)]))
    assert value(log, small.target, exact) == pytest.approx(value(log, small.target, op.IPS()), rel=1e-12)


def test_exact_flags_are_two_categories(small: Small) -> None:
    """In a catalog, 0 and 1 take one column; the same categories as text take two, and give the same weights."""
    flag = np.array([0, 1, 1, 0])
    exact, table = op.MIPS(op.Exact([np.eye(2)[flag]])), pa.table({"item": small.action, "reward": small.reward})

    def of(categories: np.ndarray) -> float:
        catalog = pa.table({"item": np.arange(4), "kind": categories})
        log = op.read_log(table, context=[], action="item", reward="reward", logging=small.logging, catalog=catalog)
        return value(log, small.target, exact)

    assert of(flag) == pytest.approx(of(np.array(["no", "yes"])[flag]), rel=1e-12)


def test_mdr_with_no_model_is_mips(small: Small) -> None:
    log = small.log(action_features=small.action // 2)
    nothing = op.Given(np.zeros_like(small.target))
    for posterior in (op.Categorical(), op.Gaussian(0.5)):
        mips = value(log, small.target, op.MIPS(posterior, cross_fit=5))
        assert value(log, small.target, op.MDR(posterior, rewards=nothing, cross_fit=5)) == pytest.approx(mips, rel=1e-12)


@pytest.mark.parametrize("penalty", [0.0, 3.0, "auto"])
def test_offcem_with_a_cluster_an_action_is_dr(small: Small, penalty: float) -> None:
    log, ridge = small.log(), op.Ridge(penalty)
    alone = value(log, small.target, op.OffCEM(4, ridge))
    assert alone == pytest.approx(value(log, small.target, op.DR(ridge)), rel=1e-9)
    labels = value(log, small.target, op.OffCEM([3, 1, 0, 2], ridge))
    assert labels == pytest.approx(alone, rel=1e-9)


def test_offcem_with_one_cluster_is_the_model_and_its_mean_residual(small: Small) -> None:
    log, q = small.log(), np.random.default_rng(0).normal(size=small.target.shape)
    expected = (small.target * q).sum(axis=1).mean() + (small.reward - q[np.arange(len(q)), small.action]).mean()
    assert value(log, small.target, op.OffCEM(1, op.Given(q))) == pytest.approx(expected, rel=1e-10)


def test_mr_in_sample_on_binary_rewards_is_ips(small: Small) -> None:
    clicks = (small.reward > 1).astype(float)
    log = op.Log(small.context, small.action, clicks, logging=small.logging)
    assert value(log, small.target, op.MR(cross_fit=0)) == pytest.approx(value(log, small.target, op.IPS()), rel=1e-12)
    assert value(log, small.target, op.MR()) != value(log, small.target, op.IPS())


def test_mr_by_hand() -> None:
    """w is 0.4, 0.8, 1, 1.8 and 1.2, so E[w | r] is 0.8, 1.1, 1.0 and 1.2 where r = 0, 1, 2 and 3."""
    from tests.logs import ACTION, REWARD, TARGET

    log = op.Log(None, np.tile(ACTION, 20), np.tile(REWARD, 20), logging=op.Uniform())
    means = {0.0: 0.8, 1.0: (0.4 + 1.8) / 2, 2.0: 1.0, 3.0: 1.2}
    expected = np.mean([means[r] * r for r in REWARD])
    assert value(log, np.tile(TARGET, (20, 1)), op.MR(cross_fit=0)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [True, False])
def test_the_identity_of_the_paper(scale: bool) -> None:
    """Context-free, with the posterior whose prior is π0, Learned MIPS is the direct method of a kernel's rewards."""
    rng = np.random.default_rng(3)
    n, actions = 500, 6
    pi0, pi = rng.dirichlet(np.ones(actions)), rng.dirichlet(np.ones(actions))
    action = rng.choice(actions, n, p=pi0)
    reward = rng.normal(size=actions)[action] + rng.normal(size=n)
    log = op.Log(rng.normal(size=(n, 2)), action, reward, logging=op.Fixed(pi0), n_actions=actions)
    gaussian = op.Gaussian(0.3, scale=scale)
    result = op.evaluate(log, op.Fixed(pi), [op.LearnedMIPS(posterior=gaussian, normalised=False)])["LearnedMIPS"]
    table = result.embedding
    f = table.scaled / np.sqrt(table.scaled.shape[1]) if scale else table.published
    k = kernel(f, 0.3)
    rewards = (k[action] * (reward / (k[action] @ pi0))[:, None]).mean(axis=0)  # r̃(a)
    assert result.value == pytest.approx(pi @ rewards, abs=1e-10)


def test_the_posterior_form_by_hand(small: Small) -> None:
    """w = Σ_a p(a|e) π/π0 with the classifier's p(a|e), context-dependent policies included."""
    from sklearn.linear_model import LogisticRegression

    log = small.log()
    result = op.evaluate(log, small.target, [op.LearnedMIPS(posterior=op.Logistic(scale=False))])["LearnedMIPS"]
    e = result.embedding.published
    published = LogisticRegression(max_iter=10_000, tol=1e-10).fit(e[small.action], small.action)
    expected = (published.predict_proba(e[small.action]) * small.target / small.logging).sum(axis=1)
    assert result.value == pytest.approx((expected * small.reward).mean(), rel=2e-4)


def test_single_precision_depends_on_the_order_of_rows_no_more_than_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fitted in single precision is rounded first, and ends where double precision does."""
    world, estimator = op.worlds.Linear(n_actions=40, seed=0), op.LearnedMIPS(posterior=op.Logistic())
    log = world.sample(2_000, seed=1)
    rows = log.head(2_000)
    order = np.random.default_rng(2).permutation(2_000)

    def value(order: np.ndarray) -> float:
        some = rows.take(order)
        parts = (some.context, some.action, some.reward[:, 0])
        again = op.Log(*parts, logging=log.logging, n_actions=40, row_id=order)
        return op.evaluate(again, world.target, estimator, errors=False)["LearnedMIPS"].value

    single = value(np.arange(2_000))
    assert value(order) == pytest.approx(single, rel=1e-12)
    monkeypatch.setattr("offpolicy.models.posteriors.logistic.Problem.single", Problem.z)
    assert value(order) == pytest.approx(single, rel=1e-4)


def test_weights_of_clusters_and_of_exact_embeddings_have_mean_one_under_the_logging_policy(tmp_path: object) -> None:
    """Σ_e p(e|π0, x) w(x, e) = 1 for each x: checked by summing over all actions and embeddings of one context."""
    rng = np.random.default_rng(0)
    pi0, pi = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    p = rng.dirichlet(np.ones(3), size=4)
    action, category = (part.ravel() for part in np.meshgrid(np.arange(4), np.arange(3), indexing="ij"))
    chance = pi0[action] * p[action, category]
    log = op.Log(None, action, rng.normal(size=12), logging=op.Fixed(pi0), action_features=category)
    w = weights(log, op.Fixed(pi), op.MIPS(op.Exact([p])), tmp_path)
    assert chance @ w == pytest.approx(1, rel=1e-12)
    by_function = weights(log, op.Fixed(pi), op.MIPS(op.Exact(lambda phi: phi @ p.T)), tmp_path)
    np.testing.assert_allclose(by_function, w, rtol=1e-12)
    grouped = weights(log, op.Fixed(pi), op.GroupIPS([0, 1, 0, 1]), tmp_path)
    assert pi0[action] @ grouped / 3 == pytest.approx(1, rel=1e-12)


def test_categorical_by_hand(tmp_path: object) -> None:
    action, category = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    pi = np.array([[0.2, 0.8]] * 5)
    log = op.Log(None, action, np.arange(5.0), logging=op.Uniform(), action_features=category)
    marginal = np.array([2 / 5, 3 / 5])
    p = (np.array([[2, 1], [0, 2]]) + marginal) / np.array([[4], [3]])  # one round of the marginal added to each
    expected = (pi[0] @ p)[category] / (0.5 * p.sum(axis=0))[category]
    np.testing.assert_allclose(weights(log, pi, op.MIPS(), tmp_path), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "estimator",
    [
        op.MIPS(),
        op.LearnedMIPS("features", posterior=op.Logistic()),
        op.LearnedMIPS("features", posterior=op.Gaussian(), cross_fit=2),
        op.LearnedMIPS("both", posterior=op.Gaussian()),
    ],
)
def test_shares_by_combination_of_categories_are_those_by_round(
    estimator: op.Estimator, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = make_small(n=300)
    rng = np.random.default_rng(2)
    log = w.log(action_features=np.column_stack([(w.action + rng.integers(2, size=300)) % 3, rng.integers(3, size=300)]))
    found = weights(log, w.target, estimator, tmp_path)
    monkeypatch.setattr("offpolicy.ratios.embeddings.MOST_ELEMENTS", 0)
    np.testing.assert_allclose(found, weights(log, w.target, estimator, tmp_path), rtol=1e-11)


def test_lda_by_hand(tmp_path: object) -> None:
    """Features that vary within an action: normal around the action's mean, with the shared covariance."""
    w = make_small(n=300)
    rng = np.random.default_rng(1)
    features = rng.normal(size=(300, 2)) + w.action[:, None]
    means = np.stack([features[w.action == a].mean(axis=0) for a in range(4)])
    within = (features - means[w.action]).T @ (features - means[w.action]) / 300
    away = features[:, None] - means[None]
    density = np.exp(-0.5 * np.einsum("tai,ij,taj->ta", away, np.linalg.inv(within), away))
    expected = (density * w.target).sum(axis=1) / (density * w.logging).sum(axis=1)
    found = weights(w.log(action_features=features), w.target, op.MIPS(op.Gaussian()), tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_mdr_is_unbiased_with_the_true_model_and_embedding() -> None:
    """Random embeddings, true p(e|a), true q(x, e): the mean over logs is the value, and q(x, a) as control would not be."""
    rng = np.random.default_rng(5)
    p, reward_of = rng.dirichlet(np.ones(5) * 0.5, size=6), rng.normal(size=5) * 3
    pi0, pi = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    truth = pi @ p @ reward_of
    q = p @ reward_of
    found = []
    for _ in range(400):
        action = rng.choice(6, 60, p=pi0)
        category = (p[action].cumsum(axis=1) > rng.random((60, 1))).argmax(axis=1)
        reward = reward_of[category] + rng.normal(size=60)
        # every category once in the encoding, whatever was drawn
        features = np.eye(5)[category]
        log = op.Log(None, action, reward, logging=op.Fixed(pi0), n_actions=6, action_features=features)
        given = op.Given(np.tile(q, (60, 1)), reward_of[category])
        exact = op.Exact(lambda phi: phi @ p.T)
        found.append(value(log, op.Fixed(pi), op.MDR(exact, rewards=given, cross_fit=0)))
    assert (np.mean(found) - truth) / (np.std(found) / 20) == pytest.approx(0, abs=3)
    assert np.std(found) < 0.5


def test_cross_fitting_falls_back_to_the_action_weight(tmp_path: object) -> None:
    """The only round of action 3 is absent from the other folds."""
    w = make_small(n=200)
    action = np.where(w.action == 3, 0, w.action)
    action[17] = 3
    log = op.Log(w.context, action, w.reward, logging=w.logging)
    cross_fitted = op.LearnedMIPS(posterior=op.Logistic(), cross_fit=5)
    result = op.evaluate(log, w.target, [cross_fitted, op.LearnedMIPS(posterior=op.Logistic(), name="in sample")])
    assert result["LearnedMIPS"].diagnostics["rounds_with_an_action_new_to_the_fit"] == 1
    assert result["in sample"].diagnostics["rounds_with_an_action_new_to_the_fit"] == 0
    found = weights(log, w.target, cross_fitted, tmp_path)
    assert found[17] == pytest.approx(w.target[17, 3] / w.logging[17, 3], rel=1e-12)


def test_the_unit_of_the_reward_does_not_matter(small: Small) -> None:
    """Scaled embeddings; the published ones turn small rewards into the mean of the log."""
    tiny = op.Log(small.context, small.action, small.reward * 1e-4, logging=small.logging)
    for posterior in (op.Logistic(), op.Gaussian(0.5), op.Gaussian()):
        learned = op.LearnedMIPS(posterior=posterior)
        assert value(tiny, small.target, learned) == pytest.approx(
            1e-4 * value(small.log(), small.target, learned), rel=1e-4
        )
    published = op.LearnedMIPS(posterior=op.Logistic(scale=False), normalised=True)
    pooled = np.abs(value(tiny, small.target, published) * 1e4 - value(small.log(), small.target, published))
    assert pooled > 0.05


def test_pooling_is_the_part_of_the_weight_that_other_actions_give(small: Small) -> None:
    result = op.evaluate(small.log(), small.target, [op.GroupIPS([0, 0, 1, 2])])["GroupIPS"]
    pair = small.target[:, :2]
    own = np.where(small.action < 2, pair[np.arange(len(pair)), small.action % 2] / pair.sum(axis=1), 1.0)
    assert result.diagnostics["pooling"] == pytest.approx(1 - own.mean(), rel=1e-12)


def test_batches_and_threads_do_not_matter(small: Small) -> None:
    log = small.log(action_features=np.column_stack([small.action // 2, np.arange(len(small.action)) % 3]))
    estimators = [
        op.LearnedMIPS(), op.LearnedMDR(), op.MIPS(), op.MDR(), op.MR(), op.GroupIPS(2), op.OffCEM(2),
        op.LearnedMIPS("identity", posterior=op.Gaussian("slope"), name="kernel"),
    ]  # fmt: skip
    one, many = (op.evaluate(log, small.target, estimators, engine=engine) for engine in (Ragged(7), op.Local(threads=3)))
    for a, b in zip(one, many, strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-6)
        assert a.std_error == pytest.approx(b.std_error, rel=1e-5)


@pytest.mark.parametrize("select", ["exact", "greedy"])
def test_a_dimension_of_one_category_is_nothing_to_choose(small: Small, select: str) -> None:
    padded = np.column_stack([small.features, np.full(len(small.action), 3)])
    estimator = op.MIPS(select=select)
    plain, more = (value(small.log(action_features=f), small.target, estimator) for f in (small.features, padded))
    assert more == pytest.approx(plain, rel=1e-12)
