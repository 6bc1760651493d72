"""`Verdict` and `Finding`: whether to believe an estimate, and why; and the findings that need no number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
class Finding:
    """One reason for a verdict."""

    verdict: Verdict
    code: str
    seen: str
    why: str
    do: str

    def __str__(self) -> str:
        return f"{self.seen} {self.why} {self.do}"


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
