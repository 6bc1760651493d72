"""`python -m fuzz --cases 20000 --seed 0`: run every part, print a table of outcomes and a command that repeats each failure."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz.judging import Outcome
from fuzz.parts import PARTS, run

SHARD = 500
"""Cases per task; fixed, so that the cases do not depend on the number of processes."""
SHOWN = 20
BEGIN, END = "<!-- result -->", "<!-- end of result -->"


@dataclass(frozen=True)
class Task:
    """Some cases of one part."""

    part: str
    cases: int
    seed: int


def tasks(cases: int, seed: int, parts: list[str]) -> Iterator[Task]:
    """Divide the cases among the parts by their shares."""
    shares = {name: PARTS[name].share for name in parts}
    for k, (name, share) in enumerate(shares.items()):
        left = max(1, round(cases * share / sum(shares.values())))
        while left > 0:
            yield Task(name, min(SHARD, left), seed * 1_000_003 + 1009 * k + left)
            left -= SHARD


def work(task: Task) -> tuple[str, list[tuple[str, str, str]], float]:
    """The outcome of each case, its message, and the case itself if it failed."""
    begun = time.perf_counter()
    return task.part, run(task.part, task.cases, task.seed), time.perf_counter() - begun


def table(counts: dict[str, Counter[str]], seconds: dict[str, float]) -> str:
    """A Markdown table with one row per part, and the total."""
    lines = ["| part | cases | right answers | refused | failures | ms per case |", "|---|---:|---:|---:|---:|---:|"]
    total: Counter[str] = Counter()
    for name, found in [*counts.items(), ("all", total)]:
        n = sum(found.values())
        took = seconds[name] if name in seconds else sum(seconds.values())
        shown = " | ".join(f"{found[each.value]:,}" for each in Outcome)
        lines.append(f"| {name} | {n:,} | {shown} | {1000 * took / max(n, 1):.1f} |")
        total += Counter() if found is total else found
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit code is 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="run only this part; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="a folder for result.json and result.md")
    parser.add_argument(
        "--page", type=Path, help="a page that shows the latest result between two comments, such as docs/hostile.md"
    )
    parser.add_argument("--refusals", action="store_true", help="also print the messages of refusals")
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    todo = list(tasks(given.cases, given.seed, given.part or list(PARTS)))
    counts: dict[str, Counter[str]] = {name: Counter() for name in given.part or PARTS}
    seconds = dict.fromkeys(counts, 0.0)
    failures: dict[str, list[str]] = {}
    with ProcessPoolExecutor(given.processes) as pool:
        for part, ended, took in pool.map(work, todo):
            counts[part].update(outcome for outcome, _, _ in ended)
            seconds[part] += took
            for outcome, why, case in ended:
                if outcome == Outcome.FAILED.value:
                    failures.setdefault(f"{part}: {why}", []).append(case)
                elif given.refusals and outcome == Outcome.REFUSED.value:
                    print(f"{part}: {why}")
    _report(given, counts, seconds, failures, time.perf_counter() - begun)
    return 1 if failures else 0


def _report(
    given: argparse.Namespace, counts: dict[str, Counter[str]], seconds: dict[str, float], failures: dict[str, list[str]],
    took: float,
) -> None:  # fmt: skip
    shown = table(counts, seconds)
    command = f"python -m fuzz --cases {given.cases} --seed {given.seed}"
    print(f"{shown}\n\n`{command}` took {took:.0f} s.")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "result.md").write_text(f"{shown}\n", encoding="utf-8")
    result = {"command": command, "seconds": round(took, 1), "parts": counts, "failures": failures}
    (given.out / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    if given.page is not None:
        before, _, rest = given.page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        shown_there = (
            f"{BEGIN}\n`{command}`, {datetime.date.today()}, {took:.0f} s on a machine under other load:\n\n{shown}\n{END}"
        )
        given.page.write_text(f"{before}{shown_there}{after}", encoding="utf-8")
    for why, which in sorted(failures.items(), key=lambda each: -len(each[1]))[:SHOWN]:
        part, _, words = why.partition(": ")
        smallest = min(which, key=len)
        print(f"\n{part}: {len(which):,} × {words}\n    python -m fuzz.again {part} {smallest!r}", file=sys.stderr)
    if len(failures) > SHOWN:
        print(f"\n… and {len(failures) - SHOWN} other kinds of failure (result.json).", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
