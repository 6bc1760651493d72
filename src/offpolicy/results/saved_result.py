"""Saved results: everything that an evaluation says, as JSON, and the same to look at without the log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from offpolicy.core import storage
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.files import whole_file
from offpolicy.diagnostics.verdict import Finding, Verdict
from offpolicy.inference.intervals import Interval, Method, checked_level, normal_quantile
from offpolicy.report import text
from offpolicy.report.page import html
from offpolicy.report.plots import Plots

SUFFIX = ".json"
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no word for these numbers: each is saved as {"number": word}."""
SHOWN = 2_000

NUMBER = (int, float)
MAYBE = (int, float, type(None))
COUNT = (int, type(None))
INTERVAL = {"low": NUMBER, "high": NUMBER, "level": NUMBER, "method": str}
REASON = {"verdict": tuple(Verdict.__members__), "code": str, "seen": str, "why": str, "do": str}
POINT = {"action": str, "count": NUMBER, "reward": MAYBE, "x": NUMBER, "y": NUMBER, "nearest": [str]}
BIN = {"predicted": NUMBER, "observed": NUMBER, "std_error": MAYBE, "rounds": NUMBER}
PAIRED = {"value": NUMBER, "std_error": NUMBER, "interval": INTERVAL}
PART: dict[str, Any] = {
    "reward": str, "rounds": int, "actions": COUNT, "actions_logged": COUNT, "level": NUMBER, "policies": [str],
    "headline": {"policy": str, "estimator": str}, "verdict": tuple(Verdict.__members__), "logged": PAIRED,
    "lifts": [{"policy": str, **PAIRED, "relative": MAYBE}],
    "differences": [{"a": str, "b": str, "estimator": str, **PAIRED}],
    "estimates": [
        {
            "policy": str, "estimator": str, "reward": str, **PAIRED, "error_covers": str, "n": int, "diagnostics": dict,
            "verdict": tuple(Verdict.__members__), "reasons": [REASON],
        }
    ],
    "overlap": [
        {
            "policy": str, "kind": str, "estimators": [str], "edges": [NUMBER], "counts": [NUMBER], "zero": NUMBER,
            "mean": NUMBER, "largest": NUMBER,
        }
    ],
    "calibration": [{"model": str, "estimators": [str], "r2": MAYBE, "bins": [BIN]}], "skipped": dict, "settings": dict,
    "input": dict, "versions": dict,
}  # fmt: skip
"""What must be there, and of which type, so that what is shown is what was meant. A tuple of words: one of them."""
BOUNDS = {"gamma": NUMBER, "low": NUMBER, "high": NUMBER, "low_error": NUMBER, "high_error": NUMBER,
          "interval_low": NUMBER, "interval_high": NUMBER}  # fmt: skip
OPTIONAL: dict[str, Any] = {
    "action_space": str,
    "embedding": {"estimator": str, "actions": int, "logged": int, "dimensions": int, "points": [POINT]},
    "propensities": {
        "source": ("policy", "logged", "estimated"), "bins": [BIN],
        "actions": [{"action": str, "mean_inverse": NUMBER, "std_error": NUMBER}],
    },
    "sensitivity": [
        {
            "policy": str, "reward": str, "value": NUMBER, "logged": NUMBER, "level": NUMBER, "claim": ("better", "worse"),
            "holds_to": MAYBE, "surely_to": MAYBE, "always": [str], "resolution": NUMBER, "rows": [BOUNDS],
        }
    ],
}  # fmt: skip
"""What is there where it was asked for, or known."""


def write(summary: Mapping[str, Any], path: str | Path) -> None:
    """The summary of a result as a file, whole or not at all."""
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise InputError(f"{path}: results are saved as JSON; the name must end in {SUFFIX}.")
    plain = _plain(summary)
    stamped = {**storage.stamp("result"), "sha256": storage.digest(storage.exact(plain)), "result": plain}
    with whole_file(path) as draft:
        draft.write_text(json.dumps(stamped, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def load_result(path: str | Path) -> SavedResult:
    """What `Evaluation.save` wrote, checked: its format and version, its parts and their types, and its checksum."""
    path = Path(path)
    told = storage.as_json(path, storage.content(path))
    storage.check_stamp(path, "result", told if isinstance(told, dict) else {})
    result = told.get("result")
    storage.check_digest(path, told.get("sha256"), storage.exact(result))
    summary = _numbers(result)
    _check_part(path, summary, "result")
    try:  # details such as diagnostics have no fixed form: what can be shown in every form is good
        text.plain(summary), text.markdown(summary), html.page(summary)
    except Exception as error:
        raise storage.damaged(path, f"it cannot be shown ({type(error).__name__}: {error})") from error
    return SavedResult(summary)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": next(word for word, number in NOT_FINITE.items() if str(number) == str(value))}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _numbers(value: Any) -> Any:
    """The same with the numbers back that JSON does not know."""
    if isinstance(value, dict):
        if list(value) == ["number"] and value["number"] in [*NOT_FINITE]:
            return NOT_FINITE[value["number"]]
        return {key: _numbers(part) for key, part in value.items()}
    return [_numbers(part) for part in value] if isinstance(value, list) else value


def _check_part(path: Path, part: Any, where: str) -> None:
    _check(path, part, PART, where)
    names = {(e["policy"], e["estimator"]) for e in part["estimates"]}
    lead = part["headline"]["estimator"]
    if not part["policies"] or not all((policy, lead) in names for policy in part["policies"]):
        raise storage.damaged(path, f"{where}: some policy has no estimate by {lead!r}, which leads")
    for name, wanted in OPTIONAL.items():
        if part.get(name) is not None:
            _check(path, part[name], wanted, f"{where}.{name}")
    for several in ("other_rewards", "slices"):
        _check(path, part.get(several, {}), dict, f"{where}.{several}")
        for name, other in part.get(several, {}).items():
            _check_part(path, other, f"{where}.{several}.{name}")


def _check(path: Path, value: Any, wanted: Any, where: str) -> None:
    """Raise where a value is not what is wanted: a type or several, one of some words, a list or a dict of such."""
    if isinstance(wanted, dict):
        _check(path, value, dict, where)
        for name, part in wanted.items():
            if name not in value:
                raise storage.damaged(path, f"{where}.{name} is missing")
            _check(path, value[name], part, f"{where}.{name}")
    elif isinstance(wanted, list):
        _check(path, value, list, where)
        for k, item in enumerate(value):
            _check(path, item, wanted[0], f"{where}[{k}]")
    else:
        options = wanted if isinstance(wanted, tuple) else (wanted,)
        good = value in options if isinstance(options[0], str) else isinstance(value, options)
        if not good or (isinstance(value, bool) and bool not in options):
            raise storage.damaged(path, f"{where} is {str(value)[:40]!r}, which it cannot be")


@dataclass(frozen=True, repr=False)
class SavedEstimate:
    """One number of a saved result, with its error: an estimate, a lift or a difference of two policies."""

    name: str
    _told: Mapping[str, Any]

    @property
    def value(self) -> float:
        return float(self._told["value"])

    @property
    def std_error(self) -> float:
        return float(self._told["std_error"])

    @property
    def error_covers(self) -> str:
        """`sampling`, or `sampling+fit` where the error of what was fitted is in it."""
        return str(self._told.get("error_covers", ""))

    @property
    def n(self) -> int:
        return int(self._told.get("n", 0))

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        return deepcopy(dict(self._told.get("diagnostics", {})))

    @property
    def verdict(self) -> Verdict | None:
        """None for a lift or a difference: see the estimates that it is made of."""
        return Verdict[self._told["verdict"]] if "verdict" in self._told else None

    @property
    def reasons(self) -> tuple[Finding, ...]:
        return tuple(Finding(**{**r, "verdict": Verdict[r["verdict"]]}) for r in self._told.get("reasons", ()))

    def confidence_interval(self, level: float | None = None, method: str | None = None) -> Interval:
        """Normal intervals at any level; those by another method as they were saved: the others need the log's sums."""
        kept = Interval(**self._told["interval"])
        level, method = kept.level if level is None else level, kept.method if method is None else method
        if (level, method) == (kept.level, kept.method):
            return kept
        level = checked_level(level)
        if method not in (known := dict.fromkeys((*get_args(Method), kept.method))):
            raise unknown_name("interval method", str(method), [*known])
        if method != "normal":
            raise InputError(
                f"{self.name}: a saved result has normal intervals at any level, and the {kept.method} one at level "
                f"{kept.level:g}; for others evaluate again."
            )
        half = normal_quantile(0.5 + level / 2) * self.std_error
        return Interval(self.value - half, self.value + half, level, method)

    def explain(self) -> str:
        """In words: the value, its error and every doubt."""
        if "estimator" not in self._told or "reasons" not in self._told:
            raise InputError(f"{self.name}: only estimates are explained; ask result[policy, estimator].")
        return text.explained(self._told)

    def to_dict(self) -> dict[str, Any]:
        return deepcopy(dict(self._told))

    def __repr__(self) -> str:
        return f"SavedEstimate({self.name}: {self.value:.6g} ± {self.std_error:.2g})"


def _estimate(told: Mapping[str, Any]) -> SavedEstimate:
    return SavedEstimate(f"{told['policy']}:{told['estimator']}", told)


@dataclass(frozen=True, repr=False)
class SavedResult:
    """What an evaluation said: `result["DR"]`, or `result["new", "DR"]` with several policies, and every report of it."""

    _summary: Mapping[str, Any]

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(self._summary["policies"])

    @property
    def estimators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(e["estimator"] for e in self._summary["estimates"]))

    @property
    def headline(self) -> SavedEstimate:
        """The estimate to lead with, for the first policy."""
        return self[self.policies[0], self._summary["headline"]["estimator"]]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the leading estimator over the policies."""
        return Verdict[self._summary["verdict"]]

    def __iter__(self) -> Iterator[SavedEstimate]:
        return map(_estimate, self._summary["estimates"])

    def __getitem__(self, key: str | tuple[str, str]) -> SavedEstimate:
        if not isinstance(key, tuple) and len(self.policies) > 1:
            raise KeyError(f"there are several policies ({', '.join(self.policies)}): ask for result[policy, estimator].")
        policy, estimator = key if isinstance(key, tuple) else (self.policies[0], key)
        for kind, name, known in (("policy", policy, self.policies), ("estimator", estimator, self.estimators)):
            if name not in known:
                raise KeyError(str(unknown_name(kind, name, known)))
        found = (e for e in self._summary["estimates"] if (e["policy"], e["estimator"]) == (policy, estimator))
        return _estimate(next(found))

    def lift(self, policy: str | None = None) -> SavedEstimate:
        """What a policy would have earned more than the log did, by the headline estimator."""
        policy = self.policies[0] if policy is None else policy
        told = next((lift for lift in self._summary["lifts"] if lift["policy"] == policy), None)
        if told is None:
            raise unknown_name("policy", policy, self.policies)
        return SavedEstimate(f"lift of {policy}", told)

    def difference(self, a: str, b: str) -> SavedEstimate:
        """a − b of two policies, paired, by the headline estimator."""
        pairs: Sequence[Mapping[str, Any]] = self._summary["differences"]
        told = next((d for d in pairs if (d["a"], d["b"]) == (a, b)), None)
        if told is None:
            kept = ", ".join(f"{d['a']} − {d['b']}" for d in pairs) or "none"
            raise InputError(f"{a} − {b} is not in the saved result; it has {kept}. For others evaluate again.")
        return SavedEstimate(f"{a} − {b}", told)

    @property
    def rewards(self) -> dict[str, SavedResult]:
        """The same for every reward, where there are several."""
        others = {name: SavedResult(part) for name, part in self._summary.get("other_rewards", {}).items()}
        return {str(self._summary["reward"]): self, **others} if others else {}

    @property
    def slices(self) -> dict[str, SavedResult]:
        """The same for every value of the `by` column."""
        return {name: SavedResult(part) for name, part in self._summary.get("slices", {}).items()}

    def to_dict(self, shown: int = 0) -> dict[str, Any]:
        """Everything as plain values; with `shown`, the map of actions as it was saved, too."""
        told = deepcopy(dict(self._summary))
        return told if shown else {**told, "embedding": None}

    def to_markdown(self) -> str:
        return text.markdown(self.to_dict())

    @property
    def plot(self) -> Plots:
        """Pictures, as of an `Evaluation`; those that need more than was saved say so."""

        def bounded(gamma: Sequence[float], policy: str | None) -> dict[str, Any]:  # noqa: ARG001
            return self._bounds(self.policies[0] if policy is None else policy)

        return Plots(lambda shown: self.to_dict(shown=shown), bounded)

    def _bounds(self, policy: str) -> dict[str, Any]:
        """What `with_sensitivity` had worked out, whatever Γ is asked for now."""
        if policy not in self.policies:
            raise unknown_name("policy", policy, self.policies)
        found = next((each for each in self._summary.get("sensitivity") or () if each["policy"] == policy), None)
        if found is None or len(found["rows"]) < 2:
            raise InputError(
                f"{policy}: the saved result has no bounds for several Γ, and no sums of weights to find them from; save "
                "evaluation.with_sensitivity(), or ask the evaluation itself for sensitivity()."
            )
        return {**found, "rows": sorted(found["rows"], key=lambda row: float(row["gamma"]))}

    def write_html(self, path: str | Path) -> None:
        """Write the report as one HTML file, whole or not at all."""
        html.write(self.to_dict(shown=SHOWN), Path(path))

    def save(self, path: str | Path) -> None:
        """As JSON, again."""
        write(self._summary, path)

    def _repr_html_(self) -> str:
        return html.embedded(self.to_dict(shown=SHOWN))

    def __str__(self) -> str:
        return text.plain(self.to_dict())

    __repr__ = __str__
