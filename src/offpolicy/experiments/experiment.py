"""An experiment: points (worlds and sizes of logs), estimators, the number of runs, and claims about them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from offpolicy import __version__
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.diagnostics.verdict import Verdict
from offpolicy.experiments.claims import Claim
from offpolicy.experiments.entries import Entry
from offpolicy.experiments.measurements import Measurements
from offpolicy.results.estimate import Estimate
from offpolicy.worlds.registry import world

HALVES = ("building", "judging")
"""The halves of a suite: estimators are tuned on one, and judged on the other."""

FORMAT = 1
"""The format of results; it changes when the meaning of a run changes."""


@dataclass(frozen=True)
class AxisPoint:
    """One point on the horizontal axis: a kind of world and the number of rounds of its logs."""

    label: str | int | float
    kind: str
    settings: Mapping[str, Any]
    rounds: int
    half: str | None = None

    @property
    def name(self) -> str:
        """The label as text."""
        return self.label if isinstance(self.label, str) else f"{self.label:,}"

    def identity(self) -> dict[str, Any]:
        """What its runs depend on."""
        return {"label": self.label, "kind": self.kind, "settings": _plain(self.settings), "rounds": self.rounds}


@dataclass(frozen=True)
class Experiment:
    """Everything that determines what is run and how it is shown."""

    name: str
    title: str
    points: tuple[AxisPoint, ...]
    entries: tuple[Entry, ...]
    worlds: int
    logs: int
    seed: int = 0
    axis: str = "world"
    figure: str = "curves"
    medians: tuple[int, ...] = ()
    """Numbers of logs over which the median squared error is taken, times the number of rounds, as in the paper's table."""
    relative_to: tuple[str, ...] = ()
    """Estimators whose squared error divides those of the others, run by run."""
    claims: tuple[Claim, ...] = ()
    published: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    note: str = ""
    reference: str = ""
    """The estimator by whose mean squared error those of the others are divided, as in the published figures."""
    normalised: bool = False
    """Whether errors are divided by the true value."""
    intervals: bool = False
    """Whether the 95% interval of each run is stored, to measure coverage."""
    study: Measurements | None = None
    """What else is stored for each run of a study of intervals and verdicts."""
    unjudged: tuple[str, ...] = ()
    """Claims that cannot be judged at this size."""
    source: str = ""
    """The name or the file of the experiment, with --quick if it was given."""

    @property
    def labels(self) -> list[str]:
        return [each.label for each in self.entries]

    def settings(self) -> dict[str, Any]:
        """What the values of a run depend on. The number of worlds is not included, since more may be added later."""
        return {
            "format": FORMAT,
            "version": __version__,
            "points": [point.identity() for point in self.points],
            "estimators": {each.label: [each.identity, each.worlds] for each in self.entries},
            "logs": self.logs,
            "seed": self.seed,
            **({"intervals": True} if self.intervals else {}),
            **({"study": asdict(self.study)} if self.study is not None else {}),
        }

    @property
    def keep(self) -> Callable[[Estimate], dict[str, Any]] | None:
        """What a run stores of an estimate besides its value; None if nothing."""
        if self.study is not None:
            return self.study.of
        return _interval if self.intervals else None

    @property
    def key(self) -> str:
        """A hash of the settings."""
        text = json.dumps(self.settings(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _interval(estimate: Estimate) -> dict[str, Any]:
    interval = estimate.confidence_interval(0.95)
    return {
        "low": interval.low,
        "high": interval.high,
        "ok": estimate.verdict is Verdict.OK,
        "std_error": estimate.std_error,
        "effective_rounds": estimate.diagnostics.get("effective_sample_size"),
    }


@lru_cache
def _digest(path: Path, changed: int) -> str:  # noqa: ARG001
    """A hash of the content of a file, cached until the file changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that identify runs; files of data are identified by their content."""
    plain = dict(settings)
    if "path" in plain:
        folder = Path(plain["path"])
        files = sorted([*folder.rglob("*.csv"), *folder.glob("bts_prior_*.json")])
        plain["path"] = {str(f.relative_to(folder)): _digest(f, f.stat().st_mtime_ns) for f in files}
    if str(plain.get("data")).endswith(".csv"):
        file = Path(plain["data"])
        plain["data"] = _digest(file, file.stat().st_mtime_ns)
    return plain


FIGURES = ("curves", "series", "cdf")
MOST_ROUNDS = 100_000_000


def checked(experiment: Experiment, name: str) -> Experiment:
    """The experiment, if everything in it can be run and judged; errors are raised before anything runs."""
    _check_size(experiment, name)
    _check_figure(experiment, name)
    _check_labels(experiment, name)
    _check_published(experiment, name)
    _check_claims(experiment, name)
    return experiment


def _is_whole(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _check_size(experiment: Experiment, name: str) -> None:
    for what in ("worlds", "logs"):
        value = getattr(experiment, what)
        if not _is_whole(value, 1):
            raise InputError(f"{name}: {what} is {value!r}; give a whole number from 1.")
    if not experiment.points or not experiment.entries:
        raise InputError(f"{name} needs at least one point and one estimator.")
    for point in experiment.points:
        if not _is_whole(point.rounds, 2, MOST_ROUNDS):
            raise InputError(f"{name}: rounds is {point.rounds!r}; give a whole number from 2 to {MOST_ROUNDS:,}.")
        world(point.kind, point.settings)  # raises before anything runs
    if experiment.seed < 0:
        raise InputError(f"{name}: seed is {experiment.seed}; give 0 or more.")


def _check_figure(experiment: Experiment, name: str) -> None:
    if experiment.figure not in FIGURES:
        raise InputError(f"{name}: {unknown_name('figure', experiment.figure, FIGURES)}")
    if experiment.figure == "cdf" and not experiment.relative_to:
        raise InputError(f'{name}: figure = "cdf" draws errors relative to others; name them in relative_to.')
    if experiment.figure == "series" and not any(label.rpartition(" ")[2].isdigit() for label in experiment.labels):
        raise InputError(f'{name}: figure = "series" needs labels that end in a number, such as "rank 4".')


def _check_labels(experiment: Experiment, name: str) -> None:
    """Check that labels of estimators are unique, and that references to them exist."""
    labels = experiment.labels
    if "" in labels:
        raise InputError(f"{name}: an estimator has an empty label.")
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated is not None:
        raise InputError(f"{name}: two estimators are called {repeated!r}.")
    for named in (
        *experiment.relative_to,
        *([experiment.reference] if experiment.reference else []),
        *experiment.published,
        *(n for each in experiment.claims for n in each.names),
    ):
        if named not in labels:
            raise InputError(f"{name}: {unknown_name('estimator', named, labels)}")


def _check_published(experiment: Experiment, name: str) -> None:
    for figures in experiment.published.values():
        if not isinstance(figures, dict) or not all(_is_pair(pair) for pair in figures.values()):
            raise InputError(f"{name}: [published] needs a table of POINT = [figure, standard error] for each estimator.")


def _check_claims(experiment: Experiment, name: str) -> None:
    places = [point.label for point in experiment.points]
    for each in experiment.claims:
        missing = next((at for at in getattr(each, "at", ()) if at not in places), None)
        if missing is not None:
            raise InputError(
                f"{name}: the claim {each.says!r} is about {missing!r}, which is not one of the points {places}."
            )


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, (int, float)) for n in pair)
