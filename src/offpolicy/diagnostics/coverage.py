"""How often the 95% intervals of estimators with a bias of their own held the truth in the coverage study.

Such an interval knows the chance of the draw and not the bias, so what it promises is worth what it kept in worlds whose
value is known. `coverage.json` is written from the committed results of `offpolicy study coverage` (docs/coverage.md).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from offpolicy.diagnostics.verdict import Finding

SPEAK_OF_BIAS = ("own bias", "unchecked model")
"""Findings that the measured coverage belongs to."""


@cache
def _read() -> dict[str, dict[str, Any]]:
    """By the class of the estimator: the least and the most coverage over kinds of worlds, and how many these were."""
    read: dict[str, dict[str, Any]] = json.loads(
        resources.files("offpolicy.diagnostics").joinpath("coverage.json").read_text()
    )
    return read


def diagnostics(kind: str) -> dict[str, Any]:
    """For the diagnostics of an estimate; nothing where its intervals promise what they can keep."""
    return {"measured_coverage_of_95%_intervals": dict(_read()[kind])} if kind in _read() else {}


def added(finding: Finding, kind: str) -> Finding:
    """The finding, with the measured coverage where it speaks of a bias of that estimator."""
    if finding.code not in SPEAK_OF_BIAS or kind not in _read():
        return finding
    seen = _read()[kind]
    said = (
        f"In {seen['worlds']} kinds of simulated worlds its 95% interval held the truth in {seen['least']:.0%} to "
        f"{seen['most']:.0%} of the runs."
    )
    return replace(finding, why=f"{finding.why} {said}")
