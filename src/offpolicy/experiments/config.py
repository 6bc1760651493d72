"""Experiments from TOML: those of the paper by name, and your own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.experiments.claims import Claim, claim
from offpolicy.experiments.entries import entry
from offpolicy.experiments.experiment import HALVES, AxisPoint, Experiment, checked
from offpolicy.experiments.measurements import Measurements
from offpolicy.worlds import OpenBandit
from offpolicy.worlds.registry import Folders

NAMES = (
    "table1",
    "actions",
    "samples",
    "hidden",
    "real",
    "rank",
    "nonlinear",
    "models",
    "rankings",
    "cascades",
    "continuous",
    "warfarin",
)
BENCHES = ("bench", "bench_lists", "bench_continuous")
STUDIES = ("coverage", "intervals", "limits", "refit", "propensities")
KEYS: dict[str, type] = {
    "title": str, "axis": str, "figure": str, "note": str, "rounds": int, "worlds": int, "logs": int, "seed": int,
    "medians": list, "relative_to": list, "world": dict, "vary": dict, "points": list, "estimators": dict, "features": dict,
    "claims": list, "published": dict, "quick": dict, "study": dict,
    "normalised": bool, "reference": str,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Overrides for the numbers of worlds and logs in the settings."""

    quick: bool = False
    worlds: int | None = None
    logs: int | None = None


FULL = Size()
ENVIRONMENT = Folders()


def load(name: str, size: Size = FULL, *, folders: Folders = ENVIRONMENT, imports: Sequence[str] = ()) -> Experiment:
    """An experiment by name, or from a TOML file, which may only name objects of `imports`."""
    stated = parsed(name, size, folders=folders, imports=imports)
    return checked(replace(stated, points=tuple(located(each, folders) for each in stated.points)), name)


def parsed(name: str, size: Size = FULL, *, folders: Folders = ENVIRONMENT, imports: Sequence[str] = ()) -> Experiment:
    """An experiment whose points do not yet have the paths of their data, and are not yet checked."""
    read = _read(name)
    _check_keys(name, read)
    _check_keys(f"{name}: [quick]", read.get("quick", {}))
    if size.quick:
        if "quick" not in read:
            raise InputError(f"{name} has no [quick] section; run it without --quick, or with --worlds and --logs.")
        read |= read["quick"]
    read |= {key: value for key, value in (("worlds", size.worlds), ("logs", size.logs)) if value is not None}
    label = Path(name).stem
    source = f"{name} --quick" if size.quick else name
    experiment = replace(_experiment(label, read, folders, imports), source=source)
    judged = tuple(c for c in experiment.claims if _can_be_judged(c, experiment, size.quick))
    unjudged = tuple(c.says for c in experiment.claims if c not in judged)
    return replace(experiment, claims=judged, unjudged=unjudged)


def _check_keys(name: str, read: Mapping[str, Any]) -> None:
    for key, value in read.items():
        if key not in KEYS:
            raise InputError(f"{name}: {unknown_name('setting', key, KEYS)}")
        if not isinstance(value, KEYS[key]) or (isinstance(value, bool) and KEYS[key] is not bool):
            words: str = {str: "text", int: "a whole number", list: "a list", dict: "a table", bool: "true or false"}[
                KEYS[key]
            ]
            raise InputError(f"{name}: {key} is {value!r}, but must be {words}.")


def _read(name: str) -> dict[str, Any]:
    if name in NAMES or name in STUDIES or name in BENCHES:
        text = resources.files("offpolicy.experiments").joinpath("settings", f"{name}.toml").read_text()
    elif name.endswith(".toml"):
        try:
            text = Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: cannot be read: {error}.") from None
    else:
        raise unknown_name("experiment", name, (*NAMES, *STUDIES))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name}: not a readable TOML file: {error}") from None


def _experiment(name: str, read: Mapping[str, Any], folders: Folders, imports: Sequence[str]) -> Experiment:
    points = _points(name, read, folders)
    logs = read.get("logs", 1)
    plain = [entry(label, value, False, imports) for label, value in read.get("estimators", {}).items()]
    featured = [entry(label, value, True, imports) for label, value in read.get("features", {}).items()]
    return Experiment(
        name=name,
        title=read.get("title", name),
        points=points,
        entries=tuple(plain + featured),
        study=_study(name, read["study"]) if "study" in read else None,
        worlds=read.get("worlds", 1),
        logs=logs,
        seed=read.get("seed", 0),
        axis=read.get("axis", "world"),
        figure=read.get("figure", "curves"),
        medians=tuple(k for k in _list(name, "medians", read, int) if k <= logs),
        relative_to=_list(name, "relative_to", read, str),
        claims=tuple(claim(name, table) for table in read.get("claims", ())),
        published=read.get("published", {}),
        note=read.get("note", ""),
        normalised=read.get("normalised", False),
        reference=read.get("reference", ""),
    )


def _study(name: str, settings: Mapping[str, Any]) -> Measurements:
    """`[study]` names the methods of the stored intervals."""
    methods = settings.get("methods")
    if set(settings) != {"methods"} or not isinstance(methods, list) or not all(isinstance(m, str) for m in methods):
        raise InputError(f"{name}: [study] needs `methods`, a list of text, and nothing else.")
    return Measurements(tuple(methods))


def _list(name: str, key: str, read: Mapping[str, Any], kind: type) -> tuple[Any, ...]:
    values: list[Any] = read.get(key, [])
    if not all(type(value) is kind for value in values) or (kind is int and min(values, default=1) < 1):
        raise InputError(f"{name}: {key} is {values!r}; give a list of {'labels' if kind is str else 'numbers of logs'}.")
    return tuple(values)


def _can_be_judged(claim: Claim, experiment: Experiment, quick: bool) -> bool:
    """Whether there are enough logs for a median, and (at the small size) the points that a claim is about."""
    measure = getattr(claim, "measure", "mse")
    if measure.startswith("median") and int(measure[6:]) > experiment.logs:
        return False
    return not quick or {point.label for point in experiment.points}.issuperset(getattr(claim, "at", ()))


def _points(name: str, read: Mapping[str, Any], folders: Folders) -> tuple[AxisPoint, ...]:
    shared, rounds = dict(read.get("world", {})), read.get("rounds", 20_000)
    if "points" in read:
        if shared or "vary" in read:
            raise InputError(f"{name}: [[points]] name their own worlds; leave out [world] and [vary].")
        return tuple(point(name, each, rounds) for each in read["points"])
    kind = shared.pop("kind", None)
    if not isinstance(kind, str):
        raise InputError(f"{name} needs [world] with its kind, as text, or [[points]].")
    vary = read.get("vary", {})
    if len(vary) > 1:
        raise InputError(f"{name}: [vary] names {len(vary)} settings; one is the axis.")
    if not vary:
        return (point(name, {"world": kind, "label": kind, **shared}, rounds),)
    (setting, values), *_ = vary.items()
    if (kind, setting, values) == ("open-bandit", "campaign", "every"):
        folder = folders.located(kind, shared)["path"]
        values = list(OpenBandit.campaigns(folder)) or [OpenBandit(folder).campaign]  # which states what the folder lacks
    if not isinstance(values, list):
        raise InputError(f"{name}: [vary] {setting} is {values!r}; give a list of values.")
    return tuple(point(name, {"world": kind, "label": v, "rounds": rounds, **shared, setting: v}, rounds) for v in values)


def point(name: str, table: Any, rounds: int) -> AxisPoint:
    """A point from its `label`, `world`, `half`, `rounds` and the settings of the world."""
    if not isinstance(table, dict):
        raise InputError(f"{name}: a point is {table!r}, but must be a table.")
    settings = dict(table)
    kind, label = settings.pop("world", None), settings.pop("label", None)
    if not isinstance(kind, str):
        raise InputError(f"{name}: a point needs its `world`, as text; it is {kind!r}.")
    half, n = settings.pop("half", None), settings.pop("rounds", rounds)
    if half is not None and half not in HALVES:
        raise InputError(f"{name}: {unknown_name('half', str(half), HALVES)}")
    return AxisPoint(kind if label is None else label, kind, settings, n, half)


def located(point: AxisPoint, folders: Folders) -> AxisPoint:
    """The point with the paths of its data."""
    return replace(point, settings=folders.located(point.kind, point.settings))
