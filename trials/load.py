"""`python -m trials.load`: many evaluations at once, and one of a large log; results must equal those of each alone.

It runs 100 evaluations in a process pool, the same 100 in as many threads of one process, and one evaluation of 25 million
rows, which it first writes to Parquet: with one thread and with all threads. The result is compared with sums that were
computed while writing.
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
"""Processes in the pool: more than there are cores; all evaluations are submitted at once."""
CHUNK = 1_000_000
ACTIONS = 10
CONTEXT = ["x0", "x1"]
CONTEXT_OF_WORLD = [f"x{j}" for j in range(5)]

Numbers = list[float]


def evaluated(folder: Path, k: int) -> Numbers:
    """Evaluation number k: the values and standard errors of two estimators, one of which fits a model."""
    log = op.read_log(
        folder / f"{k % LOGS}.parquet", context=CONTEXT_OF_WORLD, action="item", reward="click", propensity="propensity",
        logging=op.Candidates("items", "p_items_old"),
    )  # fmt: skip
    result = op.evaluate(log, op.Candidates("items", "p_items_new"), [op.SNIPS(), op.DR()], seed=k, progress=False)
    return [number for name in ("SNIPS", "DR") for number in (result[name].value, result[name].std_error)]


def at_once(folder: Path, how: str, times: int) -> dict[str, Any]:
    """Run each evaluation alone, then all at once."""
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
        "threads restored": [each["num_threads"] for each in threadpool_info()] == before,
        "workers' peak": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def write_large(path: Path, rows: int) -> float:
    """Write a log in chunks; return the SNIPS estimate of its target, computed from running sums."""
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
    """Evaluate a large log: SNIPS for a column, and DR for the uniform policy."""
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
    """Run one part of the trial in its own process, whose memory is measured from outside."""
    what, path, number = arguments
    found = large(Path(path), int(number) or None) if what == "large" else at_once(Path(path), what, int(number))
    print(json.dumps(found))


def _row(name: str, found: dict[str, Any], peak: float, verdict: str) -> list[str]:
    alone = "" if "alone" not in found else f"{found['alone']:.1f} s"
    return [name, alone, f"{found.get('together', found.get('seconds')):.1f} s", f"{peak:,.0f} MB", verdict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100, help="number of simultaneous evaluations (100)")
    parser.add_argument("--rows", type=int, default=25_000_000, help="rows of the large log (25,000,000)")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/faults.md")
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
            same = found["differ"] == 0 and found["threads restored"]
            good, results[how] = good and same, found | {"peak": run.peak}
            peak = found["workers' peak"] if how == "processes" else run.peak
            name = f"{given.times} evaluations, {WORKERS} processes" if how == "processes" else f"{given.times} threads"
            rows.append(_row(name, found, peak, f"{given.times - found['differ']} of {given.times} identical"))
        path = folder / "large.parquet"
        by_hand = write_large(path, given.rows)
        runs = [run_alone("trials.load", "--part", "large", str(path), threads) for threads in ("1", "0")]
        one, all_ = (json.loads(run.printed) for run in runs)
        off = abs(one["numbers"][0] / by_hand - 1)
        same = one["numbers"] == all_["numbers"] and off < 1e-9
        good, results["large"] = good and same, {"one": one, "all": all_, "by hand": by_hand, "off": off}
        for name, found, run in (("one thread", one, runs[0]), ("all threads", all_, runs[1])):
            agreement = "identical" if one["numbers"] == all_["numbers"] else "DIFFER"
            rows.append(
                _row(f"{given.rows:,} rows, {name}", found, run.peak, f"{agreement}; {off:.0e} off the sums by hand")
            )
    header = ["load", "one at a time", "all at once", "peak memory", "results"]
    last = f"Load: {'passed' if good else 'FAILED'}."
    note = "The peak memory of several processes is that of the largest one. Identical means equal to the last bit."
    text = f"`python -m trials.load`\n\n{table(header, rows)}\n\n{note}\n\n{last}"
    publish("load", text, results, full=given.publish)
    print(last)
    sys.exit(not good)


if __name__ == "__main__":
    main()
