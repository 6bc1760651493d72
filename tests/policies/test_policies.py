"""Policies: the same answer for all actions and for some, and clear words for what is wrong."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.core.describe import described
from offpolicy.policies.conversion import as_policy
from tests.logs import Small

W = np.random.default_rng(3).normal(size=(2, 4))


def lists(small: Small) -> op.Candidates:
    """Candidates in an order of their own, with those of chance 0 left out."""
    actions, chances = [], []
    for row in small.target:
        order = np.argsort(row)
        actions.append(order.tolist())
        chances.append(row[order].tolist())
    return op.Candidates(actions, chances)


POLICIES = {
    "uniform": lambda s: op.Uniform(),
    "fixed": lambda s: op.Fixed([0.1, 0.2, 0.3, 0.4]),
    "table": lambda s: op.Table(s.target),
    "function": lambda s: as_policy(lambda x: np.full((len(x), 4), 0.25)),
    "softmax": lambda s: op.Softmax(lambda x: x @ W, temperature=0.5),
    "greedy": lambda s: op.EpsilonGreedy(lambda x: x @ W, epsilon=0.1),
    "candidates": lists,
    "mixture": lambda s: op.Mixture([op.Uniform(), op.Softmax(lambda x: x @ W)], [0.3, 0.7]),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_some_agrees_with_all(small: Small, kind: str) -> None:
    policy = POLICIES[kind](small)
    batch = next(iter(small.log().partitions()[0].batches(50)))
    every = policy.probabilities(batch)
    assert every.shape == (50, 4)
    np.testing.assert_allclose(every.sum(axis=1), 1)
    np.testing.assert_allclose(policy.probabilities(batch, batch.action), every[np.arange(50), batch.action])
    some = np.array([[0, 3]] * 50)
    np.testing.assert_allclose(policy.probabilities(batch, some), every[:, [0, 3]])
    loose, divide = policy.proportional(batch)
    np.testing.assert_allclose(loose / loose.sum(axis=1, keepdims=True) if divide else loose, every)
    part = batch.take(np.array([7, 3, 3]))
    np.testing.assert_allclose(policy.probabilities(part), every[[7, 3, 3]])


def score(x: np.ndarray) -> np.ndarray:
    return x @ W


def score_of_columns(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.column_stack([columns["x0"], columns["x1"]]) @ W


def quarters(x: np.ndarray) -> np.ndarray:
    return np.full((len(x), 4), 0.25)


PICKLED = {
    **{name: POLICIES[name] for name in ("uniform", "fixed", "table", "candidates")},
    "by label": lambda s: op.Fixed({0: 0.5, 3: 0.5}),
    "function": lambda s: as_policy(quarters),
    "named": lambda s: op.Softmax(score_of_columns, columns=["x0", "x1"]),
    "softmax": lambda s: op.Softmax(score, temperature=0.5),
    "greedy": lambda s: op.EpsilonGreedy(score, epsilon=0.1),
    "towers": lambda s: op.Softmax(op.TwoTower(W.T, bias=np.arange(4.0))),
    "mixture": lambda s: op.Mixture([op.Uniform(), op.Softmax(score), quarters], [0.3, 0.5, 0.2]),
    "column": lambda s: op.Column(s.target[np.arange(len(s.action)), s.action]),
}


@pytest.mark.parametrize("kind", PICKLED)
def test_a_policy_pickles_where_its_function_does(small: Small, kind: str) -> None:
    policy = PICKLED[kind](small)
    batch = small.log().head(50, policy.columns)
    expected = policy.probabilities(batch, batch.action)
    again = pickle.loads(pickle.dumps(policy))
    assert described(again) == described(policy)
    np.testing.assert_array_equal(again.probabilities(batch, batch.action), expected)


@pytest.mark.parametrize("policy", [op.Columns("p_*"), op.Candidates("items", "p"), op.Column("p")])
def test_policies_of_columns_pickle(policy: op.Policy) -> None:
    again = pickle.loads(pickle.dumps(policy))
    assert (again.columns, repr(again)) == (policy.columns, repr(policy))


def test_softmax_by_hand() -> None:
    log = op.Log([[0.0], [1.0]], [0, 1], [0, 1], propensity=[0.5, 0.5])
    batch = next(iter(log.partitions()[0].batches(2)))
    p = op.Softmax(lambda x: np.hstack([x, 0 * x]), temperature=0.5).probabilities(batch)
    np.testing.assert_allclose(p, [[0.5, 0.5], [np.exp(2) / (np.exp(2) + 1), 1 / (np.exp(2) + 1)]])


def test_softmax_does_not_change_the_users_scores(small: Small) -> None:
    scores = small.context @ W
    kept = scores.copy()
    op.evaluate(small.log(), op.Softmax(lambda x: scores[: len(x)]), [op.SNIPS()], engine=op.Local(threads=1))
    np.testing.assert_array_equal(scores, kept)


def test_softmax_of_huge_scores(small: Small) -> None:
    batch = next(iter(small.log().partitions()[0].batches(50)))
    p = op.Softmax(lambda x: 1e4 * (x @ W)).probabilities(batch)
    assert np.isfinite(p).all()


def test_column_is_enough_for_the_ips_family(small: Small) -> None:
    column = small.target[np.arange(len(small.action)), small.action]
    a = op.evaluate(small.log(), op.Column(column))
    b = op.evaluate(small.log(), small.target)
    assert a["SNIPS"].value == pytest.approx(b["SNIPS"].value, rel=1e-12)
    assert "probability of every action" in a.skipped["DR"]
    with pytest.raises(op.InputError, match="DR cannot be computed: it needs the new policy's probability of every action"):
        op.evaluate(small.log(), op.Column(column), [op.DR()])


def test_fixed_by_label() -> None:
    log = op.Log(None, ["b", "a", "c", "a"], [0, 1, 1, 0], propensity=[0.5] * 4)
    batch = next(iter(log.partitions()[0].batches(4)))
    np.testing.assert_allclose(op.Fixed({"c": 0.75, "a": 0.25}).probabilities(batch)[0], [0.25, 0, 0.75])


def test_candidates_with_labels_from_a_table() -> None:
    table = pa.table(
        {
            "item": ["b", "a"],
            "click": [1.0, 0.0],
            "p": [0.5, 0.5],
            "shown": [["b", "c"], ["a"]],
            "new": [[0.25, 0.75], [1.0]],
        }
    )
    log = op.read_log(table, context=[], action="item", reward="click", propensity="p", actions=["a", "b", "c"])
    assert op.evaluate(log, ("shown", "new"), [op.IPS()])["IPS"].value == pytest.approx(0.25)


def test_duplicated_candidates_add_up() -> None:
    log = op.Log(None, [0, 1], [1.0, 1.0], propensity=[0.5, 0.5])
    policy = op.Candidates([[0, 0, 1], [1, 0]], [[0.2, 0.3, 0.5], [0.5, 0.5]])
    assert op.evaluate(log, policy, [op.IPS()])["IPS"].value == pytest.approx(1.0)


def test_column_answers_for_logged_actions_alone(small: Small) -> None:
    column = small.target[np.arange(len(small.action)), small.action]
    batch = small.log().head(50)
    policy = op.Mixture([op.Column(column), op.Uniform()], [0.5, 0.5])
    np.testing.assert_allclose(policy.probabilities(batch, batch.action.copy()), 0.5 * column[:50] + 0.125)
    with pytest.raises(op.InputError, match="the logged actions only"):
        policy.probabilities(batch, (batch.action + 1) % 4)
    with pytest.raises(op.InputError, match="the logged actions only"):
        policy.probabilities(batch)


def test_the_former_name_of_distribution_is_refused() -> None:
    with pytest.raises(op.InputError, match="^Old overrides `_all`, .* rename it to `distribution`.$"):
        type("Old", (op.Policy,), {"_all": lambda self, batch: np.ones((len(batch), 1))})


def test_towers_alone_are_no_policy() -> None:
    with pytest.raises(op.InputError, match=r"write op.Softmax\(op.TwoTower"):
        as_policy(op.TwoTower(np.eye(3)))
