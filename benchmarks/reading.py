"""Auto on lists beside its candidates: error ratios, coverage and verdicts in worlds whose readers differ.

python -m benchmarks.reading --half judging --logs 100 --out RUNS          # all kinds; --kind names some of them
python -m benchmarks.reading --show RUNS [RUNS …]                          # the table, and docs/measured/reading.json

With --out, only the logs that the file does not have are run: an interrupted run continues, and --logs can be raised. Every
log has the number of lists that makes the weights of whole lists worth about --effective lists of the new policy. The
building half was used to choose the constants of `op.ReadingPrior`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import offpolicy as op
from benchmarks.common import Rows
from offpolicy.core.arrays import FloatArray
from offpolicy.estimators.selection import CandidateEstimates, Choice
from offpolicy.worlds import Diverse, Ranking
from offpolicy.worlds.lists import ListWorld, list_batch, list_policy

SMALL = {"slots": 4, "n_actions": 6, "shift": 0.5, "interaction": 2.0}
WIDE = {"slots": 5, "n_actions": 8, "sharpness": 0.3, "shift": 0.6, "interaction": 3.0}
DRAWN = {**SMALL, "shift": 0.6, "policies": "plackett-luce"}
KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "building": {
        "independent": {"behaviour": "independent", **SMALL},
        "position, clicks": {"behaviour": "position", "clicks": True, "slots": 5, "n_actions": 6, "shift": 0.5},
        "cascade": {"behaviour": "cascade", **SMALL, "slots": 5},
        "standard": {"behaviour": "standard", **SMALL},
        "mixed, clicks": {"behaviour": "mixed", "clicks": True, **SMALL, "shift": 0.6, "interaction": 3.0},
        "cascade, without replacement": {"behaviour": "cascade", **DRAWN},
        "standard, without replacement": {"behaviour": "standard", **DRAWN},
        "independent, 5 slots": {"behaviour": "independent", **WIDE},
        "neighbours, 5 slots": {"behaviour": "neighbours", **WIDE},
        "standard, 5 slots": {"behaviour": "standard", **WIDE},
    },
    "judging": {
        "independent, 6 slots": {"behaviour": "independent", "slots": 6, "n_actions": 12, "sharpness": 0.3, "shift": 0.5},
        "cascade, 4 slots": {"behaviour": "cascade", "slots": 4, "n_actions": 7, "interaction": 3.0, "shift": 0.6},
        "neighbours, 5 slots": {"behaviour": "neighbours", **WIDE, "n_actions": 9, "shift": 0.5},
        "standard, 4 slots": {"behaviour": "standard", "slots": 4, "n_actions": 7, "interaction": 3.0, "shift": 0.6},
        "mixed, clicks": {"behaviour": "mixed", "clicks": True, **WIDE, "n_actions": 9, "shift": 0.5},
        "mixed, without replacement": {
            "behaviour": "mixed", "policies": "plackett-luce", "slots": 5, "n_actions": 9, "interaction": 3.0, "shift": 0.6,
        },
        "position, without replacement": {
            "behaviour": "position", "policies": "plackett-luce", "clicks": True, "slots": 5, "n_actions": 9, "shift": 0.6,
        },
    },
}  # fmt: skip
PUBLISHED = "published world of AIPS"
FIRST = {"building": 0, "judging": 1_000}  # seeds of worlds
WORLDS, MOST = 10, 9_000  # worlds of a kind, and lists of a log
DRAWS = 400


@dataclass(frozen=True)
class Recording(op.ReadingPrior):
    """The standard prior, which also stores the candidates that it chooses from."""

    seen: list[CandidateEstimates] = field(default_factory=list, compare=False)

    def choose(self, candidates: CandidateEstimates) -> Choice:
        self.seen.append(candidates)
        return super().choose(candidates)


def lists_for(world: ListWorld, effective: float) -> tuple[int, float]:
    """How many lists are worth so many lists of the target, and how many they are worth."""
    rng = np.random.default_rng(5)
    batch = list_batch(world.contexts(20_000, rng), world.space)
    codes, p = list_policy(world.logging).draw(batch, rng)
    w = (list_policy(world.target).slots(replace(batch, action=codes)) / p).prod(axis=1)
    each = float((w**2).mean() / w.mean() ** 2)
    n = int(np.clip(effective * each, 300, MOST))
    return n, n / each


KEY = ("half", "kind", "asked", "log")


def run(half: str, kind: str, logs: int, effective: float, rows: Rows) -> int:
    """Add the rows of the logs that are missing, one per log; the log alone determines its world and its seed."""
    added, published = 0, kind == PUBLISHED
    count = 1 if published else WORLDS
    for k in range(count):
        missing = [log for log in range(k, logs, count) if {**_of(half, kind, effective), "log": log} not in rows]
        if not missing:
            continue
        world: ListWorld = Diverse() if published else Ranking(**KINDS[half][kind], seed=FIRST[half] + k)
        n, worth = (int(effective), math.nan) if published else lists_for(world, effective)
        truth, _ = world.value_with_error(world.target)
        for log in missing:
            prior = Recording()
            settings: dict[str, Any] = {"progress": False, "engine": op.Local(threads=1)}
            auto = op.evaluate(
                world.sample(n, seed=10_000 * k + log // count), world.target, [op.Auto(reading=prior)], **settings
            )["Auto"]
            errors = dict(zip(prior.seen[-1].names, (prior.seen[-1].values - truth).tolist(), strict=True))
            low, high = auto.interval.low, auto.interval.high
            rows.add({
                **_of(half, kind, effective), "log": log, "world": k, "lists": n, "effective": worth, "truth": truth,
                "Auto": auto.value - truth, "covered": bool(low <= truth <= high), "std_error": auto.std_error,
                "ok": auto.verdict is op.Verdict.OK, "errors": errors,
            })  # fmt: skip
            added += 1
    return added


def _of(half: str, kind: str, effective: float) -> dict[str, Any]:
    return {"half": half, "kind": kind, "asked": effective}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Auto relative to the best candidate of one kind, in mean squared errors; errors come from a bootstrap over worlds."""
    names = [name for name in rows[0]["errors"] if all(name in row["errors"] for row in rows)]
    squared = np.array([[row["errors"][name] ** 2 for name in names] for row in rows])
    auto, world = np.array([row["Auto"] ** 2 for row in rows]), np.array([row["world"] for row in rows])
    rng = np.random.default_rng(0)

    def ratios(some: Any) -> FloatArray:
        mean = dict(zip(names, squared[some].mean(axis=0), strict=True))
        return np.array([auto[some].mean() / min(mean.values()), auto[some].mean() / min(mean["SIPS"], mean["RIPS"])])

    drawn = []
    for _ in range(DRAWS):
        taken = [
            rng.choice(np.flatnonzero(world == w), (world == w).sum()) for w in rng.choice(np.unique(world), len(set(world)))
        ]
        drawn.append(ratios(np.concatenate(taken)))
    (best, whole), errors = ratios(slice(None)), np.std(drawn, axis=0)
    covered = np.array([row["covered"] for row in rows])
    return {
        "half": rows[0]["half"], "kind": rows[0]["kind"], "logs": len(rows), "worlds": len(set(world.tolist())),
        "lists": float(np.mean([row["lists"] for row in rows])),
        "effective": float(np.mean([row["effective"] for row in rows])),
        "to_best": best, "to_best_error": errors[0], "best": names[int(squared.mean(axis=0).argmin())],
        "to_sips_or_rips": whole, "to_sips_or_rips_error": errors[1], "coverage": covered.mean(),
        "coverage_error": math.sqrt(covered.mean() * (1 - covered.mean()) / len(covered)),
        "ok": float(np.mean([row["ok"] for row in rows])), "normalised_error": float((auto / rows[0]["truth"] ** 2).mean()),
        "normalised_error_error": float((auto / rows[0]["truth"] ** 2).std() / math.sqrt(len(auto))),
    }  # fmt: skip


def show(files: list[Path]) -> None:
    """The table of all runs, which is also saved."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for file in files:
        for row in Rows(file, KEY):
            groups.setdefault((row["half"], row["kind"], row["asked"]), []).append(row)
    every = [summary(group) for group in groups.values()]
    for s in every:
        print(
            f"{s['half']:<9} {s['kind']:<30} {s['logs']:>5} logs × {s['lists']:>5.0f} lists (worth {s['effective']:>4.0f}): "
            f"Auto/best {s['to_best']:.2f} ± {s['to_best_error']:.2f} ({s['best']}), Auto/SIPS or RIPS "
            f"{s['to_sips_or_rips']:.2f} ± {s['to_sips_or_rips_error']:.2f}, coverage {s['coverage']:.3f} ± "
            f"{s['coverage_error']:.3f}, ok {s['ok']:.2f}, normalised error {s['normalised_error']:.4f} ± "
            f"{s['normalised_error_error']:.4f}"
        )
    Path("docs/measured/reading.json").write_text(json.dumps(every, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="judging", choices=list(KINDS))
    parser.add_argument("--kind", nargs="+", help=f"also {PUBLISHED!r}, where --effective is the number of lists")
    parser.add_argument("--logs", type=int, default=100, help="per kind")
    parser.add_argument("--effective", type=float, default=500)
    parser.add_argument("--out", type=Path, help="a file of runs, one per line, to continue")
    parser.add_argument("--show", nargs="+", type=Path)
    options = parser.parse_args()
    if options.show:
        show(options.show)
        return
    Ranking.value_rounds = Diverse.value_rounds = 200_000
    rows = Rows(options.out, KEY)
    for kind in options.kind or KINDS[options.half]:
        start = time.perf_counter()
        added = run(options.half, kind, options.logs, options.effective, rows)
        print(f"{kind}: {added} logs in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
