"""Learned MIPS on lists: three lists of two slots by hand, and its laws.

The lists and policies are those of test_lists.py. Item a always earns 1 and b always 0, so that the model predicts 1 and 0 in
both slots. In units of the spread of the predictions, √(2/9), the width is such that K(a, b) = 1/2:

    slot 1, a: (0.8 + 0.1) / (0.5 + 0.25) = 1.2     b: (0.4 + 0.2) / (0.25 + 0.5) = 0.8
    slot 2, a: (0.4 + 0.3) / (0.2 + 0.4) = 7/6      b: (0.2 + 0.6) / (0.1 + 0.8) = 8/9
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.policies.lists import ItemWeights
from tests.estimators.test_lists import NEW, three

HALF = op.Predicted(float(np.sqrt(9 / 4 / np.log(2))))
AB, BA, AA = 1.2 * 8 / 9, 0.8 * 7 / 6, 1.2 * 7 / 6


@pytest.mark.parametrize(("reading", "slots"), [
    (op.SIPS(), ((AB + AA) / 3, (BA + AA) / 3)),
    (op.RIPS(), ((1.2 + 1.2) / 3, (BA + AA) / 3)),
    (op.IIPS(), ((1.2 + 1.2) / 3, (7 / 6 + 7 / 6) / 3)),
    (op.PI(), ((1.2 + 8 / 9 - 1 + 1.2 + 7 / 6 - 1) / 3, (0.8 + 7 / 6 - 1 + 1.2 + 7 / 6 - 1) / 3)),
    (op.PartialIPS(), (1.2 * (17 / 18 + 13 / 12) / 3, 7 / 6 * (0.9 + 1.1) / 3)),
], ids=str)  # fmt: skip
def test_by_hand(reading: op.Estimator, slots: tuple[float, float]) -> None:
    for normalised in (False, True):
        learned = op.LearnedMIPS(rewards=op.Ridge(0), posterior=HALF, normalised=normalised, reading=reading)
        estimate = op.evaluate(three(gain="dcg"), NEW, learned)["LearnedMIPS"]
        if not normalised:
            assert [slot.value for slot in estimate.slots] == pytest.approx(slots, abs=1e-12)
            assert estimate.value == pytest.approx(slots[0] + slots[1] / np.log2(3), abs=1e-12)
    means = {"SIPS": (AB + BA + AA) / 3, "IIPS": 3.2 / 3}
    if reading.name in means:
        assert estimate.slots[0].value == pytest.approx(slots[0] / means[reading.name], abs=1e-12)


def test_other_widths_for_the_other_slots_by_hand() -> None:
    """The other slots are pooled so narrowly that they keep their own ratios, 0.75 and 2 in slot 2, 1.6 and 0.4 in slot 1."""
    learned = op.LearnedMIPS(
        rewards=op.Ridge(0), posterior=HALF, normalised=False, reading=op.SIPS(), others=op.Predicted(1e-3)
    )
    estimate = op.evaluate(three(), NEW, learned)["LearnedMIPS"]
    slots = (1.2 * (0.75 + 2) / 3, 7 / 6 * (0.4 + 1.6) / 3)
    assert [slot.value for slot in estimate.slots] == pytest.approx(slots, abs=1e-12)


def sampled(n: int = 400, slots: int = 3, items: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = np.argsort(rng.random((n, items)), axis=1)[:, :slots]
    return rng.normal(size=(n, 2)), a, rng.normal(size=(n, slots)) + a


def scores(which: int) -> op.PlackettLuce:
    matrix = np.random.default_rng(which).normal(size=(2, 4))
    return lambda x: x @ matrix  # type: ignore[return-value]


FACTORED = [op.Factored(op.Softmax(scores(k))) for k in (1, 2)]
WITHOUT = [op.PlackettLuce(scores(k)) for k in (1, 2)]


@pytest.mark.parametrize("policies", [FACTORED, WITHOUT], ids=["factored", "without replacement"])
def test_weights_are_the_sum_over_all_lists(policies: list[op.ListPolicy], tmp_path: Path) -> None:
    """All 4³ lists, each slot given the logged items above it, weighted by the shares of their embeddings."""
    x, a, r = sampled()
    log = op.Log(x, a, r, logging=policies[0], actions=op.Slate(3, 4))
    estimate = op.evaluate(log, policies[1], op.LearnedMIPS(posterior=op.Gaussian(0.7)))["LearnedMIPS"]
    estimate.scores(tmp_path / "scores.parquet")
    scored = pq.read_table(tmp_path / "scores.parquet").sort_by("row")
    z = estimate.embedding.scaled
    kernel = np.exp(-((z[:, None] - z) ** 2).sum(axis=2) / (2 * 0.7**2 * z.shape[1]))
    every = np.array(list(itertools.product(range(4), repeat=3)))
    for t in range(0, 400, 57):
        sums = []
        for policy in reversed(policies):
            v = np.exp(policy.weights(log.head()).logs[t]) if policy in WITHOUT else policy.weights(log.head()).values[t]
            p = np.ones(len(every))
            for k in range(3):
                left = v.copy()
                if policy in WITHOUT:
                    left[a[t, :k]] = 0
                p *= (left / left.sum())[every[:, k]] * kernel[a[t, k], every[:, k]]
            sums.append(p.sum())
        assert scored["weight"][t].as_py() == pytest.approx(sums[0] / sums[1], rel=1e-12)


@pytest.mark.parametrize("policies", [FACTORED, WITHOUT], ids=["factored", "without replacement"])
@pytest.mark.parametrize("reading", [op.SIPS(True), op.RIPS(True), op.IIPS(True)], ids=str)
def test_without_width_it_is_the_reading_itself(policies: list[op.ListPolicy], reading: op.Estimator) -> None:
    x, a, r = sampled()
    log = op.Log(x, a, r, logging=policies[0], actions=op.Slate(3, 4))
    learned = op.LearnedMIPS(posterior=op.Gaussian(1e-3), reading=reading)
    narrow, exact = list(op.evaluate(log, policies[1], [learned, reading]))[1:]
    assert [s.value for s in narrow.slots] == pytest.approx([s.value for s in exact.slots], rel=1e-6)


@pytest.mark.parametrize("learned", [
    op.LearnedMIPS(posterior=op.Gaussian(0.5)), op.LearnedMDR(posterior=op.Predicted(0.3)), op.LearnedMIPS(),
], ids=["Gaussian", "with a model", "auto"])  # fmt: skip
def test_one_slot_is_the_single_action_case(learned: op.Estimator) -> None:
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(500, 2)), rng.integers(4, size=500)
    r, old, new = rng.normal(size=500) + a * x[:, 0], op.Uniform(), op.Softmax(lambda x: x @ np.eye(2, 4))
    single = op.evaluate(op.Log(x, a, r, logging=old, n_actions=4), new, learned)[learned.name]
    log = op.Log(x, a[:, None], r[:, None], logging=op.Factored(old), actions=op.Slate(1, 4))
    slot = op.evaluate(log, op.Factored(new), learned)[learned.name]
    assert (slot.value, slot.std_error) == pytest.approx((single.value, single.std_error), rel=1e-13)
    assert slot.error_covers == single.error_covers


def test_the_fit_is_part_of_the_error() -> None:
    """The standard error is that of a jackknife that fits again, to first order."""
    x, a, r = sampled(300)
    given = {"logging": WITHOUT[0], "actions": op.Slate(3, 4)}
    learned = op.LearnedMIPS(posterior=op.Gaussian(0.7), reading=op.RIPS())
    estimate = op.evaluate(op.Log(x, a, r, **given), WITHOUT[1], learned)["LearnedMIPS"]
    assert estimate.error_covers == "sampling+fit"
    group = np.arange(300) % 20
    left_out = [
        op.evaluate(op.Log(x[keep], a[keep], r[keep], **given), WITHOUT[1], learned)["LearnedMIPS"].value
        for keep in (group != g for g in range(20))
    ]
    jackknife = np.sqrt(19 / 20 * np.square(np.subtract(left_out, np.mean(left_out))).sum())
    assert estimate.std_error == pytest.approx(jackknife, rel=0.35)  # of 20 groups: ± 16%


def test_expected_probabilities_of_many_items_have_the_marginals_as_their_mean() -> None:
    values = np.tile(np.random.default_rng(0).exponential(size=40), (20_000, 1))
    weights = ItemWeights(values, without_replacement=True)
    (exact,) = zip(*ItemWeights(values[:1], without_replacement=True).placed(3), strict=True)
    unit = np.arange(20_000, dtype=np.uint64)
    for (pi, sums), marginal in zip(weights.expected(3, unit, 0), exact, strict=True):
        p = pi / sums[:, None]
        error = p.std(axis=0) / np.sqrt(20_000)
        assert (np.abs(p.mean(axis=0) - marginal) < 5 * error + 1e-6).all()


@pytest.mark.parametrize("reading", [op.SNIPS(), op.AIPS(), op.RIPS(rewards=op.Ridge())], ids=str)
def test_other_readings_are_refused(reading: op.Estimator) -> None:
    with pytest.raises(op.InputError, match="give an estimator of lists without a reward model"):
        op.LearnedMIPS(reading=reading)


def test_lists_of_any_length_and_one_reward_per_list() -> None:
    """Where a list has no item, its ratio is 1; with one reward per list, readings that need more are left out."""
    x, a, r = sampled()
    lists, rewards = [list(each[:2]) for each in a[:100]], [list(each[:2]) for each in r[:100]]
    short = op.Log(x, lists + a[100:].tolist(), rewards + r[100:].tolist(), logging=WITHOUT[0], actions=op.Slate(3, 4))
    narrow, exact = list(
        op.evaluate(short, WITHOUT[1], [op.LearnedMIPS(posterior=op.Gaussian(1e-3), reading=op.RIPS(True)), op.RIPS(True)])
    )[1:]
    assert [s.value for s in narrow.slots] == pytest.approx([s.value for s in exact.slots], rel=1e-6)
    whole = op.Log(x, a, r.sum(axis=1), logging=WITHOUT[0], actions=op.Slate(3, 4))
    learned = op.evaluate(whole, WITHOUT[1], [op.LearnedMIPS(), op.LearnedMIPS(posterior=op.Gaussian(0.5), name="pooled")])
    assert np.isfinite([learned["LearnedMIPS"].std_error, learned["pooled"].std_error]).all()
    with pytest.raises(op.InputError, match="right only if the logging policy fills them independently"):
        op.evaluate(whole, WITHOUT[1], op.LearnedMIPS(posterior=op.Gaussian(0.5), reading=op.PI()))
    with pytest.raises(op.InputError, match=r"Logistic gives p\(a\|e\) whatever the context"):
        op.evaluate(whole, WITHOUT[1], op.LearnedMIPS(posterior=op.Logistic()))


def test_slots_that_shorter_lists_lack_have_no_slope() -> None:
    """However narrow the width, the error is a number: without replacement, a slot past the end has no item at all."""
    x, a, r = sampled(60)
    end = np.random.default_rng(3).integers(1, 4, len(a))
    inside = np.arange(3) < end[:, None]
    log = op.Log(x, np.where(inside, a, -1), np.where(inside, r, np.nan), logging=WITHOUT[0], actions=op.Slate(3, 4))
    narrow, wider = (op.LearnedMIPS(posterior=op.Predicted(width), name=f"{width}") for width in (1e-4, 0.1))
    result = op.evaluate(log, WITHOUT[1], [narrow, wider, op.SIPS(True)])
    assert result["0.0001"].value == pytest.approx(result["SIPS"].value, abs=1e-3)
    assert 0 < result["0.0001"].std_error < 2 * result["0.1"].std_error
