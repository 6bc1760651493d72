"""`Deterministic`: what its function may return, and where it can stand."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import offpolicy as op

X = np.linspace(0, 1, 6)


def log(**more: Any) -> op.Log:
    given: dict[str, Any] = {"propensity": np.ones(6), **more}
    return op.Log(X, X[::-1], X, actions=op.Box(0, 1), **given)


def half(x: np.ndarray) -> np.ndarray:
    return x[:, 0] / 2


def half_of_column(columns: dict[str, np.ndarray]) -> np.ndarray:
    return columns["x0"] / 2


@pytest.mark.parametrize("policy", [op.Deterministic(half), op.Deterministic(half_of_column, columns=["x0"])])
def test_it_takes_one_action_per_round_and_pickles(policy: op.Deterministic) -> None:
    batch = log().head(6, policy.columns)
    for each in (policy, pickle.loads(pickle.dumps(policy))):
        np.testing.assert_array_equal(each.actions(batch), X / 2)


def test_whole_numbers_are_actions() -> None:
    assert op.Deterministic(lambda x: np.ones(len(x), int)).actions(log().head()).dtype == np.float64


def outside(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 0] > 0.5, 1.5, 0.5)


def missing(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 0] > 0.9, np.nan, 0.5)


@pytest.mark.parametrize(("function", "said"), [
    (outside, r"3 rows have an action outside 0..1 \(1.5\) \(first, counted from 0: 3, 4, 5\)\. .*np\.clip"),
    (missing, r"1 row has an action outside 0..1 \(nan\) \(first, counted from 0: 5\)\. .*np\.clip"),
    (lambda x: x, r"the function returned shape \(6, 1\) for 6 rounds; return one action per round\."),
    (lambda x: 0.5, r"the function returned shape \(\) for 6 rounds; return one action per round\."),
    (lambda x: ["a"] * len(x), "the function returned a list, which is not an array of numbers"),
    (lambda x: 1 / 0, "the function raised ZeroDivisionError"),
])  # fmt: skip
def test_wrong_actions_are_named(function: Callable[[Any], Any], said: str) -> None:
    for estimator in (op.LoggedMean(), op.KernelIPS(0.1)):
        with pytest.raises(op.InputError, match=f"^Deterministic: {said}"):
            op.evaluate(log(), op.Deterministic(function), [estimator])


def test_every_wrong_row_is_counted() -> None:
    n = 200_000
    x = np.arange(n) / n
    many = op.Log(x, x, x, propensity=np.ones(n), actions=op.Box(0, 1))
    with pytest.raises(op.InputError, match=r"^Deterministic: 99,999 rows have .* \(first, counted from 0: 100001, "):
        op.evaluate(many, op.Deterministic(outside), [op.KernelIPS(0.1)])


def test_names_of_columns_are_checked() -> None:
    with pytest.raises(op.InputError, match="^Deterministic: columns is 'x0'"):
        op.Deterministic(half_of_column, columns="x0")
    with pytest.raises(op.InputError, match="x7"):
        op.evaluate(log(), op.Deterministic(half_of_column, columns=["x7"]), [op.KernelIPS(0.1)])


def test_it_has_no_density() -> None:
    said = "^Deterministic takes one action per round and has no density, which logging policies and the parts of a mixture"
    with pytest.raises(op.InputError, match=said):
        op.evaluate(log(propensity=None, logging=op.Deterministic(half)), op.Deterministic(half), [op.KernelIPS(0.1)])
    with pytest.raises(op.InputError, match=said):
        op.evaluate(log(), op.Mixture([op.Deterministic(half)] * 2, [0.5, 0.5]), [op.LoggedMean()])


def labelled(rounds: int = 60, **more: Any) -> op.Log:
    """Actions "a", "b" and "c", in turn; the column `best` is "b" where x is above a half."""
    x = np.arange(rounds) / rounds
    frame = pd.DataFrame({"x": x, "action": np.tile(["a", "b", "c"], rounds // 3), "p": 1 / 3, "reward": x})
    frame["reward"] *= frame["action"].map("abc".index) + 1
    frame["best"] = np.where(x > 0.5, "b", "a")
    frame["code"] = np.where(x > 0.5, 1.0, 0.0)
    frame["odd"] = np.where(x > 0.9, None, "a")
    names = {"context": ["x"], "action": "action", "reward": "reward", **more}
    return op.read_log(frame, **({"propensity": "p"} if "logging" not in more else {}), **names)


def best(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 0] > 0.5, "b", "a")


@pytest.mark.parametrize("policy", [
    op.Deterministic("best"),
    op.Deterministic(best),
    op.Deterministic(lambda x: best(x).tolist()),
    op.Deterministic(lambda columns: columns["best"], columns=["best"]),
])  # fmt: skip
def test_one_label_per_round_has_probability_1(policy: op.Deterministic) -> None:
    log = labelled(logging=op.Uniform())
    one_hot = np.eye(3)[(np.arange(60) / 60 > 0.5).astype(int)]
    estimators = [op.IPS(), op.DR(), op.LearnedMIPS(), op.Auto()]
    results = [op.evaluate(log, target, estimators) for target in (policy, one_hot)]
    for name in ("IPS", "DR", "LearnedMIPS", "Auto"):
        assert results[0][name].value == pytest.approx(results[1][name].value, rel=1e-9)
    np.testing.assert_array_equal(policy.probabilities(log.head(60, policy.columns)), one_hot)
    mixed = op.evaluate(log, op.Mixture([policy, op.Uniform()], [0.5, 0.5]), [op.IPS()])["IPS"].value
    assert mixed == pytest.approx((results[1]["IPS"].value + log.head(60).reward.mean()) / 2)


def test_integer_actions_may_be_stored_as_floats() -> None:
    x = np.arange(6) / 6
    log = op.Log(x, [0, 1, 2, 0, 1, 2], x, propensity=np.full(6, 1 / 3))
    target = op.Deterministic(lambda x: (x[:, 0] > 0.5) * 1.0)
    assert op.evaluate(log, target, [op.IPS()])["IPS"].value == pytest.approx((0 + 3 / 6 + 4 / 6) / 2)


@pytest.mark.parametrize(("policy", "message"), [
    (op.Deterministic("odd"), r"^Deterministic: 5 rows have an action that is not among the 3 known \(None\).*column 'odd'"),
    (op.Deterministic(lambda x: (x[:, 0] > 0.5).astype(int)), r"not among the 3 known \(0\).*log\.actions\[codes\]"),
    (op.Deterministic(lambda x: np.full((len(x), 2), "a")), "return one action per round"),
    (op.Deterministic("besst"), "there is no column 'besst'. Did you mean 'best'"),
])  # fmt: skip
def test_wrong_labels_are_named(policy: op.Deterministic, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.evaluate(labelled(), policy, [op.IPS()])


def test_a_column_of_numbers_is_an_action_of_a_box() -> None:
    frame = pd.DataFrame({"dose": X[::-1], "reward": X, "density": 1.0, "new": X / 2})
    doses = op.read_log(frame, context=[], action="dose", reward="reward", propensity="density", actions=op.Box(0, 1))
    value = op.evaluate(doses, op.Deterministic("new"), [op.KernelIPS(0.4)])["KernelIPS"].value
    assert value == pytest.approx(op.evaluate(log(), op.Deterministic(half), [op.KernelIPS(0.4)])["KernelIPS"].value)


def test_what_is_neither_a_function_nor_a_column_is_refused() -> None:
    with pytest.raises(op.InputError, match="^Deterministic: 5 is neither a function"):
        op.Deterministic(5)
    with pytest.raises(op.InputError, match="`columns` are for a function"):
        op.Deterministic("best", columns=["x"])
