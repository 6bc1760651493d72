"""Very many actions: lists give what grids give, two towers what a matrix gives, and nothing grows with rounds × actions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.data.features import Features
from offpolicy.diagnostics.models import TOO_MANY_FOR_REFITS
from offpolicy.models.posteriors.nearest_actions import nearest_of
from tests.logs import DISCRETE

A, N, LISTED = 30, 3000, 8


@pytest.fixture(scope="module")
def listed() -> dict[str, np.ndarray]:
    """Rounds with a few candidates each, old and new chances of them; as lists and as matrices."""
    rng = np.random.default_rng(3)
    items = np.argsort(rng.random((N, A)), axis=1)[:, :LISTED]
    context = rng.normal(size=(N, 3))
    taste = rng.normal(size=(A, 3))
    scores = np.einsum("nj,nkj->nk", context, taste[items])
    old, new = (np.exp(t * scores) / np.exp(t * scores).sum(axis=1, keepdims=True) for t in (0.3, 0.9))
    new[:, -2:] = 0.0  # the new policy lists fewer, and leaves some of the old ones alone
    new /= new.sum(axis=1, keepdims=True)
    at = (old.cumsum(axis=1) > rng.random((N, 1))).argmax(axis=1)
    action = items[np.arange(N), at]
    reward = scores[np.arange(N), at] + rng.normal(size=N)
    return {"items": items, "old": old, "new": new, "context": context, "action": action, "reward": reward}


def _grid(listed: dict[str, np.ndarray], name: str) -> np.ndarray:
    out = np.zeros((N, A))
    np.put_along_axis(out, listed["items"], listed[name], axis=1)
    return out


def _log(listed: dict[str, np.ndarray], logging: object, **more: object) -> op.Log:
    catalog = np.random.default_rng(1).normal(size=(A, 2))
    return op.Log(
        listed["context"], listed["action"], listed["reward"], n_actions=A, logging=logging, catalog=catalog, **more
    )


@pytest.mark.parametrize("name", sorted(DISCRETE))
def test_lists_give_what_a_matrix_gives(listed: dict[str, np.ndarray], name: str) -> None:
    estimator = DISCRETE[name]()
    few = [row[p > 0] for row, p in zip(listed["items"], listed["new"], strict=True)]
    chances = [p[p > 0] for p in listed["new"]]
    by_list = op.evaluate(
        _log(listed, op.Candidates(listed["items"].tolist(), listed["old"].tolist())),
        op.Candidates(few, chances),
        [estimator],
    )
    by_grid = op.evaluate(_log(listed, op.Table(_grid(listed, "old"))), op.Table(_grid(listed, "new")), [estimator])
    a, b = by_list["target", estimator.name], by_grid["target", estimator.name]
    assert a.value == pytest.approx(b.value, rel=1e-9)
    assert a.std_error == pytest.approx(b.std_error, rel=1e-8)
    for key, seen in b.diagnostics.items():
        if isinstance(seen, float):
            assert a.diagnostics[key] == pytest.approx(seen, rel=1e-6, abs=1e-9), key


def test_lists_with_slices_and_row_weights(listed: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    more = {"by": rng.integers(0, 2, N), "weight": rng.uniform(0.5, 2.0, N)}
    lists = op.Candidates(listed["items"].tolist(), listed["new"].tolist())
    old = op.Candidates(listed["items"].tolist(), listed["old"].tolist())
    some = [op.DM(), op.LearnedMDR()]
    a = op.evaluate(_log(listed, old, **more), lists, some)
    b = op.evaluate(_log(listed, op.Table(_grid(listed, "old")), **more), op.Table(_grid(listed, "new")), some)
    for part in (None, "0", "1"):
        for name in ("DM", "LearnedMDR"):
            left, right = (r["target", name] if part is None else r.slices[part]["target", name] for r in (a, b))
            assert left.value == pytest.approx(right.value, rel=1e-9)
            assert left.std_error == pytest.approx(right.std_error, rel=1e-8)


def test_a_candidate_that_is_listed_twice_counts_once(listed: dict[str, np.ndarray]) -> None:
    """Its chances add up: what weighs by π/π0 must not see two small ratios."""
    twice = [[*row, row[0]] for row in listed["items"].tolist()]
    halves = [[p[0] / 4, *p[1:], p[0] * 3 / 4] for p in listed["old"].tolist()]
    once = op.Candidates(listed["items"].tolist(), listed["old"].tolist())
    target = op.Candidates(listed["items"].tolist(), listed["new"].tolist())
    for estimator in (op.SNIPS(), op.DR(), op.CAB(clip=2.0), op.LearnedMIPS()):
        a = op.evaluate(_log(listed, op.Candidates(twice, halves)), target, [estimator])["target", estimator.name]
        b = op.evaluate(_log(listed, once), target, [estimator])["target", estimator.name]
        assert a.value == pytest.approx(b.value, rel=1e-9)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("policy", ["softmax", "greedy"])
def test_two_towers_are_the_matrix(kind: type, policy: str) -> None:
    rng = np.random.default_rng(0)
    items, bias = rng.normal(size=(1300, 4)).astype(kind), rng.normal(size=1300)
    towers = op.TwoTower(items, lambda x: x[:, :4] * 2, bias=bias)
    plain = lambda x: x[:, :4] * 2 @ items.T.astype(np.float64) + bias  # noqa: E731
    make = (lambda s: op.Softmax(s, 0.7)) if policy == "softmax" else (lambda s: op.EpsilonGreedy(s, 0.1))
    log = op.Log(rng.normal(size=(700, 5)), rng.integers(0, 1300, 700), rng.normal(size=700), n_actions=1300)
    (batch,) = log.batches()
    values = rng.normal(size=(1300, 3))
    row, code = np.repeat(np.arange(700), 2), rng.integers(0, 1300, 1400)
    tolerance = 1e-12 if kind is np.float64 else 1e-4
    dense = make(plain).probabilities(batch)
    sums, chances = make(towers).answers(batch, values, row, code)
    np.testing.assert_allclose(sums, dense @ values, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(chances, dense[row, code], rtol=tolerance)
    np.testing.assert_allclose(make(towers).probabilities(batch), dense, rtol=tolerance)
    np.testing.assert_allclose(
        make(towers).probabilities(batch, batch.action), dense[np.arange(700), batch.action], rtol=tolerance
    )


@pytest.mark.parametrize(
    "make", [lambda **k: op.Softmax(**k, temperature=0.5), lambda **k: op.EpsilonGreedy(**k, epsilon=0.2)]
)
def test_policies_over_candidates(tmp_path: object, listed: dict[str, np.ndarray], make: object) -> None:
    """Scores of the candidates alone; the rest has no chance."""
    table = pa.table(
        {
            **{f"x{j}": listed["context"][:, j] for j in range(3)},
            "action": listed["action"], "reward": listed["reward"], "items": listed["items"].tolist(),
        }
    )  # fmt: skip
    log = op.read_log(table, context=["x0", "x1", "x2"], action="action", reward="reward", n_actions=A)
    items = np.random.default_rng(5).normal(size=(A, 3))
    (batch,) = [b for part in log.partitions(("items",)) for b in part.batches(N)]
    towers = make(score=op.TwoTower(items), candidates="items")
    plain = make(score=lambda x: x @ items.T, candidates="items")
    p = towers.probabilities(batch)
    np.testing.assert_allclose(p, plain.probabilities(batch), rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    eligible = np.zeros((N, A), bool)
    np.put_along_axis(eligible, listed["items"], True, axis=1)
    assert not p[~eligible].any()
    scores = np.where(eligible, listed["context"] @ items.T, -np.inf)
    assert (p.argmax(axis=1) == scores.argmax(axis=1)).all()


def test_two_towers_say_what_is_wrong(listed: dict[str, np.ndarray]) -> None:
    log = _log(listed, op.Uniform())
    with pytest.raises(op.InputError, match="5 item vectors for 30 actions"):
        op.evaluate(log, op.Softmax(op.TwoTower(np.zeros((5, 3)))))
    with pytest.raises(op.InputError, match="user vectors have shape .* 4 dimensions"):
        op.evaluate(log, op.Softmax(op.TwoTower(np.zeros((A, 4)))))
    with pytest.raises(op.InputError, match="30 rows contain NaN or infinity; the first is row 0"):
        op.TwoTower(np.full((A, 3), np.nan))
    with pytest.raises(op.InputError, match="labels of its own"):
        op.TwoTower(pd.DataFrame(np.zeros((A, 3)), index=[f"item {k}" for k in range(A)]))
    with pytest.raises(op.InputError, match="must be a function of the contexts"):
        op.TwoTower(np.zeros((A, 3)), np.zeros((N, 3)))
    with pytest.raises(op.InputError, match="the name of one list column"):
        op.evaluate(log, op.Softmax(op.TwoTower(np.zeros((A, 3))), candidates=listed["items"].tolist()))
    assert op.TwoTower(pd.DataFrame(np.zeros((A, 3))))(np.zeros((2, 3))).shape == (2, A)


@pytest.fixture(scope="module")
def wide() -> tuple[op.Log, op.Policy]:
    """3,000 actions, of which one in three was logged, and a policy of two towers."""
    rng = np.random.default_rng(2)
    n, actions = 20_000, 3_000
    items = rng.normal(size=(actions, 3))
    context = rng.normal(size=(n, 3))
    popular = rng.dirichlet(np.full(actions, 0.2))
    action = rng.choice(actions, n, p=popular)
    reward = np.einsum("ij,ij->i", context, items[action]) + rng.normal(size=n)
    log = op.Log(context, action, reward, n_actions=actions, logging=op.Fixed(popular))
    return log, op.Softmax(op.TwoTower(items), 1.5)


def _without_refits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("offpolicy.scoring.fit_pass.rung_for", lambda *_: "folds")


@pytest.mark.parametrize(
    "rewards", [op.Ridge(20.0), op.Ridge(20.0, rank=2), op.Ridge(0.0), op.Ridge(5.0, unseen="zero", intercept=False)]
)
def test_a_smaller_budget_gives_the_same_numbers(
    wide: tuple[op.Log, op.Policy], rewards: op.Ridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed sums and sums over a policy are the same model and the same estimate; only the fit's error is not counted."""
    log, policy = wide

    def some(posterior: op.Gaussian) -> list[op.Estimator]:
        return [op.DM(rewards=rewards), op.DR(rewards=rewards), op.LearnedMDR(rewards=rewards, posterior=posterior)]

    roomy = op.evaluate(log, policy, some(op.Gaussian(0.3)), memory="4GB")
    _without_refits(monkeypatch)
    tight = op.evaluate(log, policy, some(op.Gaussian(0.3, neighbours=3_000)))
    for name in ("DM", "DR", "LearnedMDR"):
        a, b = roomy["target", name], tight["target", name]
        assert a.value == pytest.approx(b.value, rel=1e-9)
        assert (a.error_covers, b.error_covers) == ("sampling+fit", "sampling") if name != "DR" else True
    assert roomy["target", "DR"].std_error == pytest.approx(tight["target", "DR"].std_error, rel=1e-9)
    assert any("memory budget" in str(reason) for reason in tight["target", "DM"].reasons)


def test_near_actions_are_enough_and_the_rest_is_bounded(
    wide: tuple[op.Log, op.Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, policy = wide
    exact = op.evaluate(log, policy, [op.LearnedMIPS(rewards=op.Ridge(20.0), posterior=op.Gaussian(0.1))], memory="4GB")[
        "target", "LearnedMIPS"
    ]
    _without_refits(monkeypatch)
    bounds, errors = [], []
    for count in (3, 30, 300):
        posterior = op.Gaussian(0.1, neighbours=count)
        near = op.evaluate(log, policy, [op.LearnedMIPS(rewards=op.Ridge(20.0), posterior=posterior)])[
            "target", "LearnedMIPS"
        ]
        seen = near.diagnostics
        assert seen["neighbours"] == count
        off = abs(seen["mean_weight"] - exact.diagnostics["mean_weight"]) / seen["mean_weight"]
        assert off <= seen["weight_of_other_actions_at_most"] + 1e-12
        errors.append(abs(near.value - exact.value))
        bounds.append(seen["weight_of_other_actions_at_most"])
    assert bounds[0] > bounds[1] > bounds[2]
    assert bounds[2] < 0.1 * bounds[0]
    assert errors[2] < 0.5 * errors[0]


def test_the_bandwidths_follow_from_the_number_of_actions_and_the_model() -> None:
    def kinds(learned: op.Estimator, features: Features) -> list[type[op.Posterior]]:
        parts = learned.settled(features, None).parts
        return list(
            dict.fromkeys(type(m.weight.ratio.posterior) for part in parts for m in part.members() if not m.weight.exact)
        )

    few, many = (Features(n_actions=n) for n in (20_000, 20_001))
    assert kinds(op.LearnedMIPS(), few) == kinds(op.LearnedMDR(), few) == [op.Predicted]
    assert kinds(op.LearnedMIPS(), many) == [op.Gaussian]
    assert kinds(op.LearnedMIPS(rewards=op.Ridge(rank=2)), few) == [op.Gaussian]
    assert [part.name for part in op.LearnedMIPS().settled(few, None).parts][:3] == ["SNIPS", "SNDR", "bandwidth 0.03"]


def test_actions_that_share_a_covariance() -> None:
    """Sums grow with the context, not with its square; where contexts do not go with actions little is lost."""
    rng = np.random.default_rng(0)
    n, actions, d = 30_000, 2_000, 30
    context, action = rng.normal(size=(n, d)), rng.integers(0, actions, n)
    slopes = rng.normal(size=(actions, 3)) + 1
    reward = np.einsum("ij,ij->i", context[:, :3], slopes[action]) + 0.1 * rng.normal(size=n)
    log = op.Log(context, action, reward, n_actions=actions, logging=op.Uniform())
    target = op.Softmax(lambda x: x[:, :3] @ slopes.T, 5.0)
    some = [op.DR(), op.DM()]
    full = op.evaluate(log, target, some, memory="8GB", cross_fit=2)
    shared = op.evaluate(log, target, some, memory="430MB", cross_fit=2)
    seen = shared["target", "DR"]
    assert any("the same covariance" in str(reason) for reason in seen.reasons)
    assert not any("the same covariance" in str(reason) for reason in full["target", "DR"].reasons)
    assert seen.diagnostics["reward_model"]["covariance"] == "shared by all actions"
    assert seen.diagnostics["reward_model"]["r2"] > 0.8 * full["target", "DR"].diagnostics["reward_model"]["r2"] > 0.3
    difference = seen.value - full["target", "DR"].value
    assert abs(difference) < 3 * np.hypot(seen.std_error, full["target", "DR"].std_error)


def test_two_steps_from_packed_sums() -> None:
    """Without refits there are fewer groups of units, whose sums are packed; all else is the same."""
    world = op.worlds.Linear(n_actions=300, seed=0)
    log, estimator = world.sample(2_000, seed=0), op.OffCEM(4, op.Ridge(1.0), cross_fit=2)
    engine = op.Local(threads=1)
    roomy, tight = (
        op.evaluate(log, world.target, estimator, engine=engine, memory=memory)["OffCEM"] for memory in ("4GB", "260MB")
    )
    assert TOO_MANY_FOR_REFITS in tight.reasons
    assert tight.value == pytest.approx(roomy.value, rel=1e-12)


def test_a_job_that_cannot_fit_says_so_before_it_reads_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 2_000
    rng = np.random.default_rng(0)
    log = op.Log(
        rng.normal(size=(n, 8)), rng.integers(0, 500_000, n), rng.normal(size=n), n_actions=500_000, logging=op.Uniform()
    )
    monkeypatch.setattr(op.Log, "partitions", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(op.InputError) as error:
        op.evaluate(log, op.Uniform(), [op.DR()], memory="400MB")
    said = str(error.value)
    assert "the budget is 400 MB" in said
    assert "5 folds × 500,000 actions × 20 numbers" in said
    assert "memory=" in said


def test_of_the_defaults_what_does_not_fit_is_left_out() -> None:
    n = 3_000
    rng = np.random.default_rng(0)
    items = rng.integers(0, 20_000, (n, 4)) * 5 + np.arange(4)
    log = op.Log(
        rng.normal(size=(n, 8)), items[:, 0], rng.normal(size=n), n_actions=100_000,
        logging=op.Candidates(items.tolist(), [[0.25] * 4] * n),
    )  # fmt: skip
    target = op.Candidates(items.tolist(), [[0.4, 0.2, 0.2, 0.2]] * n)
    result = op.evaluate(log, target, memory="700MB", cross_fit=2)
    assert "Auto" in result.skipped
    assert "exceeds the memory budget of 700 MB" in result.skipped["Auto"]
    assert "DR" in result.estimators
    with pytest.raises(op.InputError, match="the job needs about"):
        op.evaluate(log, target, [op.Auto()], memory="700MB")


def test_two_bytes_are_hardly_meant(five: op.Log) -> None:
    with pytest.raises(op.InputError, match='did you mean "2GB"'):
        op.evaluate(five, op.Uniform(), memory="2")


@pytest.mark.parametrize("memory", ["2 parsecs", "-1GB", "", True, 0, "GB"])
def test_a_budget_that_is_none(five: op.Log, memory: object) -> None:
    with pytest.raises(op.InputError, match="memory is"):
        op.evaluate(five, op.Uniform(), memory=memory)


@pytest.mark.parametrize("refits", [True, False])
def test_near_actions_with_folds_that_lack_some(refits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all actions near, weights are those of all actions, also where a fold has never seen the logged action."""
    rng = np.random.default_rng(1)
    actions, n = 8, 80
    x, action = rng.normal(size=(n, 2)), rng.integers(2, actions, n)
    action[:2] = 0, 1  # once each: new to the fit of their own fold, and the first there is to stand for those
    items = rng.normal(size=(actions, 2))
    log = op.Log(x, action, rng.normal(size=n) + action, n_actions=actions, logging=op.Softmax(op.TwoTower(0.3 * items)))
    if not refits:
        _without_refits(monkeypatch)
    values = []
    for count in (None, actions):
        posterior = op.Gaussian(0.3, neighbours=count)
        learned = op.LearnedMIPS(posterior=posterior, cross_fit=5, rewards=op.Ridge(10.0))
        estimate = op.evaluate(log, op.Softmax(op.TwoTower(items)), [learned])["LearnedMIPS"]
        assert estimate.diagnostics["rounds_with_an_action_new_to_the_fit"] >= 2
        values.append(estimate.value)
    assert values[1] == pytest.approx(values[0], rel=1e-9)


def test_policies_that_list_beside_one_that_does_not(listed: dict[str, np.ndarray]) -> None:
    """Each is asked in its own way: sums over lists stay exact, and only the other speaks of near actions."""
    lengths = np.random.default_rng(0).integers(6, LISTED + 1, N)
    lists = [
        row[: k if a in row[:k] else LISTED] for row, k, a in zip(listed["items"], lengths, listed["action"], strict=True)
    ]
    even = [[1 / len(row)] * len(row) for row in lists]
    log = _log(listed, op.Candidates(lists, even))
    some = [op.LearnedMIPS("identity", posterior=op.Gaussian(0.3, neighbours=5)), op.DM()]
    towers = op.Softmax(op.TwoTower(np.random.default_rng(5).normal(size=(A, 3))))
    both = op.evaluate(log, {"lists": op.Candidates(lists, even), "towers": towers}, some)
    alone = op.evaluate(log, {"lists": op.Candidates(lists, even)}, some)
    assert both["lists", "LearnedMIPS"].value == pytest.approx(alone["lists", "LearnedMIPS"].value, rel=1e-12)
    assert both["lists", "LearnedMIPS"].std_error == pytest.approx(alone["lists", "LearnedMIPS"].std_error, rel=1e-9)
    assert "neighbours" not in both["lists", "LearnedMIPS"].diagnostics
    assert both["towers", "LearnedMIPS"].diagnostics["neighbours"] == 5
    assert both["towers", "LearnedMIPS"].error_covers == "sampling"
    assert both["towers", "DM"].error_covers == "sampling+fit"  # near actions take nothing from the others


def test_lists_that_differ_between_rounds_depend_on_the_context(listed: dict[str, np.ndarray]) -> None:
    """A chance of 1/k in some rounds and none in others is no context-free policy."""
    even = np.full((N, LISTED), 1 / LISTED)
    for policy in (op.Candidates(listed["items"].tolist(), even), op.Table(_grid({**listed, "old": even}, "old"))):
        estimate = op.evaluate(_log(listed, policy), policy, [op.LearnedMIPS(posterior=op.Logistic())])["LearnedMIPS"]
        assert "posterior form" in [reason.code for reason in estimate.reasons]


def test_mass_without_support_is_seen_without_asking_for_all(
    wide: tuple[op.Log, op.Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, policy = wide
    half = np.where(np.arange(3_000) < 1_500, 1 / 1_500, 0.0)
    batch = log.head(len(log))
    logged = op.Log(batch.context, batch.action % 1_500, batch.reward[:, 0], n_actions=3_000, logging=op.Fixed(half))
    seen = []
    for _ in range(2):
        seen.append(op.evaluate(logged, policy, [op.DR()])["DR"].diagnostics["target_mass_without_support"])
        _without_refits(monkeypatch)
    assert seen[1] == pytest.approx(seen[0], abs=0.03)
    assert seen[0] > 0.3


@pytest.mark.parametrize(("rounds", "weighted"), [(3, False), (20, True)])
def test_a_shared_covariance_is_one(rounds: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds an action, or rows that weigh much: the kernel stays a kernel, the model a model, and it is said."""
    rng = np.random.default_rng(0)
    actions = 400
    action = np.repeat(np.arange(actions), rounds)
    weight = np.ones(len(action))
    if weighted:  # as many single rounds that weigh as much as all of another action's
        action = np.concatenate([action, actions + np.arange(4 * actions)])
        weight = np.concatenate([weight, np.full(4 * actions, float(rounds))])
        actions *= 5
    x = rng.normal(size=(len(action), 5))
    reward = x.sum(axis=1) + 0.5 * rng.normal(size=actions)[action] + 0.1 * rng.normal(size=len(action))
    log = op.Log(x, action, reward, n_actions=actions, logging=op.Uniform(), weight=weight)
    monkeypatch.setattr("offpolicy.scoring.fit_pass.rung_for", lambda *_: "shared")
    target = op.Softmax(lambda c: c[:, :1] * np.linspace(-1, 1, actions))
    result = op.evaluate(log, target, [op.LearnedMIPS(posterior=op.Gaussian()), op.DR()])
    told = result["DR"].diagnostics["reward_model"]
    assert 0.9 < told["r2"] < 1
    for name in ("LearnedMIPS", "DR"):
        assert "shared covariance" in [reason.code for reason in result[name].reasons]
    table = result["LearnedMIPS"].embedding
    level = table.reward - table.reward.mean()
    assert np.abs(table.values[:, :5] - 1).mean() < 0.15  # slopes of 1 for everyone
    assert np.isfinite(level).all()
    assert 0.5 < result["LearnedMIPS"].diagnostics["mean_weight"] < 1.5


def test_an_empty_list_and_lists_of_other_kinds(listed: dict[str, np.ndarray]) -> None:
    log = _log(listed, op.Uniform())
    items, p = listed["items"].tolist(), listed["new"].tolist()
    with pytest.raises(op.InputError, match="1 row .*no candidate"):
        op.evaluate(log, op.Candidates([[], *items[1:]], [[], *p[1:]]), [op.DR()])
    plain = op.evaluate(log, op.Candidates(items, p), [op.DR()])["DR"].value
    assert op.evaluate(log, op.Candidates(listed["items"], listed["new"]), [op.DR()])["DR"].value == plain
    table = pa.table(
        {
            **{f"x{j}": listed["context"][:, j] for j in range(3)}, "action": listed["action"], "reward": listed["reward"],
            "items": pa.FixedSizeListArray.from_arrays(pa.array(listed["items"].ravel()), LISTED),
            "p": pa.FixedSizeListArray.from_arrays(pa.array(listed["new"].ravel()), LISTED),
        }
    )  # fmt: skip
    read = op.read_log(
        table, context=["x0", "x1", "x2"], action="action", reward="reward", n_actions=A, logging=op.Uniform()
    )
    assert op.evaluate(read, op.Candidates("items", "p"), [op.SNIPS()])["SNIPS"].n == N


def test_single_precision_agrees_with_its_own_propensities() -> None:
    rng = np.random.default_rng(0)
    items = rng.normal(size=(50, 3)).astype(np.float32)
    x, action = rng.normal(size=(500, 3)), rng.integers(0, 50, 500)
    policy = op.Softmax(op.TwoTower(items), 0.05)
    exact = op.Softmax(op.TwoTower(items.astype(np.float64)), 0.05)
    (batch,) = op.Log(x, action, x[:, 0], n_actions=50).batches()
    chance = exact.probabilities(batch, batch.action)
    likely = chance > 1e-6
    log = op.Log(x[likely], action[likely], x[likely, 0], n_actions=50, propensity=chance[likely], logging=policy)
    assert np.isfinite(op.evaluate(log, policy, [op.SNIPS()])["SNIPS"].value)
    assert policy.answers(batch, np.empty((50, 0)), np.arange(500), action)[1].max() <= 1


@pytest.mark.parametrize(("points", "count"), [(50, 50), (700, 9), (9_000, 40)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_nearest_are_the_nearest(points: int, count: int, scale: float) -> None:
    z = np.random.default_rng(0).normal(size=(points, 3)) * scale + 5 * scale
    asked = z[:20]
    exact = np.argsort(((asked[:, None] - z) ** 2).sum(axis=2), axis=1)[:, :count]
    found = nearest_of(z, asked, count)
    assert [set(row) for row in found.tolist()] == [set(row) for row in exact.tolist()]
    assert nearest_of(np.zeros((points, 2)), np.zeros((3, 2)), count).shape == (3, count)  # all at one place
