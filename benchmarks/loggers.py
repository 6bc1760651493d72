"""Three loggers with very different propensities: how often intervals hold, and what the check of agreement finds.

The world has five actions, two columns of context and linear rewards with noise of standard deviation 1, so that the value
of the target is known. Logger 1 rarely takes what the target prefers (probability .02 for its favourite), logger 2 is
uniform, and logger 3 nearly follows the target. A log has 6,000 rounds for coverage; for the check, 10,000, of which those
of logger 1 may have rewards that are shifted by half a standard deviation of the reward.

python -m benchmarks.loggers [--quick]     takes about 9 minutes of one core; writes docs/measured/loggers.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import offpolicy as op
from offpolicy.diagnostics.verdict import LIMITS

MEASURED = Path("docs/measured/loggers.json")
SEED = 25_000
ACTIONS, SHARES = 5, (0.5, 0.3, 0.2)
FAVOURITE = np.array([0.02, 0.2, 0.7])  # the probability under each logger of the action that the target prefers
TARGET = 0.8


class World:
    """Contexts, a favourite action per context, and the rewards of all actions."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.slopes, self.levels = rng.normal(size=(ACTIONS, 2)) * 0.5, rng.normal(size=ACTIONS) * 0.5
        x = rng.normal(size=(400_000, 2))
        self.value = float((self.policy(TARGET)(x) * self.mean(x)).sum(axis=1).mean())
        chosen = self.sample_actions(np.full(len(x), 1), x, rng)
        self.spread = float((self.mean(x)[np.arange(len(x)), chosen] + rng.normal(size=len(x))).std())

    def mean(self, x: Any) -> Any:
        return x @ self.slopes.T + self.levels

    def policy(self, favourite: float) -> Any:
        def probabilities(x: Any) -> Any:
            best = np.argmax(x @ np.roll(self.slopes, 1, axis=0).T, axis=1)
            p = np.full((len(x), ACTIONS), (1 - favourite) / (ACTIONS - 1))
            p[np.arange(len(x)), best] = favourite
            return p

        return probabilities

    def sample_actions(self, logger: Any, x: Any, rng: Any) -> Any:
        p = np.stack([self.policy(favourite)(x) for favourite in FAVOURITE])[logger, np.arange(len(x))]
        return (p.cumsum(axis=1) < rng.random((len(x), 1))).sum(axis=1).clip(max=ACTIONS - 1)

    def log(self, n: int, seed: int, loggers: str, shift: float = 0.0) -> op.Log:
        rng = np.random.default_rng([SEED, seed])
        logger = np.repeat(np.arange(3), (np.array(SHARES) * n).astype(int))
        x = rng.normal(size=(n, 2))
        action = self.sample_actions(logger, x, rng)
        reward = self.mean(x)[np.arange(n), action] + rng.normal(size=n) + shift * self.spread * (logger == 0)
        logging = {f"v{k + 1}": self.policy(favourite) for k, favourite in enumerate(FAVOURITE)}
        names = np.array(list(logging))[logger]
        return op.Log(x, action, reward, n_actions=ACTIONS, logger=names, logging=logging, loggers=loggers)


def evaluated(world: World, log: op.Log, estimators: list[Any]) -> op.Evaluation:
    return op.evaluate(log, world.policy(TARGET), estimators, engine=op.Local(threads=1), progress=False)


def coverage(world: World, runs: int, loggers: str) -> dict[str, Any]:
    """How often the 95% intervals of IPS, SNIPS and DR held, and the spread of the estimates against their errors.

    "student" is the coverage of the intervals that have no allowance for an unseen round.
    """
    found: dict[str, list[tuple[float, float, bool, bool]]] = {}
    for seed in range(runs):
        result = evaluated(world, world.log(6_000, seed, loggers), [op.IPS(), op.SNIPS(), op.DR()])
        for name in ("IPS", "SNIPS", "DR"):
            e = result[name]
            held = [world.value in interval for interval in (e.interval, e.confidence_interval(method="student"))]
            found.setdefault(name, []).append((e.value - world.value, e.std_error, *held))
    answer = {}
    for name, rows in found.items():
        error, std_error, held, student = (np.array(column, float) for column in zip(*rows, strict=True))
        share = held.mean()
        answer[name] = {
            "runs": runs, "coverage": round(float(share), 4),
            "coverage_std_error": round(float(np.sqrt(share * (1 - share) / runs)), 4),
            "student": round(float(student.mean()), 4),
            "bias": round(float(error.mean()), 5), "bias_std_error": round(float(error.std() / np.sqrt(runs)), 5),
            "spread": round(float(error.std()), 5), "mean_std_error": round(float(std_error.mean()), 5),
        }  # fmt: skip
    return answer


def alarms(world: World, runs: int, shift: float) -> dict[str, Any]:
    """How often the check of agreement raises a concern in logs of 10,000 rounds."""
    p = []
    for seed in range(runs):
        result = evaluated(world, world.log(10_000, 1_000_000 + seed, "balanced", shift), [op.SNIPS()])
        p.append(result["SNIPS"].diagnostics["loggers_agree_p"])
    share = float((np.array(p) < LIMITS["agreement of loggers"].caution).mean())
    return {
        "runs": runs, "shift_in_standard_deviations": shift, "concerns": round(share, 4),
        "std_error": round(float(np.sqrt(share * (1 - share) / runs)), 4),
        "below_5_percent": round(float((np.array(p) < 0.05).mean()), 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few logs, without changing the saved results")
    parser.add_argument("--runs", type=int, default=2_000)
    options = parser.parse_args()
    runs, world = 20 if options.quick else options.runs, World(SEED)
    found: dict[str, Any] = {"version": op.__version__, "value": world.value}
    found["agreement"] = [alarms(world, runs, 0.0), alarms(world, max(runs // 10, 10), 0.5)]
    print("agreement", json.dumps(found["agreement"]), flush=True)
    for loggers in ("balanced", "own", "weighted"):
        found[loggers] = coverage(world, runs, loggers)
        print(loggers, json.dumps(found[loggers]), flush=True)
    if not options.quick:
        MEASURED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
