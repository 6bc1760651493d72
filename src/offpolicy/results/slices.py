"""The slices of a log in one table: the headline of each, its difference from the whole log, simultaneous intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from offpolicy.inference.functionals import std_error_from_whole
from offpolicy.inference.intervals import Interval, normal_interval
from offpolicy.results.estimate import Estimate
from offpolicy.results.estimate_set import EstimateSet
from offpolicy.results.evidence import Evidence

SIMULTANEOUS = "normal, simultaneous"


def slice_rows(whole: EstimateSet, slices: Mapping[str, EstimateSet]) -> list[dict[str, Any]]:
    """One row per slice and policy, by the headline estimator; nothing for results without sums."""
    rows = []
    for policy in whole.policies:
        of_whole = whole.estimates[policy, whole.headline_estimator]
        estimates = {name: part.estimates[policy, whole.headline_estimator] for name, part in slices.items()}
        defined = sum(bool(np.isfinite(estimate.std_error)) for estimate in estimates.values())
        level = whole.level ** (1 / max(defined, 1))  # Šidák: exact for independent slices, conservative for differences
        rows += [_row(name, estimate, of_whole, level) for name, estimate in estimates.items()]
    return [row for row in rows if row is not None]


def _row(name: str, estimate: Estimate, whole: Estimate, level: float) -> dict[str, Any] | None:
    own, of_whole = estimate.evidence, whole.evidence
    if own is None or of_whole is None:
        return None
    difference = own.functional.value - of_whole.functional.value
    error = std_error_from_whole(own.functional, own.sums, of_whole.functional, of_whole.sums)
    error = error if np.isfinite(estimate.std_error) else float("nan")
    shown = normal_interval(difference, error, whole.interval.level)
    return {
        "slice": name,
        "policy": estimate.policy,
        "estimator": estimate.estimator,
        "reward": estimate.reward,
        "rounds": estimate.n,
        "value": estimate.value,
        "std_error": estimate.std_error,
        "interval": asdict(estimate.interval),
        "simultaneous_interval": asdict(_simultaneous(estimate, own, level)),
        "verdict": estimate.verdict.name,
        "difference": {
            "value": difference,
            "std_error": error,
            "interval": asdict(shown),
            "simultaneous_interval": asdict(_stated(normal_interval(difference, error, level), shown.level)),
        },
    }


def _simultaneous(estimate: Estimate, evidence: Evidence, level: float) -> Interval:
    interval = normal_interval(estimate.value, estimate.std_error, level)
    return evidence.limited(_stated(interval, estimate.interval.level))


def _stated(interval: Interval, level: float) -> Interval:
    """An interval at the level that all of them have together."""
    return replace(interval, level=level, method=SIMULTANEOUS)
