"""Laws that hold for every log: limits that turn one estimator into another, and what must not change the answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import offpolicy as op
from offpolicy.engines.base import Engine
from offpolicy.ratios.weights import Bend, Clip, Harmonic, Shrink, Straight, Switch
from tests.logs import Ragged, Small, make_small

worlds = st.builds(
    make_small, n=st.integers(20, 120), actions=st.integers(2, 5), features=st.integers(0, 3), seed=st.integers(0, 999)
)
few = settings(max_examples=25, deadline=None)


def values(log: op.Log, target: object, estimators: list[op.Estimator], **more: object) -> list[float]:
    return [estimate.value for estimate in op.evaluate(log, target, estimators, **more)][-len(estimators) :]


@few
@given(worlds)
def test_same_policy_makes_the_ips_family_the_logged_mean(w: Small) -> None:
    ips, snips = values(w.log(), w.logging, [op.IPS(), op.SNIPS()])
    assert ips == pytest.approx(w.reward.mean(), rel=1e-12, abs=1e-12)
    assert snips == pytest.approx(w.reward.mean(), rel=1e-12, abs=1e-12)


@few
@given(worlds)
def test_a_perfect_model_makes_dm_and_dr_equal(w: Small) -> None:
    q = np.add.outer(np.arange(len(w.action)) % 3, np.arange(w.target.shape[1])).astype(float)
    log = op.Log(w.context, w.action, q[np.arange(len(q)), w.action], logging=w.logging, n_actions=w.logging.shape[1])
    dm, dr, sndr = values(log, w.target, [op.DM(op.Given(q)), op.DR(op.Given(q)), op.SNDR(op.Given(q))])
    assert dm == pytest.approx(dr, rel=1e-12)
    assert dm == pytest.approx(sndr, rel=1e-12)


@few
@given(worlds)
def test_limits_of_cab(w: Small) -> None:
    q = op.Given(np.outer(np.ones(len(w.action)), np.arange(w.target.shape[1])))
    ips, dm = values(w.log(), w.target, [op.IPS(), op.DM(q)])
    high, low = values(w.log(), w.target, [op.CAB(q, clip=1e12, name="high"), op.CAB(q, clip=1e-12, name="low")])
    assert high == pytest.approx(ips, rel=1e-9)
    assert low == pytest.approx(dm, rel=1e-9, abs=1e-9)


@few
@given(worlds)
def test_limits_of_the_bent_weights(w: Small) -> None:
    q = op.Given(np.outer(np.ones(len(w.action)), np.arange(w.target.shape[1])))
    ips, dm, dr = values(w.log(), w.target, [op.IPS(), op.DM(q), op.DR(q)])
    for estimator, limit in [
        (op.ClippedIPS(np.inf), ips),
        (op.ClippedIPS(1e9), ips),
        (op.SubGaussianIPS(0), ips),
        (op.SubGaussianIPS(1), w.reward.mean()),
        (op.SwitchDR(q, threshold=0), dm),
        (op.SwitchDR(q, threshold=1e9), dr),
        (op.DRos(q, shrinkage=0), dm),
        (op.DRos(q, shrinkage=1e15), dr),
        (op.DR(op.Given(np.zeros_like(w.target))), ips),
    ]:
        assert values(w.log(), w.target, [estimator])[0] == pytest.approx(limit, rel=1e-8, abs=1e-9), estimator


@few
@given(worlds, st.floats(-1e3, 1e3), st.floats(0.1, 100))
def test_equivariance(w: Small, shift: float, scale: float) -> None:
    """Estimators that weigh to 1 follow any change of the reward's unit and origin."""
    moved = op.Log(
        w.context,
        w.action,
        shift + scale * w.reward,
        propensity=w.propensity,
        logging=w.logging,
        n_actions=w.logging.shape[1],
    )
    estimators = [op.SNIPS(), op.DM(), op.DR(), op.SNDR()]
    for before, after in zip(values(w.log(), w.target, estimators), values(moved, w.target, estimators), strict=True):
        assert after == pytest.approx(shift + scale * before, rel=1e-7, abs=1e-6 * (1 + scale + abs(shift)))


@few
@given(worlds, st.randoms())
def test_the_order_of_rows_does_not_matter(w: Small, random: object) -> None:
    order = np.arange(len(w.action))
    random.shuffle(order)
    estimators = [op.SNIPS(), op.DM(), op.DR(), op.SwitchDR()]
    ids = np.arange(len(order))
    again = Small(w.context[order], w.action[order], w.reward[order], w.logging[order], w.target[order])
    a = op.evaluate(w.log(row_id=ids), w.target, estimators)
    b = op.evaluate(again.log(row_id=ids[order]), again.target, estimators)
    for before, after in zip(a, b, strict=True):
        assert after.value == pytest.approx(before.value, rel=1e-10, abs=1e-10)
        assert after.std_error == pytest.approx(before.std_error, rel=1e-9)
        assert after.confidence_interval(method="bootstrap").low == pytest.approx(
            before.confidence_interval(method="bootstrap").low, rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("engine", [*map(Ragged, (1, 7, 64, 10_000)), op.Local(threads=1), op.Local(threads=3)], ids=repr)
def test_batches_and_threads_do_not_matter(engine: Engine) -> None:
    w = make_small(n=300)
    every = [kind() for kind in (op.IPS, op.SNIPS, op.DM, op.DR, op.MRDR, op.CAB, op.SwitchDR, op.DRos)]
    usual = op.evaluate(w.log(), w.target, every)
    other = op.evaluate(w.log(), w.target, every, engine=engine)
    for a, b in zip(usual, other, strict=True):
        assert b.value == pytest.approx(a.value, rel=1e-10)
        assert b.std_error == pytest.approx(a.std_error, rel=1e-10)


def test_company_does_not_matter(small: Small) -> None:
    """An estimator gives the same answer alone and beside all the others."""
    every = [kind() for kind in (op.IPS, op.ClippedIPS, op.DM, op.DR, op.MRDR, op.CAB, op.SwitchDR)]
    together = op.evaluate(small.log(), small.target, every)
    for estimator in every:
        alone = op.evaluate(small.log(), small.target, [estimator])[estimator.name]
        assert alone.value == pytest.approx(together[estimator.name].value, rel=1e-12)
        assert alone.std_error == pytest.approx(together[estimator.name].std_error, rel=1e-10)


def test_slices_are_the_log_cut(small: Small) -> None:
    """Each slice's IPS family equals an evaluation of those rows alone."""
    by = np.where(np.arange(len(small.action)) % 3 == 0, "third", "rest")
    result = op.evaluate(small.log(by=by), small.target, [op.IPS(), op.SNIPS()])
    for name, part in result.slices.items():
        rows = by == name
        own = op.Log(
            small.context[rows], small.action[rows], small.reward[rows], propensity=small.propensity[rows], n_actions=4
        )
        alone = op.evaluate(own, small.target[rows], [op.IPS(), op.SNIPS()])
        for a, b in zip(part, alone, strict=True):
            assert (a.n, a.value) == (b.n, pytest.approx(b.value, rel=1e-10))
            assert a.std_error == pytest.approx(b.std_error, rel=1e-10)


def test_several_rewards_are_one_by_one(small: Small) -> None:
    two = np.column_stack([small.reward, small.reward**2])
    together = op.evaluate(op.Log(small.context, small.action, two, logging=small.logging), small.target)
    for k, (_, part) in enumerate(together.rewards.items()):
        alone = op.evaluate(op.Log(small.context, small.action, two[:, k], logging=small.logging), small.target)
        for a, b in zip(part, alone, strict=True):
            assert a.value == pytest.approx(b.value, rel=1e-9)
            assert a.std_error == pytest.approx(b.std_error, rel=1e-9)


@pytest.mark.parametrize("bend", [Straight(), Clip(3), Switch(2), Switch(50), Shrink(4), Shrink(1e4), Harmonic(0.1)])
@pytest.mark.parametrize("top", [0.5, 2.0, 30.0])
def test_the_largest_bent_weight(bend: Bend, top: float) -> None:
    assert bend.largest(top) == pytest.approx(bend(np.linspace(0, top, 20_001)).max(), rel=1e-3)
