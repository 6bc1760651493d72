"""What is known of an estimate besides its value: its error, the numbers that support it, and every finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.diagnostics import verdict as findings
from offpolicy.diagnostics.agreement import combined_findings, disagreement, own_bias
from offpolicy.diagnostics.concentration import concentrated, concentration
from offpolicy.diagnostics.models import ModelDiagnostics, model_findings, uncertain_fit
from offpolicy.diagnostics.overlap import WeightDiagnostics, pooled_findings, support_findings, weight_findings
from offpolicy.diagnostics.propensities import PropensityDiagnostics
from offpolicy.diagnostics.sample_size import few_units, reward_findings
from offpolicy.estimators import Estimator, Member
from offpolicy.inference.blending import Combination
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors, sampling_variance, std_error
from offpolicy.inference.jackknife import Refits
from offpolicy.ratios.weights import Weight
from offpolicy.results.scores import Scores
from offpolicy.results.values import Picked
from offpolicy.scoring.plan import ModelKey, fit_of, model_key


@dataclass(frozen=True)
class Details:
    """Of one estimate."""

    functional: Functional
    std_error: float
    diagnostics: Mapping[str, Any]
    checks: tuple[findings.Finding, ...]
    """What was found good as well."""


SKIPPED = findings.Finding(
    findings.Verdict.CAUTION,
    "errors skipped",
    "No error was computed: the evaluation was asked for values alone (errors=False).",
    "Without an error and the checks nothing shows how far off the value may be.",
    "Evaluate again without errors=False.",
)


def without_error(f: Functional) -> Details:
    """For values alone."""
    return Details(f, float("nan"), {}, (SKIPPED,))


@dataclass(frozen=True)
class Examination:
    """Computes errors and findings from what the passes gave."""

    scores: Scores
    refits: Refits
    weights: WeightDiagnostics
    models: ModelDiagnostics
    propensities: PropensityDiagnostics

    @classmethod
    def of(cls, scores: Scores) -> Examination:
        parts = (scores.scorer, scores.fitted, scores.state)
        return cls(
            scores,
            Refits(*parts),
            WeightDiagnostics(scores.policies, *parts),
            ModelDiagnostics(scores.policies, *parts),
            PropensityDiagnostics(scores.propensity_tests, scores.state["propensities"], scores.log.space, len(scores.log)),
        )

    def of_blend(self, p: int, reward: int, combination: Combination, sums: ScoreSums) -> Details:
        o = self.weights.of_actions(p, sums, self.scores.kept(p, sums))
        undefined = findings.UNANCHORED if o.ess > 0 else findings.UNDEFINED
        found = combined_findings(combination, o) if combination.defined else [undefined]
        found += [*self.propensities.findings, *support_findings(o, True, True)]
        f = combination.functional
        found += [concentrated(concentration(f, sums)), *_sample_size(reward, sums)]
        seen = o.to_dict() | (combination.told() if combination.defined else {})
        return Details(f, std_error(f, sums), seen, tuple(found))

    def of_member(self, p: int, estimator: Estimator, picked: Picked, reward: int, sums: ScoreSums) -> Details:
        """The error, which may take refits, and every finding."""
        f, member = picked.functional, picked.member
        model = model_key(member, p, reward)
        f = f if f.sampling is not None else self.refits.with_fit_error(p, f, member, picked.terms, sums)
        found, seen = self._findings(p, reward, member, model, f, sums)
        if member.setting is not None:
            seen[estimator.tuned or "setting"] = member.setting
        if member.weight.ratio.dimensions is not None:
            seen["dimensions"] = list(member.weight.ratio.dimensions)
        if f.fit is None and self.refits.matters(member, model):
            seen["fit_not_covered"] = True
            found.append(self._not_covered(model))
        error = std_error(f, sums)
        if f.fit is not None and member.weight.ratio.whole:  # a reward model alone moves values as it should
            found += uncertain_fit(error, float(np.sqrt(sampling_variance(f, sums))))
        return Details(f, error, seen, tuple(found))

    def _not_covered(self, model: ModelKey | None) -> findings.Finding:
        if model is not None and model.fit.rewards.fitted_before:
            return findings.FITTED_BEFORE
        return findings.TOO_MANY_FOR_REFITS if self.scores.scorer.many else findings.FIT_NOT_COVERED

    def _findings(
        self, p: int, reward: int, member: Member, model: ModelKey | None, f: Functional, sums: ScoreSums
    ) -> tuple[list[findings.Finding], dict[str, Any]]:
        if member.weight.naive:
            return [findings.NAIVE], {}
        found: list[findings.Finding] = []
        seen: dict[str, Any] = {}
        if not np.isfinite(f.value):
            found.append(self._no_number(p, member, sums))
        if (p, reward) in self.scores.references:
            kept = self.scores.kept(p, sums)
            o = self.weights.of_actions(p, sums, kept)
            found += support_findings(o, model is not None, member.weight.ratio.of_actions)
            if member.weight.ratio.of_actions:
                found += weight_findings(o)
                seen |= o.to_dict()
            elif member.weight.weighs:
                pooled = self.weights.of_embeddings(p, member.weight, sums, kept)
                found += pooled_findings(pooled, o, model is not None)
                seen |= pooled.to_dict()
        found += self.propensities.findings if member.weight.weighs else ()
        found.append(concentrated(concentration(f, sums)))
        if model is not None:
            r2, fitted = self.models.fit(model)
            seen |= {"reward_model": fitted}
            found += model_findings(r2, member.weight.weighs)
            found += [] if (p, reward) in self.scores.references else [findings.UNCHECKED_MODEL]
        if self._shares_covariance(member, model, reward):
            found.append(findings.SHARED_COVARIANCE)
        return found + _sample_size(reward, sums), seen

    def _shares_covariance(self, member: Member, model: ModelKey | None, reward: int) -> bool:
        """Whether its reward model, or that of its embedding, had no room for a matrix of each action."""
        learned = fit_of(member.weight.ratio)
        fits = [fit for fit in (None if model is None else model.fit, learned) if fit is not None]
        return any("covariance" in self.scores.fitted.models[fit].diagnostics(reward) for fit in fits)

    def _no_number(self, p: int, member: Member, sums: ScoreSums) -> findings.Finding:
        """Why there is none: nothing to weigh, or a model that gives none."""
        return (
            findings.UNDEFINED
            if member.weight.weighs and not self.weights.of_actions(p, sums, None).ess > 0
            else findings.NO_NUMBER
        )


def _sample_size(reward: int, sums: ScoreSums) -> list[findings.Finding]:
    found = reward_findings(int(sums.nonzero[reward]), sums.n)
    return [*found, few_units(int((sums.buckets[:, 0] > 0).sum()))] if sums.clustered else found


def compared(
    details: Details, weight: Weight | None, reference: str, other: Functional, sums: ScoreSums
) -> tuple[findings.Finding, ...]:
    """An estimate held against a nearly unbiased one; `weight` is None for a blend."""
    if any(check is findings.NAIVE for check in details.checks):
        return ()
    mine = replace(details.functional, extra=0.0, way=None)
    difference = mine.minus(other)
    if not np.isfinite(difference.value):
        return ()
    z = in_errors(difference, sums)
    found = [disagreement(reference, difference.value, z, blend=weight is None)] if np.isfinite(z) else []
    if weight is not None and not weight.mean_one:
        found.append(own_bias(reference, difference.value, std_error(difference, sums), details.std_error))
    return tuple(found)
