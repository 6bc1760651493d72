"""Finding the nearest actions: a k-d tree against all distances in blocks, and against an approximate index.

python -m benchmarks.neighbours [--quick]

The embeddings are 11 numbers that lie near 4 dimensions. Each way is timed on one core for some of the actions. FAISS is
compared where it is installed (`pip install faiss-cpu`); offpolicy does not use it.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from benchmarks.common import best_times, publish, table

Points = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
COUNT = 100


def embeddings(actions: int) -> Points:
    rng = np.random.default_rng(0)
    return rng.normal(size=(actions, 4)) @ rng.normal(size=(4, 11)) + 0.5 * rng.normal(size=(actions, 11))


def by_blocks(points: Points, asked: Points) -> Codes:
    squares = (points**2).sum(axis=1)
    found = [np.argpartition(squares - 2 * some @ points.T, COUNT, axis=1)[:, :COUNT] for some in np.array_split(asked, 8)]
    return np.vstack(found)


def by_index(points: Points, asked: Points) -> tuple[float, Codes] | None:
    """Seconds of the look-ups in an inverted file with the 32 nearest of 4·√actions cells, and what they find."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(1)
    single = points.astype(np.float32)
    index = faiss.index_factory(points.shape[1], f"IVF{int(4 * np.sqrt(len(points)))},Flat")
    index.train(single)
    index.add(single)
    index.nprobe = 32
    wanted = asked.astype(np.float32)
    (seconds,) = best_times(partial(index.search, wanted, COUNT), times=1)
    return seconds, index.search(wanted, COUNT)[1]


def figures(sizes: tuple[int, ...], asked: int) -> str:
    rows = []
    for actions in sizes:
        points = embeddings(actions)
        some = points[:asked]
        tree = cKDTree(points)
        with threadpool_limits(1):
            by_tree, blocks = best_times(partial(tree.query, some, COUNT), partial(by_blocks, points, some), times=1)
            index = by_index(points, some)
        cells = [f"{actions:,}", f"{1e3 * by_tree / asked:.3f}", f"{1e3 * blocks / asked:.3f}", f"{blocks / by_tree:.1f}"]
        if index is None:
            rows.append([*cells, "not installed", "", ""])
            continue
        exact = tree.query(some, COUNT)[1]
        same = np.mean([len(np.intersect1d(a, b)) / COUNT for a, b in zip(exact, index[1], strict=True)])
        rows.append([*cells, f"{1e3 * index[0] / asked:.3f}", f"{index[0] / by_tree:.2f}", f"{same:.2%}"])
    header = ["actions", "k-d tree, ms", "all distances, ms", "ratio", "FAISS, ms", "ratio", "of the neighbours found"]
    return f"A look-up of the nearest {COUNT}, on one core.\n\n{table(header, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 actions; the README stays as it is")
    quick = parser.parse_args().quick
    publish("neighbours", figures((2_000,), 200) if quick else figures((10_000, 100_000, 1_000_000), 1_000), quick=quick)


if __name__ == "__main__":
    main()
