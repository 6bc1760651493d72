"""Logged propensities: right ones pass, and wrong ones are found and told in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core.arrays import FloatArray
from offpolicy.core.hashing import buckets
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.cells import ActionCells
from offpolicy.diagnostics.propensities import PropensityTests
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.worlds import Linear

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def scored(batch: Batch) -> ScoredBlock:
    """What the tests read of a scored batch: its buckets and propensities."""
    nothing = np.empty(0)
    return ScoredBlock(nothing, buckets(batch.unit, 0), nothing, batch.propensity, (), {}, nothing, ())


def drawn(p: FloatArray, rng: np.random.Generator) -> Any:
    return (p.cumsum(axis=1) > rng.random(len(p))[:, None]).argmax(axis=1)


def softmax(scores: FloatArray) -> FloatArray:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def without_propensities(log: op.Log, **settings: Any) -> op.Log:
    b = log.source.whole  # type: ignore[attr-defined]
    return op.Log(b.context, b.action, b.reward, n_actions=log.n_actions, logging=op.EstimatedLogging(**settings))


def whole_of(log: op.Log) -> Batch:
    return next(iter(log.batches(10**6)))


def policies(kind: str, x: FloatArray, n_actions: int) -> FloatArray:
    scores = x @ np.random.default_rng(n_actions).normal(size=(x.shape[1], n_actions))
    if kind == "uniform":
        return np.full(scores.shape, 1 / n_actions)
    if kind == "greedy":
        return 0.05 / n_actions + 0.95 * (scores == scores.max(axis=1, keepdims=True))
    return softmax(scores * {"soft": 0.5, "sharp": 2.0}[kind])


def misfits(x: FloatArray, action: Any, own: FloatArray, whole: FloatArray | None, cluster: Any = None) -> list[Any]:
    n_actions = 5
    log = op.Log(x, action, np.zeros(len(x)), propensity=own, n_actions=n_actions, cluster=cluster)
    test = PropensityTests(ActionCells(op.Discrete(n_actions)), len(x), None if whole is None else op.Table(whole))
    state = test.zero()
    for batch in log.batches():
        test.fold(state, batch, scored(batch))
    return test.misfits(state)


@pytest.mark.parametrize("kind", ["uniform", "soft", "sharp", "greedy"])
def test_a_right_log_hardly_ever_alarms(kind: str) -> None:
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(800, 3))
        p = policies(kind, x, 5)
        action = drawn(p, rng)
        alarms += bool(misfits(x, action, p[np.arange(800), action], p if seed % 2 else None))
    assert alarms <= 2


def test_units_that_keep_their_action_do_not_alarm() -> None:
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        user = rng.integers(0, 150, 1_500)
        x = rng.normal(size=(150, 3))
        p = policies("soft", x, 5)
        action = drawn(p, rng)[user]
        alarms += bool(misfits(x[user], action, p[user, action], p[user], cluster=user))
    assert alarms <= 1


WRONG: dict[str, Callable[[FloatArray, FloatArray, np.random.Generator], FloatArray]] = {
    "stale": lambda p, x, rng: policies("soft", x @ np.diag([1.0, -1.0, 0.3]), 5),
    "clipped": lambda p, x, rng: np.maximum(p, 0.12),
    "equal": lambda p, x, rng: np.full_like(p, 0.2),
    "one less": lambda p, x, rng: 1 - p,
    "after position": lambda p, x, rng: p * rng.choice([0.3, 0.6, 1.0], size=(len(p), 1)),
}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_log_alarms(kind: str, alone: bool) -> None:
    """With the logged actions' propensities alone, and with the whole policy."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(8_000, 3))
    p = policies("soft", x + np.array([0.3, 0.0, 0.0]), 5)
    action = drawn(p, rng)
    q = WRONG[kind](p, x, rng)
    assert misfits(x, action, q[np.arange(len(x)), action], None if alone else q)


def test_findings_say_what_was_seen_and_grade_it() -> None:
    rng = np.random.default_rng(8)
    action = rng.choice(3, 5_000, p=[0.8, 0.15, 0.05])
    log = op.Log(None, action, rng.normal(size=5_000), propensity=np.full(5_000, 1 / 3))
    (doubt,) = (r for r in op.evaluate(log, op.Uniform(), op.SNIPS())["SNIPS"].reasons if r.code == "propensities")
    assert doubt.verdict is op.Verdict.DO_NOT_TRUST
    assert "The mean of 1/propensity over the rounds of action 0 (0 in others) is 2.42, and it cannot exceed 1" in doubt.seen
    wrong = op.Log(None, action, rng.normal(size=5_000), logging=op.Fixed([0.76, 0.18, 0.06]))
    (doubt,) = (r for r in op.evaluate(wrong, op.Uniform(), op.SNIPS())["SNIPS"].reasons if r.code == "propensities")
    assert doubt.verdict is op.Verdict.CAUTION
    assert "--logging estimate" in doubt.do
    right = op.Log(None, action, rng.normal(size=5_000), logging=op.Fixed([0.8, 0.15, 0.05]))
    assert "propensities" not in [r.code for r in op.evaluate(right, op.Uniform(), op.SNIPS())["SNIPS"].reasons]


class Unnormalised(op.Policy):
    def distribution(self, batch: Batch) -> FloatArray:
        return np.full((len(batch), batch.n_actions), 0.4)


def test_chances_that_do_not_sum_to_one_are_said() -> None:
    rng = np.random.default_rng(9)
    log = op.Log(None, rng.integers(0, 2, 600), np.ones(600), logging=Unnormalised())
    (doubt,) = (r for r in op.evaluate(log, op.Uniform(), op.IPS())["IPS"].reasons if r.code == "propensities")
    assert "In 600 of 600 rounds that were checked, the probabilities of the logging policy do not sum to 1" in doubt.seen


def test_sums_do_not_depend_on_batches_and_many_actions_share_cells() -> None:
    rng = np.random.default_rng(10)
    action = rng.integers(0, 3_000, 4_000)
    log = op.Log(
        None, action, np.ones(4_000), propensity=np.where(rng.random(4_000) < 0.5, 1 / 3_000, 1e-3), n_actions=3_000
    )
    test = PropensityTests(ActionCells(op.Discrete(3_000)), 4_000, None)
    states = []
    for rows in (4_000, 77):
        state = test.zero()
        for batch in log.batches(rows):
            part = test.zero()
            test.fold(part, batch, scored(batch))
            state = test.merge(state, part)
        states.append(state)
    for name in ("rounds", "inverse", "inverse_squares", "sure", "at_floor", "largest"):
        np.testing.assert_allclose(states[0][name], states[1][name])
    assert states[0]["at_floor"].sum() == (whole_of(log).propensity == 1 / 3_000).sum()
    wrong = op.Log(None, action, np.ones(4_000), propensity=np.full(4_000, 1e-5), n_actions=3_000)
    (doubt,) = (r for r in op.evaluate(wrong, op.Uniform(), op.IPS())["IPS"].reasons if r.code == "propensities")
    assert "The mean of 1/propensity is 1e+05, and cannot exceed the 3,000 actions" in doubt.seen


def test_the_pictures() -> None:
    log = Linear(4, seed=1).sample(2_000, 1)
    b = whole_of(log)
    alone = op.Log(b.context, b.action, b.reward, propensity=b.propensity)
    for each, label in ((without_propensities(log), "estimated out of fold"), (log, "probability of an action")):
        result = op.evaluate(each, op.Uniform(), op.SNIPS())
        ax = result.plot.propensities()
        assert label in ax.get_xlabel()
        assert len(ax.containers[0].lines[0].get_xdata()) == len(result.to_dict()["propensities"]["bins"]) > 3
        assert "Logging probabilities" in result._repr_html_()
        matplotlib.pyplot.close("all")
    result = op.evaluate(alone, op.Uniform(), op.SNIPS())
    ax = result.plot.propensities()
    values = ax.containers[0].lines[0].get_ydata()
    expected = [np.sum(1 / b.propensity[b.action == int(t.get_text())]) / 2_000 for t in ax.get_xticklabels()]  # type: ignore[index]
    np.testing.assert_allclose(values, expected)
    assert "Logging probabilities" not in result._repr_html_()
    matplotlib.pyplot.close("all")
    with pytest.raises(op.InputError, match="no propensities to plot"):
        op.evaluate(op.Log(b.context, b.action, b.reward), op.Uniform(), op.DM()).plot.propensities()


def test_propensities_of_very_many_actions_are_drawn_by_groups() -> None:
    """Beyond 1,024 actions, groups share their sums; each mean of 1/p is then per action of its group."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2_000, 20_000)
    log = op.Log(None, action, rng.random(20_000), propensity=np.full(20_000, 1 / 2_000), n_actions=2_000)
    result = op.evaluate(log, op.Uniform(), op.SNIPS())
    ax = result.plot.propensities()
    shown = result.to_dict()["propensities"]["actions"]
    assert len(ax.get_xticklabels()) == len(shown) > 20
    assert {each["action"].partition(" ")[2] for each in shown} <= {"and 1 others", ""}
    assert np.mean([abs(each["mean_inverse"] - 1) < 4 * each["std_error"] for each in shown]) > 0.9
    matplotlib.pyplot.close("all")
