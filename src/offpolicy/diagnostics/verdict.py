"""`Verdict` and `Finding`: whether to believe an estimate, and why; the limits, and the findings that need no number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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


ABOUT_THE_FIT = ("fit not covered", "uncertain fit")
"""Codes of findings that an interval takes away for which everything was fitted anew."""
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


NAIVE = Finding(
    Verdict.CAUTION,
    "naive",
    "This is what the logging policy earned.",
    "It says nothing about the new policy, however narrow its interval.",
    "Compare the other estimates with it.",
)

ERRORS_SKIPPED = Finding(
    Verdict.CAUTION,
    "errors skipped",
    "No error was computed: the evaluation was asked for values alone (errors=False).",
    "Without an error and the checks nothing shows how far off the value may be.",
    "Evaluate again without errors=False.",
)

UNCHECKED_MODEL = Finding(
    Verdict.CAUTION,
    "unchecked model",
    "This is the reward model's word alone, and the log has no propensities to check it with.",
    "A model fitted where the old policy went can be wrong where the new one goes, and nothing here would show it.",
    "Log the chance of each action taken (propensity=, --propensity), or give the old policy (logging=, --logging).",
)

FIT_NOT_COVERED = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The error of what was fitted (its reward model or its weights) is not in this interval.",
    "The interval is too narrow, by as much as the fit would change with another log.",
    "Read it as a lower bound of the error, or ask for a bootstrap that fits again (refit=True, --refit). Ridge models and "
    "smooth posteriors are counted for the log as a whole, but for clusters, for sums over near actions and for models with "
    "features that vary within actions; DR needs no such count.",
)

FITTED_BEFORE = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The error of its reward model, which was fitted before, is not in this interval.",
    "The interval is too narrow, by as much as the model would change if it were fitted on another log.",
    "Read it as a lower bound of the error. A bootstrap that fits again (refit=True, --refit) leaves a saved model as it "
    "is: to have its error counted, let it be fitted here (rewards=op.Ridge()); DR needs no such count.",
)

TOO_MANY_FOR_REFITS = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The error of what was fitted is not in this interval: with so many actions, refits without parts of the log do not fit "
    "the memory budget.",
    "The interval is too narrow, by as much as the fit would change with another log.",
    "Give more memory (memory=, --memory), or read it as a lower bound of the error; DR needs no such count.",
)

SHARED_COVARIANCE = Finding(
    Verdict.CAUTION,
    "shared covariance",
    "The reward model takes the contexts of all actions to vary alike: a matrix for each action does not fit the memory "
    "budget.",
    "Where contexts go with actions, its coefficients are less exact; estimators that weigh by π/π0 correct for it.",
    "Give more memory (memory=, --memory), fewer context columns, or fewer folds (cross_fit=2).",
)

UNANCHORED = Finding(
    Verdict.DO_NOT_TRUST,
    "no anchor",
    "No nearly unbiased candidate gave a number of known error: too few rounds have an action that the new policy takes, or "
    "all are of one cluster.",
    "Nothing shows how biased the others are, so there is no blend of them.",
    "Log some rounds of a policy that overlaps with the new one.",
)

NO_NUMBER = Finding(
    Verdict.DO_NOT_TRUST,
    "no number",
    "It gave NaN or an infinite number.",
    "A reward model that predicts no number in some rounds is the usual cause.",
    "Check the model's predictions, and the scale of context and rewards.",
)

UNDEFINED = Finding(
    Verdict.DO_NOT_TRUST,
    "undefined",
    "No logged action could have come from the new policy: every weight is 0.",
    "There is nothing to weigh, so the estimate does not exist.",
    "Log some rounds of a policy that overlaps with the new one.",
)


def refitted(checks: Iterable[Finding]) -> tuple[Finding, ...]:
    """What is left to say of an interval for which everything was fitted anew: a saved model was not."""
    kept = (check for check in checks if check.code not in ABOUT_THE_FIT or check == FITTED_BEFORE)
    return tuple(replace(check, why=FIT_COUNTED) if check.code == ESTIMATED else check for check in kept)
