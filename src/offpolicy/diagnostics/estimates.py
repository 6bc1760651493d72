"""Of an estimate itself: whether it is a number, rests on enough of the log, and agrees with nearly unbiased ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.core.hashing import BUCKETS
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.overlap import Overlap, Overlaps, weight_findings
from offpolicy.diagnostics.verdict import Finding, Measure, Verdict
from offpolicy.inference.blending import Combination
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors, std_error

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


class Concentration(Reading):
    """Whether one small part of the log decides the answer."""

    def findings(self, subject: Subject) -> list[Finding]:
        share = self.share(subject.functional, subject.sums)
        return [
            Measure("concentration", share).finding(
                "concentration",
                f"One {BUCKETS:,}th of the log carries {share:.0%} of the estimate's variance.",
                "A single round, or a few, with a huge weight or reward decide the answer, and the next log may lack them.",
                "Look at the largest rewards and weights; compare with ClippedIPS, or evaluate a bounded reward.",
            )
        ]

    def share(self, f: Functional, sums: ScoreSums) -> float:
        """The part of the sampling variance that one bucket of units carries; 0 where there are few of them."""
        if not np.isfinite(f.gradient).all():
            return 0.0
        influence = sums.buckets @ f.gradient
        total = float(influence @ influence)
        if (sums.buckets[:, 0] > 0).sum() < 100 or not np.isfinite(total) or total <= 0:
            return 0.0
        return float((influence**2).max()) / total


class SampleSize(Reading):
    """Whether there are enough rewards, and enough clusters for clustered errors."""

    def findings(self, subject: Subject) -> list[Finding]:
        sums, found = subject.sums, []
        nonzero, units = int(sums.nonzero[subject.reward]), int((sums.buckets[:, 0] > 0).sum())
        if nonzero != sums.n:  # rewards that are all there are few only if the rounds are
            found.append(
                Measure("rewards", nonzero).finding(
                    "few rewards",
                    f"Only {nonzero:,} of {sums.n:,} rounds have a reward other than 0.",
                    "The intervals lean on many such rounds, and are too narrow with few.",
                    "Log more rounds, or evaluate a more frequent reward as well.",
                )
            )
        if sums.clustered:
            found.append(
                Measure("clusters", units).finding(
                    "few clusters",
                    f"There are only about {units} clusters.",
                    "A clustered standard error is itself uncertain with so few, and usually too small.",
                    "Use a finer cluster if rows within it are independent, or log more of them.",
                )
            )
        return found


CARRIES = 0.05
"""The weight from which a candidate counts as part of a blend."""


class Agreement(Reading):
    """Whether an estimate agrees with a nearly unbiased one."""

    def findings(self, subject: Subject) -> list[Finding]:
        if subject.reference is None:
            return []
        (name, other), sums, member = subject.reference, subject.sums, subject.member
        difference = replace(subject.functional, extra=0.0, way=None).minus(other)
        if not np.isfinite(difference.value):
            return []
        z = in_errors(difference, sums)
        found = [disagreement(name, difference.value, z, blend=member is None)] if np.isfinite(z) else []
        if member is not None and not member.weight.mean_one:
            found.append(own_bias(name, difference.value, std_error(difference, sums), subject.std_error))
        return found


@dataclass(frozen=True)
class CandidateAgreement(Reading):
    """Whether the candidates of a blend agree, and whether there is an anchor among them."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        o, combination = self.overlaps.of_actions(subject.policy, subject.sums), subject.combination
        if combination is None or not combination.defined:
            return [UNANCHORED if o.ess > 0 else UNDEFINED]
        return combined_findings(combination, o)

    def numbers(self, subject: Subject) -> dict[str, Any]:
        o, combination = self.overlaps.of_actions(subject.policy, subject.sums), subject.combination
        return o.to_dict() | (combination.told() if combination is not None and combination.defined else {})


def disagreement(other: str, difference: float, z: float, blend: bool) -> Finding:
    """Two estimators that cannot both be right."""
    return Measure("disagreement of a blend" if blend else "disagreement", abs(z)).finding(
        "disagreement",
        f"It differs from {other} by {difference:+.4g}, {abs(z):.1f} standard errors of the paired difference.",
        "Chance seldom brings that, so at least one of the two is likely to be biased here.",
        "Trust the one whose assumptions you can check; a reward model is the usual suspect.",
    )


def own_bias(other: str, difference: float, error: float, own_error: float) -> Finding:
    """How large a bias the log cannot rule out, beside the interval that does not know of it.

    A nearly unbiased estimate is off by `difference`, give or take two of its `error`s; so much of it might be bias. The
    interval reaches two of its own errors to each side.
    """
    half_width = 2 * own_error
    might = (abs(difference) + 2 * error) / half_width if half_width > 0 else np.inf
    return Measure("hidden bias", might).finding(
        "own bias",
        f"It may be biased by design, and {other} shows only that the bias is within ±{abs(difference) + 2 * error:.2g}, "
        f"which is {might:.1f} times the reach of its 95% interval.",
        "The interval knows the chance of the draw, not this bias, and may miss the truth by it.",
        f"Lead with a nearly unbiased estimate (op.DR, {other}) or with op.Auto, whose interval allows for it; or log more.",
    )


def combined_findings(combination: Combination, o: Overlap) -> list[Finding]:
    """What speaks against a blend: candidates that cannot all be right, and biases that nothing can show."""
    candidates, weights = combination.candidates, combination.weights
    anchor = candidates.anchor
    weighed = sum(w for w, exact in zip(weights, candidates.unbiased, strict=True) if exact)
    keys = ("mean weight", "effective sample size") if weighed >= 0.5 else ("mean weight",)
    found = [finding for finding in weight_findings(o) if finding.code in keys]
    error = float(np.sqrt(candidates.variance(weights)))
    heavy = [k for k in range(len(weights)) if weights[k] >= CARRIES and abs(candidates.difference(k, anchor)[0]) > error]
    z, a, b = max(((abs(candidates.z(k, anchor)), k, anchor) for k in heavy), default=(0.0, 0, 0))
    if heavy:
        found.append(
            Measure("candidates", z).finding(
                "candidates disagree",
                f"{candidates.names[a]} says {candidates.values[a]:.4g} and {candidates.names[b]} says "
                f"{candidates.values[b]:.4g}, {z:.1f} standard errors of the paired difference apart.",
                "Chance does not explain that, so the first is biased here, and still part of the blend.",
                "See what each candidate says (in the report, or .explain() in Python); trust the one whose assumptions you "
                "can check, or log more rounds.",
            )
        )
    if weighed < 0.5:
        found.append(
            Measure("rounds to check a model", o.ess).finding(
                "unchecked bias",
                f"The {o.n:,} rounds count like {o.ess:,.0f} rounds of the new policy: {candidates.names[anchor]}, which is "
                f"nearly unbiased, knows the value only to ±{candidates.errors[anchor]:.2g}.",
                "The blend leans on reward models, and a bias of theirs of that size would not be seen; the interval allows "
                "for it.",
                "Log some rounds of the new policy, or of one closer to it.",
            )
        )
    return found
