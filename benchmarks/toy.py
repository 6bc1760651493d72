"""The table of the paper (Cief et al. 2023) beside the published figures: `python -m benchmarks.toy`.

What the table prints is n·MSE: for each reward function the median squared error over 15 logs of 1,000 rounds, times 1,000;
then the mean and its standard error over the reward functions (50 published, 500 here). Results are kept in a file a
reward function at a time, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import offpolicy as op
from benchmarks.common import table
from offpolicy.worlds import Toy

ROUNDS, LOGS = 1_000, 15
PUBLISHED = {
    50: {"IPS": (0.63, 0.05), "DM": (0.64, 0.05), "LearnedMIPS": (0.56, 0.05)},
    100: {"IPS": (0.68, 0.04), "DM": (2.13, 0.11), "LearnedMIPS": (0.58, 0.05)},
    200: {"IPS": (0.61, 0.04), "DM": (7.16, 0.19), "LearnedMIPS": (0.55, 0.04)},
    500: {"IPS": (0.71, 0.05), "DM": (27.9, 0.32), "LearnedMIPS": (0.56, 0.05)},
    1000: {"IPS": (0.70, 0.04), "DM": (62.3, 0.31), "LearnedMIPS": (0.55, 0.03)},
}


def published_choices() -> list[op.Estimator]:
    """Least squares an action, 0 for actions never logged, and logistic regression on embeddings as they are."""
    ridge = op.Ridge(penalty=0, unseen="zero")
    return [op.IPS(), op.DM(ridge), op.LearnedMIPS(rewards=ridge, posterior=op.Logistic(scale=False))]


def of_function(job: tuple[int, int]) -> dict[str, float]:
    """n·(median squared error over the logs) of each estimator, for one reward function."""
    actions, seed = job
    world = Toy(actions, seed=seed)
    truth = world.value(world.target)
    errors: dict[str, list[float]] = {}
    for k in range(LOGS):
        log = world.sample(ROUNDS, seed=1_000 * seed + k)
        for estimate in op.evaluate(log, world.target, published_choices(), engine=op.Local(1), progress=False):
            errors.setdefault(estimate.estimator, []).append((estimate.value - truth) ** 2)
    return {name: ROUNDS * float(np.median(each)) for name, each in errors.items()}


def run(functions: int, sizes: list[int], path: Path, processes: int) -> dict[int, list[dict[str, float]]]:
    """All results, those of the file among them."""
    found: dict[int, dict[int, dict[str, float]]] = {size: {} for size in sizes}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        if row["actions"] in found and row["function"] < functions:
            found[row["actions"]][row["function"]] = row["errors"]
    todo = [(size, seed) for seed in range(functions) for size in sizes if seed not in found[size]]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file, ProcessPoolExecutor(processes) as pool:
        for (size, seed), errors in zip(todo, pool.map(of_function, todo), strict=True):
            found[size][seed] = errors
            file.write(json.dumps({"actions": size, "function": seed, "errors": errors}) + "\n")
            file.flush()
    return {size: list(rows.values()) for size, rows in found.items()}


def lines(found: dict[int, list[dict[str, float]]]) -> Iterator[list[str]]:
    """Ours, the published figure, and their difference in standard errors of both."""
    for size, rows in found.items():
        for name in ("LoggedMean", "IPS", "DM", "LearnedMIPS"):
            each = np.array([row[name] for row in rows])
            mean, error = each.mean(), each.std(ddof=1) / np.sqrt(len(each))
            published = PUBLISHED[size].get(name)
            there = "–" if published is None else f"{published[0]:g} ± {published[1]:g}"
            z = "–" if published is None else f"{(mean - published[0]) / np.hypot(error, published[1]):+.1f}"
            yield [str(size), name, f"{mean:.3g} ± {error:.2g}", there, z]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=500)
    parser.add_argument("--actions", type=int, nargs="+", default=list(PUBLISHED))
    parser.add_argument("--out", type=Path, default=Path("build/toy.jsonl"))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    found = run(given.functions, given.actions, given.out, given.processes)
    print(f"{given.functions} reward functions, {LOGS} logs each\n")
    print(table(["actions", "estimator", "n·MSE", "published", "z"], list(lines(found))))


if __name__ == "__main__":
    main()
