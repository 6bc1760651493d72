"""Every estimator on five rows, against numbers worked out by hand.

w = π(a)/0.5 = 0.4, 0.8, 1, 1.8, 1.2     r = 1, 0, 2, 1, 3     q(x, a) = 1, 0, 2, 1, 2     q(x, π) = 1.8, 0.6, 1.5, 0.9, 1.6
"""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op
from tests.logs import ACTION, RATIO, REWARD, TARGET, Q

GIVEN = op.Given(Q)

BY_HAND = [
    (op.LoggedMean(), 7 / 5),
    (op.IPS(), 7.8 / 5),
    (op.SNIPS(), 7.8 / 5.2),
    (op.ClippedIPS(1), 6.4 / 5),
    (op.SubGaussianIPS(0.5), (0.4 / 0.7 + 2 * 1 + 1.8 / 1.4 + 3 * 1.2 / 1.1) / 5),
    (
        op.LogSmoothing(0.5),  # of w·r/3 = 0.4/3, 0, 2/3, 0.6, 1.2, since rewards range from 0 to 3
        3 * 2 * (np.log(1 + 0.2 / 3) + np.log(1 + 1 / 3) + np.log(1.3) + np.log(1.6)) / 5,
    ),
    (op.LogSmoothing(0), 7.8 / 5),
    (op.DM(GIVEN), 6.4 / 5),
    (op.DR(GIVEN), 6.4 / 5 + 1.2 * 1 / 5),
    (op.SNDR(GIVEN), 6.4 / 5 + 1.2 * 1 / 5.2),
    (op.MRDR(GIVEN), 6.4 / 5 + 1.2 * 1 / 5),
    (op.SwitchDR(GIVEN, threshold=1), 6.4 / 5),
    (op.SwitchDR(GIVEN, threshold=1.2), 6.4 / 5 + 1.2 / 5),
    (op.DRos(GIVEN, shrinkage=1), 6.4 / 5 + 1.2 / 2.44 / 5),
    (
        op.ScaledDR(GIVEN, clip=1),
        6.4 / 5 + 1 / 5.2 * (0.16 + 0.64 + 1 + 1.8 + 1.2) / (0.16 + 0.64 + 3),
    ),  # h = 0.4, 0.8, 1, 1, 1
    (op.CAB(GIVEN, clip=1), (1.3 + 6.4) / 5),  # 1.3: the mass above π0, 0.3·2 + 0.1·1 + 0.4·1 + 0.1·2
]


@pytest.mark.parametrize(("estimator", "value"), BY_HAND, ids=lambda x: getattr(x, "name", ""))
def test_value(five: op.Log, estimator: op.Estimator, value: float) -> None:
    assert op.evaluate(five, TARGET, [estimator])[estimator.name].value == pytest.approx(value, abs=1e-14)


@pytest.mark.parametrize(
    ("estimator", "influence"),
    [
        (op.LoggedMean(), REWARD - 1.4),
        (op.IPS(), RATIO * REWARD - 1.56),
        (op.SNIPS(), RATIO * (REWARD - 1.5) / 1.04),
        (op.DM(GIVEN), np.array([1.8, 0.6, 1.5, 0.9, 1.6]) - 1.28),
        (op.DR(GIVEN), np.array([1.8, 0.6, 1.5, 0.9, 2.8]) - 1.52),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_standard_error(five: op.Log, estimator: op.Estimator, influence: np.ndarray) -> None:
    by_hand = np.sqrt((influence**2).sum() / (5 * 4))
    assert op.evaluate(five, TARGET, [estimator])[estimator.name].std_error == pytest.approx(by_hand, rel=1e-12)


def test_context_free_direct_method(five: op.Log) -> None:
    """q is the mean reward of each action: 3/2 and 4/3."""
    value = op.evaluate(five, TARGET, [op.DM(op.Ridge(0))])["DM"].value
    assert value == pytest.approx((1.8 * 1.5 + 3.2 * 4 / 3) / 5, rel=1e-12)


def test_mrdr_fits_with_squared_weights(five: op.Log) -> None:
    """q is the mean reward of each action with weights w²: 0.16, 1 and 0.64, 3.24, 1.44."""
    q = np.array([(0.16 * 1 + 1 * 2) / 1.16, (3.24 * 1 + 1.44 * 3) / 5.32])
    by_hand = (TARGET @ q + RATIO * (REWARD - q[ACTION])).mean()
    assert op.evaluate(five, TARGET, [op.MRDR(op.Ridge(0), cross_fit=0)])["MRDR"].value == pytest.approx(by_hand, rel=1e-12)


def test_row_weights_count_as_repetitions() -> None:
    """A row of weight 2 moves every value as two rows would."""
    twice = np.array([0, 1, 1, 2, 3, 4, 4])
    weight = np.array([1.0, 2, 1, 1, 2])
    estimators = [op.IPS(), op.SNIPS(), op.DM(op.Ridge(0)), op.DR(op.Ridge(0), cross_fit=0)]
    weighted = op.evaluate(op.Log(None, ACTION, REWARD, logging=op.Uniform(), weight=weight), TARGET, estimators)
    repeated = op.evaluate(op.Log(None, ACTION[twice], REWARD[twice], logging=op.Uniform()), TARGET[twice], estimators)
    for a, b in zip(weighted, repeated, strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-12)


def test_difference_is_paired(five: op.Log) -> None:
    result = op.evaluate(five, {"new": TARGET, "old": op.Uniform()}, [op.IPS()])
    difference = result.difference("new", "old", estimator="IPS")
    terms = RATIO * REWARD - REWARD
    assert difference.value == pytest.approx(terms.mean(), rel=1e-12)
    assert difference.std_error == pytest.approx(terms.std(ddof=1) / np.sqrt(5), rel=1e-12)


def test_effective_sample_size(five: op.Log) -> None:
    seen = op.evaluate(five, TARGET, [op.IPS()])["IPS"].diagnostics
    assert seen["effective_sample_size"] == pytest.approx(5.2**2 / (RATIO**2).sum(), rel=1e-12)
    assert seen["largest_weight"] == pytest.approx(1.8)
    assert seen["mean_weight"] == pytest.approx(1.04)
