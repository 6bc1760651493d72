"""The cost of Spark compared with the local engine, on the same Parquet file, in turns: `python -m benchmarks.spark [ROWS]`.

Needs Java 17 and the extra `spark`. Both sides open the log, fit and score DR, and return its value and standard error.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

import numpy as np

import offpolicy as op
from benchmarks.common import CONTEXT, best_times, cached, publish, table, write_log

N_ACTIONS = 1_000
TURNS = 2


def main(rows: int, quick: bool) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    start = time.perf_counter()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.range(10).mapInArrow(lambda batches: batches, "id bigint").count()  # starts the Python workers, too
    start_up = time.perf_counter() - start
    weights = np.random.default_rng(1).normal(size=(len(CONTEXT), N_ACTIONS)) / 10

    def evaluate(source: object) -> float:
        log = op.read_log(
            source, context=CONTEXT, action="action", reward="reward", propensity="propensity", n_actions=N_ACTIONS
        )
        return op.evaluate(log, op.Softmax(lambda x: x @ weights), op.DR())["DR"].std_error

    path = cached(f"log-{rows}-{N_ACTIONS}-10.parquet", partial(write_log, rows=rows, n_actions=N_ACTIONS))
    frame = spark.read.parquet(str(path))
    local, ours = best_times(lambda: evaluate(path), lambda: evaluate(frame), times=TURNS)
    spark.stop()
    job = f"DR, {rows:,} rows × {N_ACTIONS:,} actions, linear Softmax"
    figures = table(
        ["job", "Spark local[2]", "local engine", "ratio", "goal", "Spark's start-up"],
        [[job, f"{ours:.1f} s", f"{local:.1f} s", f"{ours / local:.2f}", "≤ 2", f"{start_up:.1f} s"]],
    )
    publish("spark", figures, quick=quick)


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    main(100_000 if quick else 5_000_000, quick)
