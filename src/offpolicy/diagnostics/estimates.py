"""Checks of an estimate itself: whether it is a number, rests on enough of the log, and agrees with others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.overlap import Overlap, Overlaps, overlap, weight_findings
from offpolicy.diagnostics.verdict import ENOUGH, LIMITS, Finding, Limits, Measure, Verdict, in_all
from offpolicy.inference.blending import Combination
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors, std_error
from offpolicy.inference.scores import Scores

UNANCHORED = Finding(
    Verdict.DO_NOT_TRUST,
    "no anchor",
    "No nearly unbiased candidate has a value and a standard error: too few rounds have an action that the new policy "
    "takes, or all rounds are in one cluster.",
    "Nothing shows how biased the other candidates are, so they are not blended.",
    f"Log rounds under a policy that overlaps with the new one; under the new one itself, {ENOUGH} would be enough.",
)

NO_NUMBER = Finding(
    Verdict.DO_NOT_TRUST,
    "no number",
    "The estimate is NaN or infinite.",
    "The usual cause is a reward model that predicts NaN or infinity in some rounds.",
    "Check the model's predictions, and the scale of the context and the rewards.",
)

UNDEFINED = Finding(
    Verdict.DO_NOT_TRUST,
    "undefined",
    "The new policy never takes a logged action: every weight is 0.",
    "Without any weight, the estimate is undefined.",
    f"Log rounds under a policy that overlaps with the new one; under the new one itself, {ENOUGH} would be enough.",
)


@dataclass(frozen=True)
class Definition(Reading):
    """Why an estimate is not a number: every weight is 0, or a model predicts none."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        member = subject.member
        if member is None or np.isfinite(subject.functional.value):
            return []
        weight, p = member.weight, subject.policy
        all_zero = weight.weighs and not self.overlaps.of_weight(p, weight, subject.sums).ess > 0
        return [UNDEFINED if all_zero else NO_NUMBER]


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
    """Whether one small part of the log determines the answer."""

    def findings(self, subject: Subject) -> list[Finding]:
        sums, share = subject.sums, self.share(subject.functional, subject.sums)
        parts = max(int((sums.buckets[:, 0] > 0).sum()), 1)
        rounds = max(round(sums.n / parts), 1)
        about = "about 1 round" if rounds == 1 else f"about {rounds:,} rounds"
        return [
            Measure("concentration", share).finding(
                "concentration",
                f"One of {parts:,} parts of the log ({about}) carries {share:.0%} of the estimate's variance.",
                "One or a few rounds with a huge weight or reward determine the answer, and another log may not have them.",
                "Look at the largest rewards and weights; compare with ClippedIPS, or evaluate a bounded reward.",
            )
        ]

    def share(self, f: Functional, sums: ScoreSums) -> float:
        """The share of the sampling variance that comes from one bucket of units; 0 if few buckets are filled."""
        if not np.isfinite(f.gradient).all():
            return 0.0
        influence = sums.buckets @ f.gradient
        total = float(influence @ influence)
        if (sums.buckets[:, 0] > 0).sum() < 100 or not np.isfinite(total) or total <= 0:
            return 0.0
        return float((influence**2).max()) / total


OUTSIDE = Limits(1e-6, 2)  # how far outside the range of the rewards an estimate lies, in its standard errors


@dataclass(frozen=True)
class Plausibility(Reading):
    """Whether the value lies within the range of the rewards."""

    scores: Scores

    def findings(self, subject: Subject) -> list[Finding]:
        value, (low, high) = subject.functional.value, self.scores.reward_range(subject.reward)
        if not np.isfinite(value):
            return []
        distance = max(low - value, value - high, 0.0)
        rounding = 1e-9 * max(abs(low), abs(high), 1.0)
        outside = distance > rounding
        measure = distance / subject.std_error if outside and subject.std_error > 0 else np.inf if outside else 0.0
        where = f"{'outside' if outside else 'within'} the range of the rewards, {low:g} to {high:g}"
        return [
            Finding(
                OUTSIDE.grade(measure),
                "out of range",
                f"The estimate, {value:.4g}, lies {where}.",
                f"The value of a policy is a mean of rewards, so the estimate is off by at least {distance:.2g}."
                if outside
                else "The value of a policy is a mean of rewards.",
                "Compare it with a self-normalised estimator (op.SNIPS, op.SNDR), and check the largest weights and the "
                "reward model.",
            )
        ]


class SampleSize(Reading):
    """Whether there are enough rewards, and enough clusters for clustered errors."""

    def findings(self, subject: Subject) -> list[Finding]:
        sums, findings = subject.sums, []
        nonzero, units = int(sums.nonzero[subject.reward]), int((sums.buckets[:, 0] > 0).sum())
        if nonzero != sums.n:  # if no reward is 0, there are few rewards only if there are few rounds
            rewarded = Measure("rewards", nonzero)
            findings.append(
                rewarded.finding(
                    "few rewards",
                    f"Only {nonzero:,} of {sums.n:,} rounds have a reward other than 0.",
                    "Intervals assume many such rounds, and are too narrow if there are few.",
                    f"{rewarded.more_rounds(sums.n)}, or evaluate a more frequent reward as well.",
                )
            )
        if sums.clustered:
            clusters = Measure("clusters", units)
            findings.append(
                clusters.finding(
                    "few clusters",
                    f"There are only about {units} clusters.",
                    "With so few, a clustered standard error is itself uncertain, and usually too small.",
                    f"{clusters.more_rounds(sums.n)} in new clusters, or use smaller clusters if the rounds within one are "
                    "independent.",
                )
            )
        return findings


WEIGHT_CODES = ("mean weight", "effective sample size", "top weights")
"""The checks of weights that apply to a blend."""
CARRIES = 0.05  # the weight from which a candidate counts as part of a blend


CAN_CONTRADICT = 30
"""The number of effective lists from which the weights of whole lists can contradict an estimate."""


@dataclass(frozen=True)
class Agreement(Reading):
    """Whether an estimate agrees with a nearly unbiased one."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        if subject.reference is None or self._too_few_lists(subject):
            return []
        (name, other), sums, member = subject.reference, subject.sums, subject.member
        difference = replace(subject.functional, extra=0.0, way=None, hedge=None).minus(other)
        if not np.isfinite(difference.value):
            return []
        z = in_errors(difference, sums)
        findings = [disagreement(name, difference.value, z, blend=member is None)] if np.isfinite(z) else []
        if member is not None and (not member.weight.mean_one or member.smoothing is not None):
            errors = std_error(difference, sums), subject.std_error, std_error(other, sums)
            findings.append(own_bias(name, difference.value, errors, sums.n))
        return findings

    def _too_few_lists(self, subject: Subject) -> bool:
        """Whether the logged lists have so few effective ones that the error of the nearly unbiased estimate is unknown."""
        if self.overlaps.scores.log.space.slots is None or not subject.weighable:
            return False
        return self.overlaps.of_actions(subject.policy, subject.sums).ess < CAN_CONTRADICT


@dataclass(frozen=True)
class CandidateAgreement(Reading):
    """Whether the candidates of a blend agree, and whether there is an anchor among them."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        o, combination = self._overlap(subject), subject.combination
        if combination is None or not combination.defined:
            return [UNANCHORED if o.ess > 0 else UNDEFINED]
        if not combination.estimator.compares:
            return [f for f in weight_findings(o, "effective rounds") if f.code in WEIGHT_CODES]
        return combined_findings(combination, o)

    def _overlap(self, subject: Subject) -> Overlap:
        """That of the actions; where these cannot be weighted, that of the candidate that carries most of the blend."""
        if subject.weighable or subject.combination is None:
            return self.overlaps.of_actions(subject.policy, subject.sums)
        pairs = zip(subject.combination.parts, subject.combination.weights.tolist(), strict=True)
        weighing = [(abs(weight), part.column) for part, weight in pairs if part.column is not None]
        column = max(weighing, key=lambda pair: pair[0])[1] if weighing else None
        return overlap(subject.sums, 0 if column is None else column, mean_one=False)

    def numbers(self, subject: Subject) -> dict[str, Any]:
        o, combination = self._overlap(subject), subject.combination
        return o.to_dict() | (combination.to_dict() if combination is not None and combination.defined else {})


def uncertain_lists(lists: float, cautious: float, rounds: int) -> Finding:
    """Whether the number of effective lists is large enough although it is an estimate."""
    measure = Measure("effective lists, cautiously", cautious)
    return measure.finding(
        "uncertain effective lists",
        f"The {rounds:,} lists seem to be worth {lists:,.0f} of the new policy, but may be worth only {cautious:,.0f}.",
        "The largest weights of lists are rare, and this log may lack them by chance.",
        f"{measure.more_rounds(rounds, 'lists')}, or evaluate a policy closer to the logging one.",
    )


def disagreement(other: str, difference: float, z: float, blend: bool) -> Finding:
    """Two estimates that cannot both be right."""
    return Measure("disagreement of a blend" if blend else "disagreement", abs(z)).finding(
        "disagreement",
        f"It differs from {other} by {difference:+.4g}, {abs(z):.1f} standard errors of the paired difference.",
        "Such a difference is rarely due to chance, so at least one of the two is probably biased.",
        "Trust the one whose assumptions you can check; the reward model is the usual suspect.",
    )


def own_bias(other: str, difference: float, errors: tuple[float, float, float], rounds: float) -> Finding:
    """How large a bias the log cannot rule out, compared with the interval, which does not include it.

    A nearly unbiased estimate differs by `difference`, give or take two of its errors, all of which could be bias. The
    interval reaches two of the estimate's own errors to each side. `errors` are the standard errors of the difference, of
    this estimate and of the other.
    """
    error, own_error, other_error = errors
    half_width = 2 * own_error
    might = (abs(difference) + 2 * error) / half_width if half_width > 0 else np.inf
    return Measure("hidden bias", might).finding(
        "own bias",
        f"It may be biased by design, and {other} shows only that the bias is within ±{abs(difference) + 2 * error:.2g}, "
        f"which is {might:.1f} times the half-width of its 95% interval.",
        "The interval covers sampling error but not this bias, and may miss the true value because of it.",
        f"Lead with a nearly unbiased estimate (op.DR, {other}) or with op.Auto, whose interval allows for it"
        f"{as_precise(other, other_error, own_error, rounds)}.",
    )


def as_precise(other: str, error: float, goal: float, rounds: float) -> str:
    """How many rounds make the standard error of another estimate as small as this one; nothing if it is so already."""
    if not 0 < goal < error < np.inf:
        return ""
    return f", or log more rounds ({in_all(rounds * (error / goal) ** 2)}, would make {other} alone as precise)"


def combined_findings(combination: Combination, o: Overlap) -> list[Finding]:
    """Concerns about a blend: candidates that cannot all be right, and biases that the log cannot reveal."""
    candidates, weights = combination.candidates, combination.weights
    anchor = candidates.anchor
    unbiased = sum(w for w, exact in zip(weights, candidates.unbiased, strict=True) if exact)
    # Whatever carries the blend, its bias is checked against the anchor, and so rests on the rounds of the anchor. Only if
    # the interval allows for what these do not show, fewer of them are enough.
    of_anchor = "effective lists of an anchor" if candidates.missed.size else "effective rounds of an anchor"
    scale = of_anchor if unbiased < 0.5 and combination.choice.allows else "effective rounds"
    findings = [finding for finding in weight_findings(o, scale) if finding.code in WEIGHT_CODES]
    if candidates.missed.size and o.cautious is not None and LIMITS[scale].grade(o.ess) is Verdict.OK:
        findings.append(uncertain_lists(o.ess, o.cautious, o.n))
    error = float(np.sqrt(candidates.variance(weights)))
    heavy = [k for k in range(len(weights)) if weights[k] >= CARRIES and abs(candidates.difference(k, anchor)[0]) > error]
    z, a, b = max(((abs(candidates.z(k, anchor)), k, anchor) for k in heavy), default=(0.0, 0, 0))
    if heavy:
        findings.append(
            Measure("candidates", z).finding(
                "candidates disagree",
                f"{candidates.names[a]} gives {candidates.values[a]:.4g} and {candidates.names[b]} gives "
                f"{candidates.values[b]:.4g}, {z:.1f} standard errors of the paired difference apart.",
                "This is more than chance explains, so the first one is biased on this log, and it is part of the blend.",
                "Compare the candidates (in the report, or with .explain() in Python); trust the one whose assumptions you "
                f"can check{as_precise(candidates.names[b], candidates.errors[b], error, o.n)}.",
            )
        )
    if unbiased < 0.5:
        findings.append(
            Measure("rounds to check a model", o.ess).finding(
                "unchecked bias",
                f"The {o.n:,} rounds are worth {o.ess:,.0f} rounds of the new policy: {candidates.names[anchor]}, which is "
                f"nearly unbiased, determines the value only to within ±{candidates.errors[anchor]:.2g}.",
                "The blend relies on reward models, and a bias of that size would go unnoticed; the interval allows for it.",
                f"Log rounds under the new policy ({ENOUGH} would be enough), or under one closer to it.",
            )
        )
    return findings
