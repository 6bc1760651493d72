"""`Job`: an evaluation whose every choice has been made: the passes it takes, and what fits into the memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.describe import described
from offpolicy.core.errors import RowsError
from offpolicy.core.memory import Budget, OverBudgetError, size
from offpolicy.core.progress import PassProgress
from offpolicy.core.threads import cores
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.data.log import Log
from offpolicy.diagnostics.propensity_tests import PropensityTests
from offpolicy.engines.base import Engine
from offpolicy.estimators import Estimator, Run
from offpolicy.inference.bootstrap import Redraws
from offpolicy.models.propensities import FittedLogging
from offpolicy.models.rewards.base import NO_FEATURES, Fits, FitShape, LinearPredictor, Predictor
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import policy_for
from offpolicy.ratios.actions import ratio_of
from offpolicy.ratios.embedding_fits import PooledFits
from offpolicy.ratios.outcomes import OutcomeFits, OutcomeRows
from offpolicy.ratios.weights import Outcome, Pooled, Weight
from offpolicy.results.assembly import Assembly
from offpolicy.results.evaluation import Evaluation
from offpolicy.scoring.audit import audited
from offpolicy.scoring.fit_pass import FitResults, fit_pass, groups_for
from offpolicy.scoring.memory_plan import Rung, Sizes, folds_kept, rows_for, rung_for
from offpolicy.scoring.plan import Family, FitKey, ModelKey, Plan, Terms, fit_of, plan_estimators
from offpolicy.scoring.requirements import Lacking, Wanted, choose
from offpolicy.scoring.score_pass import ScorePass
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import Statistic

PLANNED_THREADS = 2
"""What fits the memory is planned for at least so many threads: or the choice, and with it the numbers, would differ on
one thread and on two."""
MASS_ROWS = 10_000
"""Rows that are enough to know on which actions the target's mass lies."""
TABLE_ROWS = 100_000
"""Rows that are enough to know how an estimate moves with its reward model, for the fit's share of the error."""


@dataclass(frozen=True)
class Job:
    """An evaluation whose every choice has been made."""

    log: Log
    policies: dict[str, Policy]
    logging: Policy | None
    estimators: tuple[Estimator, ...]
    skipped: dict[str, str]
    plan: Plan
    members: dict[tuple[int, int, int], list[Family]]
    references: dict[tuple[int, int], Terms]
    features: Features
    groups: int
    seed: int
    rung: Rung = "refits"
    sizes: Sizes | None = None
    budget: Budget = field(default_factory=lambda: Budget.of(None))
    cross_fit: int | None = None
    asked: tuple[Estimator, ...] = ()
    """The estimators as they were asked for, before anything was settled."""

    @classmethod
    def fitting(
        cls, log: Log, policies: dict[str, Policy], wanted: Wanted, cross_fit: int | None, seed: int, run: Run,
        budget: Budget, engine: Engine,
    ) -> Job:  # fmt: skip
        """A job within the budget; of the defaults, what does not fit is left out."""
        try:
            return cls.of(log, policies, wanted, cross_fit, seed, run).within(budget, engine)
        except OverBudgetError:
            why = f"it does not fit the memory budget of {size(budget.bytes)}; give more with `memory=` (--memory)"
            fewer = wanted.without_largest(why)
            if fewer is None:
                raise
            return cls.fitting(log, policies, fewer, cross_fit, seed, run, budget, engine)

    def within(self, budget: Budget, engine: Engine) -> Job:
        """The same with what fits into the budget; an error, before a row is read, where nothing does."""
        schema = self.log.schema
        sizes = Sizes(
            n_actions=self.log.space.count or 0,
            context=len(schema.context),
            rewards=len(schema.rewards),
            groups=self.groups,
            folds=folds_kept(self.plan.folds),
            threads=max(engine.threads or cores(), PLANNED_THREADS),
            plan=self.plan,
            features=self.features,
            listed=all(policy.lists for policy in (*self.policies.values(), self.logging) if policy is not None),
        )
        return replace(self, sizes=sizes, rung=rung_for(sizes, budget), budget=budget)

    @property
    def many(self) -> bool:
        """Whether actions are too many for refits."""
        return self.rung != "refits"

    @classmethod
    def of(cls, log: Log, policies: dict[str, Policy], wanted: Wanted, cross_fit: int | None, seed: int, run: Run) -> Job:
        logging = None if log.logging is None else policy_for(log.logging, log)
        features = Features.of(log.schema)
        chosen, skipped = choose(wanted, Lacking(log, policies, logging, features), cross_fit)
        asked = tuple(chosen)
        chosen = [estimator.settled(features, run) for estimator in chosen]
        has_ratio = (log.schema.propensity or logging is not None) and Weight().mismatch(log.space) is None
        plan, members, references = plan_estimators(chosen, len(policies), len(log.schema.rewards), cross_fit, has_ratio)
        groups = groups_for(plan.folds)
        return cls(
            log, policies, logging, tuple(chosen), skipped, plan, members, references, features, groups, seed,
            cross_fit=cross_fit, asked=asked,
        )  # fmt: skip

    def fit(self, engine: Engine, progress: bool | None) -> FitResults:
        """The one pass that fits everything. What needs the same statistic shares it."""
        shapes = {key: self.shape(key, progress) for key in self.plan.fits}
        models = {key: key.rewards.on(self.log.schema) for key in shapes}
        needed: dict[Any, tuple[Statistic, ...]] = {key: models[key].statistics(s) for key, s in shapes.items()}
        pooled = {ratio: self.pooled_shape(ratio) for ratio in self.plan.ratios}
        needed |= {ratio: ratio.posterior.statistics(shape) for ratio, shape in pooled.items()}
        weights = ((p, weight.ratio) for p, weight in self.plan.weights(Outcome))
        outcomes = {(p, ratio): self._outcome_rows(p) for p, ratio in weights if isinstance(ratio, Outcome)}
        needed |= {key: (rows,) for key, rows in outcomes.items()}
        found = fit_pass(self.log, engine, needed, progress)
        fits = {key: models[key].fits(shape, found[key]) for key, shape in shapes.items()}
        return FitResults(
            models=fits,
            pooled={
                ratio: PooledFits.of(
                    self._names[ratio], ratio, shape, found[ratio], None if (key := fit_of(ratio)) is None else fits[key]
                )
                for ratio, shape in pooled.items()
            },
            outcomes={key: OutcomeFits(found[key][0], key[1].reward, self.groups) for key in outcomes},
        )

    @cached_property
    def _names(self) -> dict[Any, str]:
        """The estimator that first uses each ratio, for messages."""
        names: dict[Any, str] = {}
        for (_, e, _), families in self.members.items():
            for part, family in zip(self.estimators[e].parts, families, strict=True):
                for member, _ in family:
                    names.setdefault(member.weight.ratio, part.name)
        return names

    @cached_property
    def _base_shape(self) -> FitShape:
        schema = self.log.schema
        return FitShape(
            n_actions=self.log.space.count or 0,
            context=len(schema.context),
            rewards=len(schema.rewards),
            groups=self.groups,
            seed=self.seed,
            rows=len(self.log),
            origin=self._origin(),
            most_rows=self._batch_rows(0.0),
            ordered=self.log.source.ordered,
        )

    @cached_property
    def _fit_shape(self) -> FitShape:
        """For what is kept by action: groups only as fine as there is room for."""
        if not self.many or self.sizes is None:
            return self._base_shape
        return replace(self._base_shape, groups=self.sizes.folds, jackknife=False, shared=self.rung == "shared")

    def _batch_rows(self, listed: float) -> int | None:
        schema = self.log.schema
        columns = len(schema.context) + len(schema.features) + len(schema.rewards) + self.plan.width
        return None if self.sizes is None else rows_for(self.sizes, self.budget, columns, listed)

    def _origin(self) -> FloatArray:
        """A typical row of context, features and rewards: the median of the first rows."""
        first = self.log.head()
        phi = self.features.rows(first) if self.features.size else np.empty((len(first), 0))
        return np.concatenate([np.median(part, axis=0) for part in (first.context, phi, first.reward)])

    def shape(self, key: FitKey, progress: bool | None) -> FitShape:
        policy = None if key.policy is None else list(self.policies.values())[key.policy]
        assert key.inputs is not None
        return replace(
            self._fit_shape,
            columns=() if policy is None else self._columns(policy),
            row_weight=None if policy is None else _Ratio(policy, self.logging, power=2),
            inputs=key.inputs,
            features=NO_FEATURES if key.inputs == "identity" else self.features,
            folds=math.lcm(1, *self.plan.folds_of(key)),
            progress=progress,
        )

    def _columns(self, policy: Policy) -> tuple[str, ...]:
        return (*policy.columns, *(self.logging.columns if self.logging else ()))

    def pooled_shape(self, ratio: Pooled) -> FitShape:
        return replace(self._fit_shape, features=NO_FEATURES if ratio.inputs == "identity" else self.features)

    def _outcome_rows(self, policy: int) -> OutcomeRows:
        asked = list(self.policies.values())[policy]
        return OutcomeRows(replace(self._base_shape, columns=self._columns(asked)), _Ratio(asked, self.logging))

    def _groups_of(self, rows: int) -> int:
        """Groups that hold at least so many rows; all of them where units are clusters, which may be few."""
        share = 1.0 if self.log.schema.clustered else min(1.0, rows / len(self.log))
        return math.ceil(self.groups * share)

    def fitted(self, engine: Engine, progress: bool | None) -> tuple[FitResults, Scorer]:
        """What was fitted, and the same ready to score."""
        fitted = self.fit(engine, progress)
        return fitted, self.scorer(fitted)

    def scorer(self, fitted: FitResults) -> Scorer:
        schema = self.log.schema
        models = {key: _predictors(fitted.models[key.fit], key) for key in self.plan.models}
        centre = _centre(models, len(schema.context))
        scorer = Scorer(
            plan=self.plan,
            policies=tuple(self.policies.values()),
            logging=self.logging,
            poolings={ratio: fits.poolings(len(fitted.pooled)) for ratio, fits in fitted.pooled.items()},
            outcomes={key: (fits, fits.by_fold(key[1].cross_fit)) for key, fits in fitted.outcomes.items()},
            sloped=frozenset(ratio for ratio, fits in fitted.pooled.items() if fits.covered),
            models={key: [_moved(p, centre) for p in predictors] for key, predictors in models.items()},
            origin=self.log.reward_origin,
            centre=centre,
            groups=self.groups,
            table_groups=self._groups_of(TABLE_ROWS),
            mass_groups=self._groups_of(MASS_ROWS),
            seed=self.seed,
            propensities=self._propensity_tests,
            many=self.many,
        )
        return scorer.with_near({ratio: fits.logged() for ratio, fits in fitted.pooled.items()})

    @property
    def _propensity_tests(self) -> PropensityTests | None:
        """Only where there are propensities to doubt, of actions that the tests serve."""
        if not (self.log.schema.propensity or self.logging is not None):
            return None
        trim = self.logging.setting.trim if isinstance(self.logging, FittedLogging) else None
        tests = PropensityTests(self.log.space.count or 0, len(self.log), self.logging, trim)
        return tests if tests.mismatch(self.log.space) is None else None

    def _listed(self, score_pass: ScorePass) -> float:
        """How many actions the policies list in a round, from the first of them."""
        policies = (*score_pass.scorer.policies, score_pass.scorer.logging)
        listing = [policy for policy in policies if policy is not None and policy.lists]
        if not listing:
            return 0.0
        first = self.log.head(64, score_pass.columns)
        return float(sum(len(policy.listed(first).codes) for policy in listing)) / len(first)

    def score(
        self, engine: Engine, fitted: FitResults, scorer: Scorer, level: float, progress: bool | None, redraws: Redraws
    ) -> Evaluation:
        """The one pass that scores every estimator for every policy and reward."""
        score_pass = ScorePass(
            scorer, self.log.space.count or 0, len(self.log.schema.slices or ()), self.log.schema.clustered
        )
        try:
            score_pass = replace(score_pass, most_rows=self._batch_rows(self._listed(score_pass)))
            with PassProgress("scoring", len(self.log), progress) as told:
                state = engine.reduce(self.log, score_pass, told)
        except RowsError as error:
            raise audited(error, self.log, scorer, score_pass.columns) from None
        assembly = Assembly(
            log=self.log,
            engine=engine,
            policies=tuple(self.policies),
            estimators=self.estimators,
            asked=tuple(described(estimator) for estimator in self.asked),
            members=self.members,
            references=self.references,
            scorer=scorer,
            fitted=fitted,
            propensity_tests=self._propensity_tests,
            state=state,
            level=level,
            cross_fit=self.cross_fit,
            skipped=self.skipped,
            redraws=redraws,
        )
        return assembly.evaluation()


@dataclass(frozen=True)
class _Ratio:
    """w of each round, or a power of it: MRDR fits with row weights w²."""

    policy: Policy
    logging: Policy | None
    power: int = 1

    def __call__(self, batch: Batch) -> FloatArray:
        ratio: FloatArray = ratio_of(batch, self.policy, self.logging) ** self.power
        return ratio


def _predictors(fits: Fits, key: ModelKey) -> list[Predictor]:
    if not key.folds:
        return [fits.on_all(key.reward)]
    return [fits.without_fold(key.reward, fold, key.folds) for fold in range(key.folds)]


def _centre(models: Mapping[ModelKey, Sequence[Predictor]], context: int) -> FloatArray:
    """One origin of the context for all linear models."""
    linear = (p for predictors in models.values() for p in predictors if isinstance(p, LinearPredictor))
    first = next(linear, None)
    return np.zeros(context) if first is None else first.centre


def _moved(predictor: Predictor, centre: FloatArray) -> Predictor:
    return predictor.moved(centre) if isinstance(predictor, LinearPredictor) else predictor
