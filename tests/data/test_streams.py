"""Sources beyond local files: URLs, Arrow datasets, polars queries, readers; and CSV files in other formats."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import offpolicy as op
from tests.data.test_table_formats import frame, read


def value(log: op.Log) -> float:
    found = op.evaluate(log, op.Fixed([0.8, 0.2]), [op.DR()])["DR"].value
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for k in range(3):
        frame(50, seed=k).to_parquet(tmp_path / f"{k}.parquet", row_group_size=20)
    return tmp_path


@pytest.mark.parametrize("url", ["hdfs://name/logs/*.parquet", "ftp://host/log.csv"])
def test_what_cannot_be_read_directly_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(op.InputError, match="addresses of this kind are not read directly") as refused:
        read(url)
    assert "op.read_log(pyarrow.dataset.dataset(…), …)" in str(refused.value)
    assert "--engine spark" in str(refused.value)


def test_file_urls_are_local_files(folder: Path) -> None:
    spaced = folder / "a folder"
    spaced.mkdir()
    frame().to_parquet(spaced / "log.parquet")
    assert len(read((spaced / "log.parquet").as_uri())) == 40
    assert len(read(f"file://localhost{folder}/[0-2].parquet")) == 150
    with pytest.raises(op.InputError, match=r"names the host 'logs'; .*file:///logs/a\.parquet"):
        read("file://logs/a.parquet")


def test_a_dataset_gives_the_answer_of_its_files(folder: Path) -> None:
    dataset = ds.dataset(folder)
    log = read(dataset)
    assert (len(log), len(log.partitions())) == (150, 3)
    assert value(log) == value(read(folder))
    assert log.where(55) == "1.parquet row 5"


def test_a_filtered_dataset_keeps_its_filter(folder: Path) -> None:
    log = read(ds.dataset(folder).filter(ds.field("age") > 0))
    rows = [frame(50, seed=k) for k in range(3)]
    assert len(log) == sum((part["age"] > 0).sum() for part in rows)
    assert min(batch.context.min() for batch in log.batches()) > 0


def test_a_dataset_with_hive_partitions(tmp_path: Path) -> None:
    for k, land in enumerate(("de", "fr")):
        (tmp_path / f"land={land}").mkdir()
        frame(seed=k).to_parquet(tmp_path / f"land={land}" / "0.parquet")
    dataset = ds.dataset(tmp_path, partitioning="hive")
    assert value(read(dataset, context=["age", "land"])) == value(read(tmp_path, context=["age", "land"]))


def test_a_dataset_in_memory() -> None:
    table = pa.Table.from_pandas(frame())
    assert value(read(ds.dataset(table))) == value(read(table))


def test_a_lazy_frame_streams(folder: Path) -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.scan_parquet(folder / "*.parquet").filter(polars.col("age") > 0)
    log = read(lazy)
    assert len(log) == lazy.collect().height
    assert value(log) == value(read(lazy.collect()))
    assert max(len(batch) for batch in log.batches(7)) <= 7
    with pytest.raises(op.InputError, match="there is no column 'clicks'. Did you mean 'click'"):
        read(lazy, reward="clicks")
    with pytest.raises(op.InputError, match=r"the LazyFrame cannot be read: No such file.*gone\.parquet"):
        read(polars.scan_parquet(folder / "gone.parquet"))


def test_a_reader_is_stored_and_can_be_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    table = pa.Table.from_pandas(frame(300))
    log = read(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7)))
    assert value(log) == value(read(table))
    assert list(folder.glob("offpolicy-*/stream.parquet"))
    del log
    gc.collect()
    assert not list(folder.glob("offpolicy-*"))


def test_an_empty_reader() -> None:
    table = pa.Table.from_pandas(frame()).slice(0, 0)
    with pytest.raises(op.InputError, match="the log is empty"):
        read(pa.RecordBatchReader.from_batches(table.schema, []))


def test_csv_in_another_format(tmp_path: Path) -> None:
    plain = frame().assign(land=["Köln", "Zürich, CH"] * 20)
    (tmp_path / "plain").mkdir()
    plain.to_csv(tmp_path / "plain" / "log.csv", index=False)
    plain.to_csv(tmp_path / "log.csv", index=False, sep=";", decimal=",", quotechar="'", encoding="latin-1")
    settings = {"delimiter": ";", "decimal": ",", "quote": "'", "encoding": "latin-1"}
    log = read(tmp_path / "log.csv", context=["age", "land"], **settings)
    assert log.schema.context == ("age", "land=Köln", "land=Zürich, CH")
    assert value(log) == value(read(tmp_path / "plain" / "log.csv", context=["age", "land"]))
    items = pd.DataFrame({"item": ["a", "b"], "price": [1.5, 2.5]})
    items.to_csv(tmp_path / "items.csv", index=False, sep=";", decimal=",")
    catalog = read(tmp_path / "log.csv", catalog=tmp_path / "items.csv", **settings).schema.catalog
    np.testing.assert_array_equal(catalog, [[1.5], [2.5]])


@pytest.mark.parametrize("delimiter", ["\t", r"\t"])
def test_tabs_as_python_and_as_a_shell_has_them(tmp_path: Path, delimiter: str) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False, sep="\t")
    assert len(read(tmp_path, delimiter=delimiter)) == 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delimiter": ";;"}, "delimiter is ';;'; give one ASCII character"),
        ({"delimiter": ";", "decimal": ";"}, "decimal and delimiter are both ';'"),
        ({"encoding": "latin-99"}, "encoding is 'latin-99'; give an encoding that Python supports"),
        ({"quote": ""}, "quote is ''; give one"),
    ],
)
def test_csv_formats_that_cannot_be(settings: dict[str, str], message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        read(frame(), **settings)
