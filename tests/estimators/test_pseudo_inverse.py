"""PI without replacement, and its control variates: by hand, and its law over all lists."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from tests.estimators.test_lists import NEW, three


def test_equally_likely_lists_by_hand() -> None:
    """Three items with the rates 2, 1, 1 under the target; every list is equally likely in the log.

    a stands in slot 1 with probability 1/2 and in slot 2 with 1/3; b and c with 1/4 and 1/3. Less 1/3, the list a b has
    1/6 + 0 in its own slots, and 1/12 − 1/24 in all slots alike: 1 + 2(1/6 − 1/24) + 6/24 = 1.5. So has a c; b a has 1.
    """
    log = op.Log(
        None, [["a", "b"], ["b", "a"], ["a", "c"]], [1.0, 10.0, 100.0], logging=op.PlackettLuce(np.zeros((3, 3))),
        actions=op.Slate(2),
    )  # fmt: skip
    estimate = op.evaluate(log, op.PlackettLuce(np.log([[2.0, 1.0, 1.0]] * 3)), op.PI())["PI"]
    assert estimate.value == pytest.approx((1.5 + 10 + 150) / 3, rel=1e-6)  # the accuracy of marginals


def test_control_variates_by_hand(tmp_path: Path) -> None:
    """Weights 1.35, 1.4, 2.6 and rewards 1, 1, 2; m = (1.6, 0.75), (0.4, 2), (1.6, 2).

    The plane through the three products has the slopes 3.8/1.2 and 3.85/1.25, and the value 0.22 at m = (1, 1).
    """
    for more in ({"reward": [1.0, 1.0, 2.0]}, {}):
        result = op.evaluate(three(**more), NEW, op.PI(control_variates=True))["PI"]
        assert result.value == pytest.approx(0.22, abs=1e-12)
        assert result.std_error == pytest.approx(0, abs=1e-7)
        result.scores(tmp_path / "scores.parquet")
        rounds = pq.read_table(tmp_path / "scores.parquet").to_pandas()
        assert (rounds["baseline"] + rounds["correction"]).mean() == pytest.approx(0.22, abs=1e-12)


@pytest.mark.parametrize("even", [True, False], ids=["equally likely", "uneven"])
@pytest.mark.parametrize("estimator", [op.PI(), op.PI(control_variates=True)], ids=["PI", "control variates"])
def test_additive_rewards_are_estimated_without_bias(even: bool, estimator: op.Estimator) -> None:
    """Every list once, weighted by its probability; the sum of ratios, which is for factored policies, is wrong here."""
    rng = np.random.default_rng(0)
    lists = np.array(list(itertools.permutations(range(5), 3)))
    v = [np.zeros(5) if even else rng.normal(size=5), rng.normal(size=5)]
    old, new = (op.PlackettLuce(lambda x, v=each: np.tile(v, (len(x), 1))) for each in v)
    x, additive = np.zeros((len(lists), 1)), rng.normal(size=(3, 5))[np.arange(3), lists]
    probe = op.Log(x, lists, additive, propensity=np.ones(lists.shape), actions=op.Slate(3, 5)).head()
    p, q = (policy.slots(probe).prod(axis=1) for policy in (old, new))
    log = op.Log(x, lists, additive.sum(axis=1), logging=old, weight=p, actions=op.Slate(3, 5))
    assert op.evaluate(log, new, estimator)["PI"].value == pytest.approx(q @ additive.sum(axis=1), abs=1e-6)
    sums = 1 + (new.marginals(probe) / old.marginals(probe) - 1).sum(axis=1)
    assert abs(p @ (sums * additive.sum(axis=1)) - q @ additive.sum(axis=1)) > 0.01


def test_too_many_lists_are_refused() -> None:
    log = op.Log(
        None, np.tile(np.arange(6), (5, 1)), np.ones(5), logging=op.PlackettLuce(np.tile(np.arange(40) / 40, (5, 1))),
        actions=op.Slate(6, 40),
    )  # fmt: skip
    with pytest.raises(op.InputError, match=r"40 items in 6 slots make 2,763,633,600 lists"):
        op.evaluate(log, op.PlackettLuce(np.zeros((5, 40))), op.PI())
