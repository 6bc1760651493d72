"""The estimate over bandwidths: what a kernel estimator gives with each of its widths, and how many rounds each uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.data.box import box
from offpolicy.diagnostics.action_axis import ActionAxis
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.overlap import overlap
from offpolicy.diagnostics.verdict import Finding
from offpolicy.inference.blending import Candidate
from offpolicy.inference.functionals import std_error
from offpolicy.inference.scores import Scores
from offpolicy.scoring.plan import WeightColumn


@dataclass(frozen=True)
class Bandwidths(Reading):
    """The widths of an estimate that mixes several, by kernel estimator and from the narrowest; nothing for others."""

    scores: Scores
    axis: ActionAxis

    def findings(self, subject: Subject) -> list[Finding]:  # noqa: ARG002
        return []

    def numbers(self, subject: Subject) -> dict[str, Any]:
        mix = subject.combination
        if mix is None or not mix.defined:
            return {}
        pairs = zip(mix.parts, mix.weights.tolist(), strict=True)
        rows = [row for part, weight in pairs if (row := self._row(part, weight, subject)) is not None]
        return (
            {"bandwidths": sorted(rows, key=lambda row: (row["estimator"], row["share_of_range"]))} if len(rows) > 1 else {}
        )

    def _row(self, part: Candidate, weight: float, subject: Subject) -> dict[str, Any] | None:
        """One width; None for a candidate that has none."""
        space = box(self.scores.log.space, "bandwidths")
        key = None if part.column is None else self.scores.scorer.plan.columns[part.column - 1]
        widths = key.weight.ratio.widths(space) if isinstance(key, WeightColumn) else None
        if part.column is None or widths is None:
            return None
        o, share = overlap(subject.sums, part.column), float(np.exp(np.log(np.array(widths) / space.ranges).mean()))
        return {
            "estimator": part.name.partition(" (")[0],
            "bandwidth": widths[0] if len(widths) == 1 else list(widths),
            "share_of_range": share,
            "actions_within_it_of_a_bound": self.axis.near_a_bound(subject.policy, share) if subject.whole else None,
            "value": part.functional.value,
            "std_error": std_error(part.functional, subject.sums),
            "effective_rounds": o.ess,
            "mean_weight": o.mean_weight,
            "weight": weight,
        }
