"""What an experiment is: points (worlds and sizes of logs), estimators, how many runs, and what is claimed of them."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from offpolicy import __version__
from offpolicy.errors import InputError, unknown_name
from offpolicy.experiments.claims import Claim, claim
from offpolicy.experiments.entries import Entry, entry
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


NAMES = ("table1", "actions", "samples", "hidden", "real", "rank", "nonlinear", "models")
FIGURES = ("curves", "series", "cdf")
KEYS: dict[str, type] = {
    "title": str, "axis": str, "figure": str, "note": str, "rounds": int, "worlds": int, "logs": int, "seed": int,
    "medians": list, "relative_to": list, "world": dict, "vary": dict, "points": list, "estimators": dict, "features": dict,
    "claims": list, "published": dict, "quick": dict,
}  # fmt: skip


def load(
    name: str, *, quick: bool = False, worlds: int | None = None, logs: int | None = None, data: Path | None = None
) -> Experiment:
    """An experiment by its name, or from a TOML file."""
    read = _read(name)
    _check_keys(name, read)
    _check_keys(f"{name}: [quick]", read.get("quick", {}))
    if quick:
        read |= read.get("quick", {})
        read["claims"] = [given for given in read.get("claims", ()) if _at_points(given, read)]
    read |= {key: given for key, given in (("worlds", worlds), ("logs", logs)) if given is not None}
    label = Path(name).stem
    source = f"{name} --quick" if quick else name
    return _checked(replace(_experiment(label, read, data), source=source), name)


def _check_keys(name: str, read: Mapping[str, Any]) -> None:
    for key, value in read.items():
        if key not in KEYS:
            raise InputError(f"{name}: {unknown_name('setting', key, KEYS)}")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            words = {str: "text", int: "a whole number", list: "a list", dict: "a table"}[KEYS[key]]
            raise InputError(f"{name}: {key} is {value!r}, but must be {words}.")


def _read(name: str) -> dict[str, Any]:
    if name in NAMES or name == "bench":
        text = resources.files("offpolicy.experiments").joinpath("settings", f"{name}.toml").read_text()
    elif name.endswith(".toml"):
        try:
            text = Path(name).read_text()
        except OSError as error:
            raise InputError(f"{name}: cannot be read: {error.strerror}.") from None
    else:
        raise unknown_name("experiment", name, NAMES)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name}: not a readable TOML file: {error}") from None


def _experiment(name: str, read: Mapping[str, Any], data: Path | None) -> Experiment:
    points = _points(name, read, data)
    logs = read.get("logs", 1)
    plain = [entry(label, given, False) for label, given in read.get("estimators", {}).items()]
    featured = [entry(label, given, True) for label, given in read.get("features", {}).items()]
    return Experiment(
        name=name,
        title=read.get("title", name),
        points=points,
        entries=tuple(plain + featured),
        worlds=read.get("worlds", 1),
        logs=logs,
        seed=read.get("seed", 0),
        axis=read.get("axis", "world"),
        figure=read.get("figure", "curves"),
        medians=tuple(k for k in read.get("medians", ()) if k <= logs),
        relative_to=tuple(read.get("relative_to", ())),
        claims=tuple(claim(name, given) for given in read.get("claims", ()) if _fits(given, logs)),
        published=read.get("published", {}),
        note=read.get("note", ""),
    )


def _at_points(given: Mapping[str, Any], read: Mapping[str, Any]) -> bool:
    """Whether all points that a claim is about are among those of the small size."""
    points: Sequence[Any] = next(iter(read.get("vary", {}).values()), [])
    return all(point in points for point in given.get("at", ()))


def _fits(given: Mapping[str, Any], logs: int) -> bool:
    """Whether a claim about medians has the logs to take them over."""
    measure = str(given.get("measure", ""))
    return not measure.startswith("median") or int(measure[6:]) <= logs


def _points(name: str, read: Mapping[str, Any], data: Path | None) -> tuple[Point, ...]:
    shared, rounds = dict(read.get("world", {})), read.get("rounds", 20_000)
    if "points" in read:
        if shared or "vary" in read:
            raise InputError(f"{name}: [[points]] name their own worlds; leave out [world] and [vary].")
        return tuple(_point(name, each, rounds, data) for each in read["points"])
    kind = shared.pop("kind", None)
    if kind is None:
        raise InputError(f"{name}: needs [world] with its kind, or [[points]].")
    vary = read.get("vary", {})
    if len(vary) > 1:
        raise InputError(f"{name}: [vary] names {len(vary)} settings; one is the axis.")
    if not vary:
        return (_point(name, {"world": kind, "label": kind, **shared}, rounds, data),)
    (setting, values), *_ = vary.items()
    if not isinstance(values, list):
        raise InputError(f"{name}: [vary] {setting} is {values!r}; give a list of values.")
    return tuple(
        _point(name, {"world": kind, "label": v, "rounds": rounds, **shared, setting: v}, rounds, data) for v in values
    )


def _point(name: str, given: Any, rounds: int, data: Path | None) -> Point:
    if not isinstance(given, dict):
        raise InputError(f"{name}: a point is {given!r}, but must be a table.")
    settings = dict(given)
    kind, label = settings.pop("world", None), settings.pop("label", None)
    if kind is None:
        raise InputError(f"{name}: a point needs its `world`.")
    if kind == "open-bandit" and data is not None:
        settings["path"] = str(data)
    n = settings.pop("rounds", rounds)
    if kind == "open-bandit" and "path" not in settings:
        settings["path"] = str(world(kind, settings).path)  # type: ignore[attr-defined]
    return Point(kind if label is None else label, kind, settings, n)


def _checked(experiment: Experiment, name: str) -> Experiment:
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


def with_entries(experiment: Experiment, entries: Sequence[Entry]) -> Experiment:
    """The same points with other estimators."""
    return _checked(replace(experiment, entries=tuple(entries)), experiment.name)
