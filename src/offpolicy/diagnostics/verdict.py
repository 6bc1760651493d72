"""`Verdict` and `Finding`: whether to trust an estimate, and why; and the limits that grade each number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import ceil


class Verdict(Enum):
    """Whether to trust an estimate: `OK`, `CAUTION` or `DO_NOT_TRUST`.

    Examples
    --------
    >>> import offpolicy as op
    >>> max(op.Verdict, key=lambda verdict: verdict.severity)
    <Verdict.DO_NOT_TRUST: 'do not trust'>
    """

    OK = "ok"
    CAUTION = "caution"
    DO_NOT_TRUST = "do not trust"

    @property
    def severity(self) -> int:
        """0 for `OK`, 1 for `CAUTION`, 2 for `DO_NOT_TRUST`."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Limits:
    """The thresholds of one number for CAUTION and DO_NOT_TRUST. If `stop` is the smaller one, small numbers are bad."""

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
    "effective rounds of an anchor": Limits(100, 5),
    "effective lists of an anchor": Limits(200, 5),
    "effective lists, cautiously": Limits(200, 0),
    "missing weight": Limits(2, 2.5),
    "excess weight": Limits(3, 6),
    "top weights": Limits(0.5, NEVER),
    "largest weight": Limits(0.05, 0.5),
    "concentration": Limits(0.25, 0.9),
    "rewards": Limits(100, 10),
    "clusters": Limits(10, 5),
    "repeated row ids": Limits(0.001, NEVER),
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
    "learning curve": Limits(1, NEVER),
    "actions at a bound": Limits(0.01, NEVER),
    "repeated action": Limits(0.05, NEVER),
    "draws": Limits(0.034, 0.15),
    "agreement of loggers": Limits(0.01, 0.0001),
    "assumption": Limits(0.01, 0.0001),
}
# They come from `offpolicy study` (docs/coverage.md): CAUTION where fewer than 90% of the 95% intervals contained the true
# value, DO_NOT_TRUST where at most 75% did. Those of support, new actions, left-out actions, repeated
# row ids, actions at a bound, repeated actions, the fit, the learning curve, the agreement of loggers and an assumption
# (p-values) are conventions.
# That of draws is the share of the weight at draws × probability = 5, where the bias is 0.7%.


@dataclass(frozen=True)
class Finding:
    """The result of one check; a reason for the verdict if it is not OK.

    Parameters
    ----------
    verdict : Verdict
        How serious it is.
    code : str
        A short name of the check, the same in every result.
    seen : str
        What was observed, as a sentence with its numbers.
    why : str
        Why that matters.
    do : str
        What to do about it.
    scale : str, optional
        The entry of the table of limits that graded it; None if nothing was measured.
    measure : float, optional
        The number that was graded.

    Examples
    --------
    >>> import offpolicy as op
    >>> found = op.Finding(op.Verdict.CAUTION, "weekend", "All rounds are from a Sunday.", "Sundays differ.", "Log a week.")
    >>> print(found)
    All rounds are from a Sunday. Sundays differ. Log a week.
    """

    verdict: Verdict
    code: str
    seen: str
    why: str
    do: str
    scale: str | None = field(default=None, compare=False)
    measure: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.seen} {self.why} {self.do}"


ESTIMATED = "estimated propensities"
# Why estimated propensities call for caution: with most intervals, and with one for which everything was refitted.
FIT_LEFT_OUT = (
    "The interval does not include the error of that fit, and anything beyond the context that the logging policy used is a "
    "source of bias."
)
FIT_COUNTED = (
    "The interval includes the error of that fit, but anything beyond the context that the logging policy used is a source "
    "of bias."
)


@dataclass(frozen=True)
class Measure:
    """A number computed by a check, to be graded by one of the `LIMITS`."""

    scale: str
    value: float

    def finding(self, code: str, seen: str, why: str, do: str) -> Finding:
        """The finding, with the verdict given by the limits."""
        return Finding(LIMITS[self.scale].grade(self.value), code, seen, why, do, self.scale, self.value)

    def more_rounds(self, rounds: float, unit: str = "rounds") -> str:
        """The advice to log more, with how many rounds would be enough for a number that grows in proportion to them."""
        limit = LIMITS[self.scale].caution
        if not 0 < self.value < limit:
            return f"Log more {unit}"
        return f"Log more {unit} ({in_all(rounds * limit / self.value)})"


def in_all(rounds: float) -> str:
    """A number of rounds that would be enough, rounded up to two digits."""
    needed = ceil(rounds)
    step = 10 ** max(len(str(needed)) - 2, 0)
    return f"about {-(-needed // step) * step:,} in all, with the present logging"


ENOUGH = int(LIMITS["effective rounds"].caution)
"""The rounds under the new policy itself from which its value raises no concern."""


def worst(findings: Iterable[Finding]) -> Verdict:
    """The most severe verdict among findings; OK if there are none."""
    return max((finding.verdict for finding in findings), key=lambda v: v.severity, default=Verdict.OK)
