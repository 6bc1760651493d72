"""Whether there are enough rewards and clusters."""

from __future__ import annotations

from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import Finding, Measure


class SampleSize(Reading):
    """Whether there are enough rewards and clusters."""

    def findings(self, subject: Subject) -> list[Finding]:
        sums = subject.sums
        found = reward_findings(int(sums.nonzero[subject.reward]), sums.n)
        return [*found, few_units(int((sums.buckets[:, 0] > 0).sum()))] if sums.clustered else found


def reward_findings(nonzero: int, n: int) -> list[Finding]:
    """Whether there are enough rewards to speak of at all."""
    if nonzero == n:  # rewards that are all there are few only if the rounds are
        return []
    return [
        Measure("rewards", nonzero).finding(
            "few rewards",
            f"Only {nonzero:,} of {n:,} rounds have a reward other than 0.",
            "The intervals lean on many such rounds, and are too narrow with few.",
            "Log more rounds, or evaluate a more frequent reward as well.",
        )
    ]


def few_units(units: int) -> Finding:
    """Clustered errors from a handful of clusters."""
    return Measure("clusters", units).finding(
        "few clusters",
        f"There are only about {units} clusters.",
        "A clustered standard error is itself uncertain with so few, and usually too small.",
        "Use a finer cluster if rows within it are independent, or log more of them.",
    )
