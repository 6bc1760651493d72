"""Whether an answer rests on one small part of the log."""

from __future__ import annotations

import numpy as np

from offpolicy.core.hashing import BUCKETS
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import Finding, Measure
from offpolicy.inference.functionals import Functional, ScoreSums


class Concentration(Reading):
    """Whether one small part of the log decides the answer."""

    def findings(self, subject: Subject) -> list[Finding]:
        return [concentrated(concentration(subject.functional, subject.sums))]


def concentrated(share: float) -> Finding:
    """Whether the spread of the estimate comes from one place in the log."""
    return Measure("concentration", share).finding(
        "concentration",
        f"One {BUCKETS:,}th of the log carries {share:.0%} of the estimate's variance.",
        "A single round, or a few, with a huge weight or reward decide the answer, and the next log may lack them.",
        "Look at the largest rewards and weights; compare with ClippedIPS, or evaluate a bounded reward.",
    )


def concentration(f: Functional, sums: ScoreSums) -> float:
    """The part of the sampling variance that one bucket of units carries; 0 where there are few of them."""
    if not np.isfinite(f.gradient).all():
        return 0.0
    influence = sums.buckets @ f.gradient
    total = float(influence @ influence)
    if (sums.buckets[:, 0] > 0).sum() < 100 or not np.isfinite(total) or total <= 0:
        return 0.0
    return float((influence**2).max()) / total
