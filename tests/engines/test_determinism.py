"""The same seed gives the same bytes: on any number of threads, for any batch size, with any number of BLAS threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.cli.output import finite
from offpolicy.data.batch import Batch, in_blocks
from offpolicy.statistics.base import State
from offpolicy.worlds import Linear
from offpolicy.worlds.simulate import simulate
from tests.logs import Small

ROUNDS = 40_000
CONTEXT = [f"x{j}" for j in range(5)]
LEARNED = [
    op.SNIPS(), op.DR(), op.CAB(), op.MR(), op.OffCEM(), op.LearnedMIPS(), op.LearnedMDR(),
    op.LearnedMIPS(posterior=op.Gaussian(), name="kernel"),
]  # fmt: skip
WAYS = [(2, None), (1, 1_000), (2, 4_097), (2, 65_536)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One log as one file of odd row groups, and as three files."""
    path = tmp_path_factory.mktemp("log")
    simulate(Linear(12, clicks=True, seed=0), path / "made.parquet", ROUNDS, 0, "click")
    table = pq.read_table(path / "made.parquet").append_column("id", pa.array(np.arange(ROUNDS)))
    (path / "one").mkdir()
    (path / "three").mkdir()
    pq.write_table(table, path / "one" / "log.parquet", row_group_size=7_001)
    for name, start, rows in (("a", 0, 100), ("b", 100, 21_000), ("c", 21_100, ROUNDS)):
        pq.write_table(table.slice(start, rows), path / "three" / f"{name}.parquet", row_group_size=9_000)
    return path


def opened(source: Any, **more: Any) -> op.Log:
    return op.read_log(
        source, context=CONTEXT, action="item", reward="click", propensity="propensity", reward_range=(0, 1),
        logging=op.Candidates("items", "p_items_old"), **more,
    )  # fmt: skip


def told(result: op.Evaluation) -> str:
    return json.dumps(finite(result.to_dict(shown=100)), default=str)


def answer(log: op.Log, estimators: Any, threads: int, batch_rows: int | None, **more: Any) -> str:
    engine = op.Local(threads=threads, batch_rows=batch_rows)
    return told(op.evaluate(log, op.Candidates("items", "p_items_new"), estimators, engine=engine, **more))


@pytest.mark.parametrize("estimators", [None, LEARNED], ids=["default", "learned"])
def test_threads_and_batches_change_no_byte(folder: Path, estimators: Any) -> None:
    log = opened(folder / "one")
    first = answer(log, estimators, 1, None)
    for way in WAYS:
        assert answer(log, estimators, *way) == first, way


def test_a_table_in_memory_and_slices_change_no_byte(folder: Path) -> None:
    table = pq.read_table(folder / "one" / "log.parquet").slice(0, 9_000)
    table = table.append_column("half", pa.array(np.arange(len(table)) % 2).cast(pa.string()).dictionary_encode())
    log = opened(table, by="half", cluster="id")
    assert len({answer(log, [op.DR(), op.LearnedMIPS()], *way) for way in [(1, None), *WAYS]}) == 1


def test_the_memory_budget_does_not_let_threads_in(folder: Path) -> None:
    """What fits is planned for several threads, also where one will do the work: else batches would be of another size."""
    log = opened(folder / "one")
    first, second = (answer(log, [op.DR(), op.LearnedMIPS()], threads, None, memory="300MB") for threads in (1, 2))
    assert first == second


def test_the_threads_of_blas_change_no_byte(folder: Path) -> None:
    log = opened(folder / "one")
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            result = op.evaluate(log, op.Candidates("items", "p_items_new"), LEARNED, engine=op.Local(threads=1))
            found.append(told(result.with_interval("bootstrap")))
    assert found[0] == found[1]


def test_the_command_prints_the_same_bytes(folder: Path) -> None:
    usual = ["evaluate", str(folder / "one"), "--context", ",".join(CONTEXT), "--action", "item", "--reward", "click",
             "--propensity", "propensity", "--target", "items,p_items_new", "--logging", "items,p_items_old", "--json"]  # fmt: skip
    outputs = {CliRunner().invoke(app, [*usual, "--threads", str(threads)]).stdout for threads in (1, 2, 3)}
    assert len(outputs) == 1
    said = outputs.pop()
    assert json.loads(said)["rounds"] == ROUNDS
    assert str(folder) not in said  # files are told by their names: another folder gives the same bytes


def test_another_seed_is_another_answer(folder: Path) -> None:
    """Or the tests above could not fail."""
    log = opened(folder / "one")
    assert answer(log, [op.DR()], 1, None) != answer(log, [op.DR()], 1, None, seed=1)


def test_files_that_are_cut_elsewhere_agree_to_the_last_digits(folder: Path) -> None:
    """Rows are summed file by file, so here rounding differs; what is drawn by chance follows the ids."""
    one, three = (
        op.evaluate(opened(folder / name, row_id="id"), op.Candidates("items", "p_items_new"), LEARNED)
        for name in ("one", "three")
    )
    assert one.input["fingerprint"] == three.input["fingerprint"]
    for a, b in zip(one, three, strict=True):
        assert b.value == pytest.approx(a.value, rel=1e-9)
        assert b.std_error == pytest.approx(a.std_error, rel=1e-9)


class Seen:
    """A statistic that keeps the sizes and the rows of what it is given."""

    columns = ("items",)
    batch_rows = 1_000

    def zero(self) -> State:
        return {"sizes": [], "rows": [], "items": []}

    def fold(self, state: State, batch: Batch) -> State:
        return {
            "sizes": [*state["sizes"], len(batch)],
            "rows": [*state["rows"], *batch.row.tolist()],
            "items": [*state["items"], *batch.extra["items"].to_pylist()],
        }

    def merge(self, a: State, b: State) -> State:
        return {name: a[name] + b[name] for name in a}

    def finish(self, state: State) -> State:
        return state


@pytest.mark.parametrize("batch_rows", [None, 1, 300, 1_001, 10_000])
def test_a_statistic_is_given_blocks_of_its_own_size(folder: Path, batch_rows: int | None) -> None:
    table = pq.read_table(folder / "one" / "log.parquet").slice(0, 2_500)
    seen = op.Local(threads=2, batch_rows=batch_rows).reduce(opened(table), Seen())
    assert seen["sizes"] == [1_000, 1_000, 500]
    assert seen["rows"] == list(range(2_500))
    assert seen["items"] == table["items"].to_pylist()


def test_blocks_hold_every_column_of_every_round(small: Small) -> None:
    log = small.log(weight=np.arange(400.0), by=small.action, action_features=small.features)
    whole = log.head(400)
    for rows in (7, 399, 400, 500):
        blocks = list(in_blocks((b for size in (13,) for b in log.partitions()[0].batches(size)), rows))
        assert [len(block) for block in blocks] == [min(rows, 400 - k) for k in range(0, 400, rows)]
        for name in ("row", "unit", "action", "reward", "context", "features", "propensity", "weight", "slice_code"):
            np.testing.assert_array_equal(np.concatenate([getattr(b, name) for b in blocks]), getattr(whole, name))
