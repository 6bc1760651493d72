"""The bench: estimators in a suite of worlds, ranked by how close they come to the best estimator of each."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.arrays import finite_or_none
from offpolicy.core.errors import InputError
from offpolicy.experiments import entries
from offpolicy.experiments.config import Size, load, point
from offpolicy.experiments.experiment import AxisPoint, Experiment, checked
from offpolicy.experiments.ranking import Ranking
from offpolicy.experiments.runs import Results
from offpolicy.experiments.tables import notes
from offpolicy.report.formatting import WIDTH, blocks, label, wrapped
from offpolicy.worlds import OpenBandit
from offpolicy.worlds.registry import DATA_VARIABLE, data_folder, from_text

OPEN_BANDIT_ROUNDS = 10_000
LOGS = 10
"""Logs per world if there are many runs, since the value of a world takes longer to compute than an estimate."""


@dataclass(frozen=True)
class Bench:
    """The standard suite; named estimators and worlds replace its own, and `add` adds estimators.

    With `intervals`, the 95% intervals of all estimators are stored, otherwise those of the suite's headline estimators.
    """

    estimators: Sequence[str] = ()
    worlds: Sequence[str] = ()
    add: Sequence[str] = ()
    runs: int | None = None
    rounds: int | None = None
    quick: bool = False
    intervals: bool = False
    data: Path | None = None

    def experiment(self) -> Experiment:
        standard = load("bench", Size(self.quick), data=self.data)
        if self.runs is not None:
            if self.runs < 2:
                raise InputError(f"runs is {self.runs}; give at least 2.")
            logs = LOGS if self.runs >= 10 * LOGS else 1
            standard = replace(standard, worlds=math.ceil(self.runs / logs), logs=logs)
        named = [entries.from_text(text) for text in self.estimators] or list(standard.entries)
        chosen = (*named, *(entries.from_text(text) for text in self.add))
        labels = [each.label for each in chosen]
        intervals = labels if self.intervals else [label for label in standard.intervals if label in labels]
        points = self._named_points() if self.worlds else self._standard_points(standard)
        return checked(replace(standard, points=points, entries=chosen, intervals=tuple(intervals)), standard.name)

    def _named_points(self) -> tuple[AxisPoint, ...]:
        named = [(text, *from_text(text)) for text in self.worlds]
        return tuple(
            point(text, {"label": text, "world": kind, **settings}, self.rounds or 10_000, self.data)
            for text, kind, settings in named
        )

    def _standard_points(self, standard: Experiment) -> tuple[AxisPoint, ...]:
        """Those of the suite, and the Open Bandit Dataset if its folder is known."""
        points = standard.points
        if self.data is not None or os.environ.get(DATA_VARIABLE):
            folder = self.data or data_folder()
            for campaign in OpenBandit.campaigns(folder) or [OpenBandit(folder).campaign]:
                real = {"label": f"Open Bandit, {campaign}", "world": "open-bandit", "campaign": campaign}
                points = (*points, point("bench", real, OPEN_BANDIT_ROUNDS, folder))
        return points if self.rounds is None else tuple(replace(each, rounds=self.rounds) for each in points)


def leaders(results: Results) -> list[dict[str, Any]]:
    """One row per estimator, ordered by the geometric mean; those without a value in every world come last."""
    ranking = Ranking.of(results)
    rows = [
        {
            "estimator": label,
            "geometric_mean": finite_or_none(ranking.geometric[k]),
            "geometric_mean_error": finite_or_none(ranking.geometric_errors[k]),
            "worst": finite_or_none(ranking.worst[k]),
            "worst_error": finite_or_none(ranking.worst_errors[k]),
            "worlds": int(np.isfinite(ranking.ratios[k]).sum()),
            "relative": ranking.ratios[k].tolist(),
            "relative_errors": ranking.ratio_errors[k].tolist(),
        }
        for k, label in enumerate(results.experiment.labels)
    ]
    return sorted(rows, key=lambda row: (-row["worlds"], row["geometric_mean"] or np.inf))


def coverage(results: Results) -> dict[str, list[float]]:
    """The coverage of the 95% intervals by point, for the estimators whose intervals were stored."""
    stored = [label for label in results.experiment.labels if label in results.experiment.intervals]
    at = [results.experiment.labels.index(label) for label in stored]
    return {label: np.nanmean(results.covered[k], axis=(1, 2)).tolist() for label, k in zip(stored, at, strict=True)}


def plain(results: Results, width: int = WIDTH) -> str:
    """The leaderboard as text of this width."""
    e = results.experiment
    letters = [f"w{k + 1}" for k in range(len(e.points))]
    header, rows = table(results, letters)
    lines = [*wrapped("Mean squared error relative to the best single estimator of each world", width), ""]
    lines += [*blocks(header, rows, width), ""]
    held = coverage(results)
    if held:
        head = ["coverage of 95% intervals", *letters]
        cells = [[label(name), *(f"{100 * share:.0f}%" for share in shares)] for name, shares in held.items()]
        lines += [*blocks(head, cells, width), ""]
    mean, about = results.summary("mse")[0], len(lines)
    for k, (letter, place) in enumerate(zip(letters, e.points, strict=True)):
        known = np.isfinite(results.values[:, k]).all(axis=(1, 2))
        least = f"{mean[known, k].min():.3g}" if known.any() else "–"
        lines.append(f"{letter}: {place.label}, {place.rounds:,} rounds; least mean squared error {least}")
    lines.append(
        f"{results.runs} runs in each world; the best of a world is chosen on one half of them, scored on the other."
    )
    return "\n".join(
        [*lines[:about], *(line for each in [*lines[about:], *notes(results)] for line in wrapped(each, width, "  "))]
    )


def table(results: Results, letters: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the leaderboard."""
    rows = [
        [
            label(row["estimator"]),
            _cell(row["geometric_mean"], row["geometric_mean_error"]),
            _cell(row["worst"], row["worst_error"]),
            f"{row['worlds']} of {len(letters)}",
            *(_cell(r) for r in row["relative"]),
        ]
        for row in leaders(results)
    ]
    return ["estimator", "geo. mean", "worst", "worlds", *letters], rows


def _cell(value: float | None, error: float | None = None) -> str:
    if value is None or np.isnan(value):
        return "–"
    digits = 2 if value < 100 else 0
    return f"{value:,.{digits}f}" + (f" ± {error:,.{digits}f}" if error is not None else "")


def as_dict(results: Results) -> dict[str, Any]:
    """For JSON; the schema has a version."""
    mean, error = results.summary("mse")
    return {
        "schema": "offpolicy.bench/2",
        "key": results.experiment.key,
        "runs": results.runs,
        "worlds": [
            {"world": str(p.label), "rounds": p.rounds, "largest_truth_error": float(error)}
            for p, error in zip(results.experiment.points, results.truth_error.max(axis=1), strict=True)
        ],
        "notes": notes(results),
        "leaderboard": leaders(results),
        "coverage": coverage(results),
        "mean_squared_errors": dict(zip(results.experiment.labels, mean.tolist(), strict=True)),
        "standard_errors": dict(zip(results.experiment.labels, error.tolist(), strict=True)),
        "failures": {label: dict(why) for label, why in results.failures.items()},
    }
