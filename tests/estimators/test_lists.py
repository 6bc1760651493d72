"""Estimators of lists: three lists of two slots by hand, their laws, and what they refuse.

π shows a with probability 0.8 in slot 1 and 0.4 in slot 2; π0 with 0.5 and 0.2.

    list    rewards   w_1             w_2              w_1·w_2
    a b     1 0       0.8/0.5 = 1.6   0.6/0.8 = 0.75   1.2
    b a     0 1       0.2/0.5 = 0.4   0.4/0.2 = 2      0.8
    a a     1 1       1.6             2                3.2
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op

ITEMS, REWARD = [["a", "b"], ["b", "a"], ["a", "a"]], [[1, 0], [0, 1], [1, 1]]
OLD = op.Factored([op.Fixed({"a": 0.5, "b": 0.5}), op.Fixed({"a": 0.2, "b": 0.8})])
NEW = op.Factored([op.Fixed({"a": 0.8, "b": 0.2}), op.Fixed({"a": 0.4, "b": 0.6})])


def three(**more: object) -> op.Log:
    given = {"action": ITEMS, "reward": REWARD, "logging": OLD, "actions": op.Slate(2), **more}
    return op.Log(None, **given)  # type: ignore[arg-type]


BY_HAND = [
    (op.LoggedMean(), (2 / 3, 2 / 3)),
    (op.SIPS(), (4.4 / 3, 4 / 3)),
    (op.SIPS(normalised=True), (4.4 / 5.2, 4 / 5.2)),
    (op.RIPS(), (3.2 / 3, 4 / 3)),
    (op.RIPS(normalised=True), (3.2 / 3.6, 4 / 5.2)),
    (op.IIPS(), (3.2 / 3, 4 / 3)),
    (op.IIPS(normalised=True), (3.2 / 3.6, 4 / 4.75)),
    (op.PI(), ((1.35 + 2.6) / 3, (1.4 + 2.6) / 3)),  # 1 + 0.6 − 0.25 = 1.35; 1 − 0.6 + 1 = 1.4; 1 + 0.6 + 1 = 2.6
    (op.PI(normalised=True), (3.95 / 5.35, 4 / 5.35)),
    (op.DM(op.Ridge(0)), (0.8, 0.4)),  # q is 1 for a and 0 for b, in both slots
    (op.DR(op.Ridge(0), cross_fit=0), (0.8, 0.4)),
    (op.RIPS(rewards=op.Ridge(0), cross_fit=0), (0.8, 0.4)),
]


@pytest.mark.parametrize(("estimator", "slots"), BY_HAND, ids=str)
def test_by_hand(estimator: op.Estimator, slots: tuple[float, float]) -> None:
    for gain, numbers in (("sum", (1.0, 1.0)), ("dcg", (1.0, 1 / np.log2(3))), ([0.0, 3.0], (0.0, 3.0))):
        estimate = op.evaluate(three(gain=gain), NEW, estimator)[estimator.name]
        assert [slot.value for slot in estimate.slots] == pytest.approx(slots, abs=1e-14)
        assert estimate.value == pytest.approx(np.dot(numbers, slots), abs=1e-14)
        assert np.isfinite(estimate.std_error)


def test_the_ways_to_state_propensities_agree() -> None:
    conditional = np.array([[0.5, 0.8], [0.5, 0.2], [0.5, 0.2]])
    every = [op.SIPS(), op.RIPS(), op.IIPS(), op.PI()]
    expected = op.evaluate(three(), NEW, every)
    stated = op.evaluate(three(logging=None, propensity=conditional, position_propensity=conditional.tolist()), NEW, every)
    assert [e.value for e in stated] == pytest.approx([e.value for e in expected], rel=1e-14)
    whole = op.evaluate(three(logging=None, propensity=conditional.prod(axis=1)), NEW, op.SIPS())["SIPS"]
    assert whole.value == pytest.approx(expected["SIPS"].value, rel=1e-14)
    with pytest.raises(op.InputError, match="RIPS cannot be computed: it weights slots by their own propensities"):
        op.evaluate(three(logging=None, propensity=conditional.prod(axis=1)), NEW, op.RIPS())
    with pytest.raises(
        op.InputError, match="IIPS cannot be computed: it weights items by the propensities of their positions"
    ):
        op.evaluate(three(logging=None, propensity=conditional), NEW, op.IIPS())
    with pytest.raises(op.InputError, match=r"differ from the probability under `logging` \(the first: slot 2\)"):
        op.evaluate(three(propensity=conditional + np.array([0, 0.1])), NEW, op.RIPS())


@pytest.mark.parametrize("estimator", [op.SIPS(), op.RIPS(True), op.IIPS(), op.PI(True)], ids=str)
def test_one_slot_is_the_single_action_case_to_the_last_digit(estimator: op.Estimator) -> None:
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(500, 2)), rng.integers(4, size=500)
    r, old, new = rng.normal(size=500) + a, op.Uniform(), op.Softmax(lambda x: x @ np.eye(2, 4))
    single = op.evaluate(op.Log(x, a, r, logging=old, n_actions=4), new, op.SNIPS() if estimator.normalised else op.IPS())
    lists = op.Log(x, a[:, None], r[:, None], logging=op.Factored(old), actions=op.Slate(1, 4))
    (one,), estimate = [list(single)[1:], op.evaluate(lists, op.Factored(new), estimator)[estimator.name]]
    assert (estimate.value, estimate.std_error, estimate.interval) == (one.value, one.std_error, one.interval)


def worlds() -> dict[str, tuple]:
    """All lists of two slots over three items, their probabilities under two policies, and rewards of several kinds."""
    rng = np.random.default_rng(1)
    lists = np.array(list(itertools.product(range(3), repeat=2)))
    p, q = (rng.dirichlet(np.ones(3), size=2) for _ in range(2))
    own = rng.normal(size=(2, 3))
    cross = rng.normal(size=(2, 3, 3))
    base = np.stack([own[0][lists[:, 0]], own[1][lists[:, 1]]], axis=1)
    both = np.stack([cross[0][lists[:, 0], lists[:, 1]], cross[1][lists[:, 0], lists[:, 1]]], axis=1)
    return {
        "independent": (lists, p, q, base),
        "cascade": (lists, p, q, base + both * [0, 1]),
        "standard": (lists, p, q, base + both),
    }


def test_one_slot_of_a_model_is_the_single_action_case() -> None:
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(500, 2)), rng.integers(4, size=500)
    r, old, new = rng.normal(size=500) + a, op.Uniform(), op.Softmax(lambda x: x @ np.eye(2, 4))
    log, lists = (
        op.Log(x, a, r, logging=old, n_actions=4),
        op.Log(x, a[:, None], r[:, None], logging=op.Factored(old), actions=op.Slate(1, 4)),
    )
    for one, other in ((op.DM(), op.DM()), (op.DR(), op.DR()), (op.SNDR(), op.IIPS(True, op.Ridge(), name="SNDR"))):
        single = op.evaluate(log, new, one)[one.name]
        slot = op.evaluate(lists, op.Factored(new), other)[other.name]
        assert (slot.value, slot.std_error) == pytest.approx((single.value, single.std_error), rel=1e-12)


@pytest.mark.parametrize(("estimator", "right"), [
    (op.SIPS(), ("independent", "cascade", "standard")), (op.RIPS(), ("independent", "cascade")), (op.IIPS(), ("independent",)),
    (op.PI(), ("independent",)), (op.SIPS(rewards=op.Ridge(1.0), cross_fit=0), ("independent", "cascade", "standard")),
    (op.RIPS(rewards=op.Ridge(1.0), cross_fit=0), ("independent", "cascade")),
    (op.IIPS(rewards=op.Ridge(1.0), cross_fit=0), ("independent",)), (op.DM(op.Ridge(0)), ("independent",)),
], ids=str)  # fmt: skip
def test_what_each_is_unbiased_for(estimator: op.Estimator, right: tuple[str, ...]) -> None:
    """Every list once, weighted by its probability: the estimate is then the expectation, without chance."""
    for kind, (lists, p, q, reward) in worlds().items():
        under = [np.prod([each[k][lists[:, k]] for k in range(2)], axis=0) for each in (p, q)]
        policies = [op.Factored([op.Fixed(each[0]), op.Fixed(each[1])]) for each in (p, q)]
        log = op.Log(None, lists, reward, logging=policies[0], weight=under[0], actions=op.Slate(2, 3))
        value = op.evaluate(log, policies[1], estimator)[estimator.name].value
        assert (abs(value - under[1] @ reward.sum(axis=1)) < 1e-12) == (kind in right), kind


def test_plackett_luce_probabilities_sum_to_one() -> None:
    lists = np.array(list(itertools.permutations(range(4), 3)))
    scores = np.random.default_rng(0).normal(size=4) * 3
    policy = op.PlackettLuce(lambda x: np.tile(scores, (len(x), 1)), temperature=0.7)
    log = op.Log(np.zeros((24, 1)), lists, np.ones((24, 3)), propensity=np.ones((24, 3)), actions=op.Slate(3, 4))
    slots = policy.slots(log.head())
    p = slots.prod(axis=1)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    exact = np.array([[p[lists[:, k] == each[k]].sum() for k in range(3)] for each in lists])
    np.testing.assert_allclose(policy.marginals(log.head()), exact, atol=1e-8)
    for k, items in enumerate(policy.items(log.head())):
        np.testing.assert_allclose(items[0], [p[lists[:, k] == a].sum() for a in range(4)], atol=1e-7)
    v = np.exp(scores / 0.7)
    first = lists[7]
    np.testing.assert_allclose(slots[7], [v[first[k]] / (v.sum() - v[first[:k]].sum()) for k in range(3)], rtol=1e-12)


def test_plackett_luce_of_far_apart_scores() -> None:
    """Where the items above carry all of the weight, differences of sums would lose every digit."""
    scores = np.array([800.0, 40.0, 0.0, -1.0])
    log = op.Log(
        np.zeros((2, 1)), [[0, 1, 2], [0, 1, 3]], np.ones((2, 3)), propensity=np.ones((2, 3)), actions=op.Slate(3, 4)
    )
    slots = op.PlackettLuce(lambda x: np.tile(scores, (len(x), 1))).slots(log.head())
    np.testing.assert_allclose(slots[:, 2], [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))], rtol=1e-12)


def test_shorter_lists_have_no_reward_below_their_end() -> None:
    log = op.Log(
        None, [["a", "b"], ["b"], ["a"]], [[1, 0], [1], [1]], propensity=[[0.5, 1], [0.5], [0.5]], actions=op.Slate(2)
    )
    result = op.evaluate(log, op.PlackettLuce(np.zeros((3, 2))), [op.SIPS(), op.RIPS()])
    for estimate in result:
        assert [slot.value for slot in estimate.slots] == [1.0, 0.0]
    again = op.Log(None, [[0, 1], [1, 1]], REWARD[:2], propensity=np.ones((2, 2)), actions=op.Slate(2))
    with pytest.raises(op.InputError, match=r"action: 1 row has an item twice \(the second in slot 2\) \(first, .*: 1\)"):
        op.evaluate(again, op.PlackettLuce(np.eye(2)), op.SIPS())


def test_the_slots_of_a_result_add_up_to_it_and_survive_saving(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, r = rng.integers(3, size=(600, 2)), rng.normal(size=(600, 2))
    log = op.Log(rng.normal(size=600), a, r, logging=op.Factored(op.Uniform()), actions=op.Slate(2, 3), gain=[1, 0.5])
    new = op.Factored(op.Fixed([0.6, 0.3, 0.1]))
    for estimators in (None, [op.RIPS(), op.DM()]):
        result = op.evaluate(log, {"new": new, "other": op.Factored(op.Uniform())}, estimators)
        rows = [row for row in result.to_dict()["by_slot"] if row["policy"] == "new"]
        name = rows[0]["estimator"]
        assert name == ("SIPS" if estimators is None else "RIPS")
        assert sum(row["gain"] * row["value"] for row in rows) == pytest.approx(result["new", name].value, rel=1e-12)
        assert sum(row["gain"] * row["lift"]["value"] for row in rows) == pytest.approx(
            result.lift("new", estimator=name).value, rel=1e-10
        )
        assert f"reward by slot: {name} for new" in str(result)
        result.write_html(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert "<h2>Slots</h2>" in page
        assert f"reward by slot: {name} for new" in page
        assert f"## reward by slot: {name} for new" in result.to_markdown()
        result.save(tmp_path / "result.json")
        again = op.load_result(tmp_path / "result.json")
        assert str(again) == str(result)
        difference = again.difference(("new", name), ("other", name)).slots
        assert [d.value for d in difference] == pytest.approx(
            [x.value - y.value for x, y in zip(result["new", name].slots, result["other", name].slots, strict=True)]
        )
    numbers = result["new", "RIPS"].diagnostics
    assert numbers["supported_depth"] in (0, 1, 2)
    assert len(numbers["effective_sample_size_by_slot"]) == 2
    assert numbers["target_mass_never_shown_near_slot"] == [0.0, 0.0]
    model = result["new", "DM"]
    assert model.std_error > 0
    assert all(slot.std_error > 0 for slot in model.slots)


def test_assumptions_that_the_log_contradicts_are_reported(tmp_path: Path) -> None:
    """What stands in slot 2 decides about the click in slot 1, so that neither RIPS nor IIPS is right."""
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=(2_000, 2))
    r = np.column_stack([a[:, 1] == 1, np.zeros(2_000)]) + 0.1 * rng.normal(size=(2_000, 2))
    log = op.Log(None, a, r, logging=op.Factored(op.Uniform()), actions=op.Slate(2, 2))
    result = op.evaluate(
        log, op.Factored(op.Fixed([0.2, 0.8])), [op.SIPS(True), op.RIPS(True), op.IIPS(True), op.PBM([1, 1])]
    )
    for name in ("RIPS", "IIPS"):
        (tested,) = result[name].diagnostics["assumptions"]
        assert (tested["slot"], tested["compared_with"], tested["contradicted"]) == (1, "SIPS", True)
        assert tested["difference"] == pytest.approx(-0.3, abs=0.05)
        assert "assumption contradicted" in [reason.code for reason in result[name].reasons]
    assert "assumptions" not in result["SIPS"].diagnostics
    says = " ".join(str(result).split())
    assert "The log contradicts that slots do not matter to each other: in slot 1" in says
    axes = result.plot.slots()
    assert [tick.get_text().split("\n")[0] for tick in axes.get_xticklabels()] == ["1", "2"]
    assert result.plot.examination().lines[0].get_ydata().tolist() == [1, 1]
    result.save(tmp_path / "result.json")
    assert str(op.load_result(tmp_path / "result.json")) == str(result)
    flat = op.evaluate(
        op.Log(None, a, a[:, 1], logging=op.Factored(op.Uniform()), actions=op.Slate(2, 2)), op.Factored(op.Uniform())
    )
    for plot in (flat.plot.slots, flat.plot.examination):
        with pytest.raises(op.InputError, match="to plot"):
            plot()


def test_few_effective_lists_contradict_nothing() -> None:
    """The target shows one list of 256, so that the log is worth two of its lists."""
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=(500, 8))
    log = op.Log(None, a, a + rng.normal(size=(500, 8)), logging=op.Factored(op.Uniform()), actions=op.Slate(8, 2))
    result = op.evaluate(log, op.Factored(op.Fixed([0.0, 1.0])), [op.SIPS(True), op.IIPS(True)])
    codes = [reason.code for reason in result["IIPS"].reasons]
    assert "assumption unchecked" in codes
    assert not {"assumption contradicted", "disagreement"} & set(codes)


def test_items_that_were_never_shown_near_a_slot_are_reported() -> None:
    rng = np.random.default_rng(0)
    a = np.column_stack([rng.integers(2, size=500), rng.integers(2, size=500), rng.integers(2, 4, size=500)])
    log = op.Log(None, a, rng.normal(size=(500, 3)), propensity=np.full((500, 3), 0.5), actions=op.Slate(3, 4))
    estimate = op.evaluate(log, op.Factored(op.Fixed([0.3, 0.3, 0.2, 0.2])), op.SIPS())["SIPS"]
    share = estimate.diagnostics["target_mass_never_shown_near_slot"]
    assert share[0] == pytest.approx(0.4, abs=0.05)  # items 2 and 3, which stand in slot 3 only
    assert share[1] == 0.0
    assert "items never shown near a slot" in [reason.code for reason in estimate.reasons]


def test_the_unit_is_the_list_or_its_cluster() -> None:
    """Lists in clusters of two equal ones: the errors are those of half as many lists."""
    rng = np.random.default_rng(0)
    a, r = rng.integers(3, size=(300, 2)), rng.normal(size=(300, 2))
    new = op.Factored(op.Fixed([0.6, 0.3, 0.1]))
    once = op.Log(None, a, r, logging=op.Factored(op.Uniform()), actions=op.Slate(2, 3))
    twice = op.Log(
        None, np.repeat(a, 2, axis=0), np.repeat(r, 2, axis=0), logging=op.Factored(op.Uniform()), actions=op.Slate(2, 3),
        cluster=np.repeat(np.arange(300), 2),
    )  # fmt: skip
    one, two = (op.evaluate(log, new, op.RIPS())["RIPS"] for log in (once, twice))
    assert two.value == pytest.approx(one.value, rel=1e-12)
    assert two.std_error == pytest.approx(one.std_error, rel=0.02)
    for a_slot, b_slot in zip(one.slots, two.slots, strict=True):
        assert b_slot.std_error == pytest.approx(a_slot.std_error, rel=0.02)
