"""The bench: any estimators in a suite of worlds, and who came nearest to the best of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.batch import FloatArray
from offpolicy.errors import InputError
from offpolicy.experiments import entries
from offpolicy.experiments.read import load, point
from offpolicy.experiments.results import Results
from offpolicy.experiments.show import notes
from offpolicy.experiments.spec import Experiment, Point, checked
from offpolicy.report.text import aligned, label
from offpolicy.worlds.named import from_text

LOGS = 10
"""Of each world, where there are many runs: a world's own value takes longer to find than an estimate."""


def experiment(
    estimators: Sequence[str] = (),
    worlds: Sequence[str] = (),
    *,
    add: Sequence[str] = (),
    runs: int | None = None,
    rounds: int | None = None,
    quick: bool = False,
    intervals: bool = False,
    data: Path | None = None,
) -> Experiment:
    """The standard suite, with the estimators and worlds that are named in place of its own; `add` adds to its own.

    With `intervals` the 95% intervals of all estimators are kept, else those of the suite's own headline.
    """
    standard = load("bench", quick=quick, data=data)
    if worlds:
        standard = replace(standard, points=tuple(_point(text, rounds or 10_000, data) for text in worlds))
    elif rounds is not None:
        standard = replace(standard, points=tuple(replace(point, rounds=rounds) for point in standard.points))
    if runs is not None:
        if runs < 2:
            raise InputError(f"runs is {runs}; give at least 2.")
        logs = LOGS if runs >= 10 * LOGS else 1
        standard = replace(standard, worlds=math.ceil(runs / logs), logs=logs)
    given = [entries.from_text(text) for text in estimators] or list(standard.entries)
    chosen = (*given, *(entries.from_text(text) for text in add))
    labels = [each.label for each in chosen]
    kept = labels if intervals else [label for label in standard.intervals if label in labels]
    return checked(replace(standard, entries=chosen, intervals=tuple(kept)), standard.name)


def _point(text: str, rounds: int, data: Path | None) -> Point:
    kind, settings = from_text(text)
    return point(text, {"label": text, "world": kind, **settings}, rounds, data)


def relative(results: Results) -> FloatArray:
    """Mean squared errors over the least of each world: estimators × points; NaN where an estimator gave nothing."""
    mean = results.summary("mse")[0]
    # who answers only where it is easy is not compared: a world counts when every run of it gave a number
    mean = np.where(np.isfinite(results.values).all(axis=(2, 3)), mean, np.nan)
    if np.isnan(mean).all():
        raise InputError("no estimator gave a number in any world; the failures say why: " + "; ".join(notes(results)))
    with np.errstate(all="ignore"):
        ratios: FloatArray = mean / np.nanmin(np.where(np.isnan(mean).all(axis=0), 1.0, mean), axis=0)
    return ratios


def leaders(results: Results) -> list[dict[str, Any]]:
    """One row an estimator, the best first: by the geometric mean; those that did not serve every world come last."""
    ratios = relative(results)
    rows = [
        {
            "estimator": label,
            "geometric_mean": float(np.exp(np.log(each[np.isfinite(each)]).mean())) if np.isfinite(each).any() else None,
            "worst": float(np.nanmax(each)) if np.isfinite(each).any() else None,
            "worlds": int(np.isfinite(each).sum()),
            "relative": each.tolist(),
        }
        for label, each in zip(results.experiment.labels, ratios, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row["worlds"], row["geometric_mean"] or np.inf))


def plain(results: Results) -> str:
    """The leaderboard as text."""
    e = results.experiment
    rows = [
        [
            label(row["estimator"]),
            _cell(row["geometric_mean"]),
            _cell(row["worst"]),
            f"{row['worlds']} of {len(e.points)}",
            *(_cell(r) for r in row["relative"]),
        ]
        for row in leaders(results)
    ]
    letters = [f"w{k + 1}" for k in range(len(e.points))]
    header = ["estimator", "geo. mean", "worst", "worlds", *letters]
    lines = ["Mean squared error relative to the best estimator of each world", ""]
    lines += [*aligned(header, rows, right=set(header[1:])), ""]
    best = results.summary("mse")[0]  # of those that gave a number in every run
    best = np.where(np.isfinite(relative(results)), best, np.nan)
    for k, (letter, place) in enumerate(zip(letters, e.points, strict=True)):
        known = np.isfinite(best[:, k])
        least = f"{np.nanmin(best[:, k]):.3g}" if known.any() else "–"
        lines.append(f"{letter}: {place.label}, {place.rounds:,} rounds; least mean squared error {least}")
    return "\n".join([*lines, f"{results.runs} runs in each world.", *notes(results)])


def _cell(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def as_dict(results: Results) -> dict[str, Any]:
    """For JSON; the schema has a version."""
    mean, error = results.summary("mse")
    return {
        "schema": "offpolicy.bench/1",
        "key": results.experiment.key,
        "runs": results.runs,
        "worlds": [
            {"world": str(p.label), "rounds": p.rounds, "largest_truth_error": float(error)}
            for p, error in zip(results.experiment.points, results.truth_error.max(axis=1), strict=True)
        ],
        "leaderboard": leaders(results),
        "mean_squared_errors": dict(zip(results.experiment.labels, mean.tolist(), strict=True)),
        "standard_errors": dict(zip(results.experiment.labels, error.tolist(), strict=True)),
        "failures": {label: dict(why) for label, why in results.failures.items()},
    }
