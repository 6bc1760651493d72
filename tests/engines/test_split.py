"""`op.split`: two logs without a common unit, the same on every engine, that read one source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.core.hashing import buckets
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, SESSIONS

N, USERS = 3_000, 400
SETTINGS: dict[str, Any] = {"context": ["x"], "action": "item", "reward": "reward", "propensity": "p", "cluster": "user"}


def make_table(seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    item = rng.integers(0, 3, N)
    x = rng.normal(size=N)
    return pa.table({
        "x": x, "item": item, "reward": x * (item - 1) + rng.normal(size=N), "p": np.full(N, 1 / 3),
        "user": [f"u{user}" for user in rng.integers(0, USERS, N)], "id": np.arange(N),
    })  # fmt: skip


TABLE = make_table()


def read(source: Any = TABLE, **more: Any) -> op.Log:
    return op.read_log(source, **{**SETTINGS, **more})


def rows(log: op.Log) -> np.ndarray:
    return np.concatenate([batch.row for batch in log.batches(257)])


def rewards(log: op.Log) -> list[float]:
    return sorted(value for batch in log.batches() for value in batch.reward[:, 0].tolist())


def target() -> op.Policy:
    return op.Softmax(lambda x: np.outer(x[:, 0], [-1.0, 0.0, 1.0]))


@pytest.mark.parametrize("unit", ["cluster", "row_id", None])
def test_every_unit_is_on_one_side(unit: str | None) -> None:
    log = read(cluster="user" if unit == "cluster" else None, row_id="id" if unit == "row_id" else None)
    first, second = op.split(log, 0.3)
    assert len(first) + len(second) == len(log)
    assert sorted([*rows(first), *rows(second)]) == list(range(N))
    assert (len(rows(first)), len(rows(second))) == (len(first), len(second))
    users = np.array(TABLE["user"].to_pylist())
    shared = set(users[rows(first)]) & set(users[rows(second)])
    assert shared == set() if unit == "cluster" else shared


def test_the_share_is_that_of_the_units() -> None:
    n = 40_000
    log = op.Log(None, action=np.arange(n) % 2, reward=np.ones(n), propensity=np.full(n, 0.5))
    for share in (0.01, 0.3, 0.5, 0.9):
        assert abs(len(op.split(log, share)[0]) / n - share) < 4 * np.sqrt(share * (1 - share) / n)


def test_a_unit_is_on_the_same_side_wherever_it_is_read(tmp_path: Path) -> None:
    """In memory, in files cut anywhere, in any order, and beside other units."""
    expected = rewards(op.split(read(), 0.4)[0])
    (tmp_path / "parts").mkdir()
    for k in range(3):
        pq.write_table(TABLE.slice(1_000 * k, 1_000), tmp_path / "parts" / f"{k}.parquet", row_group_size=170)
    pa_csv.write_csv(TABLE, tmp_path / "log.csv")
    shuffled = TABLE.take(np.random.default_rng(1).permutation(N))
    for source in (tmp_path / "parts", tmp_path / "log.csv", shuffled):
        assert rewards(op.split(read(source), 0.4)[0]) == pytest.approx(expected)
    more = pa.concat_tables([TABLE, make_table(1).set_column(4, "user", pa.array([f"v{i}" for i in range(N)]))])
    assert set(expected) <= set(rewards(op.split(read(more), 0.4)[0]))
    arrays = op.Log(
        TABLE["x"].to_numpy()[:, None], TABLE["item"].to_numpy(), TABLE["reward"].to_numpy(), propensity=TABLE["p"].to_numpy(),
        cluster=TABLE["user"].to_pylist(),
    )  # fmt: skip
    assert rewards(op.split(arrays, 0.4)[0]) == expected


def test_a_part_is_evaluated_like_a_log_of_its_rows() -> None:
    first, second = op.split(read(), 0.4)
    for part in (first, second):
        alone = read(TABLE.take(rows(part)))
        for log in (part, alone):
            assert len(log) == len(part)
        got, expected = (op.evaluate(log, target(), [op.SNIPS(), op.DR()]) for log in (part, alone))
        for name in ("SNIPS", "DR"):
            assert got[name].value == pytest.approx(expected[name].value, rel=1e-9)
            assert got[name].std_error == pytest.approx(expected[name].std_error, rel=1e-9)
        assert got.rounds == len(part)


def test_propensities_are_estimated_from_the_part_alone() -> None:
    part = op.split(read(propensity=None, logging=op.EstimatedLogging()), 0.5)[1]
    alone = read(TABLE.take(rows(part)), propensity=None, logging=op.EstimatedLogging())
    got, expected = (op.evaluate(log, target(), op.SNIPS())["SNIPS"].value for log in (part, alone))
    assert got == pytest.approx(expected, rel=1e-6)


def test_threads_and_batches_do_not_matter() -> None:
    part = op.split(read(), 0.4)[1]
    values = {
        op.evaluate(part, target(), op.DR(), engine=op.Local(threads, batch))["DR"].value
        for threads, batch in ((1, None), (2, 333))
    }
    assert len(values) == 1


def test_policies_by_row_follow_the_whole_log() -> None:
    log = read()
    p = np.random.default_rng(3).dirichlet(np.ones(3), N)
    part = op.split(log, 0.5)[0]
    taken = p[rows(part)]
    expected = op.evaluate(read(TABLE.take(rows(part))), op.Table(taken), op.SNIPS())["SNIPS"].value
    assert op.evaluate(part, op.Table(p), op.SNIPS())["SNIPS"].value == pytest.approx(expected, rel=1e-9)
    logged = p[np.arange(N), TABLE["item"].to_numpy()]
    assert op.evaluate(part, op.Column(logged), op.SNIPS())["SNIPS"].value == pytest.approx(expected, rel=1e-9)
    with pytest.raises(op.InputError, match="3000 rounds"):
        op.evaluate(part, op.Table(taken), op.SNIPS())


def test_a_part_can_be_split_again() -> None:
    log = read(cluster=None)
    half, rest = op.split(log, 0.5)
    quarter, other = op.split(half, 0.5)
    assert sorted([*rows(quarter), *rows(other), *rows(rest)]) == list(range(N))
    assert 0.2 < len(quarter) / N < 0.3
    assert rows(quarter).tolist() == rows(op.split(log, 0.25)[0]).tolist()


def test_seeds_and_folds_are_independent() -> None:
    log = read(cluster=None)
    first = op.split(log, 0.5)[0]
    both = len(op.split(first, 0.5, seed=1)[0])
    assert abs(both / len(first) - 0.5) < 4 * np.sqrt(0.25 / len(first))
    unit = np.concatenate([batch.unit for batch in first.batches()])
    per_fold = np.bincount(buckets(unit, 0) * 5 // 4096, minlength=5)
    assert (np.abs(per_fold - len(first) / 5) < 4 * np.sqrt(len(first) * 0.16)).all()


def test_no_row_is_copied() -> None:
    log = read()
    for part in op.split(log, 0.3):
        assert part.source is log.source
        assert "of its units" in op.evaluate(part, target(), op.SNIPS()).input["source"]
    assert "0.7 of its units" in part.described


@OWN_WARNINGS
@pytest.mark.parametrize("session", [pytest.param(name, marks=NEEDS_SPARK) for name in SESSIONS])
def test_spark_selects_the_same_units(session: str, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "log.parquet", row_group_size=500)
    local = op.split(read(tmp_path / "log.parquet"), 0.4)
    cluster = op.split(read(SESSIONS[session]().read.parquet(str(tmp_path / "log.parquet")).repartition(3)), 0.4)
    for here, there in zip(local, cluster, strict=True):
        assert len(here) == len(there)
        got, expected = (op.evaluate(log, target(), [op.SNIPS(), op.DR()]) for log in (there, here))
        for name in ("SNIPS", "DR"):
            assert got[name].value == pytest.approx(expected[name].value, rel=1e-9)
            assert got[name].std_error == pytest.approx(expected[name].std_error, rel=1e-9)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, "half", float("nan"), None, True])
def test_a_share_that_is_none(share: Any) -> None:
    with pytest.raises(op.InputError, match="share is .*it must lie between 0 and 1"):
        op.split(read(), share)


def test_a_part_needs_rounds() -> None:
    with pytest.raises(op.InputError, match="leaves 0 of 3,000 rounds to the first log"):
        op.split(read(), 1e-9)
    with pytest.raises(op.InputError, match="a cluster with more values"):
        op.split(read(TABLE.set_column(4, "user", pa.array(["one"] * N))), 0.5)
    with pytest.raises(op.InputError, match=r"op\.read_log"):
        op.split(TABLE, 0.5)
