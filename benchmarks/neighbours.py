"""Finding the nearest actions: all distances in blocks, compared with a k-d tree and with an approximate index.

python -m benchmarks.neighbours [--quick]

Embeddings have 11 numbers: pure noise, as when actions were rarely logged, or close to 4 dimensions. Each method is timed on
one core for some of the actions. FAISS is included if it is installed (`pip install faiss-cpu`); offpolicy does not use it.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from benchmarks.common import best_times, publish, table
from offpolicy.models.posteriors.nearest_actions import nearest_of

Points = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
COUNT = 100


def embeddings(actions: int, kind: str) -> Points:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(actions, 11))
    return noise if kind == "noise" else rng.normal(size=(actions, 4)) @ rng.normal(size=(4, 11)) + 0.3 * noise


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
    queries = asked.astype(np.float32)
    (seconds,) = best_times(partial(index.search, queries, COUNT), times=1)
    return seconds, index.search(queries, COUNT)[1]


def figures(sizes: tuple[int, ...], asked: int) -> str:
    rows = []
    for actions, kind in product(sizes, ("noise", "near 4")):
        points = embeddings(actions, kind)
        some = points[:asked]
        tree = cKDTree(points)
        with threadpool_limits(1), patch("offpolicy.core.threads.cores", lambda: 1):
            mine, by_tree = best_times(partial(nearest_of, points, some, COUNT), partial(tree.query, some, COUNT), times=1)
            index = by_index(points, some)
        cells = [f"{actions:,}, {kind}", *(f"{1e3 * t / asked:.3f}" for t in (mine, by_tree)), f"{mine / by_tree:.2f}"]
        if index is None:
            rows.append([*cells, "not installed", "", ""])
            continue
        exact = tree.query(some, COUNT)[1]
        same = np.mean([len(np.intersect1d(a, b)) / COUNT for a, b in zip(exact, index[1], strict=True)])
        rows.append([*cells, f"{1e3 * index[0] / asked:.3f}", f"{mine / index[0]:.2f}", f"{same:.2%}"])
    header = ["actions", "ours, ms", "k-d tree, ms", "ratio", "FAISS, ms", "ratio", "share of the neighbours found by FAISS"]
    return f"Time to look up the nearest {COUNT} actions, on one core.\n\n{table(header, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 actions; the README stays as it is")
    quick = parser.parse_args().quick
    publish("neighbours", figures((2_000,), 200) if quick else figures((10_000, 100_000, 1_000_000), 1_000), quick=quick)


if __name__ == "__main__":
    main()
