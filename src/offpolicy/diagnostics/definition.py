"""Whether there is a number at all, and by which setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.overlap import Overlaps
from offpolicy.diagnostics.verdict import NO_NUMBER, UNDEFINED, Finding


@dataclass(frozen=True)
class Definition(Reading):
    """Why an estimate is not a number: there is nothing to weigh, or a model gives none."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        member = subject.member
        if member is None or np.isfinite(subject.functional.value):
            return []
        weight, p = member.weight, subject.policy
        unweighed = weight.weighs and not self.overlaps.of_weight(p, weight, subject.sums).ess > 0
        return [UNDEFINED if unweighed else NO_NUMBER]


class Setting(Reading):
    """The setting that was selected, and the dimensions of the embedding."""

    def findings(self, subject: Subject) -> list[Finding]:  # noqa: ARG002
        return []

    def numbers(self, subject: Subject) -> dict[str, Any]:
        member, seen = subject.member, dict[str, Any]()
        if member is not None and member.setting is not None:
            seen[subject.estimator.tuned or "setting"] = member.setting
        if member is not None and member.weight.ratio.dimensions is not None:
            seen["dimensions"] = list(member.weight.ratio.dimensions)
        return seen
