"""10 million rows in a bucket: reading them as a log, against PyArrow reading the same objects.

python -m benchmarks.buckets [ROWS]     needs `make places`; writes docs/measured/buckets.json

The server is moto's, on this machine. Both sides read the same four columns of the same Parquet files, in turns, on all
cores, in batches of the same size: ours as checked batches of a log, PyArrow as those of a dataset. Both list the files
first. Memory is that of a process that only reads.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import offpolicy as op
from offpolicy.core.threads import parallel
from tests.data.s3 import serving

MEASURED = Path("docs/measured/buckets.json")
FILES, TIMES, ROWS, COLUMNS = 10, 21, 65_536, ["x", "item", "click", "p"]


def ours(bucket: str) -> int:
    log = op.read_log(f"s3://logs/{bucket}", context="x", action="item", reward="click", propensity="p", n_actions=100)
    return sum(parallel(lambda part: sum(len(batch) for batch in part.batches(ROWS)), log.partitions()))


def arrow(bucket: str, filesystem: object) -> int:
    data = ds.dataset(f"logs/{bucket}", filesystem=filesystem)
    return sum(len(batch) for batch in data.to_batches(columns=COLUMNS, batch_size=ROWS))


def peak(bucket: str) -> float:
    code = f"from benchmarks.buckets import ours; import resource; ours({bucket!r}); "
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    rows, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000, np.random.default_rng(0)
    each = rows // FILES
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        os.environ |= server.environment
        for k in range(FILES):
            table = pa.table({
                "x": rng.normal(size=each), "item": rng.integers(0, 100, each), "click": rng.integers(0, 2, each) * 1.0,
                "p": np.full(each, 0.01),
            })  # fmt: skip
            pq.write_table(table, f"logs/all/{k}.parquet", filesystem=server.filesystem, row_group_size=131_072)
            if k == 0:
                pq.write_table(table, "logs/tenth/0.parquet", filesystem=server.filesystem, row_group_size=131_072)
        times: dict[str, list[float]] = {"ours": [], "pyarrow": []}
        for _ in range(TIMES):
            for name, run in (("pyarrow", lambda: arrow("all", server.filesystem)), ("ours", lambda: ours("all"))):
                start = time.perf_counter()
                assert run() == rows
                times[name].append(time.perf_counter() - start)
        median = {name: round(statistics.median(seconds), 3) for name, seconds in times.items()}
        ratios = sorted(a / b for a, b in zip(times["ours"], times["pyarrow"], strict=True))
        found = {
            "rows": rows, "times": TIMES, "median_seconds": median, "median_ratio": round(statistics.median(ratios), 3),
            "quartiles_of_ratio": [round(each, 3) for each in statistics.quantiles(ratios, n=4)[::2]],
            "peak_mb": round(peak("all")), "peak_mb_of_a_tenth": round(peak("tenth")),
        }  # fmt: skip
    print(json.dumps(found))
    if rows == 10_000_000:
        MEASURED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
