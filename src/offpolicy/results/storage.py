"""Files of results: everything that a result says, as JSON, with the sums behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offpolicy.core import storage
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.diagnostics.verdict import Verdict
from offpolicy.report import text
from offpolicy.report.page import html
from offpolicy.results.packing import numbers, plain

SUFFIX = ".json"

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


def write(path: str | Path, summary: Mapping[str, Any], evidence: Mapping[str, Any] | None) -> None:
    """Appears whole or not at all. Without evidence, as for a result from such a file, it has the first format."""
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise InputError(f"{path}: results are saved as JSON; the name must end in {SUFFIX}.")
    told = {"result": plain(summary), **({} if evidence is None else {"evidence": evidence})}
    stamp = {**storage.stamp("result"), "version": len(told)}
    stamped = {**stamp, "sha256": storage.digest(*map(storage.exact, told.values())), **told}
    with whole_file(path) as draft:
        draft.write_text(json.dumps(stamped, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Any], Any]:
    """The summary, checked in every part, and the evidence, which files of the first format lack."""
    told = storage.as_json(path, storage.content(path))
    storage.check_stamp(path, "result", told if isinstance(told, dict) else {})
    names = ("result", "evidence")[: told["version"]]
    storage.check_digest(path, told.get("sha256"), *(storage.exact(told.get(name)) for name in names))
    summary, evidence = numbers(told.get("result")), told.get("evidence")
    if "evidence" in names and not isinstance(evidence, dict):
        raise storage.damaged(path, "its sums cannot be read")
    _check_part(path, summary, "result")
    try:  # details such as diagnostics have no fixed form: what can be shown in every form is good
        text.plain(summary), text.markdown(summary), html.page(summary)
    except Exception as error:
        raise storage.damaged(path, f"it cannot be shown ({type(error).__name__}: {error})") from error
    return summary, evidence if "evidence" in names else None


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
