"""Time and memory of rankings: Plackett–Luce policies over many items, by the numbers of slots and items.

python -m benchmarks.rankings                      # 1 million lists × 10 slots × 1,000 items
python -m benchmarks.rankings --scaling            # a tenth of the lists, with more slots and with more items
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

import offpolicy as op
from offpolicy.estimators.text import estimator

CONTEXT = 5
ESTIMATORS = ["sips", "rips", "cascade-dr", "learned-mips:posterior=gaussian,bandwidth=0.3"]


def measured(lists: int, slots: int, items: int, names: list[str]) -> dict[str, float]:
    """Seconds and peak memory of one evaluation, with the log in memory."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(lists, CONTEXT))
    towers = [rng.normal(size=(CONTEXT, items)) / CONTEXT**0.5 for _ in range(2)]
    new = op.PlackettLuce(lambda x: x @ towers[0])
    old = op.PlackettLuce(lambda x: 0.5 * (x @ (towers[0] + 0.5 * towers[1])))
    codes = np.empty((lists, slots), np.int64)
    for start in range(0, lists, 1_000):  # drawn from the logging policy
        scores = 0.5 * (x[start : start + 1_000] @ (towers[0] + 0.5 * towers[1]))
        noisy = scores + rng.gumbel(size=scores.shape)
        top = np.argpartition(-noisy, slots, axis=1)[:, :slots]
        codes[start : start + 1_000] = np.take_along_axis(
            top, np.argsort(-np.take_along_axis(noisy, top, axis=1), axis=1), axis=1
        )
    clicks = (rng.random((lists, slots)) < 0.2).astype(float)
    log = op.Log(x, codes, clicks, logging=old, actions=op.Slate(slots, items), gain="dcg")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    estimators = [estimator(name) for name in names]
    result = op.evaluate(log, new, estimators, engine=op.Local(threads=2), progress=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "lists": lists, "slots": slots, "items": items, "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu, "peak_mb": peak / 1024, "before_mb": before / 1024,
        "value": result[estimators[0].name].value,
    }  # fmt: skip


def run(lists: int, slots: int, items: int, names: list[str]) -> dict[str, float]:
    """The same in a process of its own, so that its memory is its own."""
    command = [sys.executable, "-m", "benchmarks.rankings", "--one", str(lists), str(slots), str(items), *names]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scaling", action="store_true", help="how time grows with slots and items")
    parser.add_argument("--estimators", nargs="+", default=ESTIMATORS)
    parser.add_argument("--lists", type=int, default=1_000_000)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        lists, slots, items, *names = options.one
        print(json.dumps(measured(int(lists), int(slots), int(items), names)))
        return
    sizes = [(options.lists, 10, 1_000)]
    if options.scaling:
        sizes = [
            (options.lists // 10, slots, items)
            for slots, items in ((5, 1_000), (10, 500), (10, 1_000), (10, 2_000), (20, 1_000))
        ]
    for size in sizes:
        one = run(*size, options.estimators)
        print(
            f"{one['lists']:>9,} lists × {one['slots']:>2} slots × {one['items']:>5,} items: {one['seconds']:6.1f} s "
            f"({one['cpu_seconds']:.1f} s of CPU), {one['peak_mb']:,.0f} MB (the log takes {one['before_mb']:,.0f})"
        )


if __name__ == "__main__":
    main()
