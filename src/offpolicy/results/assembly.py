"""From the scores of the passes to an `Evaluation`: each policy, estimator, reward and slice, and where they come from."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from offpolicy.core.describe import described
from offpolicy.data.log import Log
from offpolicy.diagnostics import coverage
from offpolicy.diagnostics.base import Subject
from offpolicy.diagnostics.overlap import NOT_ONE, Overlaps
from offpolicy.engines.base import Engine
from offpolicy.engines.spark import Spark
from offpolicy.estimators import Combined, Estimator, LoggedMean, Member
from offpolicy.estimators.selection import slope, smallest_error
from offpolicy.inference.blending import Candidate, Combination
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors, std_error
from offpolicy.inference.intervals import Range, normal_interval
from offpolicy.inference.jackknife import Refits
from offpolicy.inference.scores import Scores
from offpolicy.inference.sensitivity import Tilting
from offpolicy.models.embedding_table import LabelledEmbedding
from offpolicy.models.propensities import FittedLogging
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.weights import Weight
from offpolicy.results.estimate import Estimate
from offpolicy.results.evaluation import Evaluation, Views
from offpolicy.results.evidence import Evidence, Key, LogAccess, LogHandle, Redraws, RefittedValues
from offpolicy.results.examination import WITHOUT_ERROR, Examination
from offpolicy.results.job import Job
from offpolicy.scoring.export import RoundScores
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import Family, ModelKey, Terms, model_key
from offpolicy.statistics.base import State
from offpolicy.statistics.fingerprint import Fingerprint

ALWAYS = ("offpolicy", "numpy", "scipy", "scikit-learn", "pyarrow")


def versions(engine: Engine, fitted: FitResults) -> dict[str, str]:
    """Of Python, this package and those that the numbers come from."""
    of_models = dict.fromkeys(package for fit in fitted.models for package in fit.rewards.packages)
    besides = [*(["pyspark"] if isinstance(engine, Spark) else []), *of_models]
    return {"python": platform.python_version(), **{name: _version(name) for name in (*ALWAYS, *besides)}}


@cache  # its file is parsed anew each time, which takes longer than the sums of a small log
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "not installed"


def settings_of(job: Job) -> dict[str, Any]:
    """As they were asked for, in words."""
    request, log, logging = job.request, job.log, job.fits.logging
    asked = logging.setting if isinstance(logging, FittedLogging) else logging
    return {
        "estimators": [described(estimator) for estimator in job.asked],
        "policies": {name: described(policy) for name, policy in request.policies.items()},
        "logging": None if asked is None else described(asked),
        "level": request.level,
        "interval": "normal",
        "cross_fit": request.cross_fit,
        "reward_range": None if log.reward_range is None else list(log.reward_range),
        "seed": request.seed,
        "clustered": log.schema.clustered,
        "engine": type(request.engine).__name__,
    }


def read(log: Log, fingerprint: State) -> dict[str, Any]:
    """What was read, and how to know it again."""
    schema, roles = log.schema, log.source.roles
    told = {
        "context": list(schema.context),
        "features": [*schema.features, *schema.catalog_names],
        "reward": list(schema.rewards),
        "propensity": schema.propensity,
        "cluster": schema.clustered,
        "weight": schema.weighted,
        "by": list(schema.slices or []),
    }
    return {
        "fingerprint": Fingerprint.digest(fingerprint, len(log), told, schema.space, schema.catalog),
        "source": log.source.described,
        "rounds": len(log),
        **schema.space.summary(),
        "columns": {**told, "by": schema.slice_name, **roles},
    }


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
    overlaps: Overlaps

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
        above = self.overlaps.above(p, member.setting)
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
        o = self.overlaps.of_actions(p, sums)
        shortfall = -o.mean_weight_z if o.mean_weight < 1 - NOT_ONE else 0.0
        found = Combination.of(estimator, candidates, sums, shortfall)
        return found, [(float(w), terms[part.name]) for part, w in zip(found.parts, found.weights, strict=True) if w]


LEADS = ("Auto", "DR", "SNDR", "SNIPS", "IPS", "DM")
"""Which estimator leads, the first of these that was run; else the last in the list."""
REFERENCES = ("SNIPS", "IPS", "DR")
"""Nearly unbiased estimators that the others are held against."""


@dataclass(frozen=True)
class Found:
    """One estimate on its way into a result."""

    value: float
    subject: Subject
    parts: Sequence[tuple[float, Terms]]
    """The estimators that it is made of, and the weight of each."""
    bounds: Range | None = None
    fitted: bool = True

    @property
    def name(self) -> str:
        return self.subject.estimator.name

    @property
    def weight(self) -> Weight | None:
        """None for a blend."""
        return None if self.subject.member is None else self.subject.member.weight


@dataclass(frozen=True)
class Embeddings:
    """The embeddings that weights come from, each labelled once for all policies."""

    overlaps: Overlaps
    log: Log
    _made: dict[Ratio, LabelledEmbedding] = field(default_factory=dict, init=False)

    def of(self, p: int, weight: Weight) -> LabelledEmbedding | None:
        fits, ratio = self.overlaps.embedding(p, weight), weight.ratio
        if fits is None:
            return None
        if ratio not in self._made:
            self._made[ratio] = fits.labelled(self.log.actions, "" if ratio.rewards is None else described(ratio.rewards))
        return self._made[ratio]


@dataclass(frozen=True)
class Assembly:
    """Puts a result together: with errors and findings, or with values alone."""

    scores: Scores
    examination: Examination
    level: float
    settings: Mapping[str, Any]
    skipped: Mapping[str, str]
    redraws: Redraws
    errors: bool
    _round_scores: dict[Key, RoundScores] = field(default_factory=dict, init=False)

    @cached_property
    def _log(self) -> LogHandle:
        s = self.scores
        low, high = s.state["reward_low"], s.state["reward_high"]
        tilting = Tilting(s.log, s.engine, s.scorer, low, high, self.redraws.progress)
        weighed = frozenset(s.references)
        return LogHandle(LogAccess(self.redraws, tilting, s.policies, s.log.schema.rewards, weighed, self._round_scores))

    @cached_property
    def _refits(self) -> Refits:
        return Refits(self.scores.scorer, self.scores.fitted, self.scores.state)

    @cached_property
    def _values(self) -> Values:
        return Values(self.scores, self._refits, self.examination.overlaps)

    @cached_property
    def _embeddings(self) -> Embeddings:
        return Embeddings(self.examination.overlaps, self.scores.log)

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
        names = tuple(estimator.name for estimator in s.estimators)
        others = [estimator.name for estimator in s.estimators if not isinstance(estimator, LoggedMean)]
        found = [[self._found(p, e, reward, sums) for e in range(len(names))] for p in range(len(s.policies))]
        estimates = {
            (policy, each.name): self._estimate(each, self._reference(row, each))
            for policy, row in zip(s.policies, found, strict=True)
            for each in row
        }
        return Evaluation(
            estimates=estimates,
            policies=s.policies,
            estimators=names,
            headline_estimator=next((name for name in (*LEADS, *others) if name in names), names[0]),
            logged_estimator=next(e.name for e in s.estimators if isinstance(e, LoggedMean)),
            reward=s.log.schema.rewards[reward],
            rounds=sums.n,
            **s.log.space.summary(),
            actions_logged=int((s.state["counts"] > 0).sum()) if whole and s.log.space.n_codes else None,
            level=self.level,
            skipped=self.skipped,
            settings={**self.settings, "slice": s.slice_name(sums.slice_)},
            input=read(s.log, s.state["fingerprint"]) if whole else {},
            versions=versions(s.engine, s.fitted) if whole else {},
            views=self._views(reward, found, sums) if whole and self.errors else Views(),
            log=self._log,
        )

    def _found(self, p: int, e: int, reward: int, sums: ScoreSums) -> Found:
        estimator, families = self.scores.estimators[e], self.scores.members[p, e, reward]
        weighable = (p, reward) in self.scores.references
        if isinstance(estimator, Combined):
            combination, parts = self._values.combination(p, estimator, families, reward, sums)
            f = combination.functional
            subject = Subject(
                p, reward, estimator, f, self._error(f, sums), sums, combination=combination, weighable=weighable
            )  # fmt: skip
            return Found(combination.value, subject, parts)
        picked = self._values.picked(p, estimator, families[0], reward, sums)
        f, member, model = picked.functional, picked.member, model_key(picked.member, p, reward)
        if self.errors and f.sampling is None:
            f = self._refits.with_fit_error(p, f, member, picked.terms, sums)
        missing = f.fit is None and self._refits.matters(member, model)
        subject = Subject(
            p, reward, estimator, f, self._error(f, sums), sums, member, model, weighable=weighable, fit_missing=missing
        )  # fmt: skip
        fitted = self.scores.learns(member, model) or len(families[0]) > 1
        return Found(f.value, subject, [(1.0, picked.terms)], self._bounds(p, picked, reward), fitted)

    def _error(self, f: Functional, sums: ScoreSums) -> float:
        return std_error(f, sums) if self.errors else float("nan")

    def _reference(self, row: Sequence[Found], found: Found) -> tuple[str, Functional] | None:
        """The nearly unbiased estimate to compare with: SNIPS, even if it was not asked for."""
        by_name, subject = {each.name: each for each in row}, found.subject
        reference = next((by_name[name] for name in REFERENCES if name in by_name), None)
        if reference is not None:
            return None if reference is found else (reference.name, reference.subject.functional)
        terms = self.scores.references.get((subject.policy, subject.reward))
        return None if terms is None else ("SNIPS", self.scores.functional(terms, subject.reward, subject.sums))

    def _estimate(self, found: Found, reference: tuple[str, Functional] | None) -> Estimate:
        s, subject, sums = self.scores, found.subject, found.subject.sums
        policy, reward = s.policies[subject.policy], s.log.schema.rewards[subject.reward]
        f, kind = subject.functional, type(subject.estimator).__name__
        key = (s.slice_name(sums.slice_), reward, policy, found.name)
        if subject.whole:
            origin, means = float(s.scorer.origin[subject.reward]), sums.moments["mean"]
            self._round_scores[key] = RoundScores(found.parts, origin, means, alone=subject.member is not None)
        details = self.examination.details(replace(subject, reference=reference)) if self.errors else WITHOUT_ERROR
        given = s.log.reward_range is not None
        return Estimate(
            value=found.value,
            std_error=subject.std_error,
            error_covers=f.error_covers,
            interval=normal_interval(f.value, subject.std_error, self.level),
            evidence=Evidence(f, sums, RefittedValues(self._log, key), found.bounds, given, found.fitted),
            policy=policy,
            estimator=found.name,
            reward=reward,
            n=sums.n,
            diagnostics={**details.numbers, **coverage.diagnostics(kind)},
            checks=tuple(coverage.added(check, kind) for check in details.checks),
            labelled=None if found.weight is None else self._embeddings.of(subject.policy, found.weight),
        )

    def _bounds(self, p: int, picked: Picked, reward: int) -> Range | None:
        member, weight = picked.member, picked.member.weight
        if member.scaled:
            return None
        largest = weight.bend.largest(self.examination.overlaps.largest(p, weight)) if weight.weighs else 1.0
        return Range(*self.scores.reward_range(reward), largest, weight.mean_one, replace(picked.terms, tables=(None, None)))

    def _views(self, reward: int, found: Sequence[Sequence[Found]], sums: ScoreSums) -> Views:
        """The weights of each policy, by actions and by embeddings, and how the cross-fitted models predicted."""
        overlap = []
        for p, row in enumerate(found):
            used: dict[Weight, list[str]] = {Weight(): []} if (p, reward) in self.scores.references else {}
            for each in (each for each in row if each.weight is None or each.weight.weighs):
                shown = Weight() if each.weight is None else each.weight.shown
                if shown is not None:
                    used.setdefault(shown, []).append(each.name)
            overlap += [self.examination.overlaps.view(p, weight, names, sums) for weight, names in used.items()]
        users: dict[ModelKey, dict[str, None]] = {}
        for model, name in self.scores.cross_fitted(reward):
            users.setdefault(model, {})[name] = None
        models = [self.examination.models.view(model, list(names)) for model, names in users.items()]
        return Views(overlap, models, self.examination.propensities.view())
