"""`Deterministic`: what its function may return, and where it can stand."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from tests.logs import Small

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
    for estimator in (op.LoggedMean(), op.KernelIPS()):
        with pytest.raises(op.InputError, match=f"^Deterministic: {said}"):
            op.evaluate(log(), op.Deterministic(function), [estimator])


def test_every_wrong_row_is_counted() -> None:
    n = 200_000
    x = np.arange(n) / n
    many = op.Log(x, x, x, propensity=np.ones(n), actions=op.Box(0, 1))
    with pytest.raises(op.InputError, match=r"^Deterministic: 99,999 rows have .* \(first, counted from 0: 100001, "):
        op.evaluate(many, op.Deterministic(outside), [op.KernelIPS()])


def test_names_of_columns_are_checked() -> None:
    with pytest.raises(op.InputError, match="^Deterministic: columns is 'x0'"):
        op.Deterministic(half_of_column, columns="x0")
    with pytest.raises(op.InputError, match="x7"):
        op.evaluate(log(), op.Deterministic(half_of_column, columns=["x7"]), [op.KernelIPS()])


def test_it_has_no_density() -> None:
    said = "^Deterministic takes one action per round and has no density, which logging policies and the parts of a mixture"
    with pytest.raises(op.InputError, match=said):
        op.evaluate(log(propensity=None, logging=op.Deterministic(half)), op.Deterministic(half), [op.KernelIPS()])
    with pytest.raises(op.InputError, match=said):
        op.evaluate(log(), op.Mixture([op.Deterministic(half)] * 2, [0.5, 0.5]), [op.LoggedMean()])


def test_it_is_refused_on_discrete_actions(small: Small) -> None:
    said = "^Deterministic is a policy over numbers from an interval, and the actions here are discrete; use a policy over"
    with pytest.raises(op.InputError, match=said):
        op.evaluate(small.log(), op.Deterministic(half), [op.LoggedMean()])
