"""What is kept of an estimate in a run of a study: intervals by every method, and the number of every check."""

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
    """Which intervals are kept. Verdicts are not: they follow from the checks, by the limits of the day they are read."""

    methods: tuple[str, ...]
    levels: tuple[float, ...] = (0.9, 0.95, 0.99)

    def __post_init__(self) -> None:
        unknown = [method for method in self.methods if method not in METHODS]
        if unknown or "normal" not in self.methods:  # verdicts are held against the normal interval
            given = ", ".join(self.methods) or "none"
            raise InputError(f"[study] methods: give normal, and others of {'; '.join(METHODS[1:])}; not {given}.")

    def fields(self) -> list[pa.Field]:
        """The columns of it."""
        ends = [column(end, method, level) for method in self.methods for level in self.levels for end in ("low", "high")]
        return [
            *(pa.field(name, pa.float64()) for name in ("std_error", *ends, *map(check_column, LIMITS))),
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
            seen = [float(check.measure) for check in checks if check.scale == scale and check.measure is not None]
            if seen:  # the worst, where several are on one scale
                row[check_column(scale)] = min(seen) if limits.stop < limits.caution else max(seen)
        return row | {"unmeasured": worst(_unmeasured(checks)).severity}

    def _interval(self, estimate: Estimate, method: str, level: float) -> tuple[float | None, float | None]:
        try:
            if method == REFITTED:
                found = estimate.confidence_interval(level, "bootstrap", refit=True)
            else:
                found = estimate.confidence_interval(level, method)
        except InputError:  # a blend has no interval for finite samples
            return None, None
        return (found.low, found.high) if math.isfinite(found.low) and math.isfinite(found.high) else (None, None)


def _unmeasured(checks: tuple[Finding, ...]) -> list[Finding]:
    return [check for check in checks if check.scale is None]
