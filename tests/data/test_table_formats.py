"""Folders that are more than Parquet files: Delta, Iceberg and Hudi tables are refused, and Hive partitions are columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import offpolicy as op


def frame(n: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"age": rng.normal(size=n), "item": rng.choice(["a", "b"], n), "click": rng.integers(0, 2, n) * 1.0, "p": 0.5}
    )


def read(source: object, **more: object) -> op.Log:
    columns: dict[str, object] = {"context": "age", "action": "item", "reward": "click", "propensity": "p", **more}
    return op.read_log(source, **columns)  # type: ignore[arg-type]


def delta(table: Path) -> None:
    (table / "_delta_log").mkdir()
    (table / "_delta_log" / "00000000000000000000.json").write_text("{}")
    frame(seed=1).to_parquet(table / "part-1.parquet")


def iceberg(table: Path) -> None:
    (table / "metadata").mkdir()
    (table / "metadata" / "v1.metadata.json").write_text("{}")
    (table / "data").mkdir()
    frame(seed=1).to_parquet(table / "data" / "1.parquet")


def hudi(table: Path) -> None:
    (table / ".hoodie").mkdir()
    frame(seed=1).to_parquet(table / "1.parquet")


FORMATS = [
    (delta, "is a Delta table", "op.read_log(deltalake.DeltaTable('{table}').to_pyarrow_dataset(), …)"),
    (iceberg, "is an Iceberg table", "op.read_log(polars.scan_iceberg('{table}/metadata/v1.metadata.json'), …)"),
    (hudi, "is a Hudi table", "HudiTableBuilder.from_base_uri('{table}')"),
]


@pytest.mark.parametrize(("write", "what", "instead"), FORMATS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("named", ["folder", "glob", "file", "above"])
def test_a_table_with_deleted_rows_is_refused(
    tmp_path: Path, write: Callable[[Path], None], what: str, instead: str, named: str
) -> None:
    """However its files are named: overwritten rows would count as well."""
    table = tmp_path / "lake" / "table"
    table.mkdir(parents=True)
    frame().to_parquet(table / "part-0.parquet")
    write(table)
    source = {"folder": table, "glob": f"{table}/**/*.parquet", "file": table / "part-0.parquet", "above": tmp_path}[named]
    with pytest.raises(op.InputError, match=what) as refused:
        read(source)
    assert instead.format(table=table) in str(refused.value)
    assert "deleted or replaced" in str(refused.value)


def test_folders_that_only_look_alike_are_read(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "about.json").write_text("{}")
    frame().to_parquet(tmp_path / "log.parquet")
    assert len(read(tmp_path)) == 40


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_hive_partitions_are_columns(tmp_path: Path, kind: str) -> None:
    whole = []
    for k, (land, day) in enumerate([("de", 1), ("fr", 1), ("S%C3%A3o%2FPaulo", 12)]):
        part = frame(seed=k)
        folder = tmp_path / f"land={land}" / f"day={day:02}"
        folder.mkdir(parents=True)
        part.to_parquet(folder / "0.parquet") if kind == "parquet" else part.to_csv(folder / "0.csv", index=False)
        whole.append(part.assign(land=land.replace("%C3%A3", "ã").replace("%2F", "/"), day=day))
    log = read(tmp_path, context=["age", "land", "day"], by="land")
    assert log.schema.context == ("age", "land=São/Paulo", "land=de", "land=fr", "day")
    order = [whole[2], whole[0], whole[1]]  # files are sorted by name
    expected = read(pd.concat(order, ignore_index=True), context=["age", "land", "day"], by="land")
    np.testing.assert_array_equal(
        np.vstack([b.context for b in log.batches()]), np.vstack([b.context for b in expected.batches()])
    )
    assert op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"].value == pytest.approx(
        op.evaluate(expected, op.Uniform(), [op.IPS()])["IPS"].value
    )


def test_policies_read_hive_partitions(tmp_path: Path) -> None:
    for k, share in enumerate((0.25, 0.75)):
        folder = tmp_path / f"share={share}"
        folder.mkdir()
        frame(seed=k).to_parquet(folder / "0.parquet")
    policy = op.Function(lambda c: np.column_stack([c["share"].astype(float), 1 - c["share"].astype(float)]), ["share"])
    assert op.evaluate(read(tmp_path), policy, [op.SNIPS()])["SNIPS"].value is not None


def test_a_missing_partition_value_is_missing(tmp_path: Path) -> None:
    for land in ("de", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"land={land}").mkdir()
        frame().to_parquet(tmp_path / f"land={land}" / "0.parquet")
    with pytest.raises(op.InputError, match=r"land: 40 rows are missing \(null\)"):
        op.evaluate(read(tmp_path, context=["age", "land"]), op.Uniform(), [op.IPS()])


def test_a_column_of_the_file_wins_over_its_folder(tmp_path: Path) -> None:
    (tmp_path / "age=3").mkdir()
    frame().to_parquet(tmp_path / "age=3" / "0.parquet")
    assert next(iter(read(tmp_path).batches())).context[:, 0].tolist() == frame()["age"].tolist()


def test_files_without_the_partition_are_named(tmp_path: Path) -> None:
    (tmp_path / "land=de").mkdir()
    frame().to_parquet(tmp_path / "land=de" / "0.parquet")
    frame().to_parquet(tmp_path / "1.parquet")
    with pytest.raises(op.InputError, match=r"1\.parquet: there is no column 'land'"):
        read(tmp_path, context=["age", "land"])


def test_a_catalog_takes_no_columns_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "version=3").mkdir()
    pd.DataFrame({"item": ["a", "b"], "price": [1.5, 2.5]}).to_csv(tmp_path / "version=3" / "items.csv", index=False)
    assert read(frame(), catalog=tmp_path / "version=3" / "items.csv").schema.catalog_names == ("price",)
