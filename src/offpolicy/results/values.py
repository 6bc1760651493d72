"""Values of estimators: which member of a family counts, and what a blend makes of its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.diagnostics.overlap import NOT_ONE, WeightDiagnostics
from offpolicy.estimators import Combined, Estimator, Member
from offpolicy.estimators.selection import slope, smallest_error
from offpolicy.inference.blending import Candidate, Combination
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors, std_error
from offpolicy.inference.jackknife import Refits
from offpolicy.results.scores import Scores
from offpolicy.scoring.plan import Family, Terms, model_key
from offpolicy.statistics.histogram import LogHistogram


@dataclass(frozen=True)
class Picked:
    """The member of a family that counts, and its value."""

    functional: Functional
    member: Member
    terms: Terms


@dataclass(frozen=True)
class Values:
    """Computes them. Where members or candidates are compared, their errors come first."""

    scores: Scores
    refits: Refits
    weights: WeightDiagnostics

    def picked(self, p: int, estimator: Estimator, family: Family, reward: int, sums: ScoreSums) -> Picked:
        functionals = [self.scores.functional(terms, reward, sums) for _, terms in family]
        pick = 0
        if len(family) > 1:
            functionals = [
                self.refits.with_fit_error(p, f, member, terms, sums)
                for f, (member, terms) in zip(functionals, family, strict=True)
            ]
            pick = self._select(p, estimator, family, functionals, sums)
        return Picked(functionals[pick], *family[pick])

    def _select(
        self, p: int, estimator: Estimator, family: Family, functionals: Sequence[Functional], sums: ScoreSums
    ) -> int:
        """The member of a family that SLOPE picks; families stand from the least biased member to the most."""
        tails = [self._unseen_tail(p, member, terms, sums) for member, terms in family]

        def z(i: int, j: int) -> float:
            difference = functionals[i].minus(functionals[j])
            error = np.hypot(std_error(difference, sums), tails[i])
            return float(difference.value / error) if error > 0 else in_errors(difference, sums)

        if estimator.lattice:
            sets = [frozenset(member.weight.ratio.dimensions or ()) for member, _ in family]
            return smallest_error(sets, z, [std_error(f, sums) for f in functionals])
        return slope(len(family), z)

    def _unseen_tail(self, p: int, member: Member, terms: Terms, sums: ScoreSums) -> float:
        """CAB only: how badly the log knows what lies above the clip, where the model stands in.

        Rounds with w > clip are few, and their spread does not show what was never drawn: with N of them logged, the model's
        part is uncertain by about its own size / √(1 + N).
        """
        if not member.remainder or terms.baseline is None or member.setting is None or not np.isfinite(member.setting):
            return 0.0
        above = LogHistogram.count_above(self.scores.state["policies"][str(p)]["weights"], member.setting)
        return abs(float(sums.moments["mean"][terms.baseline])) / float(sums.moments["mean"][0]) / float(np.sqrt(1 + above))

    def combination(
        self, p: int, estimator: Combined, families: Sequence[Family], reward: int, sums: ScoreSums
    ) -> tuple[Combination, list[tuple[float, Terms]]]:
        """One estimate from several candidates, and the terms of those that carry weight."""
        candidates, terms = [], {}
        for part, family in zip(estimator.parts, families, strict=True):
            picked = self.picked(p, part, family, reward, sums)
            f, member = picked.functional, picked.member
            f = f if f.sampling is not None else self.refits.with_fit_error(p, f, member, picked.terms, sums)
            known = f.fit is not None or not self.refits.matters(member, model_key(member, p, reward))
            candidates.append(Candidate(part.name, f, member.weight.exact, known))
            terms[part.name] = picked.terms
        o = self.weights.of_actions(p, sums, None)
        shortfall = -o.mean_weight_z if o.mean_weight < 1 - NOT_ONE else 0.0
        found = Combination.of(estimator, candidates, sums, shortfall)
        return found, [(float(w), terms[part.name]) for part, w in zip(found.parts, found.weights, strict=True) if w]
