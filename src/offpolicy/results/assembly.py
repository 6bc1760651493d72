"""From the sums of the scoring pass to an `Evaluation`: members are compared, findings made, slices cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.describe import described
from offpolicy.core.errors import InputError
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.log import Log
from offpolicy.diagnostics import verdict as findings
from offpolicy.diagnostics.agreement import combined_findings, disagreement, own_bias
from offpolicy.diagnostics.concentration import concentrated, concentration
from offpolicy.diagnostics.models import ModelDiagnostics, model_findings, uncertain_fit
from offpolicy.diagnostics.overlap import NOT_ONE, WeightDiagnostics, pooled_findings, support_findings, weight_findings
from offpolicy.diagnostics.propensities import PropensityDiagnostics
from offpolicy.diagnostics.propensity_tests import PropensityTests
from offpolicy.diagnostics.sample_size import few_units, reward_findings
from offpolicy.engines.base import Engine
from offpolicy.engines.spark import Spark
from offpolicy.estimators import Combined, Estimator, LoggedMean, Member
from offpolicy.estimators.selection import slope, smallest_error
from offpolicy.inference.blending import Candidate, Combination
from offpolicy.inference.bootstrap import Redraws
from offpolicy.inference.functionals import Functional, ScoreSums, functional, in_errors, sampling_variance, std_error
from offpolicy.inference.intervals import Range
from offpolicy.inference.jackknife import Refits
from offpolicy.inference.sensitivity import Tilting
from offpolicy.models.propensities import FittedLogging
from offpolicy.models.rewards.fitted import FittedRewards
from offpolicy.models.rewards.given import Given
from offpolicy.models.rewards.torch import AdamW, Torch
from offpolicy.ratios.weights import Outcome, Pooled, Weight
from offpolicy.results.estimate import Details, Estimate, Later, Redrawn
from offpolicy.results.evaluation import Evaluation, Views
from offpolicy.results.provenance import read, versions
from offpolicy.scoring.export import write_scores
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import Family, ModelKey, Terms, fit_of, model_key
from offpolicy.scoring.scorer import Scorer
from offpolicy.scoring.tallies import pool_name
from offpolicy.statistics.base import State
from offpolicy.statistics.histogram import LogHistogram

LEADS = ("Auto", "DR", "SNDR", "SNIPS", "IPS", "DM")
"""Which estimator leads, the first of these that was run; else the last in the list."""
REFERENCES = ("SNIPS", "IPS", "DR")
"""Nearly unbiased estimators that the others are held against."""


@dataclass(frozen=True)
class Assembly:
    """Everything an evaluation is put together from."""

    log: Log
    engine: Engine
    policies: tuple[str, ...]
    estimators: tuple[Estimator, ...]
    asked: tuple[str, ...]
    """The same in words, as they were asked for."""
    members: Mapping[tuple[int, int, int], Sequence[Family]]
    references: Mapping[tuple[int, int], Terms]
    """Of SNIPS for each policy and reward, where there are propensities."""
    scorer: Scorer
    fitted: FitResults
    propensity_tests: PropensityTests | None
    state: State
    level: float
    cross_fit: int | None
    skipped: Mapping[str, str]
    redraws: Redraws

    @cached_property
    def _weights(self) -> WeightDiagnostics:
        return WeightDiagnostics(self.policies, self.scorer, self.fitted, self.state)

    @cached_property
    def _models(self) -> ModelDiagnostics:
        return ModelDiagnostics(self.policies, self.scorer, self.fitted, self.state)

    @cached_property
    def _refits(self) -> Refits:
        return Refits(self.scorer, self.fitted, self.state)

    @cached_property
    def _propensities(self) -> PropensityDiagnostics:
        """Of the propensities, for whatever weighs by them."""
        return PropensityDiagnostics(self.propensity_tests, self.state["propensities"], self.log.space, len(self.log))

    def evaluation(self) -> Evaluation:
        schema, sums = self.log.schema, self._sums(self.state)
        for k, name in enumerate(schema.rewards if self.log.reward_range else ()):
            seen, allowed = (self.state["reward_low"][k], self.state["reward_high"][k]), self.log.reward_range
            if allowed is not None and (seen[0] < allowed[0] or seen[1] > allowed[1]):
                told = f"({allowed[0]:g}, {allowed[1]:g})"
                raise InputError(f"{name}: rewards from {seen[0]:g} to {seen[1]:g} leave the reward_range {told}.")
        if not sums.moments["mean"][0] > 0:
            raise InputError("weight: every row has weight 0, so there is nothing to average.")
        slices = {}
        for s, name in enumerate(schema.slices or ()):
            part = self._sums(self.state["slices"][str(s)])
            slices[name] = [self._reward(k, part, slice_=str(s)) for k in range(len(schema.rewards))]
        whole = [self._reward(k, sums) for k in range(len(schema.rewards))]

        def gathered(each: Sequence[Evaluation]) -> Evaluation:
            several = {e.reward: e for e in each} if len(each) > 1 else {}
            return replace(each[0], rewards=several)

        return replace(gathered(whole), slices={name: gathered(each) for name, each in slices.items()})

    def _sums(self, state: State) -> ScoreSums:
        return ScoreSums(state["moments"], state["buckets"], state["nonzero"], self.log.schema.clustered, self.scorer.seed)

    def _reward(self, reward: int, sums: ScoreSums, slice_: str | None = None) -> Evaluation:
        names = tuple(estimator.name for estimator in self.estimators)
        others = [estimator.name for estimator in self.estimators if not isinstance(estimator, LoggedMean)]
        lead = next((name for name in (*LEADS, *others) if name in names), names[0])
        estimates = {
            (policy, name): self._estimate(p, e, reward, sums, slice_)
            for p, policy in enumerate(self.policies)
            for e, name in enumerate(names)
        }
        evaluation = Evaluation(
            estimates=estimates,
            policies=self.policies,
            estimators=names,
            headline_estimator=lead,
            logged_estimator=next(e.name for e in self.estimators if isinstance(e, LoggedMean)),
            reward=self.log.schema.rewards[reward],
            rounds=sums.n,
            **self.log.space.summary(),
            actions_logged=int((self.state["counts"] > 0).sum()) if slice_ is None and len(self.state["counts"]) else None,
            level=self.level,
            skipped=self.skipped,
            settings=self._settings | {"slice": None if slice_ is None else (self.log.schema.slices or ())[int(slice_)]},
            input=read(self.log, self.state["fingerprint"]) if slice_ is None else {},
            versions=versions(*self._extras) if slice_ is None else {},
            _tilted={
                name: Later(partial(self._tilting.of, p, reward))
                for p, name in enumerate(self.policies)
                if slice_ is None and (p, reward) in self.references
            },
            _views=Later(Views if slice_ is not None else partial(self._views, reward, list(estimates.values()), sums)),
        )
        origin = float(self.scorer.origin[reward])
        hidden = {
            policy: functional(self.references[p, reward], sums.moments["mean"], origin)
            for p, policy in enumerate(self.policies)
            if (p, reward) in self.references
        }
        return replace(evaluation, estimates=_compared(evaluation, hidden, sums))

    @cached_property
    def _tilting(self) -> Tilting:
        low, high = self.state["reward_low"], self.state["reward_high"]
        return Tilting(self.log, self.engine, self.scorer, low, high, self.redraws.progress)

    @property
    def _extras(self) -> list[str]:
        """The packages besides the usual ones that had a part in the numbers."""
        torch = any(isinstance(fit.rewards, (AdamW, Torch)) for fit in self.fitted.models)
        return [*(["pyspark"] if isinstance(self.engine, Spark) else []), *(["torch"] if torch else [])]

    @property
    def _logging(self) -> str | None:
        """As it was asked for."""
        logging = self.scorer.logging
        return None if logging is None else described(logging.setting if isinstance(logging, FittedLogging) else logging)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return {
            "estimators": list(self.asked),
            "policies": {name: described(policy) for name, policy in zip(self.policies, self.scorer.policies, strict=True)},
            "logging": self._logging,
            "level": self.level,
            "interval": "normal",
            "cross_fit": self.cross_fit,
            "reward_range": None if self.log.reward_range is None else list(self.log.reward_range),
            "seed": self.scorer.seed,
            "clustered": self.log.schema.clustered,
            "engine": type(self.engine).__name__,
        }

    def _views(self, reward: int, estimates: Sequence[Estimate], sums: ScoreSums) -> Views:
        """The weights of each policy, by actions and by embeddings, and how the cross-fitted models predicted."""
        overlap = []
        for p, policy in enumerate(self.policies):
            used: dict[Weight, list[str]] = {Weight(): []} if (p, reward) in self.references else {}
            for e in (e for e in estimates if e.policy == policy and (e._weight is None or e._weight.weighs)):
                pooled = e._weight if e._weight is not None and isinstance(e._weight.ratio, Pooled) else None
                if pooled is not None or e._weight is None or e._weight.ratio == "action":
                    used.setdefault(pooled or Weight(), []).append(e.estimator)
            overlap += [self._weights.view(p, weight, names, sums) for weight, names in used.items()]
        users: dict[ModelKey, dict[str, None]] = {}
        for (p, index, of), families in self.members.items():
            for member in (member for family in families for member, _ in family):
                if (model := model_key(member, p, of)) is not None and model.folds and of == reward:
                    users.setdefault(model, {})[self.estimators[index].name] = None
        models = [self._models.view(model, list(names)) for model, names in users.items()]
        return Views(overlap, models, self._propensities.view())

    def _estimate(self, p: int, e: int, reward: int, sums: ScoreSums, slice_: str | None) -> Estimate:
        estimator, families = self.estimators[e], self.members[p, e, reward]
        if isinstance(estimator, Combined):
            return self._combined(p, estimator, families, reward, sums, slice_)
        f, member, terms = self._picked(p, estimator, families[0], reward, sums, slice_)
        low, high = self.log.reward_range or (
            self.state["reward_low"][reward],
            self.state["reward_high"][reward],
        )
        ratio = member.weight.ratio
        bent = member.weight.bend.largest(self._largest(p, member.weight)) if member.weight.weighs else 1.0
        return Estimate(
            policy=self.policies[p],
            estimator=self.estimators[e].name,
            reward=self.log.schema.rewards[reward],
            value=f.value,
            n=sums.n,
            _details=Later(partial(self._details, p, e, reward, f, member, terms, sums, slice_)),
            _sums=sums,
            _range=None if member.scaled else Range(float(low), float(high), bent, member.weight.mean_one, terms),
            _range_given=self.log.reward_range is not None,
            _level=self.level,
            _write_scores=None if slice_ is not None else self._score_writer([(1.0, terms)], reward, sums, alone=True),
            _embedding=self.fitted.pooled[ratio] if isinstance(ratio, Pooled) else None,
            _space=self.log.space,
            _weight=member.weight,
            _kind=type(estimator).__name__,
            _redrawn=self._redrawn(p, estimator, reward, slice_),
            _fitted=_learns(member, model_key(member, p, reward)) or len(families[0]) > 1 or self._estimated(member),
        )

    def _estimated(self, member: Member) -> bool:
        """Whether it weighs by propensities that were fitted to the log."""
        return isinstance(self.scorer.logging, FittedLogging) and member.weight.weighs

    def _picked(
        self, p: int, estimator: Estimator, family: Family, reward: int, sums: ScoreSums, slice_: str | None
    ) -> tuple[Functional, Member, Terms]:
        """The member of a family that counts."""
        origin = float(self.scorer.origin[reward])
        functionals = [functional(terms, sums.moments["mean"], origin) for _, terms in family]
        pick = 0
        if len(family) > 1:
            functionals = [
                self._refits.with_fit_error(p, f, member, terms, sums, slice_)
                for f, (member, terms) in zip(functionals, family, strict=True)
            ]
            pick = self._select(p, estimator, family, functionals, sums)
        return functionals[pick], *family[pick]

    def _combined(
        self, p: int, estimator: Combined, families: Sequence[Family], reward: int, sums: ScoreSums, slice_: str | None
    ) -> Estimate:
        """One estimate from several candidates."""
        candidates, terms = [], []
        for part, family in zip(estimator.parts, families, strict=True):
            f, member, own = self._picked(p, part, family, reward, sums, slice_)
            f = f if f.sampling is not None else self._refits.with_fit_error(p, f, member, own, sums, slice_)
            known = f.fit is not None or not self._refits.matters(member, model_key(member, p, reward))
            candidates.append(Candidate(part.name, f, member.weight.exact, known))
            terms.append(own)
        o = self._weights.of_actions(p, sums, None)
        shortfall = -o.mean_weight_z if o.mean_weight < 1 - NOT_ONE else 0.0
        combination = Combination.of(estimator, candidates, sums, shortfall)
        names = {candidate.name: own for candidate, own in zip(candidates, terms, strict=True)}
        used = [(float(w), names[part.name]) for part, w in zip(combination.parts, combination.weights, strict=True) if w]
        return Estimate(
            policy=self.policies[p],
            estimator=estimator.name,
            reward=self.log.schema.rewards[reward],
            value=combination.value,
            n=sums.n,
            _details=Later(partial(self._combined_details, p, reward, combination, sums)),
            _sums=sums,
            _range=None,
            _level=self.level,
            _write_scores=None if slice_ is not None else self._score_writer(used, reward, sums),
            _space=self.log.space,
            _kind=type(estimator).__name__,
            _redrawn=self._redrawn(p, estimator, reward, slice_),
        )

    def _redrawn(self, p: int, estimator: Estimator, reward: int, slice_: str | None) -> Redrawn:
        of = None if slice_ is None else (self.log.schema.slices or ())[int(slice_)]
        return partial(self.redraws.of, (of, self.log.schema.rewards[reward], self.policies[p], estimator.name))

    def _combined_details(self, p: int, reward: int, combination: Combination, sums: ScoreSums) -> Details:
        kept = self.state["policies"][str(p)] if sums.moments is self.state["moments"] else None
        o = self._weights.of_actions(p, sums, kept)
        undefined = findings.UNANCHORED if o.ess > 0 else findings.UNDEFINED
        found = combined_findings(combination, o) if combination.defined else [undefined]
        found += [*self._propensities.findings, *support_findings(o, True, True)]
        found.append(concentrated(concentration(combination.functional, sums)))
        found += reward_findings(int(sums.nonzero[reward]), sums.n)
        if sums.clustered:
            found.append(few_units(int((sums.buckets[:, 0] > 0).sum())))
        seen = o.to_dict() | (combination.told() if combination.defined else {})
        f = combination.functional
        return Details(f, std_error(f, sums), seen, tuple(found))

    def _details(
        self, p: int, e: int, reward: int, f: Functional, member: Member, terms: Terms, sums: ScoreSums, slice_: str | None
    ) -> Details:
        """The error, which may take refits, and every finding."""
        model = model_key(member, p, reward)
        with one_blas_thread():
            f = f if f.sampling is not None else self._refits.with_fit_error(p, f, member, terms, sums, slice_)
        found, seen = self._findings(p, reward, member, model, f, sums)
        if member.setting is not None:
            seen[self.estimators[e].tuned or "setting"] = member.setting
        if isinstance(member.weight.ratio, Pooled) and member.weight.ratio.dimensions is not None:
            seen["dimensions"] = list(member.weight.ratio.dimensions)
        if f.fit is None and self._refits.matters(member, model):
            seen["fit_not_covered"] = True
            found.append(self._not_covered(model))
        error = std_error(f, sums)
        if f.fit is not None and isinstance(member.weight.ratio, Pooled):  # a reward model alone moves values as it should
            found += uncertain_fit(error, float(np.sqrt(sampling_variance(f, sums))))
        return Details(f, error, seen, tuple(found))

    def _not_covered(self, model: ModelKey | None) -> findings.Finding:
        if model is not None and isinstance(model.fit.rewards, FittedRewards):
            return findings.FITTED_BEFORE
        return findings.TOO_MANY_FOR_REFITS if self.scorer.many else findings.FIT_NOT_COVERED

    def _largest(self, p: int, weight: Weight) -> float:
        """The largest ratio of any row."""
        if isinstance(weight.ratio, Pooled):
            return float(self.state["pools"][pool_name(self.scorer.plan, p, weight)]["largest"])
        if isinstance(weight.ratio, Outcome):
            return float(max(values.max() for values in self.scorer.outcomes[p, weight.ratio][1]))
        return float(self.state["policies"][str(p)]["weights"]["max"])

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
            ratios = [member.weight.ratio for member, _ in family]
            sets = [frozenset(r.dimensions or ()) if isinstance(r, Pooled) else frozenset[str]() for r in ratios]
            return smallest_error(sets, z, [std_error(f, sums) for f in functionals])
        return slope(len(family), z)

    def _score_writer(self, parts: Sequence[tuple[float, Terms]], reward: int, sums: ScoreSums, alone: bool = False) -> Any:
        origin, means = float(self.scorer.origin[reward]), sums.moments["mean"]

        def write(path: Path) -> None:
            write_scores(path, self.log, self.scorer, parts, origin, means, alone)

        return write

    def _unseen_tail(self, p: int, member: Member, terms: Terms, sums: ScoreSums) -> float:
        """CAB only: how badly the log knows what lies above the clip, where the model stands in.

        Rounds with w > clip are few, and their spread does not show what was never drawn: with N of them logged, the model's
        part is uncertain by about its own size / √(1 + N).
        """
        if not member.remainder or terms.baseline is None or member.setting is None or not np.isfinite(member.setting):
            return 0.0
        above = LogHistogram.count_above(self.state["policies"][str(p)]["weights"], member.setting)
        return abs(float(sums.moments["mean"][terms.baseline])) / float(sums.moments["mean"][0]) / float(np.sqrt(1 + above))

    def _findings(
        self, p: int, reward: int, member: Member, model: ModelKey | None, f: Functional, sums: ScoreSums
    ) -> tuple[list[findings.Finding], dict[str, Any]]:
        if member.weight.ratio == "one":
            return [findings.NAIVE], {}
        found: list[findings.Finding] = []
        seen: dict[str, Any] = {}
        if not np.isfinite(f.value):
            found.append(self._no_number(p, member, sums))
        if (p, reward) in self.references:
            kept = self.state["policies"][str(p)] if sums.moments is self.state["moments"] else None  # not kept by slice
            o = self._weights.of_actions(p, sums, kept)
            found += support_findings(o, model is not None, member.weight.ratio == "action")
            if member.weight.ratio == "action":
                found += weight_findings(o)
                seen |= o.to_dict()
            elif member.weight.weighs:
                pooled = self._weights.of_embeddings(p, member.weight, sums, kept)
                found += pooled_findings(pooled, o, model is not None)
                seen |= pooled.to_dict()
        found += self._propensities.findings if member.weight.weighs else ()
        found.append(concentrated(concentration(f, sums)))
        if model is not None:
            r2, fitted = self._models.fit(model)
            seen |= {"reward_model": fitted}
            found += model_findings(r2, member.weight.weighs)
            found += [] if (p, reward) in self.references else [findings.UNCHECKED_MODEL]
        if self._shares_covariance(member, model, reward):
            found.append(findings.SHARED_COVARIANCE)
        found += reward_findings(int(sums.nonzero[reward]), sums.n)
        if sums.clustered:
            found.append(few_units(int((sums.buckets[:, 0] > 0).sum())))
        return found, seen

    def _shares_covariance(self, member: Member, model: ModelKey | None, reward: int) -> bool:
        """Whether its reward model, or that of its embedding, had no room for a matrix of each action."""
        fit = fit_of(member.weight.ratio) if isinstance(member.weight.ratio, Pooled) else None
        fits = [fit for fit in (None if model is None else model.fit, fit) if fit is not None]
        return any("covariance" in self.fitted.models[fit].diagnostics(reward) for fit in fits)

    def _no_number(self, p: int, member: Member, sums: ScoreSums) -> findings.Finding:
        """Why there is none: nothing to weigh, or a model that gives none."""
        return (
            findings.UNDEFINED
            if member.weight.weighs and not self._weights.of_actions(p, sums, None).ess > 0
            else findings.NO_NUMBER
        )


def _learns(member: Member, model: ModelKey | None) -> bool:
    """Whether anything of it is fitted to the log."""
    ratio = member.weight.ratio
    pooled = isinstance(ratio, Pooled) and (ratio.posterior.fitted or ratio.rewards is not None)
    learned = model is not None and not isinstance(model.fit.rewards, (Given, FittedRewards))
    return pooled or isinstance(ratio, Outcome) or learned


def _compared(evaluation: Evaluation, hidden: Mapping[str, Functional], sums: ScoreSums) -> dict[tuple[str, str], Estimate]:
    """The estimates, each held against a nearly unbiased one: SNIPS, asked for or not."""
    reference = next((name for name in REFERENCES if name in evaluation.estimators), None)

    def checks(policy: str, name: str) -> tuple[findings.Finding, ...]:
        estimate = evaluation[policy, name]
        if any(reason is findings.NAIVE for reason in estimate.reasons):
            return ()
        mine = replace(estimate._functional, extra=0.0, way=None)
        other = hidden[policy] if reference is None else evaluation[policy, reference]._functional
        difference = mine.minus(other)
        if not np.isfinite(difference.value):
            return ()
        told, z, weight = reference or "SNIPS", in_errors(difference, sums), estimate._weight
        found = [disagreement(told, difference.value, z, blend=weight is None)] if np.isfinite(z) else []
        if weight is not None and not weight.mean_one:
            found.append(own_bias(told, difference.value, std_error(difference, sums), estimate.std_error))
        return tuple(found)

    return {
        (policy, name): estimate
        if reference == name or (reference is None and policy not in hidden)
        else replace(estimate, _compared=Later(partial(checks, policy, name)))
        for (policy, name), estimate in evaluation.estimates.items()
    }
