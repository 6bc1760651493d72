"""A policy that scores user vector · item vector, against its own matrix products.

python -m benchmarks.two_tower [--quick]

The other side does what the policy itself needs and no more, block by block in the same process and on as many threads:
scores = U @ V.T, their exponentials and the sums of the rows.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import offpolicy as op
from benchmarks.common import CONTEXT, best_times, cached, publish, run_alone, table, write_log
from offpolicy.threads import cores

Array = npt.NDArray[np.float64]
BLOCK_BYTES = 2**23
"""Of scores at a time."""


def items(n_actions: int) -> Array:
    return np.random.default_rng(1).normal(size=(n_actions, len(CONTEXT))) * 0.3


def policy(vectors: Array) -> op.Policy:
    """The place of the two-tower score: a plain callable asks for all scores of a block at once."""
    return op.Softmax(lambda users: users @ vectors.T)


def evaluated(path: Path, vectors: Array) -> float:
    log = op.read_log(
        path, context=CONTEXT, action="action", reward="reward", propensity="propensity", n_actions=len(vectors)
    )
    return op.evaluate(log, policy(vectors), [op.SNIPS(), op.DM()], progress=False)["SNIPS"].value


def products(path: Path, vectors: Array) -> float:
    """The other side, with the users read from the same file."""
    users = np.column_stack([c.to_numpy() for c in pq.read_table(path, columns=CONTEXT).columns])
    rows = max(1, BLOCK_BYTES // (8 * len(vectors)))

    def block(start: int) -> float:
        scores = users[start : start + rows] @ vectors.T
        np.exp(scores, out=scores)
        return float(scores.sum(axis=1)[0])

    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:  # threads over blocks, not within a product
        return sum(pool.map(block, range(0, len(users), rows)))


def data(rounds: int, n_actions: int) -> Path:
    return cached(f"log-{rounds}-{n_actions}-10.parquet", partial(write_log, rows=rounds, n_actions=n_actions))


def figures(rounds: int, n_actions: int) -> str:
    path, vectors = data(rounds, n_actions), items(n_actions)
    evaluated(data(2_000, 2_000), items(2_000))  # each side runs once: what it imports is not counted
    mine, theirs = best_times(partial(evaluated, path, vectors), partial(products, path, vectors), times=0)
    run = run_alone("benchmarks.two_tower", "--alone", str(rounds), str(n_actions))
    cells = [f"{rounds:,}", f"{n_actions:,}", f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{run.peak:,.0f}"]
    header = ["rounds", "actions", "SNIPS, DM: seconds", "matrix products, s", "ratio", "peak MB"]
    return f"{table(header, [cells])}\n\nWanted: a ratio of at most 2, under 4 GB."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 × 2,000; the README stays as it is")
    parser.add_argument("--alone", nargs=2, type=int, metavar=("ROUNDS", "ACTIONS"))
    given = parser.parse_args()
    if given.alone:
        evaluated(data(*given.alone), items(given.alone[1]))
        return
    publish("two-tower", figures(*((2_000, 2_000) if given.quick else (100_000, 100_000))), quick=given.quick)


if __name__ == "__main__":
    main()
