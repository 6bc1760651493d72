"""Kernel estimators on simulated doses and prices: the mix of widths against each fixed width, and its intervals.

python -m benchmarks.continuous {building,judging} [LOGS]     400 logs take about 20 minutes on one core
python -m benchmarks.continuous intervals [LOGS]              2,000 logs take about 40 minutes
python -m benchmarks.continuous speed [ROUNDS]                10 million rounds, about 2 minutes

The first writes docs/measured/continuous-{building,judging}.json after each cell. The constants of `estimators/widths.py`
were chosen in worlds like those called building; the others judge them.

Of each cell (a world, and a number of rounds) it records for each estimator the mean squared error with `bandwidth="slope"`
relative to that of the best of the seven fixed widths (for `Auto`, of all its candidates), how often the 95% interval holds
the true value, and its median standard error relative to that of the best candidate alone.

The second compares four intervals of 95%, with logged densities and with estimated ones: that of the mix, and for the width
with the least error (by its distance from the mix, and its standard error) the plain one, that of the width two steps
narrower (undersmoothing), and the plain one with the difference between the two added on both sides (the gap). It records
how often each holds the true value, and its median length relative to that of the plain one.

The third compares the run time of `KernelIPS` with seven widths with that of `IPS`, for a target with a computed density
and for one whose densities are a column. The runs alternate in one process; the smallest time of each counts. It writes
docs/measured/continuous-speed.json.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import offpolicy as op
from offpolicy.worlds import Doses, Pricing

ROUNDS = (300, 3_000, 30_000)
ESTIMATORS = (op.KernelSNIPS(), op.KernelDR(), op.Auto())


def worlds(part: str) -> dict[str, Any]:
    """The worlds of a part: they differ in their seeds, and in how far rewards reach, where policies go, and the noise."""
    if part == "building":
        doses = {(rate, trust): Doses(rate, trust=trust, noise=0.1, seed=1) for rate in (1, 3, 10) for trust in (0.7, 0.3)}
        return {**{f"doses {r:g} {t:g}": world for (r, t), world in doses.items()}, "pricing": Pricing(0.85)}
    doses = {
        (rate, trust): Doses(rate, trust=trust, steepness=1.5, noise=0.3, seed=101)
        for rate in (2, 5)
        for trust in (0.7, 0.3)
    }
    return {**{f"doses {r:g} {t:g}": world for (r, t), world in doses.items()}, "pricing": Pricing(1.0, tolerance=2.0)}


def measured(world: Any, rounds: int, logs: int, seed: int) -> dict[str, Any]:
    """The errors and intervals of one cell."""
    truth = world.value(world.target)
    errors: dict[str, list[float]] = {}
    inside: dict[str, list[bool]] = {}
    effective: dict[str, list[float]] = {}
    stated: dict[tuple[str, str], list[float]] = {}
    candidates: dict[tuple[str, str], list[float]] = {}
    for k in range(logs):
        result = op.evaluate(world.sample(rounds, seed=seed + k), world.target, list(ESTIMATORS), progress=False)
        for each in ESTIMATORS:
            estimate = result[each.name]
            errors.setdefault(each.name, []).append(estimate.value - truth)
            inside.setdefault(each.name, []).append(truth in estimate.interval)
            effective.setdefault(each.name, []).append(estimate.diagnostics["effective_sample_size"])
            stated.setdefault((each.name, ""), []).append(estimate.std_error)
            for row in estimate.diagnostics["candidates"]:
                candidates.setdefault((each.name, row["name"]), []).append(row["value"] - truth)
                stated.setdefault((each.name, row["name"]), []).append(row["std_error"])
    out: dict[str, Any] = {}
    for each in ESTIMATORS:
        alone = {key: np.square(e) for key, e in candidates.items() if key[0] == each.name and len(e) == logs}
        first = min(alone, key=lambda key: float(alone[key].mean()))
        best = alone[first]
        own = np.square(errors[each.name])
        ratio = float(own.mean() / best.mean())
        out[each.name] = {
            "ratio": ratio,
            "ratio_error": float(np.std(own - ratio * best) / np.sqrt(logs) / best.mean()),
            "coverage": float(np.mean(inside[each.name])),
            "effective_rounds": float(np.mean(effective[each.name])),
            "best": first[1],
            "relative_error": float(np.median(stated[each.name, ""]) / np.median(stated[first])),
        }
    return out


INTERVAL_WORLDS: dict[str, tuple[Any, int]] = {
    "pricing, rarely logged prices": (Pricing(1.0, tolerance=2.0), 30_000),
    "pricing, discounts": (Pricing(0.6), 3_000),
    "pricing, varied log": (Pricing(0.85, spread=8.0), 3_000),
    "doses, interior": (Doses(3, trust=0.3, noise=0.3, seed=201), 3_000),
    "doses, at the bounds": (Doses(3, trust=0.3, steepness=4.0, noise=0.3, seed=202), 3_000),
    "doses, steep": (Doses(6, trust=0.4, noise=0.3, seed=203), 5_000),
}
"""Worlds, and the number of rounds that leaves 300 effective ones or more."""
ESTIMATED = {"pricing, discounts": "normal", "pricing, varied log": "kernel"}
"""Worlds whose densities are also estimated from the log, and by which model."""


def sampled(world: Any, rounds: int, seed: int, model: str | None) -> op.Log:
    """A log whose densities are logged, or estimated by a model."""
    if model is None:
        return world.sample(rounds, seed=seed)
    rng = np.random.default_rng(seed)
    x = world.contexts(rounds, rng)
    action, _ = world.choose(x, rng)
    return op.Log(x, action, world.outcome(x, action, rng), logging=op.EstimatedLogging(model), actions=world.space)


def compared(rows: list[dict[str, Any]], estimate: Any, truth: float) -> dict[str, tuple[bool, float]]:
    """For each kind of interval, whether it holds the truth, and half of its length."""
    each = sorted((row for row in rows if row["name"] != "DM"), key=lambda row: row["name"].split(" (1/")[0])
    best = min(each, key=lambda row: (row["value"] - estimate.value) ** 2 + row["std_error"] ** 2)
    family = [row for row in each if row["name"].split(" (1/")[0] == best["name"].split(" (1/")[0]]
    family.sort(key=lambda row: -int(row["name"].split("1/")[1].split()[0]))
    narrow = family[max(family.index(best) - 2, 0)]
    plain, under = (1.96 * row["std_error"] for row in (best, narrow))
    gap = plain + abs(best["value"] - narrow["value"])
    low, high = estimate.interval.low, estimate.interval.high
    return {
        "mix": (low <= truth <= high, (high - low) / 2),
        "plain": (abs(best["value"] - truth) <= plain, plain),
        "undersmoothed": (abs(narrow["value"] - truth) <= under, under),
        "gap": (abs(best["value"] - truth) <= gap, gap),
    }


def intervals(logs: int) -> None:
    """Compare kinds of intervals."""
    rows = list[dict[str, Any]]()
    cells = [(name, None) for name in INTERVAL_WORLDS] + list(ESTIMATED.items())
    for name, model in cells:
        world, rounds = INTERVAL_WORLDS[name]
        truth, told = world.value(world.target), dict[str, list[dict[str, tuple[bool, float]]]]()
        effective: dict[str, list[float]] = {}
        for k in range(logs):
            result = op.evaluate(sampled(world, rounds, 90_000 + k, model), world.target, list(ESTIMATORS), progress=False)
            for each in ESTIMATORS:
                estimate = result[each.name]
                told.setdefault(each.name, []).append(compared(estimate.diagnostics["candidates"], estimate, truth))
                effective.setdefault(each.name, []).append(estimate.diagnostics["effective_sample_size"])
        for estimator, found in told.items():
            plain = np.median([one["plain"][1] for one in found])
            kinds = {
                kind: {
                    "coverage": float(np.mean([one[kind][0] for one in found])),
                    "relative_length": float(np.median([one[kind][1] for one in found]) / plain),
                }
                for kind in found[0]
            }
            size = {"rounds": rounds, "effective_rounds": float(np.median(effective[estimator])), "logs": logs}
            rows.append({"world": name, "densities": model or "logged", "estimator": estimator, **size, **kinds})
            print(json.dumps(rows[-1]), flush=True)
        told_so_far = {"schema": "offpolicy.continuous-intervals/2", "rows": rows}
        Path("docs/measured/continuous-intervals.json").write_text(json.dumps(told_so_far, indent=1) + "\n")


def main(part: str, logs: int) -> None:
    """Measure all cells of a part."""
    path, rows = Path(f"docs/measured/continuous-{part}.json"), list[dict[str, Any]]()
    for name, world in worlds(part).items():
        for rounds in ROUNDS:
            rows.append({"world": name, "rounds": rounds, "logs": logs, **measured(world, rounds, logs, 10_000 * len(rows))})
            path.write_text(json.dumps({"schema": "offpolicy.continuous/1", "rows": rows}, indent=1) + "\n")
            print(json.dumps(rows[-1]), flush=True)
    for each in ESTIMATORS:
        ratios = np.array([row[each.name]["ratio"] for row in rows])
        print(f"{each.name}: geometric mean {np.exp(np.log(ratios).mean()):.2f}, largest {ratios.max():.2f}")


def speed(rounds: int) -> None:
    """Measure the run time on one thread, and the largest memory."""
    rng = np.random.default_rng(0)
    x, a = rng.random(rounds), rng.random(rounds)
    log = op.Log(x, a, 1 - (a - x) ** 2, propensity=np.ones(rounds), actions=op.Box(0, 1))
    runs: dict[str, tuple[op.Policy, op.Estimator]] = {
        "IPS, computed density": (op.Normal(lambda x: x[:, 0], 0.1), op.IPS()),
        "IPS, column of densities": (op.Column(np.ones(rounds)), op.IPS()),
        "KernelIPS, seven widths": (op.Deterministic(lambda x: x[:, 0]), op.KernelIPS()),
    }
    seconds = dict.fromkeys(runs, np.inf)
    for _ in range(3):
        for name, (target, estimator) in runs.items():
            start = time.perf_counter()
            op.evaluate(log, target, estimator, engine=op.Local(threads=1), progress=False)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"schema": "offpolicy.continuous-speed/1", "rounds": rounds, "seconds": seconds, "largest_memory": memory}
    Path("docs/measured/continuous-speed.json").write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    asked, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
    if asked == "speed":
        speed(number or 10_000_000)
    elif asked == "intervals":
        intervals(number or 60)
    else:
        main(asked, number or 40)
