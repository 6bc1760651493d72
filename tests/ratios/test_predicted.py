"""`Predicted`: weights of actions pooled by their predicted reward in the context of the round."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.core.hashing import buckets, group_of_bucket
from tests.logs import Small
from tests.ratios.test_embeddings import value, weights


def pooled(log: op.Log, coef: np.ndarray, width: float, target: op.Policy, logging: op.Policy) -> np.ndarray:
    """The weights in the ratio form, as dense arrays; `coef` has slopes, then the level at a context of 0."""
    rounds = log.head(len(log))
    q = np.column_stack([rounds.context, np.ones(len(rounds))]) @ coef.T
    own = q[np.arange(len(q)), rounds.action]
    near = np.exp(-(((q - own[:, None]) / width) ** 2) / 2)
    pi, pi0 = (policy.over(log.space).probabilities(rounds) for policy in (target, logging))
    return (near * pi).sum(axis=1) / (near * pi0).sum(axis=1)


def width_of(table: op.EmbeddingTable, bandwidth: float) -> float:
    share = table.counts / table.counts.sum()
    return bandwidth * float(np.sqrt((share @ (table.values - share @ table.values) ** 2).sum()))


def test_weights_by_hand(tmp_path: object) -> None:
    world = op.worlds.Linear(6, seed=2)
    log = world.sample(300, 0)
    table = op.embed(log, rewards=op.Ridge(1.0))
    expected = pooled(log, table.published, width_of(table, 0.4), world.target, world.logging)
    learned = op.LearnedMIPS("identity", op.Ridge(1.0), op.Predicted(0.4))
    np.testing.assert_allclose(weights(log, world.target, learned, tmp_path), expected, rtol=1e-9)


@pytest.mark.parametrize("normalised", [True, False])
def test_no_bandwidth_is_ips_and_an_infinite_one_the_mean_of_the_log(small: Small, normalised: bool) -> None:
    log, plain = small.log(), op.SNIPS() if normalised else op.IPS()
    narrow = op.LearnedMIPS(posterior=op.Predicted(1e-9), normalised=normalised)
    assert value(log, small.target, narrow) == pytest.approx(value(log, small.target, plain), rel=1e-9)
    wide = op.LearnedMIPS(posterior=op.Predicted(1e9), normalised=normalised)
    assert value(log, small.target, wide) == pytest.approx(small.reward.mean(), rel=1e-9)


def test_lists_and_grids_give_the_same_weights() -> None:
    world = op.worlds.Linear(12, seed=3)
    log = world.sample(400, 0)
    rounds = log.head(400)
    target, logging = (p.over(world.space).probabilities(rounds) for p in (world.target, world.logging))
    lists = [list(range(12))] * 400
    table = pa.table(
        {f"x{k}": rounds.context[:, k] for k in range(rounds.context.shape[1])}
        | {"a": rounds.action, "r": rounds.reward[:, 0], "items": pa.array(lists), "p": pa.array(target.tolist())}
        | {"p0": pa.array(logging.tolist())}
    )
    context = [name for name in table.column_names if name.startswith("x")]
    listed = op.read_log(
        table, context=context, action="a", reward="r", logging=op.Candidates("items", "p0"), actions=range(12)
    )
    learned = op.LearnedMIPS("identity", op.Ridge(1.0), op.Predicted(0.3))
    dense = value(log, world.target, learned)
    assert value(listed, op.Candidates("items", "p"), learned) == pytest.approx(dense, rel=1e-9)


def test_the_error_of_the_fit_follows_refits_without_each_group() -> None:
    """First-order changes against weights that are recomputed from a model fitted without the group."""
    world, n = op.worlds.Linear(8, seed=1), 4_000
    log = world.sample(n, 0)
    estimate = op.evaluate(log, world.target, [op.LearnedMIPS("identity", op.Ridge(1.0), op.Predicted(0.5))])["LearnedMIPS"]
    assert estimate.error_covers == "sampling+fit"
    moves, rounds = estimate.evidence.functional.fit, log.head(n)
    group = group_of_bucket(len(moves))[buckets(rounds.unit, 0)]
    whole = op.embed(log, rewards=op.Ridge(1.0))

    def refitted(without: int) -> float:
        rest = group != without
        others = op.Log(rounds.context[rest], rounds.action[rest], rounds.reward[rest, 0], n_actions=8)
        coef = op.embed(others, rewards=op.Ridge(1.0)).published
        w = pooled(log, coef, width_of(whole, 0.5), world.target, world.logging)
        return float(w @ rounds.reward[:, 0] / w.sum()) - estimate.value

    exact = np.array([refitted(g) for g in range(len(moves))])
    assert np.corrcoef(exact, moves)[0, 1] > 0.98
    assert moves.std() == pytest.approx(exact.std(), rel=0.15)


def test_it_needs_a_model_that_is_linear_in_the_context(small: Small) -> None:
    with pytest.raises(op.InputError, match="linear in the context"):
        op.evaluate(small.log(), small.target, [op.LearnedMIPS("identity", op.Ridge(rank=1), op.Predicted(0.3))])
    with pytest.raises(op.InputError, match="bandwidth is -1"):
        op.Predicted(-1)
