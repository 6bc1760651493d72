"""Saved embeddings come back as they were, and are catalogs for other logs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from tests.logs import Small, labelled


def test_an_embedding_comes_back(both: tuple[Small, Small], tmp_path: Path) -> None:
    table = op.embed(labelled(both[0]), rewards=op.Ridge(penalty=3.0))
    table.save(tmp_path / "e.parquet")
    again = op.load_embedding(tmp_path / "e.parquet")
    for name in ("actions", "counts", "reward", "values", "published", "scaled"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
    assert again.model == "Ridge(penalty=3.0)"
    assert again.nearest("fir") == table.nearest("fir")
    columns = pq.read_table(tmp_path / "e.parquet").column_names  # any tool reads it
    assert columns == ["action", "count", "reward", "e0", "e1", "e2", "published", "scaled"]


def test_an_embedding_of_features_has_no_reward_and_codes_stay_numbers(small: Small, tmp_path: Path) -> None:
    log = small.log(action_features=small.features)
    table = op.evaluate(log, small.target, [op.MIPS()])["MIPS"].embedding
    table.save(tmp_path / "e.pq")
    again = op.load_embedding(tmp_path / "e.pq")
    assert again.reward is None
    assert again.actions.tolist() == [0, 1, 2, 3]


def test_an_embedding_is_a_catalog_for_another_log(both: tuple[Small, Small]) -> None:
    table = op.embed(labelled(both[0]))
    other = table.aligned(np.array(["fir", "ash"]))
    np.testing.assert_array_equal(other.values, table.values[[3, 0]])
    with pytest.raises(
        op.InputError, match="the embedding does not include 2 of the 3 actions of the log: 'oak', 'yew'.*'ash'"
    ):
        table.aligned(np.array(["oak", "ash", "yew"]))


def edited_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def said_of(table: pa.Table, **other: Any) -> pa.Table:
    about = {**json.loads(table.schema.metadata[b"offpolicy"]), **other}
    return table.replace_schema_metadata({b"offpolicy": json.dumps(about)})


def with_column(name: str, value: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, name, value(table.column(at)))

    return change


def first(value: float | None) -> Callable[[pa.ChunkedArray], Any]:
    return lambda column: pa.array([value, *column.to_pylist()[1:]], pa.float64())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: said_of(t, version=2),
            "newer release of offpolicy, in version 2 of the format; this release reads up to version 1.*Upgrade",
        ),
        (lambda t: said_of(t, version="1"), "its version is '1'"),
        (
            lambda t: said_of(t, format="offpolicy/rewards"),
            "contains a saved rewards, not a saved embedding; op.load_rewards",
        ),
        (lambda t: t.replace_schema_metadata({}), "is not a saved embedding"),
        (lambda t: said_of(t, sha256="0" * 64), "does not match its checksum"),
        (lambda t: said_of(t, model="Ridge(rank=1)"), "does not match its checksum"),
        (with_column("e0", first(7.0)), "does not match its checksum"),
        (with_column("action", lambda c: pa.array(["oak", *c.to_pylist()[1:]])), "does not match its checksum"),
        (with_column("e0", first(math.nan)), "the column 'e0' does not hold a finite number"),
        (with_column("count", first(None)), "the column 'count' does not hold a finite number"),
        (with_column("e1", lambda c: c.cast(pa.float32())), "the column 'e1' does not hold"),
        (with_column("scaled", lambda c: pa.array([[1.0]] * len(c))), "the column 'scaled' does not hold"),
        (lambda t: t.slice(1), "does not match its checksum"),
        (lambda t: t.drop_columns(["e0"]), "its columns are action, count"),
    ],
)
def test_an_embedding_that_was_edited_is_refused(
    both: tuple[Small, Small], tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = tmp_path / "e.parquet"
    op.embed(labelled(both[0])).save(path)
    edited_table(path, change)
    with pytest.raises(op.InputError, match=message) as raised:
        op.load_embedding(path)
    assert str(path) in str(raised.value)


def test_a_file_that_ends_early_is_named(both: tuple[Small, Small], tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    op.embed(labelled(both[0])).save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(op.InputError, match=r"e.parquet: it cannot be read as Parquet.*save it again"):
        op.load_embedding(path)
    with pytest.raises(op.InputError, match="no such file"):
        op.load_embedding(tmp_path / "other.parquet")
    with pytest.raises(op.InputError, match="must end in .parquet"):
        op.embed(labelled(both[0])).save(tmp_path / "e.csv")
