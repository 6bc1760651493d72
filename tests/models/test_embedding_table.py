"""Embeddings as users see them: the table, nearest actions, selection of dimensions, and what cannot work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offpolicy as op
from tests.logs import Small, make_small


@pytest.fixture
def shop() -> op.Log:
    """Twelve items in three kinds with different rewards, logged alike; the kind is in the catalog, a noisy size seen."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 11, 4_000)
    reward = np.array([0.0, 1.0, 3.0])[action % 3] + 0.3 * rng.normal(size=4_000)
    labels = [f"item-{k:02d}" for k in range(12)]  # the last is never logged
    return op.Log(
        rng.normal(size=(4_000, 2)), np.array(labels)[action], reward, actions=labels,
        logging=op.Fixed([1 / 11] * 11 + [0]),
        catalog=(np.arange(12) % 3)[:, None],
    )  # fmt: skip


def test_the_table(shop: op.Log) -> None:
    result = op.evaluate(shop, op.Uniform(), [op.LearnedMIPS("identity")])["LearnedMIPS"]
    table = result.embedding
    assert table.actions.tolist() == shop.actions.tolist()
    assert table.values.shape == (12, 3)
    assert table.counts.sum() == 4_000
    assert table.counts[-1] == 0
    np.testing.assert_allclose(table.reward[:3], [0, 1, 3], atol=0.1)
    near = table.nearest("item-00", 3)
    assert {label for label, _ in near} == {"item-03", "item-06", "item-09"}
    assert near[0][1] <= near[-1][1]
    frame = table.to_frame()
    assert frame.columns.tolist() == ["action", "count", "reward", "e0", "e1", "e2"]
    np.testing.assert_allclose(frame[["e0", "e1", "e2"]], table.values)
    with pytest.raises(op.InputError, match="'item-99' is not an action"):
        table.nearest("item-99")
    with pytest.raises(op.InputError, match="IPS has no embedding"):
        op.evaluate(shop, op.Uniform(), [op.IPS()])["IPS"].embedding  # noqa: B018


def test_embed_is_the_embedding_of_the_evaluation(shop: op.Log) -> None:
    for inputs in ("identity", "features", "both"):
        evaluated = op.evaluate(shop, op.Uniform(), [op.LearnedMIPS(inputs)])["LearnedMIPS"].embedding
        alone = op.embed(shop, inputs=inputs)
        np.testing.assert_allclose(alone.values, evaluated.values, rtol=1e-10)
        np.testing.assert_allclose(alone.counts, evaluated.counts)
    features = op.embed(shop, inputs="features")
    assert features.nearest("item-11", 1)[0][1] == pytest.approx(0, abs=1e-9)  # of its kind, though never logged
    assert op.embed(shop, inputs="identity", rewards=op.Ridge(rank=1)).values.shape == (12, 1)


def test_predefined_features_have_a_table_too(shop: op.Log) -> None:
    table = op.evaluate(shop, op.Uniform(), [op.MIPS()])["MIPS"].embedding
    np.testing.assert_allclose(table.values, np.eye(3)[np.arange(12) % 3])
    assert table.reward is None


def test_pooling_by_kind_is_wide_and_right(shop: op.Log) -> None:
    """Within a kind rewards are alike, so that MIPS by kind is right where IPS is noisy, item-11 included."""
    target = np.zeros(12)
    target[11] = 1.0
    result = op.evaluate(shop, op.Fixed(target), [op.IPS(), op.MIPS()])
    assert result["IPS"].value == 0
    assert result["MIPS"].value == pytest.approx(3.0, abs=4 * result["MIPS"].std_error)
    assert result["MIPS"].diagnostics["pooling"] == pytest.approx(1.0)


def test_selection_drops_a_dimension_that_only_adds_variance() -> None:
    """Two dimensions: one decides the reward, the other is the action itself."""
    rng = np.random.default_rng(1)
    n, actions = 3_000, 30
    pi0, pi = rng.dirichlet(np.ones(actions) * 5), rng.dirichlet(np.ones(actions) * 0.3)
    action = rng.choice(actions, n, p=pi0)
    reward = (action % 3) + 0.2 * rng.normal(size=n)
    log = op.Log(
        None, action, reward, logging=op.Fixed(pi0), n_actions=actions, action_features=np.column_stack([action % 3, action])
    )
    truth, counts = pi @ (np.arange(actions) % 3), op.Categorical(smoothing=0.0)
    result = op.evaluate(
        log, op.Fixed(pi),
        [op.MIPS(counts), *(op.MIPS(counts, select=select, name=select) for select in ("exact", "greedy"))],
    )  # fmt: skip
    for name in ("exact", "greedy"):
        assert result[name].value == pytest.approx(truth, abs=0.1)
        assert result[name].std_error < 0.5 * result["MIPS"].std_error
        assert result[name].diagnostics["dimensions"] == ["e0"]


def test_two_rewards_have_embeddings_of_their_own(small: Small) -> None:
    both = np.column_stack([small.reward, small.context[:, 0] * small.action])
    log = op.Log(small.context, small.action, both, logging=small.logging)
    result = op.evaluate(log, small.target, [op.LearnedMIPS(), op.MR()])
    for k in range(2):
        alone = op.evaluate(
            op.Log(small.context, small.action, both[:, k], logging=small.logging), small.target, [op.LearnedMIPS(), op.MR()]
        )
        for name in ("LearnedMIPS", "MR"):
            found = result.rewards[f"reward_{k}"][name]
            assert found.value == pytest.approx(alone[name].value, rel=1e-5)
            assert found.std_error == pytest.approx(alone[name].std_error, rel=1e-3)


def test_row_weights_count_as_repetitions() -> None:
    w = make_small(n=120)
    reward = (w.reward > 1).astype(float)  # MR has bins for rewards, and these do not move when rows are repeated
    twice = np.concatenate([np.arange(120), np.arange(0, 120, 2)])
    weight = np.where(np.arange(120) % 2 == 0, 2.0, 1.0)
    estimators = [
        op.LearnedMIPS("identity", op.Ridge(0), op.Gaussian(1.0)), op.LearnedMIPS("features", op.Ridge(0), op.Gaussian(), name="features"),
        op.MIPS(op.Categorical(0.0)), op.MR(cross_fit=0), op.GroupIPS(2, "identity", op.Ridge(0)),
        op.OffCEM(2, op.Ridge(0), cross_fit=0), op.LearnedMDR("both", op.Ridge(0), op.Gaussian(1.0), cross_fit=0),
    ]  # fmt: skip
    weighted = op.evaluate(replace(w, reward=reward).log(weight=weight, action_features=w.features), w.target, estimators)
    rows = {"logging": w.logging[twice], "propensity": None, "n_actions": 4, "action_features": w.features[twice]}
    repeated = op.evaluate(op.Log(w.context[twice], w.action[twice], reward[twice], **rows), w.target[twice], estimators)
    for a, b in zip(weighted, repeated, strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-4), a.estimator


def test_posteriors_of_a_logging_policy_with_gaps(small: Small) -> None:
    """Where π0 gives an action no chance in a round, no round of the log speaks for it there: it is left out."""
    logging = small.logging.copy()
    logging[np.arange(len(logging)), (small.action + 1) % 4] = 0
    logging /= logging.sum(axis=1, keepdims=True)
    log = op.Log(small.context, small.action, small.reward, logging=logging)
    for posterior in (op.Logistic(), op.Gaussian(0.5)):
        estimate = op.evaluate(log, small.target, [op.LearnedMIPS(posterior=posterior)])["LearnedMIPS"]
        assert np.isfinite([estimate.value, estimate.std_error]).all()
        assert any(reason.code == "support" for reason in estimate.reasons)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (lambda: op.LearnedMIPS("text"), 'inputs is \'text\'; give "identity", "features", "both"'),
        (lambda: op.LearnedMIPS(posterior=op.Gaussian), r"write Gaussian\(\)"),
        (lambda: op.LearnedMIPS(cross_fit=1), "cross_fit is 1"),
        (lambda: op.Gaussian(-1.0), "bandwidth is -1.0; give a number above 0"),
        (lambda: op.Gaussian("wide"), "bandwidth is 'wide'"),
        (lambda: op.Logistic(0), "C is 0"),
        (lambda: op.Categorical(-1), "smoothing is -1"),
        (lambda: op.MIPS(select="best"), "select is 'best'"),
        (lambda: op.GroupIPS(0), "clusters is 0"),
        (lambda: op.Ridge(rank=0), "rank is 0"),
        (lambda: op.OffCEM(3, __import__("sklearn.linear_model").linear_model.LinearRegression()), "two steps"),
    ],
)
def test_settings_out_of_range(estimator: object, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        estimator()


def bad(log: op.Log, target: object, estimator: op.Estimator, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.evaluate(log, target, [estimator])


def test_what_cannot_be_computed(small: Small) -> None:
    log, target = small.log(), small.target
    bad(log, target, op.LearnedMIPS("both"), 'inputs="both" needs features of the actions, and the log has none')
    bad(log, target, op.MIPS(), "needs features of the actions, and the log has none")
    bad(log, target, op.LearnedMIPS(rewards=op.Ridge(rank=4)), "allows an embedding of at most 3 dimensions")
    bad(log, target, op.LearnedMIPS(rewards=op.Given(target)), "has no embedding")
    bad(
        log,
        target,
        op.LearnedMIPS(posterior=op.Categorical()),
        "Categorical is for pre-defined features, not for a learned embedding",
    )
    bad(log, target, op.GroupIPS([0, 1]), "2 labels for 4 actions")
    numbers = small.log(action_features=small.context)
    bad(numbers, target, op.MIPS(op.Categorical()), "'e0' is a number")
    bad(numbers, target, op.MIPS(op.Exact([np.eye(4)])), "needs one of actions × categories per dimension")
    bad(numbers, target, op.MIPS(op.Exact(lambda phi: np.ones((2, 2)))), "must return rounds × actions")
    bad(numbers, target, op.MIPS(op.Exact(lambda phi: np.zeros((len(phi), 4)))), "p\\(e\\|a\\) = 0 for every action")
    bad(numbers, target, op.MDR(rewards=__import__("sklearn.tree").tree.DecisionTreeRegressor()), "linear in the features")
    codes = small.log(action_features=small.action)
    bad(codes, target, op.MIPS(op.Exact([np.full((4, 4), 0.5)])), "must be non-negative and sum to 1")
    catalog = small.log(catalog=np.arange(4.0)[:, None])
    bad(catalog, target, op.MIPS(op.Gaussian("estimation")), "has no estimation covariance")
    only = op.Log(small.context, small.action, small.reward, propensity=small.propensity)
    bad(only, target, op.LearnedMIPS(), "needs the logging policy's probability of every action.*estimate it.*or use IPS")
    bad(log, op.Column(small.propensity), op.LearnedMIPS(), "needs the new policy's probability of every action")


def test_catalogs_that_do_not_fit(small: Small) -> None:
    with pytest.raises(op.InputError, match="catalog: 3 rows for 4 actions"):
        small.log(catalog=np.ones((3, 1)))
    with pytest.raises(op.InputError, match="too many for one-hot encoding.*convert a quantity to float"):
        op.Log(None, np.arange(2_000) % 2, np.ones(2_000), action_features=np.arange(2_000))
    constant = small.log(catalog=np.ones((4, 1)))
    bad(constant, small.target, op.MIPS(op.Gaussian(1.0)), "the same for every action")


def test_a_regressor_gives_no_nan_embedding(small: Small) -> None:
    from sklearn.linear_model import LinearRegression

    broken = op.Regressor(LinearRegression(), embedding=lambda f, x: np.full((len(x), 2), np.nan))
    bad(small.log(), small.target, op.LearnedMIPS(rewards=broken, posterior=op.Gaussian(1.0)), "NaN or infinite")
    codes = op.Regressor(LinearRegression(), embedding=lambda f, x: x[:, 2:] * f.coef_[2:])
    value = op.evaluate(small.log(), small.target, [op.LearnedMIPS(rewards=codes, posterior=op.Gaussian(1.0))])[
        "LearnedMIPS"
    ]
    assert value.error_covers == "sampling"
    assert any(reason.code == "fit not covered" for reason in value.reasons)


def test_a_sample_of_pairs_is_told(small: Small) -> None:
    log = small.log(action_features=small.context)
    few = op.LearnedMIPS("both", posterior=op.Logistic(rows=50))
    seen = op.evaluate(log, small.target, [few])["LearnedMIPS"].diagnostics
    assert seen["fitted_on_a_sample_of_rows"] == 50


def test_features_alone_do_not_take_the_effect_of_the_context() -> None:
    """The logging policy makes features go with the context; a linear model of both is right all the same."""
    rng = np.random.default_rng(0)
    catalog = np.linspace(-1, 1, 20)[:, None]
    x = rng.normal(size=(3_000, 1))
    logging = np.exp(3 * x * catalog.T)
    logging /= logging.sum(axis=1, keepdims=True)
    action = (logging.cumsum(axis=1) > rng.random((3_000, 1))).argmax(axis=1)
    reward = 2 * catalog[action, 0] + 0.1 * rng.normal(size=3_000)
    target = np.zeros((3_000, 20))
    target[:, -1] = 1
    for features in ({"catalog": catalog}, {"action_features": catalog[action]}):
        log = op.Log(x, action, reward, logging=logging, n_actions=20, **features)
        assert op.evaluate(log, target, [op.DM(inputs="features")])["DM"].value == pytest.approx(2, abs=0.03)


def test_a_number_that_never_varies_within_an_action_tells_actions_apart() -> None:
    """LDA with a price joined to the log, alone or beside a number that does vary."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        price, action = rng.uniform(1, 9, 5), rng.integers(0, 5, 4_000)
        reward = price[action] + 0.1 * rng.normal(size=4_000)
        target = np.tile([0.8, 0.05, 0.05, 0.05, 0.05], (4_000, 1))
        for features in (price[action][:, None], np.column_stack([price[action], rng.normal(size=4_000)])):
            log = op.Log(None, action, reward, logging=op.Uniform(), action_features=features)
            result = op.evaluate(log, target, [op.MIPS(), op.SNIPS()])
            assert result["MIPS"].value == pytest.approx(result["SNIPS"].value, abs=1e-3)
            assert result["MIPS"].std_error < 0.2


def test_the_widest_bandwidth_is_not_the_anchor(shop: op.Log) -> None:
    """Where the embedding explains the reward, the narrowest member has the least error; the rest must agree with it."""
    target = op.Fixed(np.eye(12)[2])
    estimate = op.evaluate(shop, target, [op.LearnedMIPS("identity", posterior=op.Gaussian("slope"))])["LearnedMIPS"]
    assert estimate.value == pytest.approx(3, abs=0.1)
    assert estimate.diagnostics["bandwidth"] < 1


def test_axes_that_flip_are_no_error(shop: op.Log) -> None:
    """Rewards of rank 1: the second axis is noise and turns from refit to refit, which moves no weight to speak of."""
    ranks = {"whole": None, "rank 1": 1, "rank 2": 2}
    estimators = [op.LearnedMIPS("identity", op.Ridge(rank=k), name=name) for name, k in ranks.items()]
    result = op.evaluate(shop, op.Fixed(np.eye(12)[2]), estimators)
    for name in ranks:
        assert result[name].std_error == pytest.approx(result["whole"].std_error, rel=0.3)


def test_the_unit_of_row_weights_does_not_matter(small: Small) -> None:
    weight = np.random.default_rng(0).uniform(0.5, 2, len(small.action))
    estimators = [op.LearnedMIPS("identity"), op.MIPS(), op.LearnedMIPS("both", name="both"), op.MR(), op.GroupIPS(2)]
    logs = [small.log(weight=weight * unit, action_features=small.features) for unit in (1.0, 1e-3)]
    for a, b in zip(*(op.evaluate(log, small.target, estimators) for log in logs), strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-6)


def test_a_catalog_beside_features_of_the_round_knows_actions_never_logged() -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(0, 5, 2_000)
    reward = 2.0 * action + 0.1 * rng.normal(size=2_000)
    catalog, noise = np.arange(6.0)[:, None], rng.normal(size=(2_000, 1))
    target = op.Fixed(np.eye(6)[5])
    for more in ({}, {"action_features": noise}):
        log = op.Log(None, action, reward, logging=op.Fixed([0.2] * 5 + [0]), n_actions=6, catalog=catalog, **more)
        assert op.evaluate(log, target, [op.DM(inputs="features")])["DM"].value == pytest.approx(10, abs=0.1)


def test_mr_on_few_rounds_of_continuous_rewards() -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 90)
    log = op.Log(None, action, 2.0 * action + 0.1 * rng.normal(size=90), logging=op.Uniform())
    assert op.evaluate(log, op.Fixed([0.1, 0.9]), [op.MR()])["MR"].value == pytest.approx(1.8, abs=0.4)


def test_given_clusters_need_no_embedding(small: Small) -> None:
    constant = op.Log(small.context, small.action, np.ones(len(small.action)), logging=small.logging)
    estimate = op.evaluate(constant, small.target, [op.GroupIPS([0, 0, 1, 1], normalised=True)])["GroupIPS"]
    assert estimate.value == pytest.approx(1)
    assert not any(reason.code == "fit not covered" for reason in estimate.reasons)
