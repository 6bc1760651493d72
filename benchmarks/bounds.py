"""Lower bounds on a published suite, choices by them, and what their sums cost.

python -m benchmarks.bounds suite [DRAWS]         the radii of lower bounds on six classification sets (../shared/data)
python -m benchmarks.bounds choice                the choice among four policies on the same sets
python -m benchmarks.bounds cost [ROWS]           the leanest pass with the sums for sequences over that without

Each writes its part of docs/measured/bounds.json, a long one as it goes. `benchmarks.streams` measures how often bounds that
hold at every look ever miss.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import offpolicy as op
from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.inference.betting import BinnedCapital, lower_bound
from offpolicy.scoring.smoothing import Smoother
from offpolicy.statistics.signed_histogram import Bins, SignedHistogram

MEASURED = Path("docs/measured/bounds.json")
DATA = Path("../shared/data/classification")
ROUNDS, EVERY, ALPHA = 100_000, 100, 0.05
USERS, PER_USER, BUCKETS = ROUNDS // 10, 10, 4096
Rng = np.random.Generator


def save(name: str, found: dict[str, Any]) -> None:
    """Replace one part of the file."""
    before = json.loads(MEASURED.read_text()) if MEASURED.exists() else {"schema": "offpolicy.bounds/1"}
    MEASURED.write_text(json.dumps(before | {name: found}, indent=1) + "\n")


def _bins(scores: FloatArray) -> Bins:
    return Bins.of(SignedHistogram.fold(SignedHistogram.zero(), scores))


@dataclass(frozen=True)
class Labelled:
    """A classification set: standardised features with a constant, and labels in sorted order."""

    x: FloatArray
    y: IntArray

    @classmethod
    def read(cls, name: str) -> Labelled:
        with (DATA / f"{name}.csv").open() as file:
            rows = list(csv.reader(file))[1:]
        x = np.array([row[:-1] for row in rows], float)
        x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)
        return cls(np.hstack([x, np.ones((len(x), 1))]), np.unique([row[-1] for row in rows], return_inverse=True)[1])

    @property
    def actions(self) -> int:
        return int(self.y.max()) + 1

    def target(self, temperature: float) -> FloatArray:
        return _softmax(np.eye(self.actions)[self.y] / temperature)

    def logging(self, temperature: float) -> FloatArray:
        """The same, but the classes 0 and 1 are taken for the next ones."""
        seen = np.where(self.y < 2, (self.y + 1) % self.actions, self.y)
        return _softmax(np.eye(self.actions)[seen] / temperature)

    def rates(self, flip: float) -> FloatArray:
        """The probability of a reward, rows × actions."""
        right = np.eye(self.actions)[self.y]
        return flip + (1 - 2 * flip) * right


def _softmax(scores: FloatArray) -> FloatArray:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: FloatArray = odds / odds.sum(axis=1, keepdims=True)
    return shares


def _drawn(rng: Rng, p: FloatArray, rates: FloatArray) -> tuple[IntArray, FloatArray]:
    """Actions and rewards of each row."""
    action = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=p.shape[1] - 1)
    return action, (rng.random(len(p)) < rates[np.arange(len(p)), action]).astype(float)


def bounds(phi: FloatArray, delta: float) -> dict[str, float]:
    """One-sided lower bounds: by logarithmic smoothing at this number of rounds, and at every look."""
    n = len(phi)
    lam = 1 / np.sqrt(n)
    smoothed = Smoother(lam, 0.0, 1.0).hits(phi, np.ones(n)).mean()
    return {
        "smoothing": float(np.expm1(lam * smoothed - np.log(1 / delta) / n) / lam),
        "sequence": lower_bound(BinnedCapital(_bins(phi)), delta, 0.0, 1.0),
    }


def suite(draws: int) -> None:
    with (DATA / "published_radii.csv").open() as file:
        published = list(csv.DictReader(file))
    flips = [(k % 3) / 10 for k in range(len(published))]
    sets = {name: Labelled.read(name) for name in dict.fromkeys(row["dataset"] for row in published)}
    radii: list[dict[str, float]] = []
    by_draw: list[dict[str, float]] = []
    for draw in range(draws):
        own = []
        for k, (row, flip) in enumerate(zip(published, flips, strict=True)):
            data, rng = sets[row["dataset"]], np.random.default_rng([draw, k])
            rows = rng.permutation(len(data.y))
            logged, held = np.split(rows, [round(0.98 * len(rows))])
            rates = data.rates(flip)
            target, p0 = data.target(float(row["target_temperature"])), data.logging(float(row["logging_temperature"]))
            value = float((target * rates)[held].sum(axis=1).mean())
            action, reward = _drawn(rng, p0[logged], rates[logged])
            weight = target[logged, action] / p0[logged, action]
            found = bounds(weight * reward, ALPHA)
            own.append({name: max(value - low, 0.0) / value for name, low in found.items()})
        radii += own
        by_draw.append({name: float(np.mean([each[name] for each in own])) for name in own[0]})
        means = {name: float(np.mean([each[name] for each in radii])) for name in radii[0]}
        errors = {
            name: float(np.std([each[name] for each in by_draw], ddof=1) / np.sqrt(draw + 1)) if draw else None
            for name in means
        }
        column = np.mean([float(row["logarithmic_smoothing"]) for row in published])
        save("suite", {
            "settings": len(published), "draws": draw + 1, "radius": means, "standard_error": errors,
            "sequence_over_smoothing": means["sequence"] / means["smoothing"], "published": float(column),
        })  # fmt: skip


def _trained(data: Labelled, rows: IntArray, rng: Rng, normalised: bool) -> FloatArray:
    """A linear softmax policy (temperature 0.1) that maximises IPS or SNIPS on some logged rows, by gradient ascent."""
    p0, x = data.logging(0.2)[rows], data.x[rows]
    action, reward = _drawn(rng, p0, data.rates(0.2)[rows])
    own, w = p0[np.arange(len(rows)), action], np.zeros((x.shape[1], data.actions))
    rate = 0.1
    for _ in range(300):
        p = _softmax(x @ w / 0.1)
        taken = p[np.arange(len(rows)), action]
        weight = taken / own
        gain = reward - (weight @ reward / weight.sum() if normalised else 0.0)
        scale = weight.sum() if normalised else len(rows)
        push = (weight * gain / scale)[:, None] * (np.eye(data.actions)[action] - p)
        w += rate * x.T @ push
    return _softmax(data.x @ w / 0.1)


def _trials() -> Iterator[tuple[str, list[float], dict[str, int]]]:
    for name in ("balance-scale", "ecoli", "page-blocks", "satimage", "vehicle", "yeast"):
        data = Labelled.read(name)
        for trial in range(10):
            rng = np.random.default_rng([trial, 60])
            train, rest = np.split(rng.permutation(len(data.y)), [round(0.2 * len(data.y))])
            logged, held = np.split(rest, [round(0.5 * len(data.y))])
            rates, p0 = data.rates(0.2), data.logging(0.2)
            policies = [data.target(0.1), _trained(data, train, rng, False), _trained(data, train, rng, True), p0]
            action, reward = _drawn(rng, p0[logged], rates[logged])
            own = np.arange(len(logged))
            weights = [p[logged][own, action] / p0[logged][own, action] for p in policies]
            values = [float((p * rates)[held].sum(axis=1).mean()) for p in policies]
            lows = [bounds(w * reward, ALPHA / 4) for w in weights]
            scores = {kind: [low[kind] for low in lows] for kind in lows[0]}
            scores["IPS"] = [float((w * reward).mean()) for w in weights]
            scores["SNIPS"] = [float(w @ reward / max(w.sum(), 1e-12)) for w in weights]
            yield name, values, {kind: int(np.argmax(each)) for kind, each in scores.items()}


def choice() -> None:
    found: dict[str, dict[str, int]] = {}
    trials = 0
    for _, values, chosen in _trials():
        trials += 1
        for kind, k in chosen.items():
            counts = found.setdefault(kind, {"best": 0, "better": 0, "worse": 0})
            counts["best"] += values[k] >= max(values) - 1e-12
            counts["better"] += max(values) - 1e-12 > values[k] > values[3]
            counts["worse"] += values[k] < values[3] - 1e-12
    save("choice", {"trials": trials, "chosen": found})


def cost(rows: int) -> None:
    """LoggedMean, IPS and SNIPS for clicks, with a policy in a column: turns alternate; the least processor time counts."""
    found = []
    for rate in (0.01, 0.1, 0.5):
        rng = np.random.default_rng(0)
        click = (rng.random(rows) < rate).astype(float)
        columns = {"p": np.full(rows, 0.25), "p_new": rng.uniform(0, 0.5, rows)}
        frame = pa.table({"x": rng.normal(size=rows), "item": rng.integers(0, 4, rows), "click": click, **columns})
        log = op.read_log(frame, context="x", action="item", reward="click", propensity="p", reward_range=(0, 1))
        estimators, one = [op.IPS(), op.SNIPS()], op.Local(threads=1)
        best = dict.fromkeys((False, True, "log"), np.inf)
        for _ in range(16):
            for sums in best:
                start = time.process_time()
                op.evaluate(log, op.Column("p_new"), estimators, sequence=sums, engine=one)
                best[sums] = min(best[sums], time.process_time() - start)
        without, values, differences = best.values()
        ratios = {"values": values / without, "values and differences": differences / without}
        found.append({"click_rate": rate, "rows": rows, "seconds": list(best.values()), **ratios})
    save("cost", {"by_click_rate": found})


if __name__ == "__main__":
    what, *more = sys.argv[1:] or ["suite"]
    if what == "cost":
        cost(int(more[0]) if more else 2_000_000)
    elif what == "suite":
        suite(int(more[0]) if more else 20)
    else:
        choice()
