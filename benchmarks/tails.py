"""Pareto k of the weights beside effective rounds: which of them shows that intervals are too narrow.

python -m benchmarks.tails [LOGS]     about a minute with 300 logs of each kind; writes docs/measured/tails.json

Weights have a known distribution with mean 1: generalised Pareto with shape k, lognormal, or 1/p of an action that is taken
with probability p = u^a, for uniform u. The largest 1% of the weights (5% of 1/p) have another click rate than the rest, so
that the tail matters to the value, which is known. Per log: k, the effective rounds, and whether 95% intervals of SNIPS
contain the value: Cressie-Read, the default, Student and normal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.planning import snips
from offpolicy.core.arrays import FloatArray
from offpolicy.diagnostics.overlap import NOT_ONE
from offpolicy.diagnostics.pareto import ParetoTail
from offpolicy.diagnostics.verdict import LIMITS, Verdict
from offpolicy.inference.functionals import Functional, ScoreSums
from offpolicy.inference.intervals import Range, interval
from offpolicy.scoring.plan import Terms
from offpolicy.statistics.histogram import LogHistogram

MEASURED = Path("docs/measured/tails.json")
ROUNDS = (1_000, 5_000, 30_000, 100_000)
RATES = ((0.3, 0.6), (0.6, 0.3))  # of most weights, and of the largest
TOP = 0.01
METHODS = ("cressie-read", "student", "normal")
K_EDGES, ESS_EDGES = (-np.inf, 0.3, 0.5, 0.7, 0.85, np.inf), (0.0, 100.0, 500.0, 2_000.0, np.inf)
normal = NormalDist()
Rng = np.random.Generator


@dataclass(frozen=True)
class Weights:
    """A distribution of weights: how they are drawn, the limit of the largest, and E[w; w > limit]."""

    draw: Callable[[Rng, int], FloatArray]
    limit: float
    mass: float


def pareto(k: float) -> Weights:
    limit = (1 - k) * (TOP**-k - 1) / k
    return Weights(
        lambda rng, n: (1 - k) * (rng.random(n) ** -k - 1) / k, limit, (1 - k) / k * (TOP ** (1 - k) / (1 - k) - TOP)
    )


def lognormal(sigma: float) -> Weights:
    z = normal.inv_cdf(1 - TOP)
    return Weights(
        lambda rng, n: np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2),
        float(np.exp(sigma * z - sigma**2 / 2)), normal.cdf(sigma - z),
    )  # fmt: skip


def inverse(a: float) -> Weights:
    """1/p if the action is taken, and 0 otherwise; the action has p < 0.05^a in 5% of the rounds."""

    def draw(rng: Rng, n: int) -> FloatArray:
        p = rng.random(n) ** a
        return np.where(rng.random(n) < p, 1 / p, 0.0)

    return Weights(draw, 0.05**-a, 0.05)


KINDS = {
    **{f"pareto {k}": pareto(k) for k in (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)},
    **{f"lognormal {s}": lognormal(s) for s in (0.5, 1.0, 1.5, 2.0)},
    **{f"1/p, p = u^{a}": inverse(a) for a in (0.5, 1.0, 2.0, 4.0)},
}


def one(weights: Weights, rates: tuple[float, float], rounds: int, rng: Rng) -> list[float]:
    """Pareto k (NaN: undefined), the effective rounds, and whether each kind of interval contains the value."""
    w = weights.draw(rng, rounds)
    click = (rng.random(rounds) < np.where(w > weights.limit, rates[1], rates[0])).astype(float)
    value = rates[0] + (rates[1] - rates[0]) * weights.mass
    f, sums = snips(w, click, rng)
    bounds = Range(0.0, 1.0, float(w.max()), True, Terms(None, 2, 1, True, None, False))
    histogram = LogHistogram()
    k = ParetoTail.of(histogram.fold(histogram.zero(), w)).k
    covered = [float(value in interval(f, sums, 0.95, method, bounds)) for method in METHODS]
    concern = any(LIMITS[scale].grade(measure) is not Verdict.OK for scale, measure in others(w, f, sums).items())
    return [np.nan if k is None else k, float(w.sum() ** 2 / (w @ w)), *covered, float(concern)]


def others(w: FloatArray, f: Functional, sums: ScoreSums) -> dict[str, float]:
    """What the other checks of weights measure."""
    largest = np.sort(w)[-max(round(len(w) / 100), 1) :]
    z = (w.mean() - 1) / (w.std() / np.sqrt(len(w))) if abs(w.mean() - 1) > NOT_ONE else 0.0
    influence = sums.buckets @ f.gradient
    return {
        "top weights": float(largest.sum() / w.sum()), "largest weight": float(w.max() / w.sum()),
        "excess weight" if z > 0 else "missing weight": abs(float(z)),
        "concentration": float((influence**2).max() / (influence @ influence)),
    }  # fmt: skip


def coverage(found: FloatArray) -> dict[str, float] | None:
    """Of each kind of interval."""
    shares = found[:, 2:-1].mean(axis=0).tolist() if len(found) else []
    return dict(zip(METHODS, shares, strict=True)) if shares else None


def cells(found: FloatArray) -> list[dict[str, Any]]:
    """The coverage by k and effective rounds."""
    rows = []
    for low, high in pairwise(ESS_EDGES):
        for first, last in pairwise(K_EDGES):
            own = found[(found[:, 1] >= low) & (found[:, 1] < high) & (found[:, 0] >= first) & (found[:, 0] < last)]
            ends = [None if np.isinf(end) else end for end in (first, last, high)]
            alone = own[own[:, -1] == 0]
            rows.append({
                "effective_rounds": [low, ends[2]], "k": ends[:2], "logs": len(own), "coverage": coverage(own),
                "without other concerns": {"logs": len(alone), "coverage": coverage(alone)},
            })  # fmt: skip
    return rows


def main(logs: int) -> None:
    rng, found, by_kind = np.random.default_rng(24), [], []
    for name, weights in KINDS.items():
        for rounds in ROUNDS:
            own = np.array([one(weights, rates, rounds, rng) for rates in RATES for _ in range(logs // len(RATES))])
            found.append(own)
            k, effective = np.nanmean(own[:, 0]) if np.isfinite(own[:, 0]).any() else None, float(np.median(own[:, 1]))
            by_kind.append({"weights": name, "rounds": rounds, "logs": len(own), "k": k, "effective_rounds": effective,
                            "coverage": coverage(own)})  # fmt: skip
    table = {"schema": "offpolicy.tails/1", "cells": cells(np.concatenate(found)), "kinds": by_kind}
    MEASURED.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 300)
