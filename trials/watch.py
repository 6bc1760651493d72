"""`python -m trials.watch --times 100`: `offpolicy watch` killed at random moments; nothing is lost, nothing counts twice.

Each trial runs what the command runs, in a process of its own that shares the imports of this one, and kills it with SIGKILL
at a random moment. The state must then be that of some of the files, each once. Once all files are in it, it must equal that
of a run without interruption, and the next trial starts with a new state.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import offpolicy as op
from offpolicy.cli import watching
from offpolicy.cli.settings import named_policies
from offpolicy.core.files import DRAFT

MEASURED = Path("docs/measured/watch_kills.json")
DAYS, ROUNDS = 30, 2_000


def write_days(folder: Path) -> list[Path]:
    files = []
    for day in range(DAYS):
        rng = np.random.default_rng(day)
        action = rng.integers(0, 4, ROUNDS)
        click = (rng.random(ROUNDS) < 0.2 + 0.1 * action).astype(float)
        p_new = np.array([0.1, 0.2, 0.3, 0.4])[action]
        table = {"x": rng.normal(size=ROUNDS), "item": action, "click": click, "p": np.full(ROUNDS, 0.25), "p_new": p_new}
        files.append(folder / f"day{day:02}.parquet")
        pq.write_table(pa.table(table), files[-1])
    return files


def settings(files: list[Path]) -> dict[str, Any]:
    return {
        "logs": [str(file) for file in files], "context": ["x"], "action": "item", "reward": ["click"], "propensity": "p",
        "target": ["new=p_new"], "reward_range": "0,1", "threads": 1, "n_actions": 4,
    }  # fmt: skip


def watched(state: Path, files: list[Path]) -> op.Monitor:
    with Path(os.devnull).open("w") as nothing, redirect_stderr(nothing):
        return watching.run(state, settings(files))


def killed(state: Path, files: list[Path], after: float) -> bool:
    """Run the command in a child and kill it; whether it was still running."""
    child = os.fork()
    if child == 0:
        watched(state, files)
        os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def fault(state: Path, files: list[Path]) -> str | None:
    """What is wrong with a state; None if it has some of the files, each once."""
    if not state.exists():
        return None
    try:
        monitor = op.Monitor.load(state, named_policies(settings(files)))
    except op.InputError:
        return "broken states"
    if monitor.rounds != ROUNDS * monitor.logs or monitor.logs != len(monitor.looks):
        return "counted twice or lost"
    return None if int(monitor.result.rounds) == monitor.rounds else "counted twice or lost"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100, help="number of kills (100)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, seen = random.Random(given.seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="offpolicy-watch-") as scratch:
        folder = Path(scratch)
        files = write_days(folder)
        start = time.monotonic()
        expected = watched(folder / "expected.op", files)
        length = time.monotonic() - start
        state = folder / "state.op"
        while seen["kills"] < given.times:
            before = op.Monitor.load(state).fingerprints if state.exists() else {}
            seen["kills"] += killed(state, files, rng.uniform(0, length / 4))
            seen["during a write"] += bool(list(folder.glob(f"{DRAFT}*")))
            if (found := fault(state, files)) is not None:
                seen[found] += 1
            after = op.Monitor.load(state).fingerprints if state.exists() else {}
            seen["lost logs"] += len(set(before) - set(after))
            if len(after) == DAYS:
                seen["completed"] += 1
                seen["other results"] += not same(op.Monitor.load(state), expected)
                state.unlink()
            print(f"{seen['kills']}/{given.times} {dict(seen)}", file=sys.stderr, flush=True)
        seen["completed"] += 1
        seen["other results"] += not same(watched(state, files), expected)
    names = ("kills", "during a write", "completed", "broken states", "counted twice or lost", "lost logs", "other results")
    MEASURED.write_text(
        json.dumps({"schema": "offpolicy.watch-kills/1", **{name: seen[name] for name in names}}, indent=1) + "\n"
    )
    print({name: seen[name] for name in names})


def same(monitor: op.Monitor, expected: op.Monitor) -> bool:
    """Whether two monitors have the same logs and results."""
    ours, theirs = (each.result["new", "IPS"] for each in (monitor, expected))
    return set(monitor.fingerprints) == set(expected.fingerprints) and abs(ours.value - theirs.value) < 1e-9


if __name__ == "__main__":
    main()
