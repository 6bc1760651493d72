"""Very many actions: lists give what grids give, two towers what a matrix gives, and nothing grows with rounds × actions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.estimators import REGISTRY

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


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_lists_give_what_a_matrix_gives(listed: dict[str, np.ndarray], name: str) -> None:
    estimator = REGISTRY[name]()
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
    assert a.std_error == pytest.approx(b.std_error, rel=1e-5)  # the fit's share is summed in single precision
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
            assert left.std_error == pytest.approx(right.std_error, rel=1e-5)


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
    with pytest.raises(op.InputError, match="user vectors of shape .* 4 dimensions"):
        op.evaluate(log, op.Softmax(op.TwoTower(np.zeros((A, 4)))))
    with pytest.raises(op.InputError, match="finite matrix"):
        op.TwoTower(np.full((A, 3), np.nan))
