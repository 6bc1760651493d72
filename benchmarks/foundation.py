"""Speed and memory of the classical estimators.

python -m benchmarks.foundation [--quick]  all figures in Markdown
python -m benchmarks.foundation --job ips --rows 1000000 --log PATH      one job only, to measure its peak memory
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import offpolicy as op
from benchmarks.common import CONTEXT, best_times, peak_megabytes, publish, table, write_log
from offpolicy.engines.local import Local
from offpolicy.policies.blocks import blocks

N_ACTIONS = 1_000
WEIGHTS = np.random.default_rng(1).normal(size=(len(CONTEXT), N_ACTIONS)) * 0.3
SOFTMAX = op.Softmax(lambda x: x @ WEIGHTS)


def open_log(path: Path) -> op.Log:
    return op.read_log(path, context=CONTEXT, action="action", reward="reward", propensity="propensity", n_actions=N_ACTIONS)


def ips(path: Path) -> object:
    estimators = [op.LoggedMean(), op.IPS(), op.SNIPS()]
    return op.evaluate(open_log(path), op.Column("target"), estimators, progress=False)


def read_with_pyarrow(path: Path) -> int:
    """PyArrow alone: the same columns, batch by batch, with its own threads."""
    columns = [*CONTEXT, "action", "reward", "propensity", "target"]
    return sum(len(batch) for batch in ds.dataset(path).to_batches(columns=columns))


def read_table(path: Path) -> int:
    """PyArrow alone, the whole table into memory at once."""
    return len(pq.read_table(path, columns=[*CONTEXT, "action", "reward", "propensity", "target"]))


def models(path: Path) -> object:
    return op.evaluate(open_log(path), SOFTMAX, [op.DM(), op.DR()], progress=False, errors=False)


@dataclass(frozen=True)
class PolicyOnly:
    """Read the log and call the policy for all actions of every round, as any model-based estimator must."""

    columns: tuple[str, ...] = ()
    batch_rows: int | None = None

    def zero(self) -> dict[str, Any]:
        return {"sum": np.zeros(())}

    def fold(self, state: dict[str, Any], batch: Any) -> dict[str, Any]:
        for rows in blocks(len(batch), batch.n_actions):
            state["sum"] = state["sum"] + SOFTMAX.probabilities(batch.take(rows))[0, 0]
        return state

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {"sum": a["sum"] + b["sum"]}

    def finish(self, state: dict[str, Any]) -> float:
        return float(state["sum"])


def policy_only(path: Path) -> object:
    return Local().reduce(open_log(path), PolicyOnly())


def plain_loop(path: Path) -> float:
    """The same by hand, as a user would write it: PyArrow's batches, and NumPy on 10,000 rows at a time."""
    total = 0.0
    for batch in pq.ParquetFile(path).iter_batches(10_000, columns=[*CONTEXT, "action", "reward", "propensity"]):
        scores = np.column_stack([batch.column(name).to_numpy() for name in CONTEXT]) @ WEIGHTS
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        total += float(p[0, 0])
    return total


JOBS = {"ips": ips, "read": read_with_pyarrow, "models": models, "policy": policy_only}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="200,000 rows; the README stays as it is")
    arguments = parser.parse_args()
    if arguments.job:
        JOBS[arguments.job](arguments.log)
        return
    rows = 200_000 if arguments.quick else arguments.rows
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.parquet"), Path(folder, "large.parquet")
        write_log(small, rows // 10, N_ACTIONS)
        write_log(large, rows, N_ACTIONS)
        publish("foundation", figures(small, large, rows), quick=arguments.quick)


def figures(small: Path, large: Path, rows: int) -> str:
    read, whole, ours = best_times(lambda: read_with_pyarrow(large), lambda: read_table(large), lambda: ips(large))
    policy, loop, fitted = best_times(lambda: policy_only(small), lambda: plain_loop(small), lambda: models(small))
    ips_job = f"LoggedMean, IPS, SNIPS; {rows:,} rows, Column target"
    model_job = f"DM, DR; {rows // 10:,} rows × {N_ACTIONS:,} actions, linear Softmax"
    compared = [
        (ips_job, "PyArrow reading the same columns in batches", ours, read, "≤ 2.2"),
        ("the same", "PyArrow reading them into one table", ours, whole, "–"),
        (model_job, "reading the log and evaluating that policy, by hand with PyArrow and NumPy", fitted, loop, "≤ 1.5"),
        ("the same", "the same with our own engine: threads, blocks in cache", fitted, policy, "≤ 1.5"),
    ]
    cells = [[job, other, f"{a:.2f} s", f"{b:.2f} s", f"{a / b:.2f}", goal] for job, other, a, b, goal in compared]
    peaks = []
    for job in ("ips", "models"):
        for path, n in ((small, rows // 10), (large, rows)):
            peak, own = peak_megabytes("benchmarks.foundation", "--job", job, "--log", str(path))
            peaks.append([job, f"{n:,}", f"{peak:,.0f} MB", f"{own:,.0f} MB"])
    speed = table(["job", "baseline", "our time", "its time", "ratio", "goal"], cells)
    return f"{speed}\n\n{table(['job', 'rows', 'peak memory', 'without mapped files'], peaks)}"


if __name__ == "__main__":
    main()
