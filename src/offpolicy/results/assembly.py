"""From the scores to an `Evaluation`: every policy, estimator, reward and slice, with settings and versions."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from offpolicy.core.describe import described
from offpolicy.data.box import box
from offpolicy.data.log import Log
from offpolicy.diagnostics.base import Subject
from offpolicy.diagnostics.dose_response import dose_response
from offpolicy.diagnostics.overlap import NOT_ONE, Overlaps, overlap
from offpolicy.engines.base import Engine
from offpolicy.estimators import Combined, Estimator, LoggedMean, Member
from offpolicy.estimators.selection import slope, smallest_error
from offpolicy.inference.blending import BlendEvidence, Candidate, Combination
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors, std_error
from offpolicy.inference.intervals import Interval, Range, normal_interval
from offpolicy.inference.jackknife import Refits
from offpolicy.inference.learning_curve import LearningCurve, LearningCurves
from offpolicy.inference.scores import Case, Scores
from offpolicy.inference.sensitivity import Tilting
from offpolicy.models.embedding_table import LabelledEmbedding
from offpolicy.models.estimated_policy import EstimatedPolicy
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.weights import Weight
from offpolicy.results.estimate import Estimate
from offpolicy.results.evaluation import Evaluation, Views
from offpolicy.results.evidence import Evidence, Key, LogAccess, LogHandle, Redraws
from offpolicy.results.examination import Examination
from offpolicy.results.job import Job
from offpolicy.results.recorded_scores import RecordedScores
from offpolicy.scoring.export import RoundScores
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import AnyTerms, Family, ModelKey, Terms, model_key
from offpolicy.statistics.base import State
from offpolicy.statistics.fingerprint import Fingerprint

ALWAYS = ("offpolicy", "numpy", "scipy", "scikit-learn", "pyarrow")


def versions(engine: Engine, fitted: FitResults) -> dict[str, str]:
    """The versions of Python, of this package and of those that computed the numbers."""
    of_models = dict.fromkeys(package for fit in fitted.models for package in fit.rewards.packages)
    besides = dict.fromkeys((*engine.packages, *of_models))
    return {"python": platform.python_version(), **{name: _version(name) for name in (*ALWAYS, *besides)}}


@cache  # its file is parsed each time, which takes longer than evaluating a small log
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "not installed"


def settings_of(job: Job) -> dict[str, Any]:
    """What was requested, as plain values."""
    request, log, logging = job.request, job.log, job.fits.logging
    requested = logging.setting if isinstance(logging, EstimatedPolicy) else logging
    return {
        "estimators": [described(next(iter(column.values()))) for column in job.requested],
        "policies": {name: described(policy) for name, policy in request.policies.items()},
        "logging": None if requested is None else described(requested),
        "level": request.level,
        "interval": "auto",
        "cross_fit": request.cross_fit,
        "reward_range": None if log.reward_range is None else list(log.reward_range),
        "seed": request.seed,
        "clustered": log.schema.clustered,
        **log.schema.preparation.settings,
        "engine": type(request.engine).__name__,
    }


def read(log: Log, fingerprint: State) -> dict[str, Any]:
    """What was read, with a fingerprint to recognise it."""
    schema, roles = log.schema, log.source.roles
    columns = {
        "context": list(schema.context),
        "features": [*schema.features, *schema.catalog_names],
        "reward": list(schema.rewards),
        "propensity": schema.propensity,
        "cluster": schema.clustered,
        "weight": schema.weighted,
        "by": list(schema.slices or []),
    }
    return {
        "fingerprint": Fingerprint.digest(fingerprint, len(log), columns, schema.space, schema.catalog),
        "source": log.described,
        "rounds": len(log),
        **schema.space.summary(),
        **({"preparation": list(schema.preparation.notes)} if schema.preparation.notes else {}),
        "columns": {**columns, "by": schema.slice_name, **roles},
    }


@dataclass(frozen=True)
class Picked:
    """The member of a family that was selected, and its value. `known`: whether its error is, including that of its fit.

    `curve` is the learning curve of its reward model, where it is known.
    """

    functional: Functional
    member: Member
    terms: AnyTerms
    model: ModelKey | None
    known: bool
    curve: LearningCurve | None = None


@dataclass(frozen=True)
class Values:
    """Computes the values, by first comparing the members of a family and the candidates of a blend."""

    scores: Scores
    overlaps: Overlaps

    @cached_property
    def _refits(self) -> Refits:
        return Refits(self.scores.scorer, self.scores.fitted, self.scores.state)

    @cached_property
    def _curves(self) -> LearningCurves:
        return LearningCurves(self._refits)

    def picked(self, case: Case, estimator: Estimator, family: Family, errors: bool) -> Picked:
        functionals = [self.scores.functional(terms, case) for _, terms in family]
        if errors or len(family) > 1:
            functionals = [
                self._refits.with_fit_error(case, f, member, terms)
                for f, (member, terms) in zip(functionals, family, strict=True)
            ]
        pick = self._select(case, estimator, family, functionals) if len(family) > 1 else 0
        f, (member, terms) = functionals[pick], family[pick]
        model = model_key(member, case.policy, case.reward, terms.parts[0][1].slot)
        known = f.fit is not None or not self._refits.matters(member, model)
        curve = self._curves.of(model, terms.parts[0][1], case.sums) if errors and len(terms.parts) == 1 else None
        return Picked(f, member, terms, model, known, curve)

    def slots(self, case: Case, picked: Picked, errors: bool) -> tuple[Functional, ...]:
        """The value of each slot, with the error of what was fitted for it."""
        each = self.scores.slots(picked.terms, case)
        if not errors:
            return each
        parts = zip(each, picked.terms.slots, strict=True)
        return tuple(self._refits.with_fit_error(case, f, picked.member, terms) for f, terms in parts)

    def _select(self, case: Case, estimator: Estimator, family: Family, functionals: Sequence[Functional]) -> int:
        """The member of a family selected by SLOPE; families are ordered from the least biased member to the most."""
        sums, tails = case.sums, [self._unseen_tail(case, member, terms) for member, terms in family]

        def z(i: int, j: int) -> float:
            difference = functionals[i].minus(functionals[j])
            error = np.hypot(std_error(difference, sums), tails[i])
            return float(difference.value / error) if error > 0 else in_errors(difference, sums)

        if estimator.lattice:
            sets = [frozenset(member.weight.ratio.dimensions or ()) for member, _ in family]
            return smallest_error(sets, z, [std_error(f, sums) for f in functionals])
        return slope(len(family), z)

    def _unseen_tail(self, case: Case, member: Member, terms: AnyTerms) -> float:
        """CAB only: the uncertainty of what lies above the clip, where the model is used instead.

        Rounds with w > clip are few, and their spread does not show what was never drawn: with N of them logged, the model's
        part is uncertain by about its own size / √(1 + N).
        """
        ((_, first), *_) = terms.parts
        if not member.remainder or first.baseline is None or member.setting is None or not np.isfinite(member.setting):
            return 0.0
        means, above = case.sums.moments["mean"], self.overlaps.above(case.policy, member.setting)
        return abs(float(means[first.baseline])) / float(means[0]) / float(np.sqrt(1 + above))

    def combination(
        self, case: Case, estimator: Combined, families: Sequence[Family]
    ) -> tuple[Combination, list[tuple[float, Terms]]]:
        """One estimate from several candidates, and the terms of those with a weight."""
        picks = {part.name: self.picked(case, part, f, True) for part, f in zip(estimator.parts, families, strict=True)}
        candidates = [
            Candidate(
                name,
                p.functional,
                weight.exact,
                p.known,
                weight.uncorrected,
                weight.weighs,
                p.curve,
                self._missed(case.policy, weight),
                _effective_rounds(case.sums, p.terms, weight.mean_one),
                getattr(p.terms, "weight", None),
                self._width(weight),
                p.member.rewards is not None,
                p.member.normalised or p.member.scaled or not weight.weighs,
            )
            for name, p, weight in ((name, p, p.member.weight) for name, p in picks.items())
        ]
        made = Combination.of(estimator, candidates, case.sums, self._evidence(case))
        carrying = ((float(w), part.name) for part, w in zip(made.parts, made.weights, strict=True) if w)
        return made, [
            (w * share, terms) for w, name in carrying for share, terms in self.scores.parts(picks[name].terms, case)
        ]

    def _width(self, weight: Weight) -> float:
        """The width of a kernel, as a share of the range; 0 for other weights, infinite without weights."""
        space = self.scores.log.space
        widths = weight.ratio.widths(space)
        if widths is None:
            return 0.0 if weight.weighs else math.inf
        return float(np.exp(np.log(np.array(widths) / box(space, "a kernel").ranges).mean()))

    def _missed(self, policy: int, weight: Weight) -> tuple[float, ...]:
        """For lists, what a weight leaves out of each kind of interaction between slots, and of a reward model's error."""
        slots = self.scores.log.space.slots
        if slots is None or slots == 1:
            return ()
        missed = weight.ratio.missed(slots).smoothed(*self.overlaps.kept(policy, weight))
        return (*missed.shares, missed.own if weight.weighs else 1.0)

    def _evidence(self, case: Case) -> BlendEvidence:
        """What the log says besides the candidates of a blend."""
        sums, spread = case.sums, self.scores.reward_spread(case)
        if (case.policy, case.reward) not in self.scores.references:
            return BlendEvidence(0.0, self.scores.logged_mean(case), 0.0, spread)
        o = self.overlaps.of_actions(case.policy, sums)
        shortfall = -o.mean_weight_z if o.mean_weight < 1 - NOT_ONE else 0.0
        rewards = o.ess * float(sums.nonzero[case.reward]) / max(sums.n, 1)
        return BlendEvidence(shortfall, self.scores.logged_mean(case), rewards, spread, o.missing)


def _effective_rounds(sums: ScoreSums, terms: AnyTerms, mean_one: bool) -> float:
    """The effective rounds of the weights of one member; all rounds if it has none."""
    column = getattr(terms, "weight", None)
    return float(sums.n) if column is None else overlap(sums, column, mean_one=mean_one).ess


LEADS = (
    "Auto",
    "DR",
    "SNDR",
    "SNIPS",
    "KernelDR",
    "KernelSNIPS",
    "IPS",
    "SIPS",
    "RIPS",
    "DM",
)  # the headline is the first of these that was run, or another
REFERENCES = ("SNIPS", "IPS", "DR")  # nearly unbiased estimators with which the others are compared


@dataclass(frozen=True)
class Valued:
    """One estimate on its way into a result.

    `parts`: the terms that it is made of, and the weight of each. `embedder`: the weight that its embedding comes from.
    `slots`: the values of each slot of a list.
    """

    value: float
    subject: Subject
    parts: Sequence[tuple[float, Terms]]
    bounds: Range | None = None
    fitted: bool = True
    embedder: Weight | None = None
    slots: tuple[Functional, ...] = ()

    @property
    def name(self) -> str:
        return self.subject.estimator.name

    @property
    def weight(self) -> Weight | None:
        """The weight of its member; None for a blend."""
        return None if self.subject.member is None else self.subject.member.weight


@dataclass(frozen=True)
class Assembly:
    """Assembles the result of a job: with errors and findings, or with values only. Each embedding is labelled once."""

    job: Job
    scores: Scores
    redraws: Redraws
    _round_scores: dict[Key, RoundScores] = field(default_factory=dict, init=False)
    _labelled: dict[Ratio, LabelledEmbedding] = field(default_factory=dict, init=False)

    @property
    def errors(self) -> bool:
        return self.job.request.errors

    @cached_property
    def examination(self) -> Examination:
        return self.job.checks.examination(self.scores)

    @cached_property
    def _log(self) -> LogHandle:
        s = self.scores
        low, high = s.state["reward_low"], s.state["reward_high"]
        tilting = Tilting(s.log, s.engine, s.scorer.unfitted(), low, high, self.redraws.progress)
        access = LogAccess(
            self.redraws, tilting, s.policies, s.log.schema.rewards, frozenset(s.references), self._round_scores,
            self.job.scorer_again(s.scorer),
        )  # fmt: skip
        return LogHandle(access)

    @cached_property
    def _recorded(self) -> RecordedScores:
        return RecordedScores(self.job, self.scores)

    @cached_property
    def _values(self) -> Values:
        return Values(self.scores, self.examination.overlaps)

    def evaluation(self) -> Evaluation:
        schema = self.scores.log.schema
        self.scores.check()

        def gathered(slice_: str | None) -> Evaluation:
            sums = self.scores.sums(slice_)
            each = [self._reward(k, sums) for k in range(len(schema.rewards))]
            return replace(each[0], rewards={e.reward: e for e in each} if len(each) > 1 else {})

        slices = {name: gathered(str(s)) for s, name in enumerate(schema.slices or ())}
        return replace(gathered(None), slices=slices)

    def _reward(self, reward: int, sums: ScoreSums) -> Evaluation:
        s, whole = self.scores, sums.slice_ is None
        one_each = [next(iter(column.values())) for column in s.estimators]
        names = tuple(estimator.name for estimator in one_each)
        logged = next(each.name for each in one_each if isinstance(each, LoggedMean))
        common = [name for name, column in zip(names, s.estimators, strict=True) if len(column) == len(s.policies)]
        others = [name for name in common if name != logged]
        cases = [Case(p, reward, sums) for p in range(len(s.policies))]
        valued = [[self._valued(case, e) for e in range(len(names)) if case.policy in s.estimators[e]] for case in cases]
        estimates = {
            (policy, each.name): self._estimate(each, self._reference(row, each))
            for policy, row in zip(s.policies, valued, strict=True)
            for each in row
        }
        return Evaluation(
            estimates=estimates,
            policies=s.policies,
            estimators=names,
            headline_estimator=next((name for name in (*LEADS, *others) if name in common), names[0]),
            logged_estimator=logged,
            reward=s.log.schema.rewards[reward],
            rounds=sums.n,
            gain=s.log.schema.gain,
            **s.log.space.summary(),
            actions_logged=int((s.state["counts"] > 0).sum()) if whole and s.log.space.count is not None else None,
            level=self.job.request.level,
            skipped=self.job.skipped,
            settings={**settings_of(self.job), **s.computed, "slice": s.slice_name(sums.slice_)},
            input=read(s.log, s.state["fingerprint"]) if whole else {},
            versions=versions(s.engine, s.fitted) if whole else {},
            views=self._views(reward, valued, sums) if whole and self.errors else Views(),
            log=self._log,
        )

    def _valued(self, case: Case, e: int) -> Valued:
        estimator, families = self.scores.estimators[e][case.policy], self.scores.members[case.policy, e, case.reward]
        weighable = (case.policy, case.reward) in self.scores.references
        if isinstance(estimator, Combined):
            combination, parts = self._values.combination(case, estimator, families)
            subject = self._subject(case, estimator, combination.functional)
            used = [member.weight for family in families for member, _ in family] if estimator.embeds else []
            embedder = next((weight for weight in used if weight.ratio.rewards is not None), None)
            subject = replace(subject, combination=combination, weighable=weighable)
            return Valued(combination.value, subject, parts, embedder=embedder)
        picked = self._values.picked(case, estimator, families[0], self.errors)
        f, member, model = picked.functional, picked.member, picked.model
        subject = replace(
            self._subject(case, estimator, f), member=member, model=model, weighable=weighable,
            fit_missing=not picked.known, curve=picked.curve,
        )  # fmt: skip
        fitted = self.scores.learns(member, model) or len(families[0]) > 1
        slots = self._values.slots(case, picked, self.errors)
        bounds = self._bounds(case, picked) if len(picked.terms.parts) == 1 else None
        parts = self.scores.parts(picked.terms, case)
        return Valued(f.value, subject, parts, bounds, fitted, member.weight, slots)

    def _subject(self, case: Case, estimator: Estimator, f: Functional) -> Subject:
        error = std_error(f, case.sums) if self.errors else float("nan")
        return Subject(case.policy, case.reward, estimator, f, error, case.sums)

    def _reference(self, row: Sequence[Valued], valued: Valued) -> tuple[str, Functional] | None:
        """The nearly unbiased estimate to compare with: SNIPS, even if it was not requested."""
        by_name, subject = {each.name: each for each in row}, valued.subject
        reference = next((by_name[name] for name in REFERENCES if name in by_name), None)
        if reference is not None:
            return None if reference is valued else (reference.name, reference.subject.functional)
        terms = self.scores.references.get((subject.policy, subject.reward))
        case = Case(subject.policy, subject.reward, subject.sums)
        name = "SNIPS" if self.scores.log.space.slots is None else "SIPS"
        return None if terms is None else (name, self.scores.functional(terms, case))

    def _estimate(self, valued: Valued, reference: tuple[str, Functional] | None) -> Estimate:
        s, subject, sums = self.scores, valued.subject, valued.subject.sums
        policy, reward = s.policies[subject.policy], s.log.schema.rewards[subject.reward]
        f = subject.functional
        key = (s.slice_name(sums.slice_), reward, policy, valued.name)
        if subject.whole:
            parts = [(share, terms, s.origin(subject.reward, terms.slot)) for share, terms in valued.parts]
            alone = subject.member is not None and len(parts) == 1
            self._round_scores[key] = RoundScores(parts, sums.moments["mean"], alone)
        numbers, checks = self.examination.details(replace(subject, reference=reference), self.errors)
        given, within = s.log.reward_range is not None, s.value_range(subject.reward)
        scores = self._recorded.of(subject, valued.parts, valued.bounds) if subject.whole else None
        evidence = Evidence(
            f, sums, self._log, key, valued.bounds, given, valued.fitted, value_range=within, scores=scores,
            slots=valued.slots,
        )  # fmt: skip
        return Estimate(
            value=valued.value,
            std_error=subject.std_error,
            error_covers=f.error_covers,
            interval=self._interval(evidence),
            evidence=evidence,
            policy=policy,
            estimator=valued.name,
            reward=reward,
            n=sums.n,
            diagnostics=numbers,
            checks=checks,
            labelled=None if valued.embedder is None else self._embedding(subject.policy, valued.embedder),
        )

    def _interval(self, evidence: Evidence) -> Interval:
        level, value = self.job.request.level, evidence.functional.value
        return evidence.interval(level, "auto") if self.errors else normal_interval(value, math.nan, level)

    def _embedding(self, p: int, weight: Weight) -> LabelledEmbedding | None:
        """The embedding that a weight comes from."""
        embedding, ratio = self.examination.overlaps.embedding(p, weight), weight.ratio
        if embedding is not None and ratio not in self._labelled:
            model = "" if ratio.rewards is None else described(ratio.rewards)
            self._labelled[ratio] = LabelledEmbedding(self.scores.log.actions, embedding, ratio.rewards is not None, model)
        return None if embedding is None else self._labelled[ratio]

    def _bounds(self, case: Case, picked: Picked) -> Range | None:
        member, weight = picked.member, picked.member.weight
        if member.scaled:
            return None
        largest = weight.bend.largest(self.examination.overlaps.largest(case.policy, weight)) if weight.weighs else 1.0
        ((_, first),) = picked.terms.parts
        terms = replace(first, tables=(None, None))
        if member.smoothing is None:
            return Range(*self.scores.reward_range(case.reward), largest, weight.mean_one, terms)
        smoother = self.job.smoothers.of(member.smoothing)
        usable = self.scores.log.reward_range is not None and not (case.sums.clustered or self.scores.log.schema.weighted)
        return Range(smoother.low, smoother.high, largest, False, terms, smoother.amount if usable else None)

    def _views(self, reward: int, valued: Sequence[Sequence[Valued]], sums: ScoreSums) -> Views:
        """The weights of each policy, by actions and by embeddings, and the calibration of cross-fitted models."""
        overlap = []
        for p, row in enumerate(valued):
            weighable = (p, reward) in self.scores.references
            used: dict[Weight, list[str]] = {Weight(): []} if weighable else {}
            for each in (each for each in row if each.weight is None or each.weight.weighs):
                shown = (Weight() if weighable else None) if each.weight is None else each.weight.shown
                if shown is not None:
                    used.setdefault(shown, []).append(each.name)
            overlap += [self.examination.overlaps.view(p, weight, names, sums) for weight, names in used.items()]
        users: dict[ModelKey, dict[str, None]] = {}
        for model, name in self.scores.cross_fitted(reward):
            users.setdefault(model, {})[name] = None
        models = [self.examination.models.view(model, list(names)) for model, names in users.items()]
        return Views(
            overlap,
            models,
            self.examination.propensities.view(),
            action_axis=[] if self.examination.axis is None else self.examination.axis.view(),
            dose_response=dose_response(self.scores, Case(0, reward, sums), self.job.request.level),
        )
