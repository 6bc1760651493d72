"""`offpolicy watch`: each file once, exit codes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from offpolicy.cli.app import app

N = 1_500


def write_day(path: Path, k: int) -> Path:
    rng = np.random.default_rng(k)
    action = rng.integers(0, 4, N)
    table = {
        "x": rng.normal(size=N), "item": action, "click": (rng.random(N) < 0.1 + 0.2 * action).astype(float),
        "p": np.full(N, 0.25), "good": np.array([0.1, 0.2, 0.3, 0.4])[action], "bad": np.array([0.7, 0.1, 0.1, 0.1])[action],
    }  # fmt: skip
    pq.write_table(pa.table(table), path)
    return path


def watch(*arguments: object) -> Any:
    usual = ["--context", "x", "--action", "item", "--reward", "click", "--propensity", "p", "--reward-range", "0,1"]
    return CliRunner().invoke(app, ["watch", *map(str, arguments), *usual, "--threads", "1"])


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("days")
    return [write_day(folder / f"day{k}.parquet", k) for k in range(3)]


def test_each_file_counts_once(days: list[Path], tmp_path: Path) -> None:
    state = tmp_path / "state.op"
    first = watch(state, days[0], "--target", "p", "--json")
    assert first.exit_code == 0
    assert json.loads(first.stdout)["decisions"]["target"]["conclusion"] == "undecided"
    again = watch(state, days[0], days[1], "--target", "p", "--json")
    assert "day0" not in again.stderr
    assert json.loads(again.stdout)["rounds"] == 2 * N
    copied = tmp_path / "copy.parquet"
    copied.write_bytes(days[1].read_bytes())
    assert json.loads(watch(state, copied, "--target", "p", "--json").stdout)["rounds"] == 2 * N
    text = watch(state, "--target", "p", days[2]).stdout
    assert "4,500 rounds of 3 logs" in text
    assert "undecided" in text


def test_exit_codes(days: list[Path], tmp_path: Path) -> None:
    better = watch(tmp_path / "a.op", *days, "--target", "new=good", "--plot", tmp_path / "looks.png")
    assert better.exit_code == 4
    assert "better than the log, since" in better.stdout
    assert (tmp_path / "looks.png").stat().st_size > 1_000
    worse = watch(tmp_path / "b.op", *days, "--target", "new=bad")
    assert worse.exit_code == 5
    both = watch(tmp_path / "c.op", *days, "--target", "a=good", "--target", "b=bad", "--baseline", "b")
    assert both.exit_code == 4


def test_what_was_promised_cannot_change(days: list[Path], tmp_path: Path) -> None:
    state = tmp_path / "state.op"
    watch(state, days[0], "--target", "p")
    refused = watch(state, days[1], "--target", "p", "--level", "0.9")
    assert isinstance(refused.exception, Exception)
    assert "was begun with 0.95" in str(refused.exception)
    assert "policies" in str(watch(state, days[1], "--target", "good").exception)
    assert "has the name of a log" in str(watch(days[0], days[1], "--target", "p").exception)
    missing = watch(tmp_path / "none" / "state.op", days[1], "--target", "p")
    assert "no such folder" in str(missing.exception)
    assert "New" not in missing.stderr
    state.write_bytes(state.read_bytes()[:-5])
    assert "state.op" in str(watch(state, days[1], "--target", "p").exception)
