"""The cost of the HTML report: its size, and its time in addition to the evaluation.

python -m benchmarks.report [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import offpolicy as op
from benchmarks.candidates import Shop
from benchmarks.common import CONTEXT, publish, table

SIZES = (Shop(100_000, 100, 20), Shop(100_000, 2_000, 50), Shop(1_000_000, 10_000, 50))
QUICK = (Shop(2_000, 100, 20), Shop(5_000, 1_000, 50))


def evaluated(shop: Shop) -> op.Evaluation:
    """Evaluate and print, with standard errors, which the printed table shows without any report."""
    log = op.read_log(
        shop.path(), context=CONTEXT, action="action", reward="reward", logging=op.Candidates("items", "p_old"),
        n_actions=shop.n_actions,
    )  # fmt: skip
    result = op.evaluate(log, op.Candidates("items", "p_new"), progress=False)
    str(result)
    return result


def point(shop: Shop) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        page, start = Path(folder, "report.html"), time.perf_counter()
        result = evaluated(shop)
        middle = time.perf_counter()
        result.write_html(page)
        end = time.perf_counter()
        size = page.stat().st_size / 1e3
    took, added = middle - start, end - middle
    return [
        f"{shop.rounds:,}",
        f"{shop.n_actions:,}",
        f"{took:.1f} s",
        f"{added:.2f} s",
        f"{added / took:.3f}",
        f"{size:,.0f} KB",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes; leaves the README unchanged")
    quick = parser.parse_args().quick
    sizes = QUICK if quick else SIZES
    point(QUICK[0])  # warm-up
    rows = [point(shop) for shop in sizes]
    header = ("rounds", "actions", "evaluate and print", "report", "ratio", "size")
    publish("report", table(header, rows), quick=quick)


if __name__ == "__main__":
    main()
