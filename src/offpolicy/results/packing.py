"""Functionals and sums as JSON: what a saved result keeps besides its summary, so that it can answer more than it shows."""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from offpolicy.core.hashing import BUCKETS
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
)
from offpolicy.inference.intervals import Range
from offpolicy.scoring.plan import Terms

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no word for these numbers: each is saved as {"number": word}."""
KINDS = {
    kind.__name__: kind
    for kind in (Functional, Formula, Terms, Minus, Relative, Divided, Blended, ColumnMean, Undefined, Range)
}


def plain(value: Any) -> Any:
    """As JSON has it."""
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
    """The same with the numbers back that JSON does not know."""
    if isinstance(value, dict):
        if list(value) == ["number"] and value["number"] in [*NOT_FINITE]:
            return NOT_FINITE[value["number"]]
        return {key: numbers(part) for key, part in value.items()}
    return [numbers(part) for part in value] if isinstance(value, list) else value


def packed(value: Any) -> Any:
    """A functional, or a part of one, as JSON has it: dataclasses by their name, arrays as the bytes of their numbers."""
    if isinstance(value, np.ndarray):
        data = zlib.compress(np.ascontiguousarray(value, "<f8").tobytes())  # gradients are mostly zeros
        return {"array": base64.b64encode(data).decode("ascii"), "shape": list(value.shape)}
    if is_dataclass(value):
        return {"kind": type(value).__name__, **{f.name: packed(getattr(value, f.name)) for f in fields(value)}}
    return [packed(part) for part in value] if isinstance(value, tuple) else plain(value)


def unpacked(value: Any) -> Any:
    """What was packed. Raises ValueError, KeyError or TypeError where that cannot be."""
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
    """Filled buckets only."""
    state = sums.__getstate__()
    arrays = {name: sums.moments[name] for name in ("mean", "m2")} | {name: state[name] for name in ("buckets", "filled")}
    return {
        **{name: packed(array) for name, array in (*arrays.items(), ("nonzero", sums.nonzero))},
        "n": sums.n,
        "all": state["all"],
        "clustered": sums.clustered,
        "seed": sums.seed,
        "slice": sums.slice_,
    }


def unpacked_sums(told: dict[str, Any]) -> ScoreSums:
    """What was packed; raises ValueError where the parts do not belong together."""
    mean, m2, buckets, nonzero = (unpacked(told[name]) for name in ("mean", "m2", "buckets", "nonzero"))
    filled, size = unpacked(told["filled"]).astype(np.int64), int(told["all"])
    width = len(mean)
    if m2.shape != (width, width) or buckets.shape != (len(filled), width) or nonzero.ndim != 1:
        raise ValueError("the sums differ in size")
    if not 0 < size <= BUCKETS or len(np.unique(filled)) != len(filled) or not ((filled >= 0) & (filled < size)).all():
        raise ValueError("the buckets of the sums are not in order")
    every = np.zeros((size, width))
    every[filled] = buckets
    moments = {"n": np.array(float(told["n"])), "mean": mean, "m2": m2}
    slice_ = None if told["slice"] is None else str(told["slice"])
    return ScoreSums(moments, every, nonzero, bool(told["clustered"]), int(told["seed"]), slice_)
