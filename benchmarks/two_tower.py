"""Policies that score user vector · item vector, compared with their own matrix products.

python -m benchmarks.two_tower [--quick]

Both the old and the new policy are two-tower policies. The baseline computes only what they need themselves, block by block
in the same process and on as many threads: scores = U @ V.T and, as a second comparison, their exponentials and row sums.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import offpolicy as op
from benchmarks.common import CONTEXT, best_times, cached, publish, run_alone, table, write_log
from offpolicy.core.threads import cores

Vectors = npt.NDArray[np.floating]
SIZE = 64
ROWS, ACTIONS = 512, 512
"""Scores per block: they fit into a core's cache."""
KINDS: dict[str, type] = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Towers:
    """Item vectors of the old and the new policy, and the matrix that turns a context into a user vector."""

    old: Vectors
    new: Vectors
    mixing: Vectors

    @classmethod
    def of(cls, n_actions: int, kind: type) -> Towers:
        rng = np.random.default_rng(1)
        vectors = rng.normal(size=(n_actions, SIZE)) / np.sqrt(SIZE)
        moved = vectors + 0.3 * rng.normal(size=vectors.shape) / np.sqrt(SIZE)
        return cls(moved.astype(kind), vectors.astype(kind), rng.normal(size=(len(CONTEXT), SIZE)) / np.sqrt(len(CONTEXT)))

    def users(self, context: Vectors) -> Vectors:
        return context @ self.mixing

    def evaluated(self, path: Path) -> float:
        logging, target = (op.Softmax(op.TwoTower(items, self.users)) for items in (self.old, self.new))
        log = op.read_log(path, context=CONTEXT, action="action", reward="reward", logging=logging, n_actions=len(self.old))
        near = op.Gaussian(neighbours=100)
        every = [op.DR(), op.LearnedMIPS(posterior=near), op.LearnedMDR(posterior=near)]
        result = op.evaluate(log, target, every, cross_fit=2, memory="4GB", progress=False)
        return sum(estimate.std_error for estimate in result)

    def products(self, path: Path, softmax: bool) -> float:
        """The baseline, with the users read from the same file; with `softmax`, also exponentials and row sums."""
        context = np.column_stack([c.to_numpy() for c in pq.read_table(path, columns=CONTEXT).columns])
        users = self.users(context).astype(self.old.dtype)

        def block(items: Vectors, start: int) -> float:
            some, seen = users[start : start + ROWS], 0.0
            room = np.empty((len(some), ACTIONS), some.dtype)
            for at in range(0, len(items), ACTIONS):
                few = items[at : at + ACTIONS]
                scores = np.matmul(some, few.T, out=room[:, : len(few)])
                if softmax:
                    np.exp(scores, out=scores)
                    seen += float(scores.sum(axis=1)[0])
            return seen

        with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:  # threads over blocks, not within a product
            return sum(sum(pool.map(partial(block, items), range(0, len(users), ROWS))) for items in (self.old, self.new))


def data(rounds: int, n_actions: int) -> Path:
    return cached(f"log-{rounds}-{n_actions}-10.parquet", partial(write_log, rows=rounds, n_actions=n_actions))


def figures(rounds: int, n_actions: int) -> str:
    path, rows = data(rounds, n_actions), []
    Towers.of(2_000, np.float64).evaluated(data(2_000, 2_000))  # warm-up: imports are not counted
    for name, kind in KINDS.items():
        towers = Towers.of(n_actions, kind)
        mine, theirs, softmax = best_times(
            partial(towers.evaluated, path), partial(towers.products, path, False), partial(towers.products, path, True),
            times=0,
        )  # fmt: skip
        run = run_alone("benchmarks.two_tower", "--alone", str(rounds), str(n_actions), name)
        cells = [f"{mine:.1f}", f"{theirs:.1f}", f"{mine / theirs:.2f}", f"{softmax:.1f}", f"{mine / softmax:.2f}"]
        rows.append([f"{rounds:,} × {n_actions:,}, {name}", *cells, f"{run.peak:,.0f}"])
    header = ["rounds × actions", "ours, s", "products, s", "ratio", "with exponentials, s", "ratio", "peak MB"]
    return f"{table(header, rows)}\n\nGoal: a ratio of at most 2, under 4 GB."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 × 6,000; the README stays as it is")
    parser.add_argument("--alone", nargs=3, metavar=("ROUNDS", "ACTIONS", "KIND"))
    given = parser.parse_args()
    if given.alone:
        rounds, n_actions, name = int(given.alone[0]), int(given.alone[1]), given.alone[2]
        Towers.of(n_actions, KINDS[name]).evaluated(data(rounds, n_actions))
        return
    publish("two-tower", figures(*((2_000, 6_000) if given.quick else (100_000, 100_000))), quick=given.quick)


if __name__ == "__main__":
    main()
