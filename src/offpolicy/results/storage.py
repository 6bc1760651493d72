"""Files of results: everything that a result shows, as JSON, and the sums behind it."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core import storage
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.core.hashing import BUCKETS
from offpolicy.diagnostics.verdict import Verdict
from offpolicy.inference.functionals import (
    Blended,
    ColumnMean,
    Divided,
    Formula,
    Functional,
    Minus,
    Relative,
    ScoreSums,
    Undefined,
    Unresampled,
)
from offpolicy.inference.intervals import Range
from offpolicy.inference.sequences import ValueScores
from offpolicy.report import markdown, text
from offpolicy.report.page import html
from offpolicy.scoring.plan import Scaling, Terms
from offpolicy.scoring.score_histograms import RewardRange
from offpolicy.statistics.signed_histogram import Bins

# JSON cannot represent these numbers: each is saved as {"number": word}.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _terms(scaling: Scaling | tuple[int, int] | None, **parts: Any) -> Terms:
    """Results that were saved before `Scaling` have a pair of columns in its place."""
    return Terms(scaling=Scaling(*scaling) if isinstance(scaling, tuple) else scaling, **parts)


KINDS: dict[str, Callable[..., Any]] = {"Terms": _terms} | {
    kind.__name__: kind
    for kind in (
        Functional,
        Formula,
        Scaling,
        Minus,
        Relative,
        Divided,
        Blended,
        ColumnMean,
        Undefined,
        Unresampled,
        Range,
        ValueScores,
        RewardRange,
        Bins,
    )
}


def plain(value: Any) -> Any:
    """The same value in the types of JSON."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": next(word for word, number in NOT_FINITE.items() if str(number) == str(value))}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def numbers(value: Any) -> Any:
    """The inverse of `plain` for numbers that are not finite."""
    if isinstance(value, dict):
        if list(value) == ["number"] and value["number"] in [*NOT_FINITE]:
            return NOT_FINITE[value["number"]]
        return {key: numbers(part) for key, part in value.items()}
    return [numbers(part) for part in value] if isinstance(value, list) else value


def packed(value: Any) -> Any:
    """A functional, or a part of one, as JSON: dataclasses by name, arrays as their bytes."""
    if isinstance(value, np.ndarray):
        data = zlib.compress(np.ascontiguousarray(value, "<f8").tobytes())  # gradients are mostly zeros
        return {"array": base64.b64encode(data).decode("ascii"), "shape": list(value.shape)}
    if is_dataclass(value):
        return {"kind": type(value).__name__, **{f.name: packed(getattr(value, f.name)) for f in fields(value)}}
    return [packed(part) for part in value] if isinstance(value, tuple) else plain(value)


def unpacked(value: Any) -> Any:
    """The inverse of `packed`. Raises ValueError, KeyError or TypeError if the value is damaged."""
    if isinstance(value, list):
        return tuple(map(unpacked, value))
    if not isinstance(value, dict):
        return value
    if "array" in value:
        shape = [int(size) for size in value["shape"]]
        data = zlib.decompressobj().decompress(base64.b64decode(value["array"], validate=True), 8 * math.prod(shape) + 1)
        return np.frombuffer(data, "<f8").astype(np.float64).reshape(shape)
    if "kind" in value:
        return KINDS[value["kind"]](**{name: unpacked(part) for name, part in value.items() if name != "kind"})
    return numbers(value)


def packed_sums(sums: ScoreSums) -> dict[str, Any]:
    """Sums as JSON, with the filled buckets only."""
    arrays = {
        **{name: sums.moments[name] for name in ("mean", "m2")},
        "buckets": sums.buckets[sums.occupied],
        "filled": np.flatnonzero(sums.occupied),
        "nonzero": sums.nonzero,
    }
    return {
        **{name: packed(array) for name, array in arrays.items()},
        "n": sums.n,
        "all": len(sums.buckets),
        "clustered": sums.clustered,
        "seed": sums.seed,
        "slice": sums.slice_,
    }


def unpacked_sums(saved: dict[str, Any]) -> ScoreSums:
    """The inverse of `packed_sums`; raises ValueError if the parts do not belong together."""
    mean, m2, buckets, nonzero = (unpacked(saved[name]) for name in ("mean", "m2", "buckets", "nonzero"))
    filled, size = unpacked(saved["filled"]).astype(np.int64), int(saved["all"])
    width = len(mean)
    if m2.shape != (width, width) or buckets.shape != (len(filled), width) or nonzero.ndim != 1:
        raise ValueError("the sums differ in size")
    if not 0 < size <= BUCKETS or len(np.unique(filled)) != len(filled) or not ((filled >= 0) & (filled < size)).all():
        raise ValueError("the buckets of the sums are not in order")
    every = np.zeros((size, width))
    every[filled] = buckets
    moments = {"n": np.array(float(saved["n"])), "mean": mean, "m2": m2}
    slice_ = None if saved["slice"] is None else str(saved["slice"])
    return ScoreSums(moments, every, nonzero, bool(saved["clustered"]), int(saved["seed"]), slice_)


SUFFIX = ".json"

NUMBER = (int, float)
MAYBE = (int, float, type(None))
COUNT = (int, type(None))
NAME = (str, type(None))
CONCLUSIONS = ("better", "worse", "undecided", "baseline", "not compared")
INTERVAL = {"low": NUMBER, "high": NUMBER, "level": NUMBER, "method": str}
REASON = {"verdict": tuple(Verdict.__members__), "code": str, "seen": str, "why": str, "do": str}
POINT = {"action": str, "count": NUMBER, "reward": MAYBE, "x": NUMBER, "y": NUMBER, "nearest": [str]}
BIN = {"predicted": NUMBER, "observed": NUMBER, "std_error": MAYBE, "rounds": NUMBER}
PAIRED = {"value": NUMBER, "std_error": NUMBER, "interval": INTERVAL}
# The required entries and their types, so that what is shown is what was saved. A tuple of words means one of them.
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
BOUNDS = {"gamma": NUMBER, "low": NUMBER, "high": NUMBER, "low_error": NUMBER, "high_error": NUMBER,
          "interval_low": NUMBER, "interval_high": NUMBER}  # fmt: skip
SHARES = {"middle": [NUMBER], "shares": [NUMBER], "at_low": NUMBER, "at_high": NUMBER, "at_points": [NUMBER]}
# Entries that are present if they were requested, or known.
OPTIONAL: dict[str, Any] = {
    "action_space": str,
    "action_axis": [
        {
            "dimension": COUNT, "low": NUMBER, "high": NUMBER, "points": [NUMBER], "edges": [NUMBER], "logged": SHARES,
            "policies": [{"policy": str, **SHARES}],
        }
    ],
    "dose_response": {
        "reward": str, "estimator": str, "rounds": int, "level": NUMBER,
        "points": [
            {
                "action": NUMBER, "value": MAYBE, "low": MAYBE, "high": MAYBE, "std_error": MAYBE,
                "effective_rounds": NUMBER, "mean_weight": NUMBER, "point": bool,
            }
        ],
    },
    "best": {
        "estimator": str, "reward": str, "level": NUMBER, "logged": NUMBER, "baseline": NAME, "choice": NAME,
        "rows": [
            {
                "policy": str, "value": NUMBER, "std_error": NUMBER, "interval": INTERVAL, "difference": MAYBE,
                "difference_error": MAYBE, "difference_interval": (dict, type(None)), "conclusion": CONCLUSIONS,
                "may_be_best": bool, "verdict": tuple(Verdict.__members__),
            }
        ],
    },
    "by_slice": [
        {
            "slice": str, "policy": str, "estimator": str, "reward": str, "rounds": int, **PAIRED,
            "simultaneous_interval": INTERVAL, "verdict": tuple(Verdict.__members__),
            "difference": {**PAIRED, "simultaneous_interval": INTERVAL},
        }
    ],
    "by_slot": [
        {
            "slot": int, "gain": NUMBER, "policy": str, "estimator": str, **PAIRED, "effective_sample_size": MAYBE,
            "lift": PAIRED,
        }
    ],
    "browsing": [
        {
            "policy": str, "examination": [NUMBER], "examination_std_errors": [NUMBER],
            "assumptions": [
                {
                    "assumption": str, "slot": int, "compared_with": str, "difference": NUMBER, "std_error": NUMBER,
                    "p_value": NUMBER, "contradicted": bool,
                }
            ],
        }
    ],
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


def write(path: str | Path, summary: Mapping[str, Any], evidence: Mapping[str, Any] | None) -> None:
    """Write the file completely or not at all. Without evidence, as for a result loaded from one, in the first format."""
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise InputError(f"{path}: results are saved as JSON; the name must end in {SUFFIX}.")
    content = {"result": plain(summary), **({} if evidence is None else {"evidence": evidence})}
    stamp = {**storage.stamp("result"), "version": len(content)}
    stamped = {**stamp, "sha256": storage.digest(*map(storage.exact, content.values())), **content}
    with whole_file(path) as draft:
        draft.write_text(json.dumps(stamped, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Any], Any]:
    """The summary, with every part checked, and the evidence, which files of the first format lack."""
    content = storage.as_json(path, storage.content(path))
    storage.check_stamp(path, "result", content if isinstance(content, dict) else {})
    names = ("result", "evidence")[: content["version"]]
    storage.check_digest(path, content.get("sha256"), *(storage.exact(content.get(name)) for name in names))
    summary, evidence = numbers(content.get("result")), content.get("evidence")
    if "evidence" in names and not isinstance(evidence, dict):
        raise storage.damaged(path, "its sums cannot be read")
    _check_part(path, summary, "result")
    try:  # details such as diagnostics have no fixed form: they are valid if every output can show them
        text.plain(summary), markdown.markdown(summary), html.page(summary)
    except Exception as error:
        raise storage.damaged(path, f"it cannot be shown ({type(error).__name__}: {error})") from error
    return summary, evidence if "evidence" in names else None


def _check_part(path: Path, part: Any, where: str) -> None:
    _check(path, part, PART, where)
    names = {(e["policy"], e["estimator"]) for e in part["estimates"]}
    lead = part["headline"]["estimator"]
    if not part["policies"] or not all((policy, lead) in names for policy in part["policies"]):
        raise storage.damaged(path, f"{where}: some policy has no estimate by {lead!r}, the headline estimator")
    for name, expected in OPTIONAL.items():
        if part.get(name) is not None:
            _check(path, part[name], expected, f"{where}.{name}")
    for several in ("other_rewards", "slices"):
        _check(path, part.get(several, {}), dict, f"{where}.{several}")
        for name, other in part.get(several, {}).items():
            _check_part(path, other, f"{where}.{several}.{name}")


def _check(path: Path, value: Any, expected: Any, where: str) -> None:
    """Raise if a value is not as expected: one of some types, one of some words, or a list or a dict of such."""
    if isinstance(expected, dict):
        _check(path, value, dict, where)
        for name, part in expected.items():
            if name not in value:
                raise storage.damaged(path, f"{where}.{name} is missing")
            _check(path, value[name], part, f"{where}.{name}")
    elif isinstance(expected, list):
        _check(path, value, list, where)
        for k, item in enumerate(value):
            _check(path, item, expected[0], f"{where}[{k}]")
    else:
        options = expected if isinstance(expected, tuple) else (expected,)
        valid = value in options if isinstance(options[0], str) else isinstance(value, options)
        if not valid or (isinstance(value, bool) and bool not in options):
            raise storage.damaged(path, f"{where} is {str(value)[:40]!r}, which is not valid")
