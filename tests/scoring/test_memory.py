"""The memory budget bounds what an evaluation adds to its process, long lists of candidates included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROUNDS, LISTED = 1_024, 8_000
BUDGET = 300
"""Megabytes. The lists of all rounds take 200 MB once they are decoded, and several times that while they are scored."""

SCRIPT = """
import sys
import offpolicy as op

def peak():  # of this program alone: what getrusage reports begins with the peak of the parent process
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1000

start = peak()
log = op.read_log(
    sys.argv[1], context=["x"], action="item", reward="click", n_actions=int(sys.argv[2]),
    logging=op.Candidates("items", "p_old"),
)
result = op.evaluate(log, op.Candidates("items", "p_new"), eval(sys.argv[3]), memory="300MB", engine=op.Local(threads=2))
if sys.argv[4] == "more":
    result.sensitivity(1.5)
    result["SNIPS"].scores(sys.argv[1] + ".scores.parquet")
print(peak() - start)
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every round lists the same candidates, so that the file is small."""
    path = tmp_path_factory.mktemp("memory") / "log.parquet"
    rng = np.random.default_rng(0)
    offsets = pa.array(np.arange(ROUNDS + 1) * LISTED, pa.int32())

    def lists(values: np.ndarray) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(np.tile(values, ROUNDS)))

    new = rng.gamma(1.0, size=LISTED)
    table = {
        "x": rng.normal(size=ROUNDS),
        "item": rng.integers(0, LISTED, ROUNDS),
        "click": rng.integers(0, 2, ROUNDS),
        "items": lists(np.arange(LISTED)),
        "p_old": lists(np.full(LISTED, 1 / LISTED)),
        "p_new": lists(new / new.sum()),
    }
    pq.write_table(pa.table(table), path, compression="zstd")
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of the memory from /proc")
@pytest.mark.parametrize(("estimators", "then"), [
    ("[op.SNIPS()]", "more"),
    ("[op.MR()]", ""),
], ids=["scoring, bounds and scores", "fitting"])  # fmt: skip
def test_long_lists_stay_within_the_budget(log: Path, estimators: str, then: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(log), str(LISTED), estimators, then]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < BUDGET
