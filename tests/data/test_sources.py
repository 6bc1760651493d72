"""The same log from every source gives the same answer."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from tests.logs import Small, make_small

COLUMNS = {"context": ["x0", "x1", "device"], "action": "item", "reward": "click", "propensity": "p"}
LABELS = np.array(["pear", "apple", "fig", "kiwi"])


def frame(small: Small, **more: object) -> pd.DataFrame:
    rng = np.random.default_rng(9)
    rows = np.arange(len(small.action))
    return pd.DataFrame(
        {
            "x0": small.context[:, 0],
            "x1": small.context[:, 1],
            "device": np.where(rng.random(len(rows)) < 0.3, "phone", "tablet"),
            "item": LABELS[small.action],
            "click": small.reward,
            "p": small.propensity,
            "p_new": small.target[rows, small.action],
            "user": [f"user {k // 3}" for k in rows],
            "id": rows,
            **more,
        }
    )


def split(table: pd.DataFrame, parts: int) -> list[pd.DataFrame]:
    return [table.iloc[rows] for rows in np.array_split(np.arange(len(table)), parts)]


def answer(source: object, **more: object) -> op.Evaluation:
    log = op.read_log(source, **{**COLUMNS, "row_id": "id", **more})
    return op.evaluate(log, {"column": op.Column("p_new"), "uniform": op.Uniform()}, [op.SNIPS()])


def same(a: op.Evaluation, b: op.Evaluation, rel: float = 1e-10) -> None:
    for x, y in zip(a, b, strict=True):
        assert y.n == x.n
        assert y.value == pytest.approx(x.value, rel=rel)
        assert y.std_error == pytest.approx(x.std_error, rel=rel)
        assert y.confidence_interval(method="bootstrap").low == pytest.approx(
            x.confidence_interval(method="bootstrap").low, rel=1e-8
        )


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return frame(make_small(n=700))


@pytest.fixture(scope="module")
def usual(table: pd.DataFrame) -> op.Evaluation:
    return answer(table)


def test_polars_duckdb_and_arrow(table: pd.DataFrame, usual: op.Evaluation) -> None:
    same(usual, answer(pl.from_pandas(table)))
    same(usual, answer(pa.Table.from_pandas(table)))
    same(usual, answer(pa.Table.from_pandas(table).combine_chunks().to_batches()[0]))
    same(usual, answer(duckdb.from_arrow(pa.Table.from_pandas(table))))


def test_files(table: pd.DataFrame, usual: op.Evaluation, tmp_path: Path) -> None:
    table.to_parquet(tmp_path / "one.parquet")
    same(usual, answer(tmp_path / "one.parquet"))
    table.to_csv(tmp_path / "one.csv", index=False)
    same(usual, answer(tmp_path / "one.csv"))
    table.to_csv(tmp_path / "one.csv.gz", index=False)
    same(usual, answer(str(tmp_path / "one.csv.gz")))


def test_many_files_in_any_order(table: pd.DataFrame, usual: op.Evaluation, tmp_path: Path) -> None:
    for k, part in enumerate(split(table, 5)):
        (tmp_path / f"day={k}").mkdir()
        part.to_parquet(tmp_path / f"day={k}" / "part.parquet", row_group_size=40)
    files = sorted(tmp_path.rglob("*.parquet"))
    same(usual, answer(tmp_path))
    same(usual, answer(str(tmp_path / "*" / "*.parquet")))
    same(usual, answer(files[::-1]))


def test_the_unit_is_the_row_in_its_file(table: pd.DataFrame, tmp_path: Path) -> None:
    """Without ids the randomness follows (file, row), wherever the folder lies."""
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        for k, part in enumerate(split(table, 2)):
            part.to_parquet(tmp_path / place / f"{k}.parquet")
    logs = [op.read_log(tmp_path / place, **COLUMNS) for place in ("here", "there")]
    a, b = (op.evaluate(log, op.Uniform(), [op.DR()]) for log in logs)
    same(a, b)
    assert a["DR"].value != pytest.approx(op.evaluate(logs[0], op.Uniform(), [op.DR()], seed=1)["DR"].value, rel=1e-12)


def test_labels_and_categories(table: pd.DataFrame) -> None:
    log = op.read_log(table, **COLUMNS)
    assert log.actions.tolist() == ["apple", "fig", "kiwi", "pear"]
    assert log.schema.context == ("x0", "x1", "device=phone", "device=tablet")
    listed = op.read_log(table, **COLUMNS, actions=["pear", "fig", "apple", "kiwi", "plum"])
    assert listed.actions.tolist()[-1] == "plum"
    assert op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"].value == pytest.approx(
        op.evaluate(listed, op.Fixed(dict.fromkeys(LABELS, 0.25)), [op.IPS()])["IPS"].value
    )


@pytest.mark.parametrize("kind", ["category", "int", "bool", "float", "date", "large"])
def test_labels_of_any_type(small: Small, kind: str) -> None:
    pair = small.action % 2
    values = {
        "category": pd.Categorical(LABELS[pair]),
        "int": pair * 1000 + 17,
        "bool": pair.astype(bool),
        "float": pair + 0.5,
        "date": pd.to_datetime("2026-01-01") + pd.to_timedelta(pair, "D"),
        "large": pair + 10**15,
    }[kind]
    labelled = frame(small, item=values)
    log = op.read_log(labelled, **COLUMNS, actions="labels")
    assert log.n_actions == 2
    codes = op.read_log(frame(small, item=pair), **COLUMNS)
    flip = kind == "category"  # "apple" sorts before "pear"
    new = op.Fixed([0.3, 0.7] if not flip else [0.7, 0.3])
    assert op.evaluate(log, new, [op.IPS()])["IPS"].value == pytest.approx(
        op.evaluate(codes, op.Fixed([0.3, 0.7]), [op.IPS()])["IPS"].value, rel=1e-12
    )


def test_clusters_and_slices_from_a_file(table: pd.DataFrame, tmp_path: Path) -> None:
    table.to_parquet(tmp_path / "log.parquet", row_group_size=64)
    log = op.read_log(tmp_path / "log.parquet", **COLUMNS, cluster="user", by="device")
    result = op.evaluate(log, op.Uniform(), [op.SNIPS()])
    assert set(result.slices) == {"phone", "tablet"}
    assert sum(part["SNIPS"].n for part in result.slices.values()) == 700
    other = op.read_log(table.sample(frac=1, random_state=0), **COLUMNS, cluster="user", by="device")
    same(result, op.evaluate(other, op.Uniform(), [op.SNIPS()]))


def test_catalog(table: pd.DataFrame, tmp_path: Path) -> None:
    catalog = pd.DataFrame(
        {"item": ["kiwi", "pear", "fig", "apple", "plum"], "price": [1.0, 2, 3, 4, 5], "kind": list("abaab")}
    )
    catalog.to_csv(tmp_path / "items.csv", index=False)
    log = op.read_log(table, **COLUMNS, catalog=tmp_path / "items.csv")
    assert log.actions.tolist() == catalog["item"].tolist()
    assert log.schema.catalog_names == ("price", "kind=a", "kind=b")
    with pytest.raises(op.InputError, match=r"item: \d+ rows have an action that is not among the 4 known \('"):
        op.evaluate(op.read_log(table, **COLUMNS, catalog=catalog[1:]), op.Uniform(), [op.IPS()])


def test_obp_dict(small: Small) -> None:
    feedback = {
        "n_rounds": 400, "n_actions": 4, "context": small.context, "action": small.action, "reward": small.reward,
        "position": None, "pscore": small.propensity, "pi_b": small.logging[:, :, None], "action_context": np.eye(4),
    }  # fmt: skip
    a = op.evaluate(op.from_obp(feedback), small.target)
    same(a, op.evaluate(small.log(catalog=np.eye(4)), small.target))
    with pytest.raises(op.InputError, match="several positions"):
        op.from_obp({**feedback, "position": small.action % 3})
    with pytest.raises(op.InputError, match="the dict has no 'reward'"):
        op.from_obp({"context": small.context, "action": small.action})


def test_csv_whole_numbers_that_become_fractions(tmp_path: Path) -> None:
    rows = ["x,a,r,p"] + ["1,0,1,1"] * 400_000 + ["1.5,1,0.5,0.5"]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    log = op.read_log(tmp_path / "log.csv", context="x", action="a", reward="r", propensity="p")
    assert len(log) == 400_001
    assert op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"].n == 400_001


def test_a_single_row_group_is_still_streamed(tmp_path: Path) -> None:
    table = pa.table(
        {"x": np.zeros(200_000), "a": np.tile([0, 1], 100_000), "r": np.ones(200_000), "p": np.full(200_000, 0.5)}
    )
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=200_000)
    log = op.read_log(tmp_path / "log.parquet", context="x", action="a", reward="r", propensity="p")
    assert max(len(batch) for part in log.partitions() for batch in part.batches(10_000)) <= 10_000


def test_dictionary_encoded_integers_are_codes(small: Small) -> None:
    """A pandas categorical of integers keeps their order: 10 does not stand before 2."""
    many = make_small(n=500, actions=12)
    plain = {"x": many.context[:, 0], "p": many.propensity, "r": many.reward, "a": many.action}
    always = np.zeros(12)
    always[2] = 1
    values = []
    for action in (pa.array(many.action), pa.array(many.action).dictionary_encode()):
        table = pa.table({**plain, "a": action})
        log = op.read_log(table, context="x", action="a", reward="r", propensity="p", n_actions=12)
        values.append(op.evaluate(log, op.Fixed(always), [op.SNIPS()])["SNIPS"].value)
        labelled = op.read_log(table, context="x", action="a", reward="r", propensity="p", actions="labels")
        assert labelled.actions.tolist() == list(range(12))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_each_file_counts_once(table: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "deep", tmp_path / "deep" / "er"):
        table.to_parquet(folder / "log.parquet")
    for source in (tmp_path, str(tmp_path / "**"), [tmp_path, tmp_path / "deep" / ".." / "log.parquet"]):
        assert len(op.read_log(source, **COLUMNS)) == 3 * len(table)


def test_empty_pieces(table: pd.DataFrame) -> None:
    arrow = pa.Table.from_pandas(table)
    same(answer(table), answer(pa.concat_tables([arrow[:100], arrow[:0], arrow[100:]])))
    log = op.read_log(pa.concat_tables([arrow[:0], arrow]), **COLUMNS)
    assert np.isfinite(op.evaluate(log, op.Uniform(), [op.DR()])["DR"].value)


def test_csv_cells(tmp_path: Path) -> None:
    head = "town,item,click,p,p_new\n"
    rows = ["Lima,pear,True,0.5,1", "Oslo,fig,False,0.5,0"] * 4

    def read(lines: list[str]) -> op.Evaluation:
        (tmp_path / "log.csv").write_text(head + "\n".join(lines) + "\n")
        log = op.read_log(tmp_path / "log.csv", context="town", action="item", reward="click", propensity="p")
        return op.evaluate(log, "p_new", [op.IPS()])

    assert read(rows)["IPS"].value == pytest.approx(1.0)
    with pytest.raises(op.InputError, match=r"item: 1 row is missing \(null\) \(first, counted from 0: log.csv row 8\)"):
        read([*rows, "Lima,,True,0.5,1"])
    with pytest.raises(op.InputError, match="town: 1 row is missing"):
        read([*rows, ",pear,True,0.5,1"])
    (tmp_path / "semi.csv").write_text("a;b\n1;2\n")
    with pytest.raises(op.InputError, match="separated by ';'"):
        op.read_log(tmp_path / "semi.csv", context=[], action="a", reward="b")


def test_a_target_column_that_is_whole_in_one_file_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,r,p,new\n" + "0,1,0.5,1\n1,0,0.5,0\n")
    (tmp_path / "b.csv").write_text("item,r,p,new\n" + "0,1,0.5,0.2\n1,0,0.5,0.8\n")
    log = op.read_log(tmp_path, context=[], action="item", reward="r", propensity="p")
    assert op.evaluate(log, "new", [op.IPS()])["IPS"].value == pytest.approx((2 + 0.4) / 4)


def test_integer_types_that_differ_between_files(tmp_path: Path) -> None:
    for name, kind in (("a", np.int32), ("b", np.int64)):
        pq.write_table(
            pa.table({"a": np.array([5, 9], kind), "r": [1.0, 0.0], "p": [0.5, 0.5]}), tmp_path / f"{name}.parquet"
        )
    log = op.read_log(tmp_path, context=[], action="a", reward="r", propensity="p", actions="labels")
    assert log.actions.tolist() == [5, 9]
    assert op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"].value == pytest.approx(0.5)


@pytest.mark.parametrize("kind", ["frame", "csv", "arrays"])
def test_flags_in_a_catalog_are_single_columns(tmp_path: Path, kind: str) -> None:
    """0 and 1 need one column, not two: 19 genres of films are 19 columns."""
    rng = np.random.default_rng(0)
    flags = rng.integers(0, 2, (30, 19))
    films = pd.DataFrame(flags, columns=[f"genre_{j}" for j in range(19)]).assign(decade=rng.integers(195, 199, 30))
    data = {
        "x": rng.normal(size=600),
        "film": rng.integers(0, 30, 600),
        "r": rng.normal(size=600),
        "p": np.full(600, 1 / 30),
    }
    if kind == "arrays":
        log = op.Log(data["x"], data["film"], data["r"], propensity=data["p"], catalog=films.to_numpy())
    else:
        catalog: object = films.assign(film=range(30))
        if kind == "csv":
            films.assign(film=range(30)).to_csv(tmp_path / "films.csv", index=False)
            catalog = tmp_path / "films.csv"
        log = op.read_log(pa.table(data), context="x", action="film", reward="r", propensity="p", catalog=catalog)
    assert log.schema.catalog is not None
    assert log.schema.catalog.shape == (30, 19 + films["decade"].nunique())
    np.testing.assert_array_equal(log.schema.catalog[:, :19], flags)
    assert [d.width for d in log.schema.catalog_dimensions] == [1] * 19 + [films["decade"].nunique()]


def test_flags_pool_as_the_two_categories_they_are() -> None:
    """MIPS counts actions with the same flag as one, as it does with the flag as text."""
    rng = np.random.default_rng(1)
    flag, price = np.array([0, 1, 1, 0, 1]), ["low", "high", "low", "high", "low"]
    data = pa.table({"a": rng.integers(0, 5, 500), "r": rng.normal(size=500), "p": rng.uniform(0.1, 0.3, 500)})
    values = []
    for new in (flag, flag.astype(str)):
        catalog = pd.DataFrame({"a": range(5), "new": new, "price": price})
        log = op.read_log(
            data, context=[], action="a", reward="r", logging=op.Fixed([0.1, 0.2, 0.3, 0.2, 0.2]), catalog=catalog
        )
        result = op.evaluate(log, op.Fixed([0.4, 0.1, 0.1, 0.2, 0.2]), [op.MIPS(), op.MIPS(select="exact", name="chosen")])
        values.append([result["MIPS"].value, result["chosen"].value])
    assert values[0] == pytest.approx(values[1], rel=1e-9)
