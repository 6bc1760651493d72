"""Whether estimates agree: with a nearly unbiased one, and the candidates of a blend with each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.overlap import Overlap, Overlaps, weight_findings
from offpolicy.diagnostics.verdict import UNANCHORED, UNDEFINED, Finding, Measure
from offpolicy.inference.blending import Combination
from offpolicy.inference.functionals import in_errors, std_error

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
