"""Rows that repeat a `row_id` are counted and reported, and a constant one is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import offpolicy as op
from offpolicy.diagnostics.row_ids import SAMPLED_ROWS, RowIds

COLUMNS: dict[str, Any] = {"context": "x", "action": "item", "reward": "click", "propensity": "p"}


def frame(n: int = 2_000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.arange(n), "user": np.arange(n) // 4, "x": rng.normal(size=n), "item": rng.integers(0, 2, n),
            "click": rng.integers(0, 2, n) * 1.0, "p": 0.5,
        }
    )  # fmt: skip


def evaluated(data: pd.DataFrame, **more: Any) -> op.Estimate:
    return op.evaluate(op.read_log(data, **COLUMNS, **more), op.Uniform(), [op.SNIPS()])["SNIPS"]


def found(estimate: op.Estimate) -> op.Finding | None:
    return next((reason for reason in estimate.reasons if reason.code == "repeated row ids"), None)


def test_ids_that_are_unique_raise_no_concern() -> None:
    estimate = evaluated(frame(), row_id="id")
    assert found(estimate) is None
    assert estimate.diagnostics["repeated_row_ids"] == 0


@pytest.mark.parametrize("cluster", [None, "user"])
def test_rows_doubled_under_one_id_are_counted(cluster: str | None) -> None:
    once = frame()
    finding = found(evaluated(pd.concat([once, once]), row_id="id", cluster=cluster))
    assert finding is not None
    assert finding.verdict is op.Verdict.CAUTION
    assert "2,000 of 4,000 rows have a row_id that occurred before (one id has 2 rows)" in finding.seen
    assert found(evaluated(pd.concat([once, once]), cluster=cluster)) is None  # without ids nothing is known


def test_arrays_have_ids_too() -> None:
    data = frame()
    log = op.Log(data[["x"]], data["item"], data["click"], propensity=data["p"], row_id=data["id"] // 2)
    finding = found(op.evaluate(log, op.Uniform(), [op.SNIPS()])["SNIPS"])
    assert finding is not None
    assert "1,000 of 2,000 rows" in finding.seen


def test_a_file_that_is_read_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        frame().to_parquet(tmp_path / f"{name}.parquet")
    result = op.evaluate(op.read_log(tmp_path, **COLUMNS, row_id="id"), op.Uniform(), [op.SNIPS()])
    assert "2,000 of 4,000 rows" in result.to_markdown()


def test_a_sample_of_the_ids_is_enough_for_a_long_log() -> None:
    """In any order and partitioning, and within the error of a sample of that size."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 2**64, 400_000, dtype=np.uint64)
    ids = rng.permutation(np.concatenate([ids, ids[:100_000]]))
    check = RowIds.of(len(ids))
    batch = next(iter(op.Log(None, [0, 1] * 250_000, [0.0, 1.0] * 250_000, row_id=np.arange(500_000)).batches(500_000)))
    whole = replace(batch, row_id=ids)

    def state(edges: np.ndarray) -> dict[str, np.ndarray]:
        total = check.zero()
        for a, b in pairwise(edges):
            total = check.merge(total, check.fold(check.zero(), whole.take(slice(a, b)), None))  # type: ignore[arg-type]
        return total

    few, many = state(np.array([0, 7, 250_000, 500_000])), state(np.linspace(0, 500_000, 51).astype(int))
    for name in few:
        np.testing.assert_array_equal(few[name], many[name])
    assert few["rows"].sum() == pytest.approx(SAMPLED_ROWS, rel=0.05)
    share = 1 - len(few["ids"]) / few["rows"].sum()
    assert share == pytest.approx(0.2, abs=4 * np.sqrt(0.2 * 0.8 / SAMPLED_ROWS))


def test_a_constant_id_is_refused() -> None:
    with pytest.raises(op.InputError, match=r"row_id: all of the first 1,024 rows have the same value.*`cluster`"):
        evaluated(frame().assign(id=7), row_id="id")
    data = frame(10)
    log = op.Log(data[["x"]], data["item"], data["click"], propensity=data["p"], row_id=np.zeros(10))
    with pytest.raises(op.InputError, match="all of the first 10 rows have the same value"):
        op.evaluate(log, op.Uniform(), [op.SNIPS()])


def test_a_short_first_file_is_no_constant_id(tmp_path: Path) -> None:
    """Its one row, or one row that was logged twice, says nothing about the others."""
    data = frame(50)
    for name, part in (("a", data[:1]), ("b", data[1:])):
        part.to_parquet(tmp_path / f"{name}.parquet")
    assert found(op.evaluate(op.read_log(tmp_path, **COLUMNS, row_id="id"), op.Uniform(), [op.SNIPS()])["SNIPS"]) is None
    pd.concat([data[:1], data[:1]]).to_parquet(tmp_path / "a.parquet")
    twice = found(op.evaluate(op.read_log(tmp_path, **COLUMNS, row_id="id"), op.Uniform(), [op.SNIPS()])["SNIPS"])
    assert twice is not None
    assert "1 of 51 rows" in twice.seen
