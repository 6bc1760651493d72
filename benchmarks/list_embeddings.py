"""Learned MIPS on lists of six slots and more, beside self-normalised SIPS and RIPS.

python -m benchmarks.list_embeddings                       # every world, 100 logs each; about 20 minutes of one core
python -m benchmarks.list_embeddings --only cascade --logs 20
python -m benchmarks.list_embeddings --runs RUNS --out docs/measured/list-embeddings.json

With --runs, only the logs that the file does not have are run: an interrupted run continues, and --logs can be raised.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import offpolicy as op
from benchmarks.common import Rows
from offpolicy.worlds import Diverse, ListWorld, Ranking

SEEDS = 20
"""The number of worlds of each kind; logs are spread over them."""
NEAR = {"sharpness": 0.3, "shift": 0.5}
WORLDS: dict[str, tuple[type[ListWorld], dict[str, object], int]] = {
    "independent, 6 slots of 12 items": (Ranking, {"behaviour": "independent", "slots": 6, "n_actions": 12, **NEAR}, 3_000),
    "independent, 6 slots of 100 items": (
        Ranking, {"behaviour": "independent", "slots": 6, "n_actions": 100, **NEAR}, 3_000,
    ),
    "position, 10 slots of 12 items": (Ranking, {"behaviour": "position", "slots": 10, "n_actions": 12, **NEAR}, 3_000),
    "cascade, 8 slots of 10 items": (Ranking, {"behaviour": "cascade", "slots": 8, "n_actions": 10, **NEAR}, 4_000),
    "neighbours, 7 slots of 9 items": (
        Ranking, {"behaviour": "neighbours", "slots": 7, "n_actions": 9, "interaction": 3.0, **NEAR}, 3_000,
    ),
    "mixed, 6 slots of 9 items": (
        Ranking, {"behaviour": "mixed", "slots": 6, "n_actions": 9, "interaction": 3.0, "shift": 0.8}, 2_000,
    ),
    "position, clicks, 6 of 9 items without replacement": (
        Ranking, {"behaviour": "position", "slots": 6, "n_actions": 9, "policies": "plackett-luce", "clicks": True}, 2_000,
    ),
    "the world of AIPS, 8 slots, 1,000 lists": (Diverse, {}, 1_000),
    "the world of AIPS, 8 slots, 8,000 lists": (Diverse, {}, 8_000),
}  # fmt: skip


def estimators() -> list[op.Estimator]:
    """What is compared; the first is the reference."""
    return [op.SIPS(True), op.RIPS(True), op.LearnedMIPS()]


KEY = ("name", "log")


def squared_errors(name: str, logs: int, rows: Rows) -> dict[str, np.ndarray]:
    """By estimator, as a share of the squared value; the logs that are missing are run."""
    kind, settings, rounds = WORLDS[name]
    count = SEEDS if kind is Ranking else 1
    for k in range(count):
        missing = [log for log in range(k, logs, count) if {"name": name, "log": log} not in rows]
        if not missing:
            continue
        world = kind(**settings, **({"seed": k} if kind is Ranking else {}))
        value = float(np.sum(world.value(world.target)))
        for log in missing:
            result = op.evaluate(
                world.sample(rounds, seed=log), world.target, estimators(), engine=op.Local(threads=1), progress=False
            )
            errors = {each.name: (result[each.name].value / value - 1) ** 2 for each in estimators()}
            rows.add({"name": name, "log": log, "errors": errors})
    own = [row["errors"] for row in rows if row["name"] == name and row["log"] < logs]
    return {each.name: np.array([errors[each.name] for errors in own]) for each in estimators()}


def ratio(errors: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """The ratio of two mean squared errors on the same logs, and its standard error."""
    quotient = float(errors.mean() / reference.mean())
    spread = (errors - quotient * reference).std(ddof=1) / reference.mean() / len(errors) ** 0.5
    return quotient, float(spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--only", default="", help="only worlds whose name contains this")
    parser.add_argument("--out", type=Path, help="the JSON file to add the results to")
    parser.add_argument("--runs", type=Path, help="a file of runs, one per line, to continue")
    options = parser.parse_args()
    rows = Rows(options.runs, KEY)
    for name in (name for name in WORLDS if options.only in name):
        errors = squared_errors(name, options.logs, rows)
        reference = errors["SIPS"]
        row = {each: ratio(values, reference) for each, values in errors.items()}
        cells = "  ".join(f"{each} {value:.2f} ± {error:.2f}" for each, (value, error) in row.items())
        print(f"{name}: {cells} of {reference.mean():.5f}", flush=True)
        if options.out is not None:
            known = json.loads(options.out.read_text()) if options.out.exists() else {}
            known[name] = {"logs": options.logs, "sips": float(reference.mean()), "ratios": row}
            options.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
