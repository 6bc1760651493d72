"""The position-based model: three lists of two slots by hand, its law over all lists, and the curve and its error.

The lists are those of test_lists.py. With b = (1, 1/2), users see item a with 0.5 + 0.2/2 = 0.6, and b with 0.5 + 0.8/2 = 0.9.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import offpolicy as op
from tests.estimators.test_lists import NEW, three

# All four clicks are on a, which the new policy shows in slot 1 with 0.8 and in slot 2 with 0.4: (0.8/0.6)·(1, 0, …).
# Weights of slot 1: 0.8/0.6 + 0.1/0.9, 0.2/0.9 + 0.4/0.6, 0.8/0.6 + 0.4/0.6, and of slot 2: 0.4/0.6 + 0.3/0.9, ….
CLICKS = (4 * 0.8 / 0.6, 4 * 0.5 * 0.4 / 0.6)
WEIGHTS = (0.8 / 0.6 + 0.1 / 0.9 + 0.2 / 0.9 + 0.4 / 0.6 + 2.0, 0.4 / 0.6 + 0.3 / 0.9 + 0.6 / 0.9 + 0.2 / 0.6 + 1.0)


@pytest.mark.parametrize(("estimator", "slots"), [
    (op.PBM([1, 0.5]), (CLICKS[0] / 3, CLICKS[1] / 3)),
    (op.PBM([2, 1]), (CLICKS[0] / 3, CLICKS[1] / 3)),  # up to a factor
    (op.PBM([1, 0.5], normalised=True), (CLICKS[0] / WEIGHTS[0], CLICKS[1] / WEIGHTS[1])),
    # Seen everywhere alike: 1.2/0.7 for a, whatever the slot of the click.
    (op.PBM([1, 1]), (4 * 0.8 / 0.7 / 3, 4 * 0.4 / 0.7 / 3)),
], ids=str)  # fmt: skip
def test_by_hand(estimator: op.Estimator, slots: tuple[float, float]) -> None:
    for gain, numbers in (("sum", (1.0, 1.0)), ([0.0, 3.0], (0.0, 3.0))):
        estimate = op.evaluate(three(gain=gain), NEW, estimator)["PBM"]
        assert [slot.value for slot in estimate.slots] == pytest.approx(slots, abs=1e-14)
        assert estimate.value == pytest.approx(np.dot(numbers, slots), abs=1e-14)


def test_the_curve_by_hand() -> None:
    """Clicks on a: two in each slot. S_12 = 2·0.2/0.7 and S_21 = 2·0.5/0.7, so that b_2/b_1 is 2.5."""
    estimate = op.evaluate(three(), NEW, op.PBM())["PBM"]
    assert estimate.diagnostics["examination"] == pytest.approx([1, 2.5], rel=1e-12)
    assert estimate.value == pytest.approx(op.evaluate(three(), NEW, op.PBM([1, 2.5]))["PBM"].value, rel=1e-12)


def clicks_of_all_lists(b: np.ndarray) -> tuple[np.ndarray, np.ndarray, list, list]:
    """All lists of three slots without replacement over four items, in two contexts: position-based rewards."""
    rng = np.random.default_rng(3)
    lists = np.array(list(itertools.permutations(range(4), 3)))
    relevance, both = rng.uniform(0.1, 0.9, size=(2, 4)), rng.normal(size=(2, 2, 4))
    x = np.repeat([0, 1], len(lists))
    codes = np.tile(lists, (2, 1))
    policies = [op.PlackettLuce(lambda x, v=v: v[x[:, 0].astype(int)]) for v in both]
    return x, codes, policies, relevance[x[:, None], codes] * b


def test_unbiased_under_position_based_clicks_with_the_curve_given_or_estimated() -> None:
    """Every list once, weighted by its probability: the estimate is then the expectation, without chance."""
    b = np.array([1.0, 0.6, 0.3])
    x, codes, (old, new), reward = clicks_of_all_lists(b)
    probe = op.Log(x, codes, reward, propensity=np.ones(codes.shape), actions=op.Slate(3, 4)).head()
    p, q = (policy.slots(probe).prod(axis=1) / 2 for policy in (old, new))
    for gain in ("sum", "dcg"):
        log = op.Log(x, codes, reward, logging=old, weight=p, actions=op.Slate(3, 4), gain=gain)
        truth = q @ (reward * log.schema.gain)
        for estimator in (op.PBM(b), op.PBM(), op.PBM(normalised=True)):
            estimate = op.evaluate(log, new, estimator)["PBM"]
            assert estimate.value == pytest.approx(truth.sum(), abs=1e-6)  # the accuracy of marginals
            assert estimate.slots[2].value == pytest.approx(q @ reward[:, 2], abs=1e-6)
    assert estimate.diagnostics["examination"] == pytest.approx(b, abs=1e-6)
