"""Models that know the items above a slot: tiny lists by hand, and the laws of the corrected form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import offpolicy as op
from tests.estimators.test_lists import NEW, three

TWO = list(itertools.product(range(2), repeat=2))
EVEN, TOP = op.Factored(op.Uniform()), op.Factored([op.Fixed([0.9, 0.1]), op.Fixed([0.5, 0.5])])


def repeats(times: int, new: op.ListPolicy, *estimators: op.Estimator) -> op.Evaluation:
    """All lists of two slots over two items, several times; slot 1 earns its item, slot 2 whether it shows item 0 below 0."""
    a = np.array(TWO * times)
    r = np.column_stack([1.0 - a[:, 0], (a == 0).all(axis=1)])
    return op.evaluate(op.Log(None, a, r, logging=EVEN, actions=op.Slate(2, 2)), new, list(estimators))


def test_by_hand() -> None:
    """The policy shows item 0 in slot 1 with probability 0.9; if it does, slot 2 earns its probability of item 0, 0.5.

    In slot 1 the mean over the policy is exact, and in slot 2 it is over drawn items of slot 1.
    """
    result = repeats(500, TOP, op.PrefixDM(1e-6), op.DM(op.Ridge(1e-6)))
    first, second = result["PrefixDM"].slots
    assert first.value == pytest.approx(0.9, abs=1e-6)
    assert second.value == pytest.approx(0.45, abs=4 * 0.5 * np.sqrt(0.09 / 2_000))
    assert result["DM"].slots[1].value == pytest.approx(0.25, abs=1e-3)  # of item 0 in slot 2, whatever stands above it
    assert result["PrefixDM"].std_error > 0.5 * np.sqrt(0.09 / 2_000)


def test_a_large_penalty_leaves_the_mean_of_each_slot() -> None:
    log = three()
    estimate = op.evaluate(log, NEW, op.PrefixDM(1e12))["PrefixDM"]
    means = log.head().slots.reward[:, 0].mean(axis=0)
    assert [slot.value for slot in estimate.slots] == pytest.approx(means, abs=1e-9)


def test_the_corrected_form_by_hand() -> None:
    """With the mean of a slot as its model, RIPS of the differences from it, plus the mean."""
    log = three()
    estimators = [op.PrefixDM(1e12, corrected=True, cross_fit=0), op.RIPS(), op.RIPS(True, name="normalised")]
    result = op.evaluate(log, NEW, estimators)
    means = log.head().slots.reward[:, 0].mean(axis=0)
    for slot, alone, normalised, mean in zip(
        *(result[e].slots for e in ("PrefixDM", "RIPS", "normalised")), means, strict=True
    ):
        weight = alone.value / normalised.value
        assert slot.value == pytest.approx(alone.value + mean * (1 - weight), abs=1e-9)


def test_one_slot_is_the_model_of_single_actions() -> None:
    rng = np.random.default_rng(0)
    a, r = rng.integers(0, 3, 300), rng.normal(size=300)
    new = [0.2, 0.3, 0.5]
    lists = op.Log(None, a[:, None], r[:, None], logging=EVEN, actions=op.Slate(1, 3))
    value = op.evaluate(lists, op.Factored(op.Fixed(new)), op.PrefixDM(1e-9))["PrefixDM"].value
    assert value == pytest.approx(sum(p * r[a == k].mean() for k, p in enumerate(new)), abs=1e-8)


def test_zero_weights_keep_their_baseline() -> None:
    """A ranking shows list (0, 0) only; its slots earn 1 each, in the model and in what is left."""
    result = repeats(50, op.Deterministic(lambda x: np.zeros((len(x), 2), np.int64)), op.PrefixDM(1e-6, corrected=True))
    assert [slot.value for slot in result["PrefixDM"].slots] == pytest.approx([1, 1], abs=1e-3)


def test_shorter_lists_have_no_model_past_their_end() -> None:
    log = op.Log(None, [[0, 1], [1], [0, 0], [1]], [[1, 2], [1], [1, 2], [1]], logging=EVEN, actions=op.Slate(2, 2))
    for corrected in (False, True):
        estimate = op.evaluate(log, EVEN, op.PrefixDM(corrected=corrected, cross_fit=0))["PrefixDM"]
        assert [slot.value for slot in estimate.slots] == pytest.approx([1, 1], abs=1e-9)


def test_too_many_items_are_refused() -> None:
    a = np.random.default_rng(0).integers(0, 500, (20, 3))
    log = op.Log(None, a, np.ones((20, 3)), logging=EVEN, actions=op.Slate(3, 500))
    with pytest.raises(op.InputError, match="PrefixDM cannot be computed.* too many with 500 items"):
        op.evaluate(log, EVEN, op.PrefixDM())


def test_the_standard_error_includes_that_of_the_model() -> None:
    """Over 60 logs of 200 lists, the mean variance is that of the estimates within a factor of 1.6."""
    rng, values, variances = np.random.default_rng(1), [], []
    for _ in range(60):
        a = rng.integers(0, 3, (200, 2))
        r = 1.0 * (a == 0) + (a == np.roll(a, 1, axis=1)) + rng.normal(size=a.shape)
        log = op.Log(None, a, r, logging=EVEN, actions=op.Slate(2, 3))
        estimate = op.evaluate(log, op.Factored(op.Fixed([0.8, 0.1, 0.1])), op.PrefixDM())["PrefixDM"]
        values.append(estimate.value)
        variances.append(estimate.std_error**2)
    assert 1 / 1.6 < np.mean(variances) / np.var(values) < 1.6
