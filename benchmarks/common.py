"""What the benchmarks share: data made on the spot, timing with peak memory in a process of its own, and a table."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CONTEXT = [f"x{j}" for j in range(10)]


def write_log(path: Path, rows: int, n_actions: int, seed: int = 0, chunk: int = 500_000) -> None:
    """A synthetic log with 10 context columns, written a chunk at a time."""
    rng = np.random.default_rng(seed)
    writer: pq.ParquetWriter | None = None
    for start in range(0, rows, chunk):
        n = min(chunk, rows - start)
        columns = {name: rng.normal(size=n) for name in CONTEXT}
        columns |= {
            "action": rng.integers(0, n_actions, n),
            "reward": rng.normal(size=n) + columns["x0"],
            "propensity": np.full(n, 1 / n_actions),
            "target": rng.uniform(0, 2 / n_actions, n),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=262_144)
    assert writer is not None
    writer.close()


def best_times(*runs: Callable[[], object], times: int = 7) -> list[float]:
    """The shortest time of each, in seconds. They take turns, so that a slow spell of the machine hits all alike."""
    best = [float("inf")] * len(runs)
    for _ in range(1 + times):  # the first turn warms up, and its times are beaten by the later ones
        for k, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def peak_megabytes(module: str, *arguments: str) -> tuple[float, float]:
    """The peak memory of `python -m module arguments` in a process of its own: all of it, and without mapped files.

    The pages of a mapped Parquet file count as the process's memory, but the system drops them when it needs the room.
    """
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=Path(__file__).parent.parent)
    peak = own = 0.0
    while process.poll() is None:
        with suppress(OSError, IndexError):  # the process may end between two looks at it
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) / 1024)
            own = max(own, int(status.split("RssAnon:")[1].split()[0]) / 1024)
        time.sleep(0.005)
    if process.returncode:
        raise RuntimeError(f"{module} {arguments} failed")
    return peak, own


def machine() -> str:
    """One line on where the figures come from."""
    import os

    import offpolicy

    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, PyArrow {pa.__version__}"
    return f"{os.cpu_count()} cores, {versions}, offpolicy {offpolicy.__version__}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
