"""Saved reward models come back as they were, and follow the labels of other logs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import offpolicy as op
from offpolicy.core import storage
from tests.logs import LABELS, Small, labelled

MODELS = [
    (op.Ridge(), {}), (op.Ridge(penalty=2.0, rank=1, intercept=False), {}), (op.Ridge(), {"action_features": True}),
    (op.AdamW(epochs=1), {}), (op.Torch(op.two_layer(3, 5), epochs=1), {}),
    (op.Torch(op.two_layer(3, 5), epochs=1), {"action_features": True}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "more"), MODELS)
def test_a_reward_model_comes_back(both: tuple[Small, Small], tmp_path: Path, model: Any, more: dict[str, Any]) -> None:
    if not isinstance(model, op.Ridge):
        pytest.importorskip("torch")
    old, new = (labelled(w, logging=w.logging, **({"action_features": w.features} if more else {})) for w in both)
    fit = op.fit_rewards(old, model, progress=False)
    fit.save(tmp_path / "q.safetensors")
    again = op.load_rewards(tmp_path / "q.safetensors")
    assert repr(again) == repr(fit)
    results = [
        op.evaluate(new, both[1].target, [op.DM(q), op.DR(q), op.LearnedMIPS(rewards=q), op.OffCEM(2, q)])
        for q in (fit, again)
    ]
    for a, b in zip(*results, strict=True):
        assert a.value == b.value
        assert a.std_error == b.std_error


def test_a_fitted_model_gives_what_its_predictions_give(both: tuple[Small, Small]) -> None:
    """DM by hand: the mean over rounds of Σ_a π(a|x) q(x, a), with q from least squares an action on the other log."""
    old, new = both
    q = op.fit_rewards(labelled(old), op.Ridge(penalty=0))
    design = np.column_stack([old.context, np.ones(len(old.action))])
    coef = np.array([
        np.linalg.lstsq(design[old.action == a], old.reward[old.action == a], rcond=None)[0] for a in range(4)
    ])  # fmt: skip
    predicted = np.column_stack([new.context, np.ones(len(new.action))]) @ coef.T
    result = op.evaluate(labelled(new), new.target, [op.DM(q), op.DR(q)])
    assert result["DM"].value == pytest.approx((new.target * predicted).sum(axis=1).mean(), rel=1e-9)
    given = op.evaluate(labelled(new), new.target, [op.DR(op.Given(predicted))])["DR"]
    assert result["DR"].value == pytest.approx(given.value, rel=1e-9)
    assert result["DR"].std_error == pytest.approx(given.std_error, rel=1e-9)
    assert "fit not covered" in [reason.code for reason in result["DM"].reasons]
    assert "fit not covered" not in [reason.code for reason in result["DR"].reasons]
    told = result["DM"].diagnostics["reward_model"]
    left = new.reward - predicted[np.arange(len(new.action)), new.action]
    assert told["fitted_before"] == 500
    assert told["r2"] == pytest.approx(1 - (left @ left) / ((new.reward - new.reward.mean()) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("model", [op.Ridge(), op.Torch(op.two_layer(2, 4), epochs=1)])
def test_a_model_follows_the_labels_of_another_log(both: tuple[Small, Small], model: Any) -> None:
    if isinstance(model, op.Torch):
        pytest.importorskip("torch")
    old, new = both
    q = op.fit_rewards(labelled(old), model, progress=False)
    usual = op.evaluate(labelled(new), new.target, [op.DR(q)])["DR"].value
    turned = op.Log(new.context, LABELS[new.action], new.reward, propensity=new.propensity, actions=LABELS[::-1].tolist())
    assert op.evaluate(turned, new.target[:, ::-1], [op.DR(q)])["DR"].value == pytest.approx(usual, rel=1e-6)


def test_a_log_that_does_not_suit_a_model_is_told_why(both: tuple[Small, Small]) -> None:
    old, new = both
    q = op.fit_rewards(labelled(old))

    def refused(log: op.Log, message: str, model: Any = q) -> None:
        with pytest.raises(op.InputError, match=message):
            op.evaluate(log, op.Uniform(), [op.DR(model)])

    names = np.array(["ash", "birch", "cedar", "yew"])[new.action]
    refused(op.Log(new.context, names, new.reward, propensity=new.propensity), "does not include 1 of the 4 actions.*'yew'")
    refused(
        new.log(logging=None), "does not include 4 of the 4 actions of the log: 0, 1, 2, …. .It includes 4, such as 'ash'"
    )
    refused(op.Log(new.context[:, :1], LABELS[new.action], new.reward, propensity=new.propensity), "context x0, x1.*has x0")
    two = np.column_stack([new.reward, new.reward])
    refused(op.Log(new.context, LABELS[new.action], two, propensity=new.propensity), "predicts reward, .* 'reward_0'")
    featured = op.fit_rewards(labelled(old, action_features=old.features))
    refused(labelled(new), "features e0, e1, and the log has .none.", featured)


def test_models_that_are_code_are_not_saved(both: tuple[Small, Small], tmp_path: Path) -> None:
    log = labelled(both[0])
    tree = op.fit_rewards(log, DecisionTreeRegressor(max_depth=2))
    assert op.evaluate(labelled(both[1]), both[1].target, [op.DR(tree)])["DR"].n == 400  # it can be used
    with pytest.raises(op.InputError, match=r"Regressor.*cannot be saved.*only pickle could write.*op.Given"):
        tree.save(tmp_path / "q.safetensors")
    turned = labelled(both[1], actions=LABELS[::-1].tolist())
    with pytest.raises(op.InputError, match="the same actions in the same order"):
        op.evaluate(turned, op.Uniform(), [op.DR(tree)])
    with pytest.raises(op.InputError, match="must end in .safetensors"):
        op.fit_rewards(log).save(tmp_path / "q.pt")
    assert not list(tmp_path.iterdir())


def test_a_network_of_ones_own_is_not_saved(both: tuple[Small, Small], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    own = op.fit_rewards(labelled(both[0]), op.Torch(lambda *sizes: op.two_layer(2, 3)(*sizes), epochs=1), progress=False)
    with pytest.raises(op.InputError, match="its module is your own code, and files hold only numbers"):
        own.save(tmp_path / "q.safetensors")


def rewritten(path: Path, arrays: Callable[[dict[str, Any]], dict[str, Any]], **metadata: str) -> None:
    """The file edited by someone who knows how to compute a checksum."""
    found, told = storage.read_arrays(path)
    storage.write_arrays(path, arrays(found), {**told, **metadata})


def about(**other: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        _, told = storage.read_arrays(path)
        rewritten(path, dict, about=json.dumps({**json.loads(told["about"]), **other}))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: rewritten(p, dict, version="9"), "by a newer release of offpolicy, in version 9"),
        (lambda p: rewritten(p, dict, version="x"), "its version is 'x'"),
        (lambda p: rewritten(p, dict, version="9" * 5_000), "its version is '9{39}\\."),
        (about(rounds=math.inf), "Infinity is not valid JSON"),
        (
            lambda p: rewritten(
                p, dict, about=storage.read_arrays(p)[1]["about"].replace('"rounds": 500', '"rounds": 1e999')
            ),
            "1e999",
        ),
        (lambda p: rewritten(p, dict, format="other"), "is not a saved rewards"),
        (lambda p: rewritten(p, dict, about="[]"), "its parts do not fit together"),
        (lambda p: rewritten(p, lambda a: {**a, "0.coef": a["0.coef"] * np.nan}), "'0.coef' contains NaN"),
        (
            lambda p: rewritten(p, lambda a: {**a, "0.coef": a["0.coef"][1:]}),
            r"'coef' has shape \(3, 3\) instead of \(4, 3\)",
        ),
        (lambda p: rewritten(p, lambda a: {**a, "0.own": a["0.coef"]}), "do not fit together"),
        (lambda p: rewritten(p, lambda a: {k: v for k, v in a.items() if k != "0.centre"}), "'centre' is missing"),
        (lambda p: rewritten(p, lambda a: {**a, "0.extra": a["0.coef"]}), "'extra' is unknown"),
        (lambda p: rewritten(p, lambda a: {k: v for k, v in a.items() if k != "actions"}), "do not fit together"),
        (about(kinds=[{"kind": "os:system", "settings": {}}]), "do not fit together"),
        (about(inputs="all"), "inputs is 'all'"),
        (about(rewards=["a", "b"]), "do not fit together"),
    ],
)
def test_a_reward_model_whose_parts_do_not_fit_is_refused(
    both: tuple[Small, Small], tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "q.safetensors"
    op.fit_rewards(labelled(both[0])).save(path)
    change(path)
    with pytest.raises(op.InputError, match=message):
        op.load_rewards(path)
