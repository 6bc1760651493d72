"""`op.Auto`: its cost, its accuracy, and its sensitivity to its constants.

python -m benchmarks.auto cost [--quick] | rounds | constants
"""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np

import offpolicy as op
from benchmarks.common import best_times, publish, table
from offpolicy.core.threads import cores
from offpolicy.data.features import Features
from offpolicy.estimators.candidates import CandidateFamily
from offpolicy.experiments import bench
from offpolicy.worlds import Linear
from offpolicy.worlds.registry import world


def cost(quick: bool = False) -> None:
    """Compare with Learned MDR with bandwidth="slope", values and standard errors of both, in one process."""
    rows = []
    sizes = ((5_000, 100), (20_000, 1_000), (200_000, 100), (1_000_000, 20))
    for rounds, actions in sizes[:1] if quick else sizes:
        there = Linear(actions, seed=0)
        log, target = there.sample(rounds, 0), there.target
        both = [op.Auto(), op.LearnedMDR(posterior=op.Gaussian("slope"))]
        ours, theirs = best_times(*(partial(_with_error, log, target, each) for each in both), times=3)
        rows.append([f"{rounds:,}", f"{actions:,}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}"])
    text = table(["rounds", "actions", "Auto, s", "Learned MDR (slope), s", "ratio"], rows)
    publish("auto", text, quick=quick)


def _with_error(log: op.Log, target: op.Policy, estimator: op.Estimator) -> float:
    return op.evaluate(log, target, [estimator], progress=False)[estimator.name].std_error


def rounds() -> None:
    """Error and coverage by number of rounds, for clicks in a world with full support, where no linear model is right."""
    there = Linear(20, clicks=True, seed=1)
    truth = there.value(there.target)
    rows = []
    for n, logs in ((1_000, 40), (10_000, 40), (100_000, 20), (1_000_000, 10)):
        every = [op.Auto(), op.SNIPS(), op.DR(), op.DM(op.Ridge(1.0))]
        found = [op.evaluate(there.sample(n, seed), there.target, every) for seed in range(logs)]
        errors = {e.name: np.sqrt(np.mean([(r[e.name].value - truth) ** 2 for r in found])) for e in every}
        held = np.mean([truth in r["Auto"].confidence_interval() for r in found])
        rows.append([f"{n:,}", str(logs), *(f"{e:.4f}" for e in errors.values()), f"{held:.0%}"])
    header = ["rounds", "logs", "Auto", "SNIPS", "DR", "DM, penalty 1", "coverage of Auto's 95% intervals"]
    print(f"Root mean squared error; the truth is {truth:.4f}.\n")
    print(table(header, rows))


CANDIDATES = {
    "penalty 0.3": {"penalty": 0.3},
    "penalty 3": {"strong": 3.0},
    "penalty 100": {"pooled": 100.0},
    "clips 30, 3": {"clips": (30.0, 3.0)},
    "width 0.56": {"width": 0.56},
    "shrinkage 10": {"shrinkage": 10.0},
    "penalties 0.1, 0.3, 1": {"penalties": (0.1, 0.3, 1.0)},
}
PRIOR = {"least 0.02": {"least": 0.02}, "slope 1": {"slope": 1.0}, "evidence 75": {"evidence": 75.0}}
PATCHED = {
    "shortfall 2": "offpolicy.inference.blending.MISSED",
    "share left out 7/8": "offpolicy.models.rewards.ridge.model.LEFT_OUT",
}
"""Twice 7/8 of a group cannot be left out, so doubling it leaves out the whole group."""


def variants(features: Features) -> dict[str, op.Estimator]:
    """Auto with one constant halved or doubled."""
    made: dict[str, op.Estimator] = {"Auto": op.Auto()}
    for factor, word in ((0.5, "half"), (2.0, "double")):
        for name, prior in PRIOR.items():
            made[f"{name}, {word}"] = op.Auto(prior=op.BiasPrior(**{k: factor * v for k, v in prior.items()}))
        for name, setting in CANDIDATES.items():
            moved = {k: tuple(factor * x for x in v) if isinstance(v, tuple) else factor * v for k, v in setting.items()}
            family = CandidateFamily(**moved)
            made[f"{name}, {word}"] = op.Auto((*family.unbiased(features), *family.smoother(features)))
    return {name: replace(estimator, name=name) for name, estimator in made.items()}


def errors_in(task: tuple[int, int, int]) -> tuple[int, dict[str, list[float]]]:
    """Squared errors in some logs of one world of the benchmark."""
    p, w, logs = task
    point = bench.Bench(half="building").experiment().points[p]
    there = world(point.kind, point.settings, 500_000 + w)
    truth, out = there.value(there.target), {}
    warnings.simplefilter("ignore")
    for seed in range(logs):
        log = there.sample(point.rounds, np.random.SeedSequence(9, spawn_key=(p, w, seed)))
        every = variants(Features.of(log.schema))
        values = {name: r.value for name, r in _evaluated(log, there, list(every.values())).items()}
        for name, where in PATCHED.items():
            for factor, word in ((0.5, "half"), (2.0, "double")):
                usual = 2.0 if name.startswith("shortfall") else 0.875
                with patch(where, min(usual * factor, 1.0) if usual < 1 else usual * factor):
                    values[f"{name}, {word}"] = _evaluated(log, there, [op.Auto()])["Auto"].value
        for name, value in values.items():
            out.setdefault(name, []).append((value - truth) ** 2)
    return p, out


def _evaluated(log: op.Log, there: object, estimators: list[op.Estimator]) -> dict[str, op.Estimate]:
    result = op.evaluate(log, there.target, estimators, engine=op.Local(1), progress=False)
    return {e.name: result[e.name] for e in estimators}


def constants(worlds: int = 6, logs: int = 2) -> None:
    """The mean squared error with a constant halved or doubled, relative to the default: geometric mean and extremes."""
    points = bench.Bench(half="building").experiment().points
    tasks = [(p, w, logs) for w in range(worlds) for p in range(len(points))]
    sums: dict[str, np.ndarray] = {}
    with ProcessPoolExecutor(cores(), mp_context=get_context("spawn")) as pool:
        for p, found in pool.map(errors_in, tasks):
            for name, each in found.items():
                sums.setdefault(name, np.zeros(len(points)))[p] += sum(each)
    rows = []
    for name in [n for n in sums if n != "Auto"]:
        ratio = sums[name] / sums["Auto"]
        rows.append([name, f"{np.exp(np.log(ratio).mean()):.3f}", f"{ratio.min():.2f}", f"{ratio.max():.2f}"])
    rows.sort(key=lambda row: row[0])
    print(f"{worlds * logs} runs in each of {len(points)} kinds of world.\n")
    print(table(["constant", "geometric mean", "lowest", "highest"], rows))


if __name__ == "__main__":
    jobs = {"cost": partial(cost, "--quick" in sys.argv), "rounds": rounds, "constants": constants}
    jobs[sys.argv[1]]()
