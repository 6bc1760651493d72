"""Windows, pairs and parts of lists: three lists of two slots by hand, and what each is unbiased for.

The lists and their ratios are those of test_lists.py.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import offpolicy as op
from tests.estimators.test_lists import NEW, three

BY_HAND = [
    (op.AIPS(window=0, normalised=False), (3.2 / 3, 4 / 3)),
    (op.AIPS(window=1), (4.4 / 5.2, 4 / 5.2)),
    (op.AIPS(window=7), (4.4 / 5.2, 4 / 5.2)),
    (op.PairIPS(normalised=False), (4.4 / 3, 4 / 3)),  # of two slots, the pair is the list
    (op.PairIPS(normalised=False, below=False), (3.2 / 3, 4 / 3)),
    # 1.6·0.875 = 1.4, 0.4·1.5 = 0.6, 1.6·1.5 = 2.4; 0.75·1.3 = 0.975, 2·0.7 = 1.4, 2·1.3 = 2.6
    (op.PartialIPS(normalised=False), (3.8 / 3, 4 / 3)),
    (op.PartialIPS(), (3.8 / 4.4, 4 / 4.975)),
    (op.PartialIPS(normalised=False, below=False), (3.2 / 3, 4 / 3)),
    (op.PartialIPS(normalised=False, share=0.0), (3.2 / 3, 4 / 3)),
    (op.PartialIPS(normalised=False, share=1.0), (4.4 / 3, 4 / 3)),
]


def test_cascade_dr_by_hand() -> None:
    """q(a) = 1/2 and q(b) = 0 in both slots; w_{1:2} = 1.2, 0.8, 3.2.

    What is left of the rewards: 1/2, 0, 1/2 in slot 1, and 0, 1/2, 1/2 in slot 2.
    """
    given = op.Given(np.array([[0.5, 0.0]] * 3))
    estimate = op.evaluate(three(), NEW, op.CascadeDR(rewards=given, cross_fit=0))["CascadeDR"]
    slots = [0.8 / 2 + (1.6 + 1.6) / 2 / 3, 0.4 / 2 + (0.8 + 3.2) / 2 / 3]
    assert [slot.value for slot in estimate.slots] == pytest.approx(slots, abs=1e-14)


@pytest.mark.parametrize(("estimator", "slots"), BY_HAND, ids=str)
def test_by_hand(estimator: op.Estimator, slots: tuple[float, float]) -> None:
    estimate = op.evaluate(three(gain="dcg"), NEW, estimator)[estimator.name]
    assert [slot.value for slot in estimate.slots] == pytest.approx(slots, abs=1e-14)
    assert estimate.value == pytest.approx(slots[0] + slots[1] / np.log2(3), abs=1e-14)


def worlds() -> dict[str, np.ndarray]:
    """The rewards of all lists of four slots over two items, by what the reward of a slot depends on."""
    rng, lists = np.random.default_rng(1), ALL
    own, pair = rng.normal(size=(4, 2)), rng.normal(size=(4, 4, 2, 2))
    triple = rng.normal(size=(4, 2, 2, 2))
    slot = np.arange(4)
    alone = np.stack([own[k][lists[:, k]] for k in slot], axis=1)

    def pairs(matters: np.ndarray) -> np.ndarray:
        each = [sum(matters[k, j] * pair[k, j][lists[:, k], lists[:, j]] for j in slot if j != k) for k in slot]
        return alone + np.stack(each, axis=1)

    apart = slot[:, None] - slot
    several = np.stack([triple[k][lists[:, k], lists[:, k - 1], lists[:, k - 2]] for k in slot], axis=1)
    return {
        "independent": alone,
        "pairs above": pairs(apart > 0),
        "neighbours": pairs(np.abs(apart) == 1),
        "pairs": pairs(np.ones((4, 4))),
        "three together": alone + several,
    }


ALL = np.array(list(itertools.product(range(2), repeat=4)))
P, Q = (np.random.default_rng(0).dirichlet(np.ones(2), size=(2, 4))[k] for k in range(2))


@pytest.mark.parametrize(("estimator", "right"), [
    (op.AIPS(window=0, normalised=False), ("independent",)),
    (op.AIPS(window=1, normalised=False), ("independent", "neighbours")),
    (op.AIPS(window=3, normalised=False), ("independent", "neighbours", "pairs above", "pairs", "three together")),
    (op.PairIPS(normalised=False), ("independent", "neighbours", "pairs above", "pairs")),
    (op.PairIPS(normalised=False, below=False), ("independent", "pairs above")),
    (op.PartialIPS(normalised=False), ("independent",)),
], ids=str)  # fmt: skip
def test_what_each_is_unbiased_for(estimator: op.Estimator, right: tuple[str, ...]) -> None:
    """Every list once, weighted by its probability: the estimate is then the expectation, without chance."""
    under = [np.prod([each[k][ALL[:, k]] for k in range(4)], axis=0) for each in (P, Q)]
    old, new = (op.Factored([op.Fixed(p) for p in each]) for each in (P, Q))
    for kind, reward in worlds().items():
        log = op.Log(None, ALL, reward, logging=old, weight=under[0], actions=op.Slate(4, 2))
        value = op.evaluate(log, new, estimator)[estimator.name].value
        assert (abs(value - under[1] @ reward.sum(axis=1)) < 1e-12) == (kind in right), kind


@pytest.mark.parametrize("estimator", [op.AIPS(window=1), op.PairIPS(), op.PairIPS(below=False)], ids=str)
def test_unknown_dependence_of_slots_is_refused(estimator: op.Estimator) -> None:
    with pytest.raises(op.InputError, match=r"filled independently of each other; it needs the logging policy"):
        op.evaluate(three(logging=None, propensity=np.full((3, 2), 0.5)), NEW, estimator)
    log = op.Log(None, [[0, 1], [1, 0]], [[1, 0], [0, 1]], logging=op.PlackettLuce(np.zeros((2, 2))), actions=op.Slate(2))
    with pytest.raises(op.InputError, match="needs the logging policy as `logging=op.Factored"):
        op.evaluate(log, op.PlackettLuce(np.eye(2)), estimator)


def test_parts_without_replacement_have_weights_of_mean_one() -> None:
    lists = np.array(list(itertools.permutations(range(4), 3)))
    rng = np.random.default_rng(2)
    old, new = (op.PlackettLuce(lambda x, v=v: np.tile(v, (len(x), 1))) for v in rng.normal(size=(2, 4)))
    probe = op.Log(np.zeros((24, 1)), lists, np.ones((24, 3)), propensity=np.ones((24, 3)), actions=op.Slate(3, 4))
    p = old.slots(probe.head()).prod(axis=1)
    log = op.Log(np.zeros((24, 1)), lists, np.ones((24, 3)), logging=old, weight=p, actions=op.Slate(3, 4))
    estimate = op.evaluate(log, new, op.PartialIPS(normalised=False, share=0.3))["PartialIPS"]
    assert [slot.value for slot in estimate.slots] == pytest.approx([1, 1, 1], abs=1e-12)


def two_kinds(n: int) -> tuple[op.Log, np.ndarray, np.ndarray]:
    """Lists of two slots over two items; items earn what they are, and where x > 0 also what the other slot's item is."""
    rng = np.random.default_rng(4)
    x, a = rng.normal(size=(n, 2)), rng.integers(0, 2, (n, 2))
    r = a + 3.0 * (x[:, :1] > 0) * a[:, ::-1] + 0.1 * rng.normal(size=(n, 2))
    return op.Log(x, a, r, logging=op.Factored(op.Uniform()), actions=op.Slate(2, 2)), x, a


OTHER = op.Factored(op.Fixed([0.1, 0.9]))
"""Its ratios of slots are 0.2 and 1.8."""


def test_windows_by_group_by_hand() -> None:
    """Half of the contexts need the whole list, and the other half does not."""
    log, x, a = two_kinds(6_000)
    estimate = op.evaluate(log, OTHER, op.AIPS(groups=2))["AIPS"]
    folds = estimate.diagnostics["windows_by_fold"]
    assert [(each["context_column"], each["windows"]) for each in folds] == [(0, [0, 1])] * 5
    w, r = np.array([0.2, 1.8])[a], log.head(6_000).slots.reward[:, 0]
    grouped = np.where(x[:, :1] > folds[0]["edges"][0], w.prod(axis=1, keepdims=True), w)
    by_hand = (grouped * r).sum(axis=0) / grouped.sum(axis=0)
    assert [slot.value for slot in estimate.slots] == pytest.approx(by_hand, abs=1e-12)
    assert estimate.value == pytest.approx(2 * (0.9 + 0.5 * 3 * 0.9), abs=0.2)


def test_few_effective_lists_make_one_group() -> None:
    """Fewer than 500 in each half; the window of all folds is then that of the ungrouped estimate."""
    log, _, _ = two_kinds(900)
    result = op.evaluate(log, OTHER, [op.AIPS(groups=4), op.AIPS(name="ungrouped")])
    assert result["AIPS"].diagnostics["windows_by_fold"] == [{"windows": [1]}] * 5
    assert result["ungrouped"].diagnostics["window"] >= 1
    assert result["AIPS"].value == pytest.approx(result["ungrouped"].value, abs=1e-12)


def test_groups_with_equal_windows_are_one() -> None:
    """Without noise and interactions, the slot alone has the least error in every range of every context."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, (6_000, 2))
    log = op.Log(rng.normal(size=(6_000, 3)), a, 1.0 + a, logging=op.Factored(op.Uniform()), actions=op.Slate(2, 2))
    result = op.evaluate(log, OTHER, [op.AIPS(groups=3), op.AIPS(window=0, name="one")])
    assert {tuple(each["windows"]) for each in result["AIPS"].diagnostics["windows_by_fold"]} == {(0,)}
    assert result["AIPS"].value == pytest.approx(result["one"].value, abs=1e-12)
    assert result["AIPS"].std_error == pytest.approx(result["one"].std_error, rel=1e-9)


def test_groups_without_a_context_are_one() -> None:
    _, _, a = two_kinds(2_000)
    log = op.Log(None, a, 1.0 * a, logging=op.Factored(op.Uniform()), actions=op.Slate(2, 2))
    assert op.evaluate(log, OTHER, op.AIPS(groups=2))["AIPS"].diagnostics["windows_by_fold"] == [{"windows": [0]}] * 5


@pytest.mark.parametrize(("make", "message"), [
    (lambda: op.AIPS(window=-1), "window"),
    (lambda: op.AIPS(groups=0), "groups"),
    (lambda: op.AIPS(groups=2, window=1), "groups is 2, and windows are chosen only"),
    (lambda: op.AIPS(window=1.5), "window"),
    (lambda: op.PartialIPS(share=1.5), "share"),
])  # fmt: skip
def test_bad_settings(make: object, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        make()  # type: ignore[operator]
