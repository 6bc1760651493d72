"""`Verdict` and `Finding`: whether to believe an estimate, and why; the limits, and the findings that need no number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """Whether to believe an estimate."""

    OK = "ok"
    CAUTION = "caution"
    DO_NOT_TRUST = "do not trust"

    @property
    def severity(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Limits:
    """From where on a number calls for caution, and for no trust. Where `stop` is the smaller one, small numbers are bad."""

    caution: float
    stop: float

    def grade(self, measure: float) -> Verdict:
        falling = self.stop < self.caution
        if measure < self.stop if falling else measure >= self.stop:
            return Verdict.DO_NOT_TRUST
        return Verdict.CAUTION if (measure < self.caution if falling else measure >= self.caution) else Verdict.OK


NEVER = float("inf")

LIMITS: Mapping[str, Limits] = {
    "effective rounds": Limits(500, 5),
    "missing weight": Limits(2, 2.5),
    "excess weight": Limits(3, 6),
    "top weights": Limits(0.5, NEVER),
    "largest weight": Limits(0.05, 0.5),
    "concentration": Limits(0.25, 0.9),
    "rewards": Limits(100, 10),
    "clusters": Limits(10, 5),
    "support": Limits(0.01, 0.1),
    "support, modelled": Limits(0.01, 0.3),
    "support, by chance": Limits(0.01, NEVER),
    "disagreement": Limits(2, 3),
    "disagreement of a blend": Limits(3, NEVER),
    "candidates": Limits(3, NEVER),
    "hidden bias": Limits(1.25, 2),
    "rounds to check a model": Limits(10, 0),
    "new actions": Limits(0.05, NEVER),
    "left out": Limits(0.05, 1.0),
    "fit beside sampling": Limits(3, NEVER),
}
"""What each number of a check means. They come from `offpolicy study` (docs/coverage.md): caution from where fewer than 90%
of the 95% intervals held the truth, no trust from where at most 75% did. Conventions: support, new actions, what is left
out, and the share of the fit."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked, and a reason for the verdict where it is not OK."""

    verdict: Verdict
    code: str
    seen: str
    why: str
    do: str
    scale: str | None = field(default=None, compare=False)
    """Which of the `LIMITS` graded it; None where there was nothing to measure."""
    measure: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.seen} {self.why} {self.do}"


ESTIMATED = "estimated propensities"
FIT_LEFT_OUT = "The error of that fit is not in the interval, and what the old policy saw besides the context is a bias."
FIT_COUNTED = "The error of that fit is in the interval, but what the old policy saw besides the context is a bias."
"""What to say of estimated propensities: for most intervals, and where all was fitted anew."""


@dataclass(frozen=True)
class Measure:
    """A number that a check computes, on one of the `LIMITS`."""

    scale: str
    value: float

    def finding(self, code: str, seen: str, why: str, do: str) -> Finding:
        """The finding, with the verdict that the limits give."""
        return Finding(LIMITS[self.scale].grade(self.value), code, seen, why, do, self.scale, self.value)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The most severe of some findings; OK where there is none."""
    return max((finding.verdict for finding in findings), key=lambda v: v.severity, default=Verdict.OK)
