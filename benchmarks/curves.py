"""How often the intervals of dose–response curves hold: python -m benchmarks.curves [LOGS]     100 logs take about 2 minutes

In five simulated worlds, those of `python -m benchmarks.continuous judging`, with 3,000 rounds per log: for each action of
the curve with an interval, whether it holds the value of taking that action in every round. It writes
docs/measured/continuous-curves.json after each world. An action counts as the worst of a world only if at least half of the
logs give it an interval.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import offpolicy as op
from benchmarks.continuous import worlds

ROUNDS, CONTEXTS = 3_000, 200_000
PATH = Path("docs/measured/continuous-curves.json")


def measured(world: Any, logs: int, seed: int) -> dict[str, Any]:
    """The coverage of the intervals in one world."""
    curves = []
    for k in range(logs):
        result = op.evaluate(world.sample(ROUNDS, seed=seed + k), world.target, op.KernelDR(), progress=False)
        curves.append(result.to_dict()["dose_response"]["points"])
    contexts = world.contexts(CONTEXTS, np.random.default_rng(9))
    actions = [point["action"] for point in curves[0]]
    truth = [float(world.mean_reward(contexts, np.full(CONTEXTS, action)).mean()) for action in actions]
    low, high = (np.array([[p[end] for p in points] for points in curves], dtype=float) for end in ("low", "high"))
    known = np.isfinite(low)
    held = known & (low <= truth) & (truth <= high)
    usual = known.mean(axis=0) >= 0.5
    return {
        "share_with_interval": float(known.mean()),
        "coverage": float(held.sum() / known.sum()),
        "worst_action": float((held.sum(axis=0) / np.maximum(known.sum(axis=0), 1))[usual].min()),
    }


def main(logs: int) -> None:
    """Measure all worlds."""
    rows: list[dict[str, Any]] = []
    for name, world in worlds("judging").items():
        rows.append({"world": name, "rounds": ROUNDS, "logs": logs, **measured(world, logs, 50_000 * (1 + len(rows)))})
        PATH.write_text(json.dumps({"schema": "offpolicy.continuous-curves/1", "rows": rows}, indent=1) + "\n")
        print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
