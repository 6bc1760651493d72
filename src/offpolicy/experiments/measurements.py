"""What a run of a study stores of an estimate: intervals by every method, and the measure of every check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import pyarrow as pa

from offpolicy.core.errors import InputError
from offpolicy.diagnostics.verdict import LIMITS, Finding, worst
from offpolicy.inference.intervals import REFITTED, Method
from offpolicy.results.estimate import Estimate

METHODS = (*get_args(Method), REFITTED)


def column(end: str, method: str, level: float) -> str:
    """The name of the column of one end of an interval."""
    return f"{end}, {method}, {level:.0%}"


def check_column(scale: str) -> str:
    return f"check, {scale}"


@dataclass(frozen=True)
class Measurements:
    """The stored intervals. Verdicts are not stored: they follow from the checks and the limits when the runs are read.

    Verdicts are compared with the intervals of the first method.
    """

    methods: tuple[str, ...]
    levels: tuple[float, ...] = (0.9, 0.95, 0.99)

    def __post_init__(self) -> None:
        unknown = [method for method in self.methods if method not in METHODS]
        if unknown or not self.methods:
            names = ", ".join(self.methods) or "none"
            raise InputError(f"[study] methods: give one or more of {'; '.join(METHODS)}; not {names}.")

    def fields(self) -> list[pa.Field]:
        """The columns to store."""
        ends = [column(end, method, level) for method in self.methods for level in self.levels for end in ("low", "high")]
        return [
            *(pa.field(name, pa.float64()) for name in (*ends, *map(check_column, LIMITS))),
            pa.field("unmeasured", pa.int8()),
        ]

    def of(self, estimate: Estimate) -> dict[str, Any]:
        """A row of the columns."""
        checks = estimate.checks
        row: dict[str, Any] = {"std_error": estimate.std_error}
        for method in self.methods:
            for level in self.levels:
                ends = self._interval(estimate, method, level)
                row |= {column(end, method, level): x for end, x in zip(("low", "high"), ends, strict=True)}
        for scale, limits in LIMITS.items():
            measures = [float(check.measure) for check in checks if check.scale == scale and check.measure is not None]
            if measures:  # the worst, if several have the same scale
                row[check_column(scale)] = min(measures) if limits.stop < limits.caution else max(measures)
        return row | {"unmeasured": worst(_unmeasured(checks)).severity}

    def _interval(self, estimate: Estimate, method: str, level: float) -> tuple[float | None, float | None]:
        try:
            if method == REFITTED:
                interval = estimate.confidence_interval(level, "bootstrap", refit=True)
            else:
                interval = estimate.confidence_interval(level, method)
        except InputError:  # a blend has no finite-sample interval
            return None, None
        known = math.isfinite(interval.low) and math.isfinite(interval.high)
        return (interval.low, interval.high) if known else (None, None)


def _unmeasured(checks: tuple[Finding, ...]) -> list[Finding]:
    return [check for check in checks if check.scale is None]
