"""The bench: estimators in a suite of worlds, ranked by how close they come to the best estimator of each.

The suite has two halves. Estimators and their constants are tuned on the building half, so only the judging half shows how
good they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, finite_or_none
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.experiments import entries
from offpolicy.experiments.config import Size, located, parsed, point
from offpolicy.experiments.experiment import HALVES, AxisPoint, Experiment, checked
from offpolicy.experiments.runs import Results, finite_mean
from offpolicy.experiments.standings import Standings
from offpolicy.experiments.tables import notes
from offpolicy.report.formatting import WIDTH, blocks, label, wrapped
from offpolicy.worlds import OpenBandit
from offpolicy.worlds.registry import OPENML_VARIABLE, Folders, from_text, needs_openml

SUITES = {"actions": "bench", "lists": "bench_lists", "continuous": "bench_continuous"}
"""Suites by the kind of their actions, and the settings that each is read from."""
OPEN_BANDIT_ROUNDS = 10_000
LOGS = 5
"""Logs per world if there are many runs, since the value of a world takes longer to compute than an estimate."""

ABSENT = (
    "{} kinds of world need the OpenML sets and are left out; to include them, give the folder of the CSV files with "
    f"--openml, or in the variable {OPENML_VARIABLE}."
)


@dataclass(frozen=True)
class Bench:
    """A suite or one half of it; named estimators and worlds replace its own, and `add` adds estimators."""

    estimators: Sequence[str] = ()
    worlds: Sequence[str] = ()
    add: Sequence[str] = ()
    half: str | None = None
    runs: int | None = None
    rounds: int | None = None
    quick: bool = False
    suite: str = "actions"
    folders: Folders = field(default_factory=Folders)

    def experiment(self) -> Experiment:
        if self.suite not in SUITES:
            raise unknown_name("suite", self.suite, SUITES)
        standard = parsed(SUITES[self.suite], Size(self.quick))
        if self.runs is not None:
            if self.runs < 2:
                raise InputError(f"runs is {self.runs}; give at least 2.")
            logs = LOGS if self.runs >= 10 * LOGS else 1
            standard = replace(standard, worlds=math.ceil(self.runs / logs), logs=logs)
        named = [entries.from_text(text) for text in self.estimators] or list(standard.entries)
        chosen = (*named, *(entries.from_text(text) for text in self.add))
        points = self._named_points() if self.worlds else self._standard_points(standard)
        has_openml = bool(self.worlds) or self.folders.openml_folder is not None
        absent = [] if has_openml else [each for each in points if needs_openml(each.settings)]
        experiment = replace(
            standard,
            points=tuple(located(each, self.folders) for each in points if each not in absent),
            entries=chosen,
            intervals=True,
            note=ABSENT.format(len(absent)) if absent else "",
        )
        return checked(experiment, standard.name)

    def _named_points(self) -> list[AxisPoint]:
        if self.half is not None:
            raise InputError("half: only for the suite, and --world names worlds; leave out --half.")
        named = [(text, *from_text(text)) for text in self.worlds]
        return [
            point(text, {"label": text, "world": kind, **settings}, self.rounds or 10_000) for text, kind, settings in named
        ]

    def _standard_points(self, standard: Experiment) -> list[AxisPoint]:
        """Those of the suite or of its half; to single actions, the Open Bandit Dataset is added if its folder is known."""
        if self.half is not None and self.half not in HALVES:
            raise unknown_name("half", self.half, HALVES)
        every = (*standard.points, *(self._open_bandit() if self.suite == "actions" else ()))
        points = [each for each in every if self.half in (None, each.half)]
        return points if self.rounds is None else [replace(each, rounds=self.rounds) for each in points]

    def _open_bandit(self) -> list[AxisPoint]:
        folder = self.folders.open_bandit_folder
        campaigns = () if folder is None else OpenBandit.campaigns(folder) or (OpenBandit(folder).campaign,)
        return [
            AxisPoint(f"Open Bandit, {each}", "open-bandit", {"campaign": each}, OPEN_BANDIT_ROUNDS, "judging")
            for each in campaigns
        ]


def leaders(results: Results) -> list[dict[str, Any]]:
    """One row per estimator, ordered by the geometric mean; those without a value in every world come last."""
    standings = Standings.of(results)
    rows = [
        {
            "estimator": label,
            "geometric_mean": finite_or_none(standings.geometric[k]),
            "geometric_mean_error": finite_or_none(standings.geometric_errors[k]),
            "worst": finite_or_none(standings.worst[k]),
            "worst_error": finite_or_none(standings.worst_errors[k]),
            "worlds": int(np.isfinite(standings.ratios[k]).sum()),
            "relative": standings.ratios[k].tolist(),
            "relative_errors": standings.ratio_errors[k].tolist(),
        }
        for k, label in enumerate(results.experiment.labels)
    ]
    return sorted(rows, key=lambda row: (-row["worlds"], row["geometric_mean"] or np.inf))


def coverage(results: Results) -> dict[str, dict[str, list[Any]]]:
    """For each estimator and point: the number of runs with a 95% interval, and the share that contains the true value."""
    if not results.experiment.intervals:
        return {}
    return _shares(results, results.covered)


def verdicts(results: Results) -> dict[str, dict[str, list[Any]]]:
    """For each estimator and point: the number of runs with the verdict OK, and the coverage of their 95% intervals."""
    if not results.experiment.intervals:
        return {}
    return _shares(results, np.where(results.ok == 1, results.covered, np.nan))


def _shares(results: Results, covered: FloatArray) -> dict[str, dict[str, list[Any]]]:
    """The share of 1 among the known runs of each point, and the number of these."""
    covered = covered.reshape(*covered.shape[:2], results.runs)
    runs, shares = np.isfinite(covered).sum(axis=2), finite_mean(covered)
    return {
        label: {"share": shares[k].tolist(), "runs": runs[k].tolist()} for k, label in enumerate(results.experiment.labels)
    }


def plain(results: Results, width: int = WIDTH) -> str:
    """The leaderboard as text of this width."""
    e = results.experiment
    letters = [f"w{k + 1}" for k in range(len(e.points))]
    header, rows = table(results, letters)
    lines = [*wrapped("Mean squared error relative to the best single estimator of each world", width), ""]
    lines += [*blocks(header, rows, width), ""]
    tables = {"coverage of 95% intervals": coverage(results), "coverage of runs with verdict ok": verdicts(results)}
    for heading, held in tables.items():
        cells = [
            [label(name), *(_share(*each, results.runs) for each in zip(of["share"], of["runs"], strict=True))]
            for name, of in held.items()
        ]
        lines += [*blocks([heading, *letters], cells, width), ""] if cells else []
    mean, about = results.summary("mse")[0], len(lines)
    for k, (letter, place) in enumerate(zip(letters, e.points, strict=True)):
        known = np.isfinite(results.values[:, k]).all(axis=(1, 2))
        least = f"{mean[known, k].min():.3g}" if known.any() else "–"
        half = "" if place.half is None else f", {place.half} half"
        lines.append(f"{letter}: {place.label}, {place.rounds:,} rounds{half}; least mean squared error {least}")
    lines.append(
        f"{results.runs} runs in each world; the best of a world is chosen on one half of them, scored on the other. "
        "Coverage is a share of these runs, or of the number given: those with an interval, or with the verdict ok."
    )
    return "\n".join(
        [*lines[:about], *(line for each in [*lines[about:], *_notes(results)] for line in wrapped(each, width, "  "))]
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


def _share(share: float, runs: int, of: int) -> str:
    """A coverage, with the number of runs that have an interval unless all have one."""
    return f"{100 * share:.0f}%" + (f" of {runs:,}" if runs < of else "") if runs else "–"


def _notes(results: Results) -> list[str]:
    """What was left out, how well the true values are known, and what failed."""
    return [*filter(None, [results.experiment.note]), *notes(results)]


def as_dict(results: Results) -> dict[str, Any]:
    """For JSON; the schema has a version."""
    mean, error = results.summary("mse")
    return {
        "schema": "offpolicy.bench/3",
        "key": results.experiment.key,
        "runs": results.runs,
        "worlds": [
            {"world": str(p.label), "half": p.half, "rounds": p.rounds, "largest_truth_error": float(error)}
            for p, error in zip(results.experiment.points, results.truth_error.max(axis=1), strict=True)
        ],
        "notes": _notes(results),
        "leaderboard": leaders(results),
        "coverage": coverage(results),
        "ok": verdicts(results),
        "mean_squared_errors": dict(zip(results.experiment.labels, mean.tolist(), strict=True)),
        "standard_errors": dict(zip(results.experiment.labels, error.tolist(), strict=True)),
        "failures": {label: dict(why) for label, why in results.failures.items()},
    }
