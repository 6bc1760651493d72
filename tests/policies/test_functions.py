"""Functions of named columns: the same answer as from contexts, wherever the log comes from, and clear errors."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.core.describe import described
from offpolicy.policies.text import policy
from offpolicy.worlds import Linear

W = np.random.default_rng(5).normal(size=(2, 3))
ITEMS = np.random.default_rng(6).normal(size=(3, 2))
NAMES = {"arrays": ["x0", "x1"], "table": ["age", "recency"]}
ROLES: dict[str, Any] = {"context": ["age", "recency"], "action": "item", "reward": "click", "propensity": "p"}
N = 300


def table(n: int = N) -> pa.Table:
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "age": rng.normal(size=n),
            "recency": rng.normal(size=n),
            "item": rng.integers(0, 3, n),
            "click": rng.integers(0, 2, n).astype(float),
            "p": np.full(n, 1 / 3),
            "country": np.array(["DE", "FR"])[rng.integers(0, 2, n)],
            "minor": rng.random(n) < 0.3,
        }
    )


def read(source: Any, **more: Any) -> op.Log:
    return op.read_log(source, **{**ROLES, "n_actions": 3, **more})


def in_memory() -> op.Log:
    rows = table().to_pandas()
    return op.Log(rows[["age", "recency"]].to_numpy(), rows["item"], rows["click"], propensity=rows["p"], n_actions=3)


def logs(folder: Path) -> dict[str, op.Log]:
    pq.write_table(table(), folder / "log.parquet", row_group_size=90)
    pyarrow.csv.write_csv(table(), folder / "log.csv")
    return {
        "arrays": in_memory(),
        "parquet": read(folder / "log.parquet"),
        "csv": read(folder / "log.csv"),
        "pandas": read(table().to_pandas()),
    }


def contexts(x: np.ndarray) -> np.ndarray:
    p = np.exp(x @ W)
    return p / p.sum(axis=1, keepdims=True)


def stacked(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.column_stack(list(columns.values()))


KINDS: dict[str, tuple[op.Policy, Callable[[list[str]], op.Policy]]] = {
    "function": (op.Function(contexts), lambda names: op.Function(lambda c: contexts(stacked(c)), columns=names)),
    "softmax": (
        op.Softmax(lambda x: x @ W, 0.5),
        lambda names: op.Softmax(lambda c: stacked(c) @ W, 0.5, columns=names),
    ),
    "greedy": (
        op.EpsilonGreedy(lambda x: x @ W, 0.2),
        lambda names: op.EpsilonGreedy(lambda c: stacked(c) @ W, 0.2, columns=names),
    ),
    "towers": (
        op.Softmax(op.TwoTower(ITEMS, lambda x: 2 * x)),
        lambda names: op.Softmax(op.TwoTower(ITEMS, lambda c: 2 * stacked(c), columns=names)),
    ),
    "mixture": (
        op.Mixture([contexts, op.Uniform()], [0.6, 0.4]),
        lambda names: op.Mixture([op.Function(lambda c: contexts(stacked(c)), names), op.Uniform()], [0.6, 0.4]),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_named_columns_give_what_contexts_give(tmp_path: Path, kind: str) -> None:
    nameless, named = KINDS[kind]
    for source, log in logs(tmp_path).items():
        policy = named(NAMES.get(source, NAMES["table"]))
        got, expected = (op.evaluate(log, p, [op.SNIPS(), op.DR()]) for p in (policy, nameless))
        for name in ("SNIPS", "DR"):
            assert got[name].value == pytest.approx(expected[name].value, rel=1e-12), source
            assert got[name].std_error == pytest.approx(expected[name].std_error, rel=1e-9), source


def test_candidates_and_named_columns_go_together() -> None:
    lists = pa.array([[0, 2] if k % 2 else [1, 2, 0] for k in range(N)])
    log = read(table().append_column("items", lists))
    seen: list[set[str]] = []

    def score(columns: dict[str, np.ndarray]) -> np.ndarray:
        seen.append(set(columns))
        return stacked(columns) @ W

    policy = op.Softmax(score, candidates="items", columns=["age", "recency"])
    assert policy.columns == ("items", "age", "recency")
    expected = op.evaluate(log, op.Softmax(lambda x: x @ W, candidates="items"), [op.IPS()])["IPS"].value
    assert op.evaluate(log, policy, [op.IPS()])["IPS"].value == pytest.approx(expected, rel=1e-12)
    assert all(names == {"age", "recency"} for names in seen)


def test_columns_come_as_they_stand_in_the_table() -> None:
    n = 4
    rows = table(n)
    odd = {
        "whole": pa.array([1, 2, None, 4]),
        "price": pa.array([Decimal("1.50"), Decimal("2.25"), None, Decimal(0)]),
        "kind": pa.array(["a", None, "b", "a"]).dictionary_encode(),
        "flag": pa.array([True, False, True, True]),
        "items": pa.array([[1], [1, 2], [], [3]]),
    }
    log = read(pa.table({name: rows[name] for name in rows.column_names} | odd))
    batch = log.head(n, ("age", "country", *odd))
    np.testing.assert_array_equal(batch.column("age"), rows["age"].to_numpy())
    assert batch.column("country").tolist() == rows["country"].to_pylist()
    np.testing.assert_array_equal(batch.column("whole"), [1, 2, np.nan, 4])
    np.testing.assert_array_equal(batch.column("price"), [1.5, 2.25, np.nan, 0])
    assert batch.column("kind").tolist() == ["a", None, "b", "a"]
    assert batch.column("flag").dtype == bool
    assert [list(items) for items in batch.column("items")] == [[1], [1, 2], [], [3]]
    assert pd.DataFrame({name: batch.column(name) for name in odd}).shape == (4, 5)


@pytest.mark.parametrize("dressed", [lambda t: t, lambda t: t.to_pandas()])
def test_text_context_has_both_its_column_and_its_encoded_columns(dressed: Callable[[pa.Table], Any]) -> None:
    log = read(dressed(table()), context=["age", "country"])
    assert log.schema.context == ("age", "country=DE", "country=FR")
    batch = log.head(N, (*log.schema.context, "country"))
    np.testing.assert_array_equal(np.column_stack([batch.column(n) for n in log.schema.context]), batch.context)
    np.testing.assert_array_equal(batch.column("country") == "DE", batch.column("country=DE") == 1)
    policy = op.Function(lambda c: np.eye(3)[np.where(c["country"] == "DE", 0, 2)], columns=["country"])
    rows = table().to_pandas()
    by_hand = 3 * rows["click"] * (rows["item"] == np.where(rows["country"] == "DE", 0, 2))
    assert op.evaluate(log, policy, [op.IPS()])["IPS"].value == pytest.approx(by_hand.mean())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda f: op.Function(f, columns=["recensy"]), "no column 'recensy'. Did you mean 'recency'"),
        (lambda f: op.Softmax(f, columns=["age", "contry"]), "no column 'contry'. Did you mean 'country'"),
        (lambda f: op.Mixture([op.EpsilonGreedy(f, columns=["Age"]), op.Uniform()], [0.5, 0.5]), "Did you mean 'age'"),
        (lambda f: op.Softmax(op.TwoTower(ITEMS, f, columns=["agee"])), "Did you mean 'age'"),
        (lambda f: "p_new", "no column 'p_new'"),
    ],
)
def test_unknown_columns_are_named_before_a_row_is_read(
    wrong: Callable[[Any], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(columns: Any) -> Any:
        raise AssertionError(columns)

    log = read(table())
    with monkeypatch.context() as patched:
        for method in ("partitions", "head"):
            patched.setattr(op.Log, method, function)
        with pytest.raises(op.InputError, match=said):
            op.evaluate(log, wrong(function), [op.IPS()])
        with pytest.raises(op.InputError, match=said):
            op.evaluate(read(table(), propensity=None, logging=wrong(function)), op.Uniform(), [op.IPS()])


def test_the_columns_of_arrays_are_numbered() -> None:
    with pytest.raises(op.InputError, match=r"no column 'x2'.*Did you mean.*'x0', 'x1'.*from arrays.*`read_log`"):
        op.evaluate(in_memory(), op.Function(contexts, columns=["x2"]), [op.IPS()])


@pytest.mark.parametrize("columns", ["age", [1], [None], None, 3])
@pytest.mark.parametrize("kind", [op.Function, op.Softmax, op.EpsilonGreedy, op.TwoTower])
def test_columns_must_be_a_list_of_names(kind: Any, columns: Any) -> None:
    with pytest.raises(op.InputError, match=f"{kind.__name__}: columns is .*; give a list of column names"):
        kind(*((ITEMS, contexts) if kind is op.TwoTower else (contexts,)), columns=columns)


def test_any_sequence_of_names_will_do() -> None:
    for columns in (("age", "country"), np.array(["age", "country"]), iter(["age", "country"])):
        assert op.Softmax(contexts, columns=columns).columns == ("age", "country")


def test_the_command_line_takes_functions_and_policies_with_named_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_named.py").write_text(
        "import numpy as np\nimport offpolicy as op\n"
        "def old(x):\n    return np.eye(3)[(x[:, 0] > 0).astype(int)]\n"
        "new = op.Function(lambda c: np.eye(3)[(c['age'] > 0).astype(int)], columns=['age'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    old, new = (op.evaluate(read(table()), policy(f"my_named:{name}"), [op.IPS()])["IPS"] for name in ("old", "new"))
    assert old.value == new.value > 0


def test_the_columns_of_towers_belong_to_their_users() -> None:
    with pytest.raises(op.InputError, match="Softmax: give `columns` to the TwoTower, which calls"):
        op.Softmax(op.TwoTower(ITEMS, contexts), columns=["age"])
    with pytest.raises(op.InputError, match="TwoTower: columns are passed to `users`"):
        op.TwoTower(ITEMS, columns=["age"])


def test_an_error_in_a_function_of_columns_names_rows_and_columns() -> None:
    with pytest.raises(op.InputError, match=r"KeyError: 'recency' \(rows 0 to \d+, columns age, country\)"):
        op.evaluate(read(table()), op.Function(lambda c: c["recency"], columns=["age", "country"]), [op.IPS()])


def test_the_report_shows_the_columns() -> None:
    assert described(op.Function(contexts, columns=["age"])) == "Function(function=contexts, columns=('age',))"
    assert "columns=('age',)" in described(op.Softmax(contexts, columns=["age"]))
    assert described(op.Softmax(contexts, 0.5)) == "Softmax(score=contexts, temperature=0.5)"


class Guarded(op.Policy):
    """The first action where a column says so, else another policy."""

    columns = ("minor", "age")

    def distribution(self, batch: Any) -> np.ndarray:
        p = np.column_stack([batch.column("age") > 0, batch.column("age") <= 0, np.zeros(len(batch))]).astype(float)
        p[batch.column("minor")] = [0, 0, 1]
        return p


def test_a_policy_of_ones_own_reads_named_columns() -> None:
    rows = table().to_pandas()
    wanted = np.where(rows["minor"], 2, np.where(rows["age"] > 0, 0, 1))
    by_hand = (3 * rows["click"] * (rows["item"] == wanted)).mean()
    for source in (table(), table().to_pandas()):
        assert op.evaluate(read(source), Guarded(), [op.IPS()])["IPS"].value == pytest.approx(by_hand)
    with pytest.raises(op.InputError, match="no column 'minor'"):
        op.evaluate(in_memory(), Guarded(), [op.IPS()])


def test_a_column_that_a_policy_does_not_name_is_an_error() -> None:
    class Forgetful(op.Policy):
        def distribution(self, batch: Any) -> np.ndarray:
            return batch.column("age")

    with pytest.raises(op.InputError, match="column 'age' was not read; name it in the `columns` of the policy"):
        op.evaluate(read(table()), Forgetful(), [op.IPS()])


def test_worlds_know_the_value_of_policies_with_named_columns() -> None:
    world = Linear(n_actions=4, seed=1)
    named = op.Softmax(lambda c: np.outer(c["x1"], np.arange(4)), columns=["x1"])
    nameless = op.Softmax(lambda x: np.outer(x[:, 1], np.arange(4)))
    assert world.value(named) == world.value(nameless)
