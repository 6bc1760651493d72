"""Ridge with a shared covariance: the equations in its axes against the full matrices of each action."""

from __future__ import annotations

import numpy as np
import pytest

from offpolicy.core.device import Device
from offpolicy.data.batch import Batch
from offpolicy.data.spaces import Discrete
from offpolicy.models.rewards.base import FitShape
from offpolicy.models.rewards.ridge import solve
from offpolicy.models.rewards.ridge.device_sums import DeviceGramPass
from offpolicy.models.rewards.ridge.packed import Packed
from offpolicy.models.rewards.ridge.shared import SharedEquations
from offpolicy.models.rewards.ridge.solutions import RowSums
from offpolicy.statistics.gram import Gram

GROUPS, ACTIONS, COLUMNS = 3, 7, 4
KEEP = np.array([True, False, True])


@pytest.fixture(scope="module", params=[False, True], ids=["rows alike", "row weights"])
def packed(request: pytest.FixtureRequest) -> Packed:
    """300 rows in units that differ by factors of 1,000, with one action that was never logged."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COLUMNS, 300)) * [[1], [1e3], [1e-2], [1]] + [[0], [5e3], [0], [2]]
    key = rng.integers(GROUPS, size=300) * ACTIONS + rng.integers(ACTIONS - 1, size=300)
    values = np.vstack([x, x[0] * key + rng.normal(size=300)])
    gram = Gram(GROUPS * ACTIONS, COLUMNS, 1, shared=GROUPS)
    weight = rng.uniform(0.5, 2.0, 300) if request.param else None
    state = gram.dense(gram.fold(gram.zero(), key, values, weight))
    return Packed(
        gram, {**state, **{n: state[n].reshape(GROUPS, ACTIONS, *state[n].shape[1:]) for n in gram.by_key}}, GROUPS
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", [0.1, 30.0])
def test_solutions_are_those_of_the_full_matrices(packed: Packed, penalty: float, intercept: bool) -> None:
    whole, full = packed.whole(KEEP, 0), packed.block(KEEP, 0, slice(None))
    for one, other in zip(vars(whole).values(), vars(full.pooled()).values(), strict=True):
        if np.shape(one) != (COLUMNS, COLUMNS):  # the full matrices of each action are assumed, and their sum is known
            np.testing.assert_allclose(one, other, rtol=1e-11)
    frame = solve.Scaled.of(whole.at_all(), whole, intercept)
    dense = solve.Scaled.of(RowSums(full).gram, whole, intercept)
    equations = SharedEquations.of(packed, KEEP, 0, slice(None), frame)
    np.testing.assert_allclose(equations.own(penalty), solve.per_action(dense, penalty), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(equations.total, dense.zz.sum(axis=0), rtol=1e-9, atol=1e-9)
    share = np.arange(ACTIONS) / np.arange(ACTIONS).sum()
    inverse = np.einsum("a,aij->ij", share, solve.damped_inverse(dense.zz, penalty))
    np.testing.assert_allclose(equations.mean_inverse(share, penalty), inverse, rtol=1e-8, atol=1e-10)


def test_the_whole_is_the_gram_matrix_of_the_rows(packed: Packed) -> None:
    """The scatter within actions and groups, which is summed, and that between them."""
    whole = packed.whole(KEEP, 0)
    n, x = packed.state["n"][KEEP].ravel(), packed.state["mean"][KEEP, ..., :COLUMNS].reshape(-1, COLUMNS)
    around = x - whole.x
    expected = packed.state["xx"][KEEP].sum(axis=0) + (around * n[:, None]).T @ around
    np.testing.assert_allclose(whole.xx, expected, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_device_sums_what_the_processor_does(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged from three parts of the log; one action has most of the rows, more than are summed at once."""
    pytest.importorskip("torch")
    monkeypatch.setattr("offpolicy.models.rewards.ridge.device_sums.MOST_AT_ONCE", 8)
    rng, rows = np.random.default_rng(1), 400
    x, r = rng.normal(size=(rows, COLUMNS)) + 1e4, rng.normal(size=(rows, 2))
    action = np.where(rng.random(rows) < 0.8, 2, rng.integers(ACTIONS - 1, size=rows))
    weight = rng.integers(3, size=rows) / 2.0 if weighted else None  # some keys have no weight at all
    unit = rng.integers(1 << 60, size=rows).astype(np.uint64)
    batch = Batch(np.arange(rows), unit, action, r, (x,), Discrete(ACTIONS), weight=weight)
    shape = FitShape(ACTIONS, COLUMNS, 2, GROUPS, 0, rows=rows, shared=True, device=Device("cpu"))
    gram = Gram(GROUPS * ACTIONS, COLUMNS, 2, shared=GROUPS)
    device, expected = DeviceGramPass(shape, gram), gram.zero()
    state = device.zero()
    for part in (slice(0, 100), slice(100, 390), slice(390, rows)):
        own = batch.take(part)
        state = device.merge(state, device.fold(device.zero(), own))
        key = shape.group(own) * ACTIONS + own.action
        expected = gram.fold(expected, key, np.vstack([own.context.T, own.reward.T]), own.weight)
    found, expected = device.finish(state).state, gram.dense(expected)
    scale = 1.0 if weight is None else rows / weight.sum()
    for name, values in expected.items():
        times = {"mean": 1.0, "square": scale**2}.get(name, scale)
        np.testing.assert_allclose(found[name].reshape(values.shape), values * times, rtol=1e-9, atol=1e-9)
