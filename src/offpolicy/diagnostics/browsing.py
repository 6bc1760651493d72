"""Which assumptions about how people read lists the log contradicts.

If an assumption is wrong, an estimator that makes it gives slots another value than one that assumes less: the weights of
whole lists, which assume nothing, or those in between. The paired difference has a known error: if it is beyond noise in any
slot, the assumption is wrong on this log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import erfc, sqrt
from typing import Any

import numpy as np

from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.estimates import CAN_CONTRADICT
from offpolicy.diagnostics.overlap import Overlaps
from offpolicy.diagnostics.verdict import LIMITS, Finding, Measure, Verdict
from offpolicy.estimators import Member
from offpolicy.inference.functionals import std_error
from offpolicy.inference.scores import Case, Scores
from offpolicy.ratios.base import Ratio
from offpolicy.scoring.plan import AnyTerms


@dataclass(frozen=True)
class Contradiction:
    """The slot in which an assumption fits worst.

    Attributes
    ----------
    assumes : str
        The assumption.
    slot : int
        The slot, from 1.
    other : str
        What assumes less.
    difference, error : float
        The value of the slot under the assumption minus that of the other, and its standard error.
    p : float
        The p-value over all slots and all that assume less (Bonferroni).
    """

    assumes: str
    slot: int
    other: str
    difference: float
    error: float
    p: float

    @property
    def contradicted(self) -> bool:
        return LIMITS["assumption"].grade(self.p) is not Verdict.OK

    def finding(self, name: str) -> Finding:
        """For the estimator of this name, which makes the assumption."""
        return Measure("assumption", self.p).finding(
            "assumption contradicted",
            f"{name} assumes that {self.assumes}. In slot {self.slot} it differs from {self.other}, which assumes less, by "
            f"{self.difference:+.3g} ± {self.error:.2g} (p = {self.p:.2g} over all slots).",
            "Such a difference is rarely due to chance, so people do not read these lists in that way.",
            "Use op.Auto, or an estimator that assumes less: op.RIPS, op.AIPS, op.SIPS.",
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "assumption": self.assumes, "slot": self.slot, "compared_with": self.other, "difference": self.difference,
            "std_error": self.error, "p_value": self.p, "contradicted": self.contradicted,
        }  # fmt: skip


@dataclass(frozen=True)
class Browsing(Reading):
    """The assumptions of an estimate, or of the candidates of a blend, against the weights of whole lists."""

    scores: Scores
    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        if subject.member is None:
            return []  # a blend weighs its candidates by the same differences
        ratio, name = subject.member.weight.ratio, subject.estimator.name
        if ratio.assumes is not None and (unchecked := self._unchecked(subject, name, ratio.assumes)) is not None:
            return [unchecked]
        return [each.finding(name) for each in self._contradictions(subject)]

    def _unchecked(self, subject: Subject, name: str, assumes: str) -> Finding | None:
        """What to say where whole lists are worth too little to contradict anything."""
        if (subject.policy, subject.reward) not in self.scores.references:
            return None
        lists = self.overlaps.of_actions(subject.policy, subject.sums).ess
        if lists >= CAN_CONTRADICT:
            return None
        return Finding(
            Verdict.CAUTION,
            "assumption unchecked",
            f"{name} assumes that {assumes}, and weights that assume nothing make the log worth only {lists:,.0f} lists of "
            "the new policy.",
            "So few lists cannot show whether the assumption is wrong.",
            "Log more lists, or evaluate a policy closer to the logging one.",
        )

    def numbers(self, subject: Subject) -> dict[str, Any]:
        every = {each.assumes: each for each in self._contradictions(subject)}
        return {"assumptions": [each.to_dict() for each in every.values()]} if every else {}

    def _contradictions(self, subject: Subject) -> Iterator[Contradiction]:
        case = Case(subject.policy, subject.reward, subject.sums)
        reference, gain = self.scores.references.get((case.policy, case.reward)), self.scores.scorer.plan.gain
        if reference is None or gain is None or self.overlaps.of_actions(case.policy, case.sums).ess < CAN_CONTRADICT:
            return
        every = {member.weight.ratio: (name, terms) for name, member, terms in self._assuming(case)}
        for ratio, (name, terms) in every.items():
            mine = subject.member is None or subject.member.weight.ratio == ratio
            if mine and name in (part.name for part in subject.estimator.parts):
                missed = np.array(ratio.missed(len(gain)).shares)
                less = [("SIPS", reference)]
                for other, (label, others) in every.items():
                    theirs = np.array(other.missed(len(gain)).shares)
                    if (theirs <= missed).all() and (theirs < missed).any():
                        less.append((label, others))
                found = [each for other in less if (each := self._compared(case, ratio, terms, other)) is not None]
                if found:
                    worst = min(found, key=lambda each: each.p)
                    yield replace(worst, p=min(1.0, len(found) * worst.p))

    def _compared(self, case: Case, ratio: Ratio, terms: AnyTerms, other: tuple[str, AnyTerms]) -> Contradiction | None:
        """One assumption against one estimator that assumes less."""
        pairs = zip(self.scores.slots(terms, case), self.scores.slots(other[1], case), strict=True)
        differences = [a.minus(b) for a, b in pairs]
        values, errors = (np.array(x) for x in zip(*((d.value, std_error(d, case.sums)) for d in differences), strict=True))
        z = np.abs(values) / np.where(errors > 0, errors, np.inf)
        if not np.isfinite(z).all() or not z.any():
            return None
        k = int(np.argmax(z))
        p = min(1.0, len(z) * erfc(float(z[k]) / sqrt(2)))
        return Contradiction(ratio.assumes or "", k + 1, other[0], float(values[k]), float(errors[k]), p)

    def _assuming(self, case: Case) -> Iterator[tuple[str, Member, AnyTerms]]:
        """What was computed without a reward model and assumes something."""
        for (p, e, reward), families in self.scores.members.items():
            if (p, reward) == (case.policy, case.reward):
                for part, family in zip(self.scores.estimators[e][p].parts, families, strict=True):
                    for member, terms in family:
                        if member.rewards is None and member.weight.ratio.assumes is not None:
                            yield part.name, member, terms
