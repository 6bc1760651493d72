"""Reward models trained with PyTorch: what they learn, what they keep fixed, and what they refuse."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

if os.environ.get("OFFPOLICY_TORCH") == "required":
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'offpolicy[torch]'")

import offpolicy as op
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.experiments.config import Size, load
from offpolicy.experiments.runner import run_task
from offpolicy.models.rewards import sample, torch as network, training
from offpolicy.models.rewards.base import Fits, FitShape, RewardModel
from offpolicy.models.rewards.torch import AdamW, Torch, two_layer
from tests.logs import Ragged, make_small

N_ACTIONS = 5
EXACT = {"batch": 10_000, "weight_decay": 0.0}
"""Every step sees all rows, so training goes to the minimiser and not around it."""


def shape_of(log: op.Log, inputs: str = "identity") -> FitShape:
    return FitShape(log.n_actions, len(log.schema.context), 1, 20, 0, inputs=inputs, features=Features.of(log.schema))


def fit(model: RewardModel, log: op.Log, inputs: str = "identity") -> Fits:
    shape = shape_of(log, inputs)
    return model.fits(shape, [Ragged(97).reduce(log, s) for s in model.statistics(shape)])


def rows_of(log: op.Log) -> Batch:
    return log.head(len(log))


def linear_log(n: int = 300, seed: int = 0, **more: object) -> op.Log:
    rng = np.random.default_rng(seed)
    x, action = rng.normal([0.5, 0.0], size=(n, 2)), rng.integers(0, N_ACTIONS - 1, n)
    reward = (x * rng.normal(size=(N_ACTIONS, 2))[action]).sum(axis=1) + 0.3 * rng.normal(size=n)
    return op.Log(x, action, reward, n_actions=N_ACTIONS, **more)


def curved_log(n: int, seed: int) -> op.Log:
    rng = np.random.default_rng(seed)
    x, action = rng.normal(size=(n, 2)), rng.integers(0, 6, n)
    reward = 7 + 100 * (np.where(action % 2, np.abs(x[:, 0]), -np.abs(x[:, 1])) + action // 2 + 0.1 * rng.normal(size=n))
    return op.Log(x * 50 + 1e4, action, reward, n_actions=6)


def r2(predicted: np.ndarray, reward: np.ndarray) -> float:
    return 1 - ((reward - predicted) ** 2).mean() / reward.var()


def featured_log(n: int, *, per_round: bool, seed: int = 0, same: bool = False) -> op.Log:
    """The reward depends on the action through its features only. The last action is never logged."""
    rng = np.random.default_rng(seed)
    catalog = np.random.default_rng(9).normal(size=(N_ACTIONS, 2))
    x, action = rng.normal(size=(n, 2)), rng.integers(0, N_ACTIONS - 1, n)
    features = catalog[action] + (0.0 if same or not per_round else rng.normal(size=(n, 2)))
    reward = features @ [1.0, -2.0] * x[:, 0] + 0.1 * rng.normal(size=n)
    more = {"action_features": features} if per_round else {"catalog": catalog}
    return op.Log(x, action, reward, n_actions=N_ACTIONS, **more)


def test_adamw_goes_to_least_squares_around_its_frozen_constant() -> None:
    log = linear_log()
    batch = rows_of(log)
    fitted = fit(AdamW(0.05, epochs=1_500, **EXACT), log).on_all(0)
    constant = fitted.coef[:, -1] - fitted.coef[:, :-1] @ fitted.centre
    np.testing.assert_allclose(constant, constant[0], atol=1e-12)
    assert 0 < abs(constant[0]) < 1 / np.sqrt(2)
    for a in range(N_ACTIONS - 1):
        rows = batch.action == a
        slopes = np.linalg.lstsq(batch.context[rows], batch.reward[rows, 0] - constant[0], rcond=None)[0]
        np.testing.assert_allclose(fitted.coef[a, :-1], slopes, atol=1e-4)


@pytest.mark.parametrize("inputs", ["identity", "features", "both"])
def test_adamw_is_a_linear_layer_on_one_hot_actions(inputs: str) -> None:
    """Looked-up rows of a matrix: weight decay must act on all of them in each step, and on the bias."""
    log = featured_log(200, per_round=False)
    batch, shape, width = rows_of(log), shape_of(log, inputs), 0 if inputs == "identity" else 2
    how = {"epochs": 20, "batch": 10_000, "weight_decay": 2.0, "seed": 3}
    fitted = fit(AdamW(0.05, **how), log, inputs).on_all(0)
    torch.manual_seed(3)
    start = network._published(shape, width)
    layer = torch.nn.Linear((N_ACTIONS if inputs != "features" else 0) + width, 2)
    layer.weight.data = torch.cat([p.data for p in (start.identity, start.features) if p is not None]).T
    layer.bias.data = start.bias.data
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.05, weight_decay=2.0)
    one_hot = [np.eye(N_ACTIONS)] if inputs != "features" else []
    seen = np.hstack([*one_hot, *([log.schema.catalog] if width else [])])
    x, r, z = (torch.tensor(v, dtype=torch.float32) for v in (batch.context, batch.reward[:, 0], seen))
    for _ in range(20):
        optimiser.zero_grad()
        ((x * layer(z[batch.action.copy()])).sum(dim=1) + start.constant - r).pow(2).mean().backward()
        optimiser.step()
    np.testing.assert_allclose(fitted.embedding.table, layer(z).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("inputs", ["identity", "features", "both"])
@pytest.mark.parametrize("per_round", [False, True])
def test_adamws_embedding_dotted_with_the_context_is_its_prediction(inputs: str, per_round: bool) -> None:
    log = featured_log(200, per_round=per_round)
    batch = rows_of(log)
    fitted = fit(AdamW(0.01, epochs=5), log, inputs).on_all(0)
    embedding = fitted.embedding
    assert embedding.table.shape == (N_ACTIONS, 2)
    assert not embedding.common
    np.testing.assert_array_equal(embedding.counts, np.bincount(batch.action, minlength=N_ACTIONS))
    rest = fitted.all(batch) - batch.context @ embedding.table.T
    np.testing.assert_allclose(rest, rest[0, 0], atol=1e-12)
    np.testing.assert_allclose(embedding.reward, batch.context.mean(axis=0) @ embedding.table.T + rest[0, 0], atol=1e-12)
    varies = per_round and inputs != "identity"
    assert (embedding.varying is not None) == varies
    e = embedding.varying.rows(batch) if varies else embedding.table[batch.action]
    np.testing.assert_allclose(fitted.taken(batch), (batch.context * e).sum(axis=1) + rest[0, 0], atol=1e-12)


def test_adamw_needs_a_context() -> None:
    log = op.Log(None, np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0]), n_actions=2)
    with pytest.raises(op.InputError, match="no context"):
        fit(AdamW(), log)
    assert np.isfinite(fit(Torch(two_layer(), epochs=2), log).on_all(0).all(rows_of(log))).all()


def test_row_weights() -> None:
    """Rows of weight 0 change nothing; the unit of the others does not matter."""
    spoilt = rows_of(linear_log())
    reward = np.where(np.arange(300) % 3, spoilt.reward[:, 0], 1e3)
    model = AdamW(0.05, epochs=1_000, **EXACT)
    good = np.arange(300) % 3 > 0
    expected = fit(model, op.Log(spoilt.context[good], spoilt.action[good], reward[good], n_actions=N_ACTIONS)).on_all(0)
    log = op.Log(spoilt.context, spoilt.action, reward, n_actions=N_ACTIONS, weight=np.where(good, 8.0, 0.0))
    got = fit(model, log).on_all(0)
    np.testing.assert_allclose(got.all(spoilt)[:, :-1], expected.all(spoilt)[:, :-1], atol=1e-3)
    np.testing.assert_allclose(got.embedding.counts.sum(), 300)


def test_two_layers_learn_what_is_not_linear() -> None:
    """In any unit: contexts, features and rewards are brought to one scale, and predictions back."""
    log, fresh = curved_log(4_000, 0), rows_of(curved_log(2_000, 1))
    fits = fit(Torch(two_layer(), learning_rate=1e-2, epochs=40), log)
    fitted = fits.on_all(0)
    assert r2(fitted.taken(fresh), fresh.reward[:, 0]) > 0.9
    taken = fitted.all(fresh)[np.arange(len(fresh)), fresh.action]
    np.testing.assert_allclose(fitted.taken(fresh), taken, rtol=1e-4)
    embedding = fitted.embedding
    assert embedding.table.shape == (6, 8)
    assert not embedding.common
    assert embedding.varying is None
    np.testing.assert_array_equal(embedding.counts, np.bincount(rows_of(log).action))
    at_mean = op.Log(np.tile(rows_of(log).context.mean(axis=0), (6, 1)), np.arange(6), np.zeros(6), n_actions=6)
    np.testing.assert_allclose(embedding.reward, fitted.taken(rows_of(at_mean)), rtol=1e-4)


def test_training_stops_when_nothing_is_to_be_learnt() -> None:
    rng = np.random.default_rng(0)
    x, action, reward = rng.normal(size=(200, 4)), rng.integers(0, 20, 200), rng.normal(size=200)
    log = op.Log(x, action, reward, n_actions=20)
    how = {"learning_rate": 1e-2, "epochs": 150, "batch": 50}
    stopped, by_heart = fit(Torch(two_layer(), patience=3, **how), log), fit(Torch(two_layer(), patience=None, **how), log)
    assert "epochs" not in stopped.diagnostics(0)
    seen = [r2(fits.on_all(0).taken(rows_of(log)), reward) for fits in (stopped, by_heart)]
    assert seen[0] < 0.4 < 0.8 < seen[1]
    assert stopped.diagnostics(0)["epochs"] < 100
    assert by_heart.diagnostics(0) == {"fitted_rows": 200, "log_rows": 200, "epochs": 150}


def test_the_best_epoch_is_kept() -> None:
    """A step that is far too long makes later epochs worse than the first: its weights must come back."""

    class Falling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.level = torch.nn.Parameter(torch.zeros(()))

        def embed(self, action: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
            return action[:, None].float()

        def forward(self, context: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
            return self.level.expand(len(embedding)) + 100 * (self.level.detach() - 0.5)

    log = linear_log()
    how = {"learning_rate": 0.5, "weight_decay": 0.0, "batch": 1_000}
    level = {n: fit(Torch(lambda *_: Falling(), epochs=n, patience=20, **how), log).on_all(0).net.level for n in (1, 15)}
    assert level[1] == level[15] == pytest.approx(0.5, abs=1e-5)


def test_a_seed_gives_one_fit_and_the_random_numbers_of_others_stay() -> None:
    log = linear_log()
    batch = rows_of(log)

    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e, self.q = torch.nn.Embedding(N_ACTIONS, 3), torch.nn.Linear(5, 1)

        def embed(self, action: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(self.e(action), 0.3, self.training)

        def forward(self, context: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
            return self.q(torch.cat([context, embedding], 1)).squeeze(1)

    for model in (
        lambda s: Torch(lambda *_: Dropping(), epochs=3, patience=None, seed=s),
        lambda s: AdamW(0.01, epochs=3, seed=s),
    ):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = fit(model(0), log).on_all(0).all(batch)
        assert torch.equal(before, torch.get_rng_state())
        torch.manual_seed(2)
        np.testing.assert_array_equal(fit(model(0), log).on_all(0).all(batch), first)
        assert np.abs(fit(model(1), log).on_all(0).all(batch) - first).max() > 1e-3


def test_the_order_of_the_log_does_not_matter() -> None:
    """Nor where rows of one unit have the same action and reward."""
    rng = np.random.default_rng(0)
    x, action, reward, unit = (
        rng.normal(size=(60, 2)),
        rng.integers(0, 2, 60),
        rng.integers(0, 2, 60) * 1.0,
        np.arange(60) // 15,
    )
    values = []
    for order in (np.arange(60), rng.permutation(60)):
        log = op.Log(x[order], action[order], reward[order], n_actions=2, cluster=unit[order])
        values.append(fit(AdamW(0.01, epochs=3, batch=7), log).on_all(0).coef)
    np.testing.assert_array_equal(values[0], values[1])


@pytest.mark.parametrize("inputs", ["features", "both"])
@pytest.mark.parametrize("per_round", [False, True])
def test_features(inputs: str, per_round: bool) -> None:
    log, fresh = featured_log(2_000, per_round=per_round), rows_of(featured_log(500, per_round=per_round, seed=1))
    fitted = fit(Torch(two_layer(), learning_rate=1e-2, epochs=30), log, inputs).on_all(0)
    assert r2(fitted.taken(fresh), fresh.reward[:, 0]) > 0.8
    embedding = fitted.embedding
    assert embedding.table.shape == (N_ACTIONS, 8)
    if not per_round:
        assert embedding.varying is None
        return
    assert embedding.varying.rows(fresh).shape == (500, 8)
    blind = fitted.all(fresh)[np.arange(500), fresh.action]  # at mean features: it cannot know what the round showed
    assert r2(blind, fresh.reward[:, 0]) < 0.6


@pytest.mark.parametrize("inputs", ["features", "both"])
def test_features_of_the_round_that_never_vary_are_a_catalog(inputs: str) -> None:
    log, same = featured_log(200, per_round=False), featured_log(200, per_round=True, same=True)
    batch = rows_of(same)
    a, b = (fit(Torch(two_layer(), epochs=3), one, inputs).on_all(0) for one in (log, same))
    np.testing.assert_allclose(a.taken(rows_of(log)), b.taken(batch), atol=1e-5)
    np.testing.assert_allclose(b.embedding.varying.rows(batch), a.embedding.table[batch.action], atol=1e-5)
    np.testing.assert_allclose(a.embedding.table[:-1], b.embedding.table[:-1], atol=1e-5)


def test_with_features_alone_the_identity_does_not_matter() -> None:
    log = featured_log(500, per_round=False)
    batch = rows_of(log)
    twins = op.Log(
        batch.context, batch.action, batch.reward, n_actions=N_ACTIONS, catalog=log.schema.catalog[[0, 1, 2, 2, 1]]
    )
    for model in (Torch(two_layer(), epochs=3), AdamW(0.01, epochs=3)):
        table = fit(model, twins, "features").on_all(0).embedding.table
        np.testing.assert_array_equal(table[[1, 2]], table[[4, 3]])
        table = fit(model, twins, "both").on_all(0).embedding.table
        assert np.abs(table[1] - table[4]).max() > 1e-3


def test_an_action_never_logged_is_what_its_features_say() -> None:
    log = featured_log(2_000, per_round=False)
    fitted = fit(AdamW(0.05, epochs=500, **EXACT), log, "features").on_all(0)
    expected = log.schema.catalog @ [1.0, -2.0]
    np.testing.assert_allclose(fitted.embedding.table[:, 0], expected, atol=0.05)


@pytest.mark.parametrize("model", [AdamW(0.01, epochs=3), Torch(two_layer(), epochs=3)])
def test_without_a_fold_its_rows_are_not_seen(model: RewardModel) -> None:
    log = linear_log()
    batch = rows_of(log)
    fold = shape_of(log).group(batch) * 5 // 20 == 2
    spoilt = op.Log(batch.context, batch.action, np.where(fold, 1e3, batch.reward[:, 0]), n_actions=N_ACTIONS)
    one, other = fit(model, log), fit(model, spoilt)
    np.testing.assert_array_equal(one.without_fold(0, 2, 5).all(batch), other.without_fold(0, 2, 5).all(batch))
    assert np.abs(one.without_fold(0, 1, 5).all(batch) - other.without_fold(0, 1, 5).all(batch)).max() > 1e-6
    assert one.without_fold(0, 2, 5) is one.without_fold(0, 2, 5)
    assert one.without_group(0, 0) is None


class Wrong(torch.nn.Module):
    def __init__(self, e: object = None, q: object = None) -> None:
        super().__init__()
        self.e, self.q = e, q
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def embed(self, action: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return self.e(action) if self.e else self.weight.expand(len(action), 3)

    def forward(self, context: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        return self.q(embedding) if self.q else embedding.sum(dim=1)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: Wrong(e=lambda a: a * 1.0), r"embed returned shape \(256,\) for 256 rows; it must return shape \(256, k\)"),
        (lambda: Wrong(e=lambda a: torch.zeros(3, 2)), r"embed returned shape \(3, 2\)"),
        (lambda: Wrong(e=lambda a: torch.zeros(len(a), 0)), r"embed returned shape \(256, 0\)"),
        (
            lambda: Wrong(q=lambda e: e[:, :1]),
            r"forward returned shape \(256, 1\) for 256 rows; it must return shape \(256,\)",
        ),
        (lambda: Wrong(q=lambda e: [1.0]), "forward returned a list"),
        (
            lambda: torch.nn.Linear(2, 1),
            r"module returned a Linear; it must return a torch.nn.Module with the methods embed",
        ),
        (lambda: "network", "module returned a str"),
        (lambda: Wrong().requires_grad_(False), "no parameters to train"),
    ],
)
def test_modules_of_the_wrong_shape(module: object, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        fit(Torch(lambda *_: module(), patience=None), linear_log()).on_all(0)


@pytest.mark.parametrize("model", [Torch(two_layer(), learning_rate=1e25), AdamW(1e25)])
def test_a_loss_that_is_nan(model: RewardModel) -> None:
    with pytest.raises(op.InputError, match="became NaN or infinite in epoch 1. .*learning_rate is 1e\\+25, try 1e\\+24"):
        fit(model, linear_log()).on_all(0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("epochs", 0),
        ("batch", 0),
        ("patience", 0),
        ("holdout", 1.0),
        ("weight_decay", -1.0),
        ("rows", 0),
    ],
)
def test_settings_that_make_no_sense(setting: str, value: float) -> None:
    with pytest.raises(op.InputError, match=f"Torch: {setting} is {value}"):
        Torch(two_layer(), **{setting: value})
    if setting not in ("patience", "holdout"):
        with pytest.raises(op.InputError, match=f"AdamW: {setting} is {value}"):
            AdamW(**{setting: value})


def test_a_module_that_is_no_function_and_a_device_that_is_not_there() -> None:
    with pytest.raises(op.InputError, match="module is a Embedding; give a function"):
        Torch(type("Embedding", (), {})())
    with pytest.raises(op.InputError, match="device is 'nowhere', which cannot be used here"):
        fit(AdamW(device="nowhere"), linear_log()).on_all(0)


def test_blocks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = featured_log(300, per_round=True)
    batch = rows_of(log)
    fitted = fit(Torch(two_layer(), epochs=2), log, "both").on_all(0)
    whole, taken, e = fitted.all(batch), fitted.taken(batch), fitted.embedding.varying.rows(batch)
    monkeypatch.setattr(training, "PAIRS", 64)
    monkeypatch.setattr(sample, "PAIRS", 64)
    with ThreadPoolExecutor(4) as pool:
        for again in pool.map(fitted.all, [batch] * 8):
            np.testing.assert_allclose(again, whole, atol=1e-5)
    np.testing.assert_allclose(fitted.taken(batch), taken, atol=1e-5)
    np.testing.assert_allclose(fitted.embedding.varying.rows(batch), e, atol=1e-5)
    assert fitted.taken(batch.take(slice(0, 0))).shape == (0,)


def test_in_an_evaluation() -> None:
    w = make_small(n=300)
    models = [AdamW(0.01, epochs=5), Torch(two_layer(), epochs=5)]
    result = op.evaluate(w.log(), w.target, [*(op.DM(m, name=type(m).__name__) for m in models), op.DR(models[0])])
    for model in models:
        q = fit(model, w.log()).on_all(0).all(rows_of(w.log()))
        assert result[type(model).__name__].value == pytest.approx((w.target * q).sum(axis=1).mean(), rel=1e-6)
    assert result["DR"].diagnostics["reward_model"]["epochs"] == 5


def test_the_experiment_on_reward_models() -> None:
    """`reproduce models` at a tiny size: everything that is trained with PyTorch gives a number."""
    experiment = load("models", Size(quick=True))
    point = replace(experiment.points[0], rounds=300, settings={**experiment.points[0].settings, "n_actions": 8})
    trained = tuple(entry for entry in experiment.entries if "rewards=" in entry.text)
    rows = run_task(replace(experiment, points=(point,), entries=trained, claims=()), (0, 0, 0))
    assert len(rows) == len(trained) == 5
    assert not [row["failure"] for row in rows if row["failure"]]


def test_a_network_is_the_default_of_torch() -> None:
    log = make_small().log()
    assert np.isfinite(op.evaluate(log, op.Uniform(), [op.DM(op.Torch(epochs=2))])["DM"].value)
