"""Files in an S3 bucket, on a real server, and on the web: found, read, and continued after failures."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.data.sources import remote, segments, stores
from tests.data.s3 import Server, needs, serving

pytestmark = needs("moto")
COLUMNS: dict[str, Any] = {"context": "x", "action": "item", "reward": "click", "propensity": "p"}


def table(rows: int = 3_000, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "x": rng.normal(size=rows), "item": rng.integers(0, 3, rows), "click": rng.integers(0, 2, rows) * 1.0,
            "p": np.full(rows, 1 / 3),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("s3")) as running:
        filesystem = running.filesystem
        for k in range(3):
            pq.write_table(table(seed=k), f"logs/parquet/day={k}/part.parquet", filesystem=filesystem, row_group_size=700)
            with filesystem.open_output_stream(f"logs/csv/part-{k}.csv") as file:
                pa_csv.write_csv(table(seed=k), file)
        yield running


@pytest.fixture
def store(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "WAITS", (0.01, 0.01, 0.01))
    return server


@pytest.fixture
def local(tmp_path: Path) -> Path:
    for k in range(3):
        (tmp_path / f"day={k}").mkdir()
        pq.write_table(table(seed=k), tmp_path / f"day={k}" / "part.parquet", row_group_size=700)
    return tmp_path


def evaluated(source: Any, **more: Any) -> op.Evaluation:
    return op.evaluate(op.read_log(source, **{**COLUMNS, **more}), op.Uniform(), [op.SNIPS(), op.DR()])


@pytest.mark.parametrize(
    "address",
    [
        "s3://logs/parquet",
        "s3://logs/parquet/*/part.parquet",
        "s3://logs/parquet/**/*.parquet",
        ["s3://logs/parquet/day=0/part.parquet", "s3://logs/parquet/day=1", "s3://logs/parquet/day=2"],
    ],
)
def test_a_bucket_gives_the_same_answer_as_a_folder(store: Server, local: Path, address: Any) -> None:
    remote_result, local_result = evaluated(address, by="day"), evaluated(local, by="day")
    for name in ("SNIPS", "DR"):
        assert remote_result[name].value == local_result[name].value
        assert remote_result[name].std_error == local_result[name].std_error
    assert set(remote_result.slices) == {"0", "1", "2"}


def test_csv_in_a_bucket(store: Server, local: Path) -> None:
    assert evaluated("s3://logs/csv/*.csv")["SNIPS"].value == pytest.approx(evaluated(local)["SNIPS"].value, rel=1e-12)


def test_a_catalog_and_a_single_file(store: Server) -> None:
    with store.filesystem.open_output_stream("logs/catalog.csv") as file:
        file.write(b"item,price\n0,1.5\n1,2.5\n2,4.5\n")
    log = op.read_log("s3://logs/parquet/day=1/part.parquet", **COLUMNS, catalog="s3://logs/catalog.csv")
    assert (len(log), log.schema.catalog_names) == (3_000, ("price",))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://logs/nothing", "s3://logs/nothing: no such file or folder"),
        ("s3://logs/parquet/*.csv", "no file matches this pattern"),
        ("s3://elsewhere/log.parquet", "elsewhere"),
        (["s3://logs/parquet/day=0/part.parquet", "s3://logs/csv/part-0.csv"], "a mix of Parquet and CSV"),
        (["log.parquet", "s3://logs/parquet"], "s3://logs/parquet: addresses and other sources cannot be mixed"),
    ],
)
def test_addresses_without_a_log_are_refused(store: Server, address: Any, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.read_log(address, **COLUMNS)


def test_a_file_that_changes_is_reported(store: Server) -> None:
    pq.write_table(table(), "logs/changing.parquet", filesystem=store.filesystem)
    log = op.read_log("s3://logs/changing.parquet", **COLUMNS)
    pq.write_table(table(2_000), "logs/changing.parquet", filesystem=store.filesystem)
    with pytest.raises(op.InputError, match="s3://logs/changing.parquet changed after the log was opened"):
        op.evaluate(log, op.Uniform(), op.SNIPS())


def test_a_broken_connection_is_continued_without_losing_or_repeating_rows() -> None:
    batches = pa.table({"i": np.arange(1_000)}).to_batches(max_chunksize=64)
    failures = iter([100, 100, 500, 999])

    def attempt() -> Iterator[pa.RecordBatch]:
        at = next(failures, None)
        seen = 0
        for batch in batches:
            seen += len(batch)
            if at is not None and seen > at:
                raise OSError("reset by peer")
            yield batch

    waits, remote.WAITS = remote.WAITS, (0.0, 0.0, 0.0)
    try:
        read = pa.Table.from_batches(remote.resumed(attempt, lambda done, error: op.InputError(f"{done} {error}")))
    finally:
        remote.WAITS = waits
    assert read.column("i").to_pylist() == list(range(1_000))


def test_a_server_that_is_killed_midway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed in the scoring pass, when its first part was read; the error says how far it got, and no file is left."""
    with serving(tmp_path) as server:
        pq.write_table(table(400_000), "logs/log.parquet", filesystem=server.filesystem, row_group_size=150_000)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(remote, "WAITS", (0.01, 0.01))
        monkeypatch.setattr(stores, "S3_ATTEMPTS", 1)
        monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
        monkeypatch.setattr(segments, "AHEAD", 0)
        log = op.read_log("s3://logs/log.parquet", **COLUMNS)

        def target(x: Any) -> Any:
            server.kill()
            return np.full((len(x), 3), 1 / 3)

        out = tmp_path / "result.json"
        lost = r"s3://logs/log.parquet: the connection was lost 0 rows into the part from row 300,000 to row 400,000"
        with pytest.raises(op.InputError, match=lost) as raised:
            op.evaluate(log, target, op.DR(), engine=op.Local(threads=1)).save(out)
        assert "(row 300,000 of the log), and 2 more attempts failed" in str(raised.value)
        assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


@needs("aiohttp")
def test_a_file_on_the_web(store: Server, local: Path) -> None:
    address = f"{store.url}/logs/parquet/day%3D0/part.parquet"
    assert evaluated(address)["DR"].value == evaluated(local / "day=0" / "part.parquet")["DR"].value


@needs("gcp_storage_emulator")
def test_a_bucket_of_google(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=logs"]
    process = subprocess.Popen([sys.executable, "-m", "gcp_storage_emulator", *options], stderr=subprocess.DEVNULL)
    try:
        for k in range(3):
            data = (local / f"day={k}" / "part.parquet").read_bytes()
            place = f"http://127.0.0.1:{port}/upload/storage/v1/b/logs/o?uploadType=media&name=all/day={k}/part.parquet"
            answered(Request(place, data, {"Content-Type": "application/octet-stream"}))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        for address in ("gs://logs/all", "gs://logs/all/*/part.parquet"):
            assert evaluated(address, by="day")["DR"].value == evaluated(local, by="day")["DR"].value
        with pytest.raises(op.InputError, match="gs://logs/nothing: no such file or folder"):
            op.read_log("gs://logs/nothing", **COLUMNS)
    finally:
        process.kill()
        process.wait()


def answered(request: Request) -> None:
    """Send a request as soon as the server answers."""
    for _ in range(300):
        try:
            urlopen(request).close()
            return
        except URLError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")
