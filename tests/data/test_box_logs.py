"""Logs whose actions are numbers: every source, several columns per action, slices, clusters, rewards, policies, saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.data.sources.parts import CSV_BLOCK_BYTES
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, classic

N = 400
BOX = op.Box([0, 10], [1, 30])
BOTH = ["dose_a", "dose_b"]
ROLES: dict[str, Any] = {
    "context": "x", "action": BOTH, "reward": ["r", "cost"], "propensity": "p", "actions": BOX, "cluster": "user", "by": "site",
}  # fmt: skip
TARGETS = {"new": op.Deterministic(["new_a", "new_b"]), "low": op.Deterministic(lambda x: np.tile([0.2, 15.0], (len(x), 1)))}
ESTIMATORS = [op.KernelSNIPS(bandwidth=[0.3, 6.0]), op.KernelDR(bandwidth=[0.3, 6.0])]


def columns() -> dict[str, np.ndarray]:
    """Doses of two drugs; the first has whole numbers only in its first rows, as a CSV file may."""
    rng = np.random.default_rng(5)
    x = np.round(rng.uniform(size=N), 6)
    a, b = np.round(rng.beta(2, 2, N), 6), np.round(rng.uniform(10, 30, N), 6)
    p = 6 * np.clip(a, 1e-3, 1 - 1e-3) * (1 - np.clip(a, 1e-3, 1 - 1e-3)) / 20
    r = np.round(1 - (a - x) ** 2 + rng.normal(size=N) / 10, 6)
    return {
        "x": x, "dose_a": a, "dose_b": b, "p": p, "r": r, "cost": np.round(b / 10 + rng.normal(size=N), 6), "new_a": x, "new_b": np.full(N, 20.5),
        "user": np.arange(N) // 2, "site": np.where(np.arange(N) % 4, "north", "south"),
    }  # fmt: skip


def values(log: op.Log, **how: Any) -> dict[str, Any]:
    """Every value and error, by reward, slice, policy and estimator."""
    result = op.evaluate(log, TARGETS, ESTIMATORS, progress=False, **how)
    told = {}
    for name, part in {"": result, **result.slices}.items():
        for reward, of in part.rewards.items():
            for (policy, estimator), e in of.estimates.items():
                told[f"{reward} {name} {policy} {estimator}"] = (e.value, e.std_error)
    return told


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    told = values(op.read_log(pa.table(columns()), **ROLES))
    assert len(told) == 3 * 2 * 2 * 3  # the log and two slices, rewards, policies, estimators
    assert np.isfinite(list(told.values())).all()
    return told


def parquet(folder: Path) -> Any:
    table = pa.table(columns())
    pq.write_table(table.slice(0, 150), folder / "one.parquet")
    pq.write_table(table.slice(150), folder / "two.parquet")
    return folder


def csv(folder: Path) -> Any:
    pa_csv.write_csv(pa.table(columns()), folder / "log.csv")
    return folder / "log.csv"


def duckdb(_: Path) -> Any:
    return pytest.importorskip("duckdb").from_arrow(pa.table(columns()))


SOURCES = {
    "parquet": parquet, "csv": csv, "pandas": lambda _: pd.DataFrame(columns()), "polars": lambda _: pl.DataFrame(columns()),
    "lazy": lambda _: pl.DataFrame(columns()).lazy(), "duckdb": duckdb,
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_answer(source: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    found = values(op.read_log(SOURCES[source](tmp_path), **ROLES))
    assert found.keys() == expected.keys()
    for key, numbers in expected.items():
        assert found[key] == pytest.approx(numbers, rel=1e-6), key


@NEEDS_SPARK
@OWN_WARNINGS
def test_spark_gives_the_same_answer(tmp_path: Path, expected: dict[str, Any]) -> None:
    frame = classic().read.parquet(str(parquet(tmp_path)))
    found = values(op.read_log(frame, **ROLES))
    for key, numbers in expected.items():
        assert found[key] == pytest.approx(numbers, rel=1e-6), key


def test_columns_lists_and_arrays_are_the_same_vectors(expected: dict[str, Any]) -> None:
    c = columns()
    lists = pa.table({**c, "both": pa.array(np.column_stack([c["dose_a"], c["dose_b"]]).tolist())})
    assert values(op.read_log(lists, **{**ROLES, "action": "both"})) == expected
    log = op.read_log(lists, **ROLES)
    assert repr(log).startswith("Log(400 rounds, actions: vectors of 2 numbers from (0, 10) to (1, 30), context 1")
    np.testing.assert_array_equal(log.head().action, np.column_stack([c["dose_a"], c["dose_b"]]))
    one = op.read_log(lists, **{**ROLES, "action": ["dose_a"], "actions": op.Box([0], [1])})
    assert one.head().action.shape == (N, 1)
    assert op.read_log(lists, **{**ROLES, "action": ["dose_a"], "actions": op.Box(0, 1)}).head().action.shape == (N,)


def test_the_slices_and_the_saved_result(tmp_path: Path) -> None:
    log = op.read_log(pa.table(columns()), **ROLES)
    result = op.evaluate(log, TARGETS, ESTIMATORS, progress=False)
    result.save(tmp_path / "result.json")
    loaded = op.load_result(tmp_path / "result.json")
    assert set(result.slices) == {"north", "south"}
    assert set(result.rewards) == {"r", "cost"}
    assert loaded.to_dict() == result.to_dict()
    assert loaded.input["columns"]["action"] == "dose_a, dose_b"
    loaded.write_html(tmp_path / "report.html")
    assert "vectors of 2 numbers from (0, 10) to (1, 30)" in (tmp_path / "report.html").read_text()
    rows = np.arange(N) % 4 == 0
    part = {name: column[rows] for name, column in columns().items()}
    alone = op.evaluate(op.read_log(pa.table(part), **ROLES), TARGETS, [op.KernelSNIPS(bandwidth=[0.3, 6.0])])
    assert result.slices["south"]["new", "KernelSNIPS"].value == pytest.approx(alone["new", "KernelSNIPS"].value, rel=1e-12)


def test_clusters_widen_the_errors() -> None:
    twice = {name: np.repeat(column, 2) for name, column in columns().items()}
    every = {"alone": {**ROLES, "cluster": None}, "together": {**ROLES, "cluster": "user"}}
    twice["user"] = np.repeat(np.arange(N), 2)
    errors = {name: values(op.read_log(pa.table(twice), **roles))["r  new KernelSNIPS"][1] for name, roles in every.items()}
    assert errors["together"] == pytest.approx(np.sqrt(2) * errors["alone"], rel=0.15)


@pytest.mark.parametrize(("changed", "said"), [
    ({"dose_b": 31.0}, r"^dose_b: 1 row has an action outside 10..30 \(31\.0\) \(first, counted from 0: row 7\)\. Correct"),
    ({"dose_a": np.nan}, r"^dose_a: 1 row has an action outside 0..1 \(nan\) \(first, counted from 0: row 7\)"),
    ({"dose_a": None}, r"^dose_a: 1 row is missing \(null\) \(first, counted from 0: row 7\)"),
])  # fmt: skip
def test_what_is_wrong_names_its_column(changed: dict[str, Any], said: str) -> None:
    (name, value), *_ = changed.items()
    table = columns()
    wrong = pa.array([value if k == 7 else v for k, v in enumerate(table[name].tolist())], pa.float64())
    with pytest.raises(op.InputError, match=said):
        values(op.read_log(pa.table({**table, name: wrong}), **ROLES))


@pytest.mark.parametrize(("roles", "said"), [
    ({"actions": None}, r"^action: 2 columns are named \(dose_a, dose_b\)\. Several columns make a vector: state the bounds"),
    ({"actions": op.Box(0, 1)}, r"2 columns are named \(dose_a, dose_b\), and the actions are numbers from 0 to 1\."),
    ({"actions": op.Box([0] * 3, [1] * 3)}, r"and the actions are vectors of 3 numbers"),
    ({"action": ["dose_a", "site"]}, r"^site: \d+ rows do not contain a number"),
    ({"action": "site", "actions": op.Box(0, 1)}, r"^site: \d+ rows do not contain a number \(the first: '"),
    ({"action": ["dose_a", "dose_c"]}, r"there is no column 'dose_c'\. Did you mean 'dose_"),
    ({"action": []}, r"^action is \[\]; name the column of the logged action"),
    ({"context": ["x", "dose_b"]}, r"^dose_b is also named as context"),
])  # fmt: skip
def test_wrong_columns_of_an_action_are_refused(roles: dict[str, Any], said: str) -> None:
    with pytest.raises(op.InputError, match=said):
        op.read_log(pa.table(columns()), **{**ROLES, **roles})


def test_wrong_columns_of_a_target_are_refused() -> None:
    log = op.read_log(pa.table({**columns(), "far": np.full(N, 31.0)}), **ROLES)
    with pytest.raises(op.InputError, match=r"Deterministic: 400 rows have an action outside 10..30 .* column 'far'"):
        op.evaluate(log, op.Deterministic(["new_a", "far"]), ESTIMATORS, progress=False)
    with pytest.raises(op.InputError, match=r"Deterministic: 3 columns are named .* name one column per dimension"):
        op.evaluate(log, op.Deterministic(["new_a", "new_b", "far"]), ESTIMATORS, progress=False)
    with pytest.raises(op.InputError, match=r"`columns` are for a function; columns of actions need none"):
        op.Deterministic(["new_a", "new_b"], columns=["x"])


def test_whole_numbers_in_the_first_rows_of_a_csv_file(tmp_path: Path) -> None:
    """A price column whose fractions come later than the block from which types are guessed."""
    rows = 800_000
    prices = np.arange(rows // 2) % 30 + 10.0
    half = [f"{price:.0f},1,0.05\n" for price in prices]
    (tmp_path / "log.csv").write_text("price,r,p\n" + "".join(half) + "20.25,1,0.05\n" * (rows // 2))
    assert (tmp_path / "log.csv").stat().st_size > 2 * CSV_BLOCK_BYTES
    log = op.read_log(tmp_path / "log.csv", context=[], action="price", reward="r", propensity="p", actions=op.Box(10, 40))
    assert sum(float(b.action.sum()) for b in log.batches()) == prices.sum() + 20.25 * (rows // 2)


def run(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["evaluate", *words, "--reward", "r", "--json"])
    assert result.exit_code in (0, 3), result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_the_command_takes_numbers_and_vectors(tmp_path: Path) -> None:
    log = str(csv(tmp_path))
    usual = ["--context", "x", "--propensity", "p"]
    both = ["--action", "dose_a,dose_b", "--actions", "box:0,10:1,30", "--target", "deterministic:new_a,new_b"]
    told = run(log, *usual, *both, "--estimator", "kernel-snips:bandwidth=0.3|6")
    expected = op.evaluate(
        op.read_log(log, **{**ROLES, "reward": "r", "cluster": None, "by": None}), TARGETS["new"], ESTIMATORS[:1]
    )["KernelSNIPS"].value
    assert {e["estimator"]: e["value"] for e in told["estimates"]}["KernelSNIPS"] == pytest.approx(expected)
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'action = ["dose_a", "dose_b"]\nactions = "box:0,10:1,30"\ntarget = "new=deterministic:new_a,new_b"\n'
        'estimator = "kernel-snips:bandwidth=0.3|6"\n'
    )
    again = run(log, *usual, "--config", str(settings))
    assert [e["value"] for e in again["estimates"]] == [e["value"] for e in told["estimates"]]
    one = ["--context", "x", "--action", "dose_a", "--actions", "box:0:1", "--logging", "normal:0.5,0.3"]
    told = run(log, *one, "--target", "up=shift:by=0.05", "--target", "same=normal:x,0.2", "--estimator", "snips")
    plain = op.read_log(
        log, context="x", action="dose_a", reward="r", actions=op.Box(0, 1), logging=op.Normal(0.5, 0.3)
    )  # fmt: skip
    result = op.evaluate(plain, {"up": op.Shift(by=0.05), "same": op.Normal("x", 0.2)}, op.SNIPS())
    assert [e["value"] for e in told["estimates"] if e["estimator"] == "SNIPS"] == pytest.approx(
        [result[name, "SNIPS"].value for name in ("up", "same")]
    )


@pytest.mark.parametrize(("option", "said"), [
    ("box:5", "give box:LOW:HIGH, such as box:5:60"),
    ("box:a:b", "give box:LOW:HIGH, such as box:5:60"),
    ("box:1:0", "low must be smaller than high"),
    ("box:0,0:1", "give both for the same dimensions"),
    ("boxes", "`actions` is 'boxes'"),
])  # fmt: skip
def test_wrong_boxes_on_the_command_line(tmp_path: Path, option: str, said: str) -> None:
    words = [
        "evaluate",
        str(csv(tmp_path)),
        "--action",
        "dose_a",
        "--reward",
        "r",
        "--target",
        "uniform",
        "--actions",
        option,
    ]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, op.InputError)
    assert said in str(result.exception)
