"""`python -m trials.load`: many evaluations at once, and one of a large log; the numbers must be those of each alone.

100 evaluations from one process pool, the same 100 from as many threads of one process, and one evaluation of 25 million
rows, which are written to Parquet on the spot: with one thread and with all of them, beside the sums that were kept while
writing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_info

import offpolicy as op
from benchmarks.common import run_alone, table
from offpolicy.worlds import Linear
from offpolicy.worlds.simulate import simulate
from trials.common import publish

LOGS = 5
WORKERS = 8
"""Processes of the pool: more than there are cores; all evaluations are handed to it at once."""
CHUNK = 1_000_000
ACTIONS = 10
CONTEXT = ["x0", "x1"]
CONTEXT_OF_WORLD = [f"x{j}" for j in range(5)]

Numbers = list[float]


def evaluated(folder: Path, k: int) -> Numbers:
    """Evaluation number k: the values and errors of two estimators, one of them fitted."""
    log = op.read_log(
        folder / f"{k % LOGS}.parquet", context=CONTEXT_OF_WORLD, action="item", reward="click", propensity="propensity",
        logging=op.Candidates("items", "p_items_old"),
    )  # fmt: skip
    result = op.evaluate(log, op.Candidates("items", "p_items_new"), [op.SNIPS(), op.DR()], seed=k, progress=False)
    return [number for name in ("SNIPS", "DR") for number in (result[name].value, result[name].std_error)]


def at_once(folder: Path, how: str, times: int) -> dict[str, Any]:
    """All evaluations at once, after each alone."""
    work = partial(evaluated, folder)
    start = time.monotonic()
    alone = [work(k) for k in range(times)]
    middle, before = time.monotonic(), [each["num_threads"] for each in threadpool_info()]
    if how == "processes":
        with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
            together = list(pool.map(work, range(times)))
    else:
        with ThreadPoolExecutor(times) as threads:
            together = list(threads.map(work, range(times)))
    return {
        "alone": middle - start,
        "together": time.monotonic() - middle,
        "differ": sum(a != b for a, b in zip(alone, together, strict=True)),
        "threads as before": [each["num_threads"] for each in threadpool_info()] == before,
        "workers' peak": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def write_large(path: Path, rows: int) -> float:
    """A log in chunks; gives SNIPS of its target, from sums that are kept on the way."""
    rng, sums = np.random.default_rng(0), np.zeros(2)
    writer: pq.ParquetWriter | None = None
    for start in range(0, rows, CHUNK):
        n = min(CHUNK, rows - start)
        x, target = {name: rng.normal(size=n) for name in CONTEXT}, rng.uniform(0, 2 / ACTIONS, n)
        reward = rng.normal(size=n) + x["x0"]
        sums += (target * ACTIONS) @ reward, (target * ACTIONS).sum()
        columns = {"action": rng.integers(0, ACTIONS, n), "reward": reward, "propensity": np.full(n, 1 / ACTIONS)}
        chunk = pa.table({**x, **columns, "target": target})
        writer = writer or pq.ParquetWriter(path, chunk.schema)
        writer.write_table(chunk, row_group_size=262_144)
    assert writer is not None
    writer.close()
    return float(sums[0] / sums[1])


def large(path: Path, threads: int | None) -> dict[str, Any]:
    """One evaluation of a large log: SNIPS of a column, and DR of the uniform policy."""
    start = time.monotonic()
    log = op.read_log(
        path, context=CONTEXT, action="action", reward="reward", propensity="propensity", n_actions=ACTIONS,
        logging=op.Uniform(),
    )  # fmt: skip
    engine = op.Local(threads)
    column = op.evaluate(log, "target", [op.SNIPS()], engine=engine, progress=False)["SNIPS"]
    uniform = op.evaluate(log, op.Uniform(), [op.DR()], engine=engine, progress=False)["DR"]
    numbers = [column.value, column.std_error, uniform.value, uniform.std_error]
    return {"seconds": time.monotonic() - start, "numbers": numbers}


def part(arguments: list[str]) -> None:
    """One part of the trial in a process of its own, whose memory is watched from outside."""
    what, path, number = arguments
    found = large(Path(path), int(number) or None) if what == "large" else at_once(Path(path), what, int(number))
    print(json.dumps(found))


def _told(name: str, found: dict[str, Any], peak: float, verdict: str) -> list[str]:
    alone = "" if "alone" not in found else f"{found['alone']:.1f} s"
    return [name, alone, f"{found.get('together', found.get('seconds')):.1f} s", f"{peak:,.0f} MB", verdict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100, help="evaluations at once (100)")
    parser.add_argument("--rows", type=int, default=25_000_000, help="rows of the large log (25,000,000)")
    parser.add_argument("--publish", action="store_true", help="put the table into docs/faults.md")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        part(given.part)
        return
    rows, results, good = [], {}, True
    with tempfile.TemporaryDirectory(prefix="offpolicy-load-") as scratch:
        folder = Path(scratch)
        for k in range(LOGS):
            simulate(Linear(6, clicks=True, seed=k), folder / f"{k}.parquet", 3000, k, "click")
        for how in ("processes", "threads"):
            run = run_alone("trials.load", "--part", how, str(folder), str(given.times))
            found = json.loads(run.printed)
            same = found["differ"] == 0 and found["threads as before"]
            good, results[how] = good and same, found | {"peak": run.peak}
            peak = found["workers' peak"] if how == "processes" else run.peak
            name = f"{given.times} evaluations, {WORKERS} processes" if how == "processes" else f"{given.times} threads"
            rows.append(_told(name, found, peak, f"{given.times - found['differ']} of {given.times} the same"))
        path = folder / "large.parquet"
        by_hand = write_large(path, given.rows)
        runs = [run_alone("trials.load", "--part", "large", str(path), threads) for threads in ("1", "0")]
        one, all_ = (json.loads(run.printed) for run in runs)
        off = abs(one["numbers"][0] / by_hand - 1)
        same = one["numbers"] == all_["numbers"] and off < 1e-9
        good, results["large"] = good and same, {"one": one, "all": all_, "by hand": by_hand, "off": off}
        for name, found, run in (("one thread", one, runs[0]), ("all threads", all_, runs[1])):
            says = "the same" if one["numbers"] == all_["numbers"] else "DIFFER"
            rows.append(_told(f"{given.rows:,} rows, {name}", found, run.peak, f"{says}; {off:.0e} off the sums by hand"))
    header = ["what", "one after the other", "at once", "peak memory", "numbers"]
    last = f"Load: {'passed' if good else 'FAILED'}."
    note = "Peak memory of processes is that of the largest of them; numbers are the same to the last bit, or not."
    text = f"`python -m trials.load`\n\n{table(header, rows)}\n\n{note}\n\n{last}"
    publish("load", text, results, full=given.publish)
    print(last)
    sys.exit(not good)


if __name__ == "__main__":
    main()
