"""How time and peak memory grow with the rounds, the actions and the size of the context.

python -m benchmarks.growth rounds | actions | context [--quick]

Each point is a separate process. The time is that of `op.evaluate`, including standard errors; the baseline, in another
process of the same run, reads the same Parquet columns into NumPy, batch by batch, and does nothing with them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import offpolicy as op
from benchmarks.candidates import Shop
from benchmarks.common import CONTEXT, cached, exponent, publish, run_alone, table, write_log
from benchmarks.plots import growth_plot

ENOUGH = 20.0
"""Seconds after which a point is not measured again; a faster point takes the shortest of three runs."""

UNUSED = {"propensity", "target"}
"""Columns of the log that these evaluations do not read, because the policies are functions."""


@dataclass(frozen=True)
class Growth:
    """One curve: its sizes, the data of each, and what is evaluated there."""

    axis: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    log: Callable[[int, bool], Path]
    evaluate: Callable[[int, Path], op.Evaluation]
    description: str
    goal: str


def long_log(rows: int, context: int = 10, n_actions: int = 1_000) -> Path:
    names = [f"x{j}" for j in range(context)]
    name = f"log-{rows}-{n_actions}-{context}.parquet"
    return cached(name, partial(write_log, rows=rows, n_actions=n_actions, context=names))


def over_all_actions(path: Path, context: int = 10, n_actions: int = 1_000) -> op.Evaluation:
    """A linear softmax over all actions, on a log of a uniform policy."""
    names = [f"x{j}" for j in range(context)]
    weights = np.random.default_rng(1).normal(size=(context, n_actions)) * 0.3
    log = op.read_log(path, context=names, action="action", reward="reward", logging=op.Uniform(), n_actions=n_actions)
    every = [op.SNIPS(), op.DM(), op.DR(), op.LearnedMIPS(posterior=op.Logistic())]
    return op.evaluate(log, op.Softmax(lambda x: x @ weights), every, memory="2GB", progress=False)


def over_candidates(n_actions: int, path: Path) -> op.Evaluation:
    log = op.read_log(
        path, context=CONTEXT, action="action", reward="reward", logging=op.Candidates("items", "p_old"), n_actions=n_actions
    )
    every = [op.LearnedMIPS(posterior=op.Gaussian()), op.LearnedMDR(posterior=op.Gaussian()), op.DR()]
    return op.evaluate(log, op.Candidates("items", "p_new"), every, cross_fit=2, memory="6GB", progress=False)


CURVES = {
    "rounds": Growth(
        "rounds",
        (1_000_000, 5_000_000, 25_000_000),
        (20_000, 100_000),
        lambda size, _: long_log(size),
        lambda _, path: over_all_actions(path),
        "SNIPS, DM, DR and Learned MIPS together; 1,000 actions, 10 context columns, linear Softmax target.",
        "Goal: a time exponent between 0.9 and 1.1; peak memory within 10% and under 2 GB.",
    ),
    "context": Growth(
        "context columns",
        (5, 10, 20, 40),
        (5, 20),
        lambda size, quick: long_log(20_000 if quick else 1_000_000, size),
        lambda size, path: over_all_actions(path, size),
        "SNIPS, DM, DR and Learned MIPS together; 1,000,000 rounds (20,000 in a quick run), 1,000 actions, linear Softmax "
        "target. The cost of one model per action grows with the square of the number of columns.",
        "There is no goal.",
    ),
    "actions": Growth(
        "actions",
        (1_000, 10_000, 100_000, 1_000_000),
        (200, 1_000),
        lambda size, quick: (Shop(5_000, size, 50) if quick else Shop(1_000_000, size, 200)).path(),
        over_candidates,
        'Learned MIPS, Learned MDR and DR together (cross_fit=2, memory="6GB"); 1,000,000 rounds with 200 candidates each '
        "(5,000 with 50 "
        "in a quick run), from list columns, 10 context columns.",
        "Goal: a time exponent below 0.6; peak memory under 6 GB.",
    ),
}


def seconds_of(run: Callable[[], object], times: int = 3) -> float:
    """The shortest time, or the time of a single run if that is long."""
    best, spent = float("inf"), 0.0
    for _ in range(times):
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
        if spent > ENOUGH:
            break
    return best


def scan(path: Path) -> int:
    """The baseline: the evaluated columns as NumPy arrays, 65,536 rows at a time."""
    seen, file = 0, pq.ParquetFile(path, memory_map=True)
    columns = [name for name in file.schema_arrow.names if name not in UNUSED]
    for batch in file.iter_batches(65_536, columns=columns):
        for column in batch.columns:
            flat = column.flatten() if pa.types.is_list(column.type) else column
            seen += len(flat.to_numpy(zero_copy_only=False))
    return seen


def with_errors(curve: Growth, size: int, path: Path) -> float:
    return sum(e.std_error for e in curve.evaluate(size, path))


def one(kind: str, side: str, size: int, path: Path) -> None:
    """Measure a point in this process: print its seconds, after a warm-up.

    A long point is measured once and a short one three times: without the warm-up, only the long ones would include the
    loading of modules, and the exponent would count it as growth.
    """
    curve, small = CURVES[kind], CURVES[kind].quick[0]
    if side == "scan":
        print(seconds_of(partial(scan, path)))
        return
    with_errors(curve, small, curve.log(small, True))
    print(seconds_of(partial(with_errors, curve, size, path)))


def figures(kind: str, quick: bool) -> str:
    curve = CURVES[kind]
    sizes = curve.quick if quick else curve.sizes
    ours, peaks, rows = [], [], []
    for size in sizes:
        path = curve.log(size, quick)
        other = float(run_alone("benchmarks.growth", kind, "--one", "scan", str(size), str(path)).printed)
        run = run_alone("benchmarks.growth", kind, "--one", "ours", str(size), str(path))
        ours.append(float(run.printed))
        peaks.append(run.peak)
        times = [f"{ours[-1]:.2f}", f"{other:.3f}", f"{ours[-1] / other:.1f}", f"{ours[-1] / ours[0]:.2f}"]
        rows.append([f"{size:,}", *times, f"{run.peak:,.0f}", f"{run.own:,.0f}", f"{run.peak / peaks[0]:.2f}"])
        print(f"  {kind} {size:,}: {', '.join(times)}; {run.peak:,.0f} MB", file=sys.stderr)
    growth_plot(kind, curve.axis, sizes, ours, peaks, quick=quick)
    header = [
        curve.axis,
        "seconds",
        "bare scan, s",
        "ratio",
        "relative to first",
        "peak MB",
        "without mapped files",
        "relative to first",
    ]
    fitted = f"Exponents: time {exponent(sizes, ours):.2f}, peak memory {exponent(sizes, peaks):.2f}."
    picture = f"![{curve.axis}: time and peak memory](plots/{kind}.png)"
    return "\n\n".join([curve.description, table(header, rows), f"{fitted} {curve.goal}", picture])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=CURVES)
    parser.add_argument("--quick", action="store_true", help="small sizes; leaves the README and its plots unchanged")
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "SIZE", "LOG"), help="one point, in this process")
    given = parser.parse_args()
    if given.one:
        side, size, path = given.one
        one(given.kind, side, int(size), Path(path))
        return
    publish(f"growth {given.kind}", figures(given.kind, given.quick), quick=given.quick)


if __name__ == "__main__":
    main()
