"""`Evaluation.plan`: predicted widths against realised ones, and how often the stated range contains the right number.

python -m benchmarks.planning [LOGS]     five worlds; writes docs/measured/planning.json

From logs of 2,000 rounds, the width of the interval of SNIPS is predicted for 4 and 25 times the rounds, and compared with
the mean width in logs of that size. The range of the rounds is compared with the mean number that the larger logs imply.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.inference.functionals import Functional, ScoreSums, functional, std_error
from offpolicy.results.plan import Precision
from offpolicy.scoring.plan import Terms

MEASURED = Path("docs/measured/planning.json")
ROUNDS, TIMES, LEVEL, HALF_WIDTH = 2_000, (4, 25), 0.95, 0.01
Rng = np.random.Generator
Drawn = tuple[FloatArray, FloatArray]


def discrete(p_old: list[float], p_new: list[float], rates: list[float]) -> Callable[[Rng, int], Drawn]:
    def draw(rng: Rng, n: int) -> Drawn:
        action = rng.choice(len(p_old), n, p=p_old)
        return (np.array(p_new) / p_old)[action], (rng.random(n) < np.array(rates)[action]).astype(float)

    return draw


def lognormal(rng: Rng, n: int) -> Drawn:
    w = rng.lognormal(-0.32, 0.8, n)
    return w, (rng.random(n) < 0.3).astype(float)


def ratings(rng: Rng, n: int) -> Drawn:
    action = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    return np.array([0.25, 2 / 3, 1.5, 4.0])[action], rng.beta(2 + action, 4)


WORLDS = {
    "good overlap": discrete([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5]),
    "far target": discrete([0.9, 0.08, 0.02], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
    "rare rewards": discrete([0.25] * 4, [0.1, 0.1, 0.2, 0.6], [0.01, 0.02, 0.03, 0.04]),
    "lognormal weights": lognormal,
    "ratings": ratings,
}


def snips(w: FloatArray, r: FloatArray, rng: Rng) -> tuple[Functional, ScoreSums]:
    """The estimate and its sums, as the scoring pass makes them."""
    columns = np.stack([np.ones_like(r), w, w * r])
    means = columns.mean(axis=1)
    centred = columns - means[:, None]
    bucket = rng.integers(BUCKETS, size=len(r))
    sums = ScoreSums(
        {"n": np.array(float(len(r))), "mean": means, "m2": centred @ centred.T},
        np.column_stack([np.bincount(bucket, column, BUCKETS) for column in columns]), np.array([r.sum()]), False, 0,
    )  # fmt: skip
    return functional(Terms(None, 2, 1, True, None, False), means, 0.0), sums


def measured(name: str, logs: int) -> dict[str, object]:
    draw, rng = WORLDS[name], np.random.default_rng(24)
    errors = {times: [std_error(*snips(*draw(rng, ROUNDS * times), rng)) for _ in range(logs // 4)] for times in TIMES}
    needed = [ROUNDS * 25 * (1.959964 * error / HALF_WIDTH) ** 2 for error in errors[25]]
    right = float(np.mean(needed))
    predictions, held = [], 0
    for _ in range(logs):
        f, sums = snips(*draw(rng, ROUNDS), rng)
        predictions.append(std_error(f, sums))
        _, low, high = Precision.of(f, sums).rounds(HALF_WIDTH, LEVEL)
        held += low <= right <= high
    ratios = {
        f"{times} times the rounds": float(np.mean(predictions) / np.sqrt(times) / np.mean(errors[times])) for times in TIMES
    }
    return {"world": name, "logs": logs, "predicted over realised width": ratios, "range contains the number": held / logs}


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:] else 400
    rows = []
    for world in WORLDS:
        rows.append(measured(world, count))
        MEASURED.write_text(json.dumps({"schema": "offpolicy.planning/1", "rounds": ROUNDS, "rows": rows}, indent=1) + "\n")
