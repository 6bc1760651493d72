"""What an experiment is: points (worlds and sizes of logs), estimators, how many runs, and what is claimed of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from offpolicy import __version__
from offpolicy.errors import InputError, unknown_name
from offpolicy.experiments.claims import Claim
from offpolicy.experiments.entries import Entry
from offpolicy.worlds.named import world

FORMAT = 1
"""Of the results; a change in what a run means must change it."""


@dataclass(frozen=True)
class Point:
    """One place on the horizontal axis: a kind of world and the number of rounds of its logs."""

    label: str | int | float
    kind: str
    settings: Mapping[str, Any]
    rounds: int


@dataclass(frozen=True)
class Experiment:
    """All that decides what is run, and how it is shown."""

    name: str
    title: str
    points: tuple[Point, ...]
    entries: tuple[Entry, ...]
    worlds: int
    logs: int
    seed: int = 0
    axis: str = "world"
    figure: str = "curves"
    medians: tuple[int, ...] = ()
    """Numbers of logs over which the median squared error is taken, times the rounds, as in the paper's table."""
    relative_to: tuple[str, ...] = ()
    """Estimators that squared errors are divided by, run by run."""
    claims: tuple[Claim, ...] = ()
    published: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    note: str = ""
    source: str = ""
    """The name or the file that it came from, and --quick where it was."""

    @property
    def labels(self) -> list[str]:
        return [each.label for each in self.entries]

    def settings(self) -> dict[str, Any]:
        """What a run's numbers depend on. More worlds may be added later, so their number is not among them."""
        return {
            "format": FORMAT,
            "version": __version__,
            "points": [asdict(point) | {"settings": _plain(point.settings)} for point in self.points],
            "estimators": {each.label: [each.identity, each.worlds] for each in self.entries},
            "logs": self.logs,
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """A hash of the settings."""
        text = json.dumps(self.settings(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by which runs are known; a folder of data by the sizes of its tables and by its priors, wherever it lies."""
    plain = dict(settings)
    if "path" in plain:
        folder = Path(plain["path"])
        tables = [[str(file.relative_to(folder)), file.stat().st_size] for file in sorted(folder.rglob("*.csv"))]
        plain["path"] = tables + [[file.name, file.read_text()] for file in sorted(folder.glob("bts_prior_*.json"))]
    return plain


FIGURES = ("curves", "series", "cdf")


def checked(experiment: Experiment, name: str) -> Experiment:
    """The experiment, unless something in it cannot be run or judged: what is misspelt is said before anything runs."""
    for what in ("worlds", "logs"):
        value = getattr(experiment, what)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name}: {what} is {value!r}; give a whole number from 1.")
    if not experiment.points or not experiment.entries:
        raise InputError(f"{name}: needs at least one point and one estimator.")
    for point in experiment.points:
        if not isinstance(point.rounds, int) or point.rounds < 2:
            raise InputError(f"{name}: rounds is {point.rounds!r}; give a whole number from 2.")
        world(point.kind, point.settings)  # says what is wrong with it before anything runs
    if experiment.figure not in FIGURES:
        raise InputError(f"{name}: {unknown_name('figure', experiment.figure, FIGURES)}")
    labels = experiment.labels
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise InputError(f"{name}: two estimators are called {twice!r}.")
    for named in (*experiment.relative_to, *(n for each in experiment.claims for n in each.names)):
        if named not in labels:
            raise InputError(f"{name}: {unknown_name('estimator', named, labels)}")
    places = [point.label for point in experiment.points]
    for each in experiment.claims:
        lost = next((at for at in getattr(each, "at", ()) if at not in places), None)
        if lost is not None:
            raise InputError(f"{name}: the claim {each.says!r} is about {lost!r}, which is none of the points {places}.")
    return experiment
