"""`Evaluation.best` with fifty policies: how often it is wrong, how often it finds the better ones, and how wide it is.

python -m benchmarks.choosing [RUNS] [--check]     1,000 runs take about 10 minutes

It writes docs/measured/choosing.json as it goes, and goes on from what is there.

A run is one log of one world. Its sums are made directly, as the scoring pass makes them for SNIPS, and the answers come
from the functions of the library. `--check` compares the answers of a few runs with those of `op.evaluate`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

import offpolicy as op
from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS, buckets, hash_values
from offpolicy.inference.functionals import Functional, ScoreSums, functional, std_error
from offpolicy.inference.intervals import Range, degrees_of_freedom, interval
from offpolicy.inference.simultaneous import Family
from offpolicy.scoring.plan import Terms

MEASURED = Path("docs/measured/choosing.json")
POLICIES, CONTEXTS, ACTIONS, LEVEL = 50, 20, 10, 0.95
BETTER = (0, 1, 5)
GAIN = 0.05
"""What a better policy earns in addition."""
STEP = 10  # runs of each setting after which the table is saved
LEAST = 500
"""The effective rounds of the policy with the fewest."""


@dataclass(frozen=True)
class World:
    """Contexts in equal shares, a click rate per context and action, a logging policy, and policies that earn the same.

    All policies but the first few earn exactly what the logging policy earns: the least favourable case for "better".
    `common` is the share of their log-odds that they have in common, `sharp` is how far they are from the logging policy.
    """

    rates: FloatArray
    logging: FloatArray
    policies: FloatArray
    rounds: int

    @classmethod
    def of(cls, better: int, common: float, sharp: float, seed: int = 1) -> World:
        rng = np.random.default_rng(seed)
        rates = np.clip(0.3 * (1 + 0.6 * rng.standard_normal((CONTEXTS, ACTIONS))), 0.02, 0.95)
        prior = 0.7 * rng.standard_normal((CONTEXTS, ACTIONS))
        logging = _softmax(prior)
        shared, goal = rng.standard_normal((CONTEXTS, ACTIONS)), (logging * rates).sum(axis=1).mean()
        policies = []
        for k in range(POLICIES):
            own = rng.standard_normal((CONTEXTS, ACTIONS))
            policy = _softmax(prior + sharp * (np.sqrt(common) * shared + np.sqrt(1 - common) * own))
            policies.append(_earning(policy, goal + GAIN * (k < better), rates, logging))
        second = max(float((policy**2 / logging).sum(axis=1).mean()) for policy in policies)
        return cls(rates, logging, np.array(policies), int(np.ceil(LEAST * second)))

    @property
    def values(self) -> FloatArray:
        """The true value of each policy."""
        values: FloatArray = (self.policies * self.rates).sum(axis=2).mean(axis=1)
        return values

    @property
    def logged_value(self) -> float:
        return float((self.logging * self.rates).sum(axis=1).mean())

    @property
    def effective(self) -> FloatArray:
        """The effective rounds of each policy."""
        effective: FloatArray = self.rounds / (self.policies**2 / self.logging).sum(axis=2).mean(axis=1)
        return effective

    def draw(self, seed: int) -> tuple[IntArray, IntArray, FloatArray]:
        """The contexts, actions and rewards of one log."""
        rng = np.random.default_rng(seed)
        x = rng.integers(CONTEXTS, size=self.rounds)
        a = (self.logging.cumsum(axis=1)[x] < rng.random((self.rounds, 1))).sum(axis=1).clip(max=ACTIONS - 1)
        return x, a, (rng.random(self.rounds) < self.rates[x, a]).astype(float)


def _softmax(scores: FloatArray) -> FloatArray:
    odds = np.exp(scores)
    shares: FloatArray = odds / odds.sum(axis=1, keepdims=True)
    return shares


def _earning(policy: FloatArray, goal: float, rates: FloatArray, logging: FloatArray) -> FloatArray:
    """The policy mixed with one that nearly always takes the best, or the worst, action, so that it earns the goal."""
    value = (policy * rates).sum(axis=1).mean()
    extreme = rates.argmax(axis=1) if goal > value else rates.argmin(axis=1)
    other = 0.9 * np.eye(ACTIONS)[extreme] + 0.1 * logging
    share = (goal - value) / ((other * rates).sum(axis=1).mean() - value)
    mixed: FloatArray = (1 - share) * policy + share * other
    return mixed


@dataclass(frozen=True)
class Run:
    """The sums of one log, and the estimates by SNIPS: of what was logged, and of each policy."""

    sums: ScoreSums
    logged: Functional
    values: list[Functional]
    ranges: list[Range]

    @classmethod
    def of(cls, world: World, seed: int) -> Run:
        x, a, r = world.draw(seed)
        weights, origin = world.policies[:, x, a] / world.logging[x, a], float(r.mean())
        columns = np.concatenate([[np.ones_like(r), r - origin], weights, weights * (r - origin)])
        means = columns.mean(axis=1)
        centred = columns - means[:, None]
        bucket = buckets(hash_values(op_rows(len(r))), 0)
        sums_by_bucket = np.column_stack([np.bincount(bucket, column, BUCKETS) for column in columns])
        moments = {"n": np.array(float(len(r))), "mean": means, "m2": centred @ centred.T}
        sums = ScoreSums(moments, sums_by_bucket, np.array([r.sum()]), False, 0)
        terms = [Terms(None, 2 + POLICIES + k, 2 + k, True, None, False) for k in range(POLICIES)]
        return cls(
            sums,
            functional(Terms(None, 1, 0, True, None, False), means, origin),
            [functional(each, means, origin) for each in terms],
            [Range(0.0, 1.0, float(w.max()), True, each) for w, each in zip(weights, terms, strict=True)],
        )


def op_rows(rounds: int) -> Any:
    """The row ids of a log, as a column."""
    import pyarrow as pa

    return pa.array(np.arange(rounds))


@dataclass(frozen=True)
class Outcome:
    """What one run got right: a row of the table."""

    missed: bool
    missed_differences: bool
    wrong: bool
    wrong_bonferroni: bool
    wrong_pointwise: bool
    found: float
    found_bonferroni: float
    chose_worse: bool
    chose_better: bool
    best_ruled_out: bool
    left: int
    width: float

    @classmethod
    def of(cls, world: World, run: Run) -> Outcome:
        truth, gains = world.values, np.round(world.values - world.logged_value, 12)
        family = Family(run.values, run.sums)
        level = family.pointwise_level(LEVEL)
        ends = [
            interval(f, run.sums, level, "cressie-read", bounds) for f, bounds in zip(run.values, run.ranges, strict=True)
        ]
        missed = any(v not in each for v, each in zip(truth, ends, strict=True))
        differences = [f.minus(run.logged) for f in run.values]
        joint = Family(differences, run.sums).pointwise_level(LEVEL)
        levels = (joint, 1 - (1 - LEVEL) / POLICIES, LEVEL)
        (low, high), bonferroni, pointwise = _ends(differences, run.sums, levels)
        may_be_best = family.may_be_largest(LEVEL)
        best, better = np.flatnonzero(truth >= truth.max() - 1e-9), gains > 0
        chosen = int(low.argmax()) if low.max() > 0 else None
        share = lambda decided: float((decided & better).sum() / max(better.sum(), 1))  # noqa: E731
        return cls(
            missed=missed,
            missed_differences=bool(((gains < low) | (gains > high)).any()),
            wrong=bool(((low > 0) & ~better).any()),
            wrong_bonferroni=bool(((bonferroni[0] > 0) & ~better).any()),
            wrong_pointwise=bool(((pointwise[0] > 0) & ~better).any()),
            found=share(low > 0),
            found_bonferroni=share(bonferroni[0] > 0),
            chose_worse=chosen is not None and not better[chosen],
            chose_better=chosen is not None and bool(better[chosen]),
            best_ruled_out=not may_be_best[best[0]],
            left=sum(may_be_best),
            width=float(np.mean((high - low) / (bonferroni[1] - bonferroni[0]))),
        )


def _ends(differences: list[Functional], sums: ScoreSums, levels: Sequence[float]) -> list[tuple[FloatArray, FloatArray]]:
    """Of Student intervals, at each level."""
    value = np.array([f.value for f in differences])
    error = np.array([std_error(f, sums) for f in differences])
    freedom = np.array([degrees_of_freedom(f, sums) for f in differences])
    reach = [error * stdtrit(freedom, 0.5 + level / 2) for level in levels]
    return [(value - each, value + each) for each in reach]


SETTINGS = {"alike": (0.8, 1.2), "different": (0.2, 1.2)}
"""How much the policies have in common, and how far they are from the logging policy."""


def outcomes(name: str, better: int, seeds: Iterable[int]) -> list[Outcome]:
    world = World.of(better, *SETTINGS[name])
    return [Outcome.of(world, Run.of(world, seed)) for seed in seeds]


def row(name: str, better: int, found: Sequence[Outcome], before: dict[str, Any] | None) -> dict[str, Any]:
    """The means over the runs of one setting, with those of a row of earlier runs."""
    world, done = World.of(better, *SETTINGS[name]), before["runs"] if before else 0
    runs = done + len(found)
    sums = {field: sum(float(getattr(o, field)) for o in found) for field in Outcome.__annotations__}
    means = {field: (total + (done * before[field] if before else 0.0)) / runs for field, total in sums.items()}
    effective = [float(end) for end in (world.effective.min(), world.effective.max())]
    about = {"policies": name, "better": better, "runs": runs, "rounds": world.rounds, "effective_rounds": effective}
    return {**about, **means}


def save(rows: Sequence[dict[str, Any]]) -> None:
    MEASURED.write_text(json.dumps({"schema": "offpolicy.choosing/1", "level": LEVEL, "rows": rows}, indent=1) + "\n")


def check() -> None:
    """The same answers from `op.evaluate`."""
    world = World.of(5, *SETTINGS["alike"])
    for seed in range(3):
        x, a, r = world.draw(seed)
        log = op.Log(
            np.eye(CONTEXTS)[x], a, r, propensity=world.logging[x, a], row_id=np.arange(len(r)),
            actions=op.Discrete(ACTIONS), reward_range=(0.0, 1.0),
        )  # fmt: skip
        policies = {str(k): op.Function(lambda c, p=p: c @ p) for k, p in enumerate(world.policies)}
        best, run = op.evaluate(log, policies, op.SNIPS()).best(), Run.of(world, seed)
        outcome = Outcome.of(world, run)
        family = Family(run.values, run.sums)
        level, may = family.pointwise_level(LEVEL), family.may_be_largest(LEVEL)
        for k, (f, bounds) in enumerate(zip(run.values, run.ranges, strict=True)):
            ours, row = interval(f, run.sums, level, "cressie-read", bounds), best[str(k)]
            np.testing.assert_allclose(
                [row.value, row.interval.low, row.interval.high], [f.value, ours.low, ours.high], 1e-6
            )
            assert row.may_be_best == may[k]
        better = np.array([best[str(k)].conclusion == "better" for k in range(POLICIES)])
        assert float(better[:5].mean()) == outcome.found
    print("op.evaluate gives the same.")


if __name__ == "__main__":
    arguments = [each for each in sys.argv[1:] if each != "--check"]
    if "--check" in sys.argv:
        check()
    else:
        runs = int(arguments[0]) if arguments else 1_000
        saved = json.loads(MEASURED.read_text())["rows"] if MEASURED.exists() else []
        rows: dict[tuple[str, int], Any] = {(name, better): None for name in SETTINGS for better in BETTER}
        rows |= {(each["policies"], each["better"]): each for each in saved}
        start = min(each["runs"] if each else 0 for each in rows.values())
        while start < runs:  # all settings in turn, so that what is saved is always a whole table
            for (name, better), before in rows.items():
                done = before["runs"] if before else 0
                rows[name, better] = row(name, better, outcomes(name, better, range(done, start + STEP)), before)
            save(list(rows.values()))
            start += STEP
