"""Delta and Iceberg tables, written by their own libraries: the current version, older ones, and rows that were deleted."""

from __future__ import annotations

import json
import string
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from tests.data.s3 import needs

COLUMNS: dict[str, Any] = {"context": "x", "action": "item", "reward": "click", "propensity": "p", "row_id": "id"}


def rows(first: int, count: int = 100) -> pa.Table:
    rng = np.random.default_rng(first)
    return pa.table(
        {
            "id": np.arange(first, first + count), "x": rng.normal(size=count), "item": rng.choice(["a", "b"], count),
            "click": rng.integers(0, 2, count) * 1.0, "p": np.full(count, 0.5),
        }
    )  # fmt: skip


def value(source: Any, **more: Any) -> tuple[int, float, float]:
    log = op.read_log(source, **COLUMNS, **more)
    estimate = op.evaluate(log, op.Fixed({"a": 0.3, "b": 0.7}), op.DR())["DR"]
    return len(log), estimate.value, estimate.std_error


def kept(*tables: pa.Table) -> tuple[int, float, float]:
    """The answer for the rows that are left: those with an id that does not end in 7."""
    joined = pa.concat_tables(tables)
    return value(joined.filter(pa.array(joined.column("id").to_numpy() % 10 != 7)))


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(tmp_path / "delta", rows(0))
    write_deltalake(tmp_path / "delta", rows(100), mode="append")
    DeltaTable(tmp_path / "delta").delete("id % 10 = 7")
    return tmp_path / "delta"


@needs("deltalake")
def test_a_delta_table(delta: Path) -> None:
    from deltalake import DeltaTable

    assert value(str(delta)) == pytest.approx(kept(rows(0), rows(100)), rel=1e-12)
    assert value(DeltaTable(delta)) == value(delta)
    assert value(delta, version=1) == pytest.approx(value(pa.concat_tables([rows(0), rows(100)])), rel=1e-12)
    first = DeltaTable(delta).history()[-1]["timestamp"] / 1000
    moment = np.datetime64(int(first * 1e6 + 1000), "us").item()
    assert value(delta, as_of=moment)[0] == 100


@needs("deltalake")
def test_a_partitioned_delta_table(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "delta", rows(0), partition_by=["item"])
    assert value(tmp_path / "delta") == pytest.approx(value(rows(0)), rel=1e-12)


@pytest.fixture
def iceberg(tmp_path: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.log", schema=rows(0).schema)
    table.append(rows(0))
    table.append(rows(100))
    table.delete("id in (7, 17, 27, 37, 47, 57, 67, 77, 87, 97, 107, 117, 127, 137, 147, 157, 167, 177, 187, 197)")
    return table


@needs("pyiceberg", "sqlalchemy")
@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table(iceberg: Any) -> None:
    assert value(iceberg) == pytest.approx(kept(rows(0), rows(100)), rel=1e-12)
    folder = Path(iceberg.location().removeprefix("file://"))
    assert value(folder) == value(iceberg)
    first, second = iceberg.snapshots()[:2]
    assert value(iceberg, version=second.snapshot_id) == pytest.approx(
        value(pa.concat_tables([rows(0), rows(100)])), rel=1e-12
    )
    moment = np.datetime64(first.timestamp_ms, "ms").item()
    assert value(folder, as_of=moment)[0] == 100


@needs("pyiceberg", "sqlalchemy")
@pytest.mark.filterwarnings("ignore")
def test_times_and_versions_without_a_table_are_refused(iceberg: Any) -> None:
    for more, message in (
        ({"version": 3}, "no such snapshot"),
        ({"as_of": "2001-01-01"}, "no snapshot from before that time"),
        ({"as_of": "yesterday"}, "give a time such as"),
        ({"version": 1, "as_of": "2026-01-01"}, "give one of the two"),
    ):
        with pytest.raises(op.InputError, match=message):
            value(iceberg, **more)


@needs("deltalake")
def test_a_version_that_a_delta_table_does_not_have(delta: Any) -> None:
    for version in (-1, 10**18):  # the second looks like the id of a snapshot of Iceberg
        with pytest.raises(op.InputError, match=rf"version is {version}; the last version of the table is \d+"):
            value(delta, version=version)


def test_other_tables_have_no_versions() -> None:
    with pytest.raises(op.InputError, match="version= and as_of= are for Delta and Iceberg tables"):
        value(rows(0), version=1)


def deletion_vector(deleted: list[int]) -> dict[str, Any]:
    """Rows of a file as its protocol stores them inline: a Roaring bitmap with one array container, in Z85."""
    container = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + struct.pack(f"<{len(deleted)}H", *deleted)
    data = struct.pack("<iQI", 1681511377, 1, 0) + container
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{-(-len(data) // 4)}I", data + bytes(-len(data) % 4))
    text = "".join(digits[word // 85**k % 85] for word in words for k in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(deleted)}


@needs("deltalake")
def test_a_delta_table_with_deletion_vectors(tmp_path: Path) -> None:
    """Written by hand: deltalake reads deletion vectors, and rewrites files where it deletes rows itself."""
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "delta", rows(0), configuration={"delta.enableDeletionVectors": "true"})
    log = tmp_path / "delta" / "_delta_log"
    added = next(a for line in (log / f"{0:020}.json").read_text().splitlines() if (a := json.loads(line).get("add")))
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    again = {**added, "deletionVector": deletion_vector(list(range(7, 100, 10)))}
    (log / f"{1:020}.json").write_text(json.dumps({"remove": removed}) + "\n" + json.dumps({"add": again}) + "\n")
    assert value(tmp_path / "delta") == pytest.approx(kept(rows(0)), rel=1e-12)
    assert value(tmp_path / "delta", version=0)[0] == 100
