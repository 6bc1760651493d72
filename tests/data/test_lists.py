"""Logs of lists: the same answer from arrays, list columns, CSV cells and the long form, and what is wrong in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, classic

N, K, A = 400, 3, 5
POLICY = op.Factored(op.Softmax(lambda x: np.column_stack([x, -x, 0 * x, 2 * x, x])))
EVERY = [op.LoggedMean(), op.SIPS(), op.RIPS(True), op.DM()]


def columns() -> dict[str, Any]:
    """Lists of one to three items, drawn uniformly with replacement."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, K + 1, N)
    labels = np.array(list("abcde"))
    return {
        "id": [f"list {k}" for k in range(N)],
        "x": rng.normal(size=N).round(3).tolist(),
        "items": [labels[rng.integers(A, size=n)].tolist() for n in lengths],
        "clicks": [rng.integers(2, size=n).astype(float).tolist() for n in lengths],
        "p": [[0.2] * n for n in lengths],
    }


def table() -> pa.Table:
    return pa.table(columns())


def long(**more: Any) -> pa.Table:
    """One row per slot, the slots of each list in reverse order."""
    c = columns()
    rows = [(k, s) for k in range(N) for s in reversed(range(len(c["items"][k])))]
    made = {
        "id": [c["id"][k] for k, _ in rows], "x": [c["x"][k] for k, _ in rows], "slot": [s + 1 for _, s in rows],
        **{name: [c[name][k][s] for k, s in rows] for name in ("items", "clicks", "p")},
    }  # fmt: skip
    return pa.table(made | more)


ROLES: dict[str, Any] = {
    "context": "x", "action": "items", "reward": "clicks", "propensity": "p", "actions": op.Slate(K), "gain": "dcg",
    "row_id": "id",
}  # fmt: skip
LONG = {**ROLES, "list_id": "id", "slot": "slot"}


def values(log: op.Log, **more: Any) -> list[float]:
    return [number for e in op.evaluate(log, POLICY, EVERY, **more) for number in (e.value, e.std_error)]


@pytest.fixture(scope="module")
def expected() -> list[float]:
    c = columns()
    log = op.Log(c["x"], c["items"], c["clicks"], propensity=c["p"], actions=op.Slate(K), gain="dcg", row_id=c["id"])
    assert repr(log) == "Log(400 rounds, actions: lists of up to 3 of 5 items, context 1, rewards ['reward'])"
    return values(log)


def test_every_source_gives_the_same_answer(tmp_path: Path, expected: list[float]) -> None:
    whole = table()
    pq.write_table(whole.slice(0, 150), tmp_path / "a.parquet", row_group_size=40)
    pq.write_table(whole.slice(150), tmp_path / "b.parquet")
    cells = {
        name: ["|".join(map(str, cell)) if isinstance(cell, list) else cell for cell in each]
        for name, each in columns().items()
    }
    pa_csv.write_csv(pa.table(cells), tmp_path / "cells.csv")
    for source in (whole, tmp_path, tmp_path / "cells.csv"):
        read = op.read_log(str(source / "*.parquet") if source == tmp_path else source, **ROLES)
        assert values(read) == pytest.approx(expected, rel=1e-12)
        assert values(read, engine=op.Local(threads=1, batch_rows=17)) == values(read)
    assert read.actions.tolist() == list("abcde")


def test_the_long_form_is_grouped_while_it_streams(tmp_path: Path, expected: list[float]) -> None:
    rows = long()
    pq.write_table(rows, tmp_path / "long.parquet", row_group_size=7)
    pa_csv.write_csv(rows, tmp_path / "long.csv")
    for source in (rows, tmp_path / "long.parquet", tmp_path / "long.csv"):
        read = op.read_log(source, **LONG)
        assert len(read) == N
        assert values(read) == pytest.approx(expected, rel=1e-12)
        assert values(read, engine=op.Local(threads=1, batch_rows=17)) == values(read)


@pytest.mark.parametrize(("changed", "message"), [
    ({"id": ["list 0"] + ["list 1"] * 2 + ["list 0"] * 2}, r"id: 1 row is part of a list that began elsewhere \(first, .*: 2\)"),
    ({"slot": [1, 3, 1, 1, 2]}, r"slot: the slots of 1 lists are not 1, 2, 3, … \(nor 0, 1, 2, …\); the first has 1, 3"),
    ({"x": [1.0, 2.0, 3.0, 3.0, 3.0]}, "x: 1 rows differ from the first row of their list"),
])  # fmt: skip
def test_what_is_wrong_in_the_long_form(changed: dict[str, Any], message: str) -> None:
    rows = {
        "id": ["list 0", "list 0", "list 1", "list 2", "list 2"], "slot": [1, 2, 1, 1, 2], "x": [1.0, 1.0, 2.0, 3.0, 3.0],
        "items": list("ababa"), "clicks": [1.0, 0, 1, 0, 1], "p": [0.5] * 5,
    }  # fmt: skip
    with pytest.raises(op.InputError, match=message):
        op.evaluate(op.read_log(pa.table(rows | changed), **LONG), op.Factored(op.Uniform()), [op.SIPS()])


@pytest.mark.parametrize(("changed", "message"), [
    ({"p": [["0.5", "often"], ["0.5"]]}, r"p: 1 row holds text instead of a number .the first: slot 2, .often.*row 0"),
    ({"clicks": [[1.0, 0], [1.0, 1]]}, r"clicks: 1 row has lists of different lengths .* slot 2\) \(first, .*: row 1\)"),
    ({"clicks": [[1.0, None], [1.0]]}, r"clicks: 1 row is missing, NaN or infinite \(the first: slot 2\)"),
    ({"p": [[0.5, 0.5], [1.5]]}, r"p: 1 row has a propensity above 1 \(the first: slot 1\) \(first, .*: row 1\)"),
    ({"p": [[0.5], [0.5]]}, "p: 1 row has lists of different lengths"),
    ({"items": [["a", "b", "c", "a"], ["b"]]}, r"items: 1 row has more items than slots \(the first: 4 items, 3 slots\)"),
    ({"items": [["a", None], ["b"]]}, r"items: 1 row has a missing item \(the first: slot 2\)"),
    ({"actions": op.Slate(K, ["b", "c"])}, r"items: 1 row has an item that is not among the 2 known \('a', in slot 1\)"),
    ({"gain": [1, 2]}, "gain has shape .2,.; give one finite number for each of the 3 slots"),
    ({"position_propensity": "x"}, "x has one number per row; give a list with one number per item"),
])  # fmt: skip
def test_what_is_wrong_names_column_round_and_slot(changed: dict[str, Any], message: str) -> None:
    made: dict[str, Any] = {
        "x": [1.0, 2.0],
        "items": [["a", "b"], ["b"]],
        "clicks": [[1.0, 0], [1.0]],
        "p": [[0.5, 0.5], [0.5]],
    }
    made |= {name: value for name, value in changed.items() if name in made}
    roles = {**ROLES, **{name: value for name, value in changed.items() if name not in made}}
    del roles["row_id"]
    with pytest.raises(op.InputError, match=message):
        op.evaluate(op.read_log(pa.table(made), **roles), op.Factored(op.Uniform()), [op.SIPS()])


def test_roles_of_lists_are_refused_for_single_actions() -> None:
    with pytest.raises(op.InputError, match=r"position_propensity= and gain= are for lists; give actions=op.Slate"):
        op.Log(None, [0, 1], [0, 1], propensity=[0.5, 0.5], gain="dcg")
    with pytest.raises(op.InputError, match="list_id= is for lists"):
        op.read_log(long(), context="x", action="items", reward="clicks", propensity="p", list_id="id")
    with pytest.raises(op.InputError, match=r"GroupIPS cannot be computed: it weights rounds by discrete actions"):
        op.evaluate(op.read_log(table(), **ROLES), POLICY, [op.GroupIPS()])


def test_a_column_of_the_new_policy_in_both_forms() -> None:
    c = columns()
    new = [np.linspace(0.3, 0.5, len(each)).tolist() for each in c["items"]]
    flat = [p for each in new for p in reversed(each)]
    wide = op.read_log(pa.table(c | {"new": new}), **ROLES)
    rows = op.read_log(long(new=flat), **LONG)
    made = [op.evaluate(log, "new", [op.SIPS(), op.RIPS()]) for log in (wide, rows)]
    assert [e.value for e in made[0]] == pytest.approx([e.value for e in made[1]], rel=1e-12)


@NEEDS_SPARK
@OWN_WARNINGS
def test_spark_gives_the_same_answer(expected: list[float]) -> None:
    spark = classic()
    for frame, roles in ((table(), ROLES), (long(), LONG)):
        log = op.read_log(spark.createDataFrame(frame.to_pandas()).repartition(3), **roles)
        assert values(log) == pytest.approx(expected, rel=1e-9)


def test_missing_rewards_among_lists_of_equal_length_are_refused() -> None:
    """Such lists are read as a matrix, whose −1 and NaN mean something else in items and at their ends."""
    items, old = [[2, 1], [2, 2], [3, 2]], op.Factored(op.Uniform())
    with pytest.raises(op.InputError, match="1 row is missing, NaN or infinite"):
        op.Log(None, items, [[0.0, 1.0], [np.nan, 1.0], [0.0, 1.0]], logging=old, actions=op.Slate(3, 4))
    log = op.Log(None, items, [[0, 1], [1, -1], [0, -1]], logging=old, actions=op.Slate(3, 4))
    assert log.head().slots.reward[:, 0].tolist() == [[0, 1, 0], [1, -1, 0], [0, -1, 0]]
    with pytest.raises(op.InputError, match="action"):
        op.Log(None, [[0, np.inf], [1, 2]], [[0.0, 1.0]] * 2, logging=old, actions=op.Slate(3, 4))
    with pytest.raises(op.InputError, match="gain has shape"):
        op.Log(None, items, [[0, 1]] * 3, logging=old, actions=op.Slate(3, 4), gain=[1e300] * 3)
