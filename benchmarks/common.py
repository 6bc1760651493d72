"""Shared by the benchmarks: data, timing, peak memory in a separate process, and tables for the README."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
CACHE = HERE.parent / "build" / "bench-data"
README = HERE / "README.md"
CONTEXT = [f"x{j}" for j in range(10)]


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A data file that is generated once. Its name contains all its parameters; an interrupted run leaves no file."""
    path = CACHE / name
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        make(unfinished)
        unfinished.rename(path)
    return path


class Rows:
    """Results in a file of JSON lines, one per run, so that an interrupted benchmark continues where it stopped.

    A run is known by some of its entries. The last line may have been cut off; it is then dropped.
    """

    def __init__(self, path: Path | None, key: Sequence[str]) -> None:
        self.path, self._key = path, tuple(key)
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in [] if path is None or not path.exists() else _whole_lines(path):
            self._rows[self.key(row)] = row

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What tells a run from the others."""
        return tuple(row.get(name) for name in self._key)

    def __contains__(self, row: Mapping[str, Any]) -> bool:
        return self.key(row) in self._rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows.values())

    def add(self, row: dict[str, Any]) -> None:
        """Add a run, and append it to the file at once."""
        self._rows[self.key(row)] = row
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, from which a last line without an end is cut."""
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def write_log(
    path: Path, rows: int, n_actions: int, seed: int = 0, chunk: int = 500_000, context: Sequence[str] = CONTEXT
) -> None:
    """Write a synthetic log with 10 context columns, one chunk at a time."""
    rng = np.random.default_rng(seed)
    writer: pq.ParquetWriter | None = None
    for start in range(0, rows, chunk):
        n = min(chunk, rows - start)
        columns = {name: rng.normal(size=n) for name in context}
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
    """The shortest time of each, in seconds. They take turns, so that a slow phase of the machine affects all of them."""
    best = [float("inf")] * len(runs)
    for _ in range(1 + times):  # the first turn is a warm-up
        for k, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


@dataclass(frozen=True)
class Run:
    """The output of a separate process, and its peak memory in megabytes, in total and without mapped files.

    The pages of a mapped Parquet file count as the process's memory, but the system drops them when it needs memory.
    """

    printed: str
    peak: float
    own: float


def run_alone(module: str, *arguments: str) -> Run:
    """Run `python -m module arguments`, and watch its memory from outside until it ends."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    peak = own = 0.0
    while process.poll() is None:  # the output must fit into the pipe: a line or two
        with suppress(OSError, IndexError):  # the process may end between two readings
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) / 1024)
            own = max(own, int(status.split("RssAnon:")[1].split()[0]) / 1024)
        time.sleep(0.005)
    if process.returncode:
        raise RuntimeError(f"{module} {arguments} failed")
    assert process.stdout is not None
    return Run(process.stdout.read(), peak, own)


def peak_megabytes(module: str, *arguments: str) -> tuple[float, float]:
    """The peak memory of `python -m module arguments`, in total and without mapped files."""
    run = run_alone(module, *arguments)
    return run.peak, run.own


def own_megabytes() -> float:
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024


def watched(run: Callable[[], object]) -> float:
    """The increase of this process's peak memory while `run` runs, in megabytes."""
    before, peak, done = own_megabytes(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, own_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        done.set()
        watcher.join()
    return peak - before


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of a least-squares line through the logarithms of the points: 1 is proportional, 0 is flat."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def machine() -> str:
    """One line that describes the machine and the versions."""
    import offpolicy

    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, PyArrow {pa.__version__}"
    return f"{os.cpu_count()} cores, {versions}, offpolicy {offpolicy.__version__}"


def write_section(name: str, text: str, readme: Path = README) -> None:
    """Write a run's tables between its markers in the README, with the machine and the date."""
    old = readme.read_text()
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if old.count(start) != 1 or old.count(end) != 1:
        raise ValueError(f"{readme}: the markers {start} and {end} must occur exactly once each")
    before, rest = old.split(start)
    _, after = rest.split(end)
    head = f"Latest run, {date.today().isoformat()}, on {machine()}:"
    readme.write_text(f"{before}{start}\n{head}\n\n{text.strip()}\n{end}{after}")


def publish(name: str, text: str, *, quick: bool) -> None:
    """Print a run's tables; a full run also replaces its section of the README, a quick one never does."""
    print(f"{machine()}\n\n{text.strip()}\n")
    if not quick:
        write_section(name, text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
