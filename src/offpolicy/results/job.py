"""`evaluate`: plan the passes, run them, and put the answer together. (Not evaluate.py: `op.evaluate` is the function.)"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.memory import Budget, OverBudgetError, size
from offpolicy.core.progress import PassProgress
from offpolicy.core.threads import cores, one_blas_thread
from offpolicy.data.batch import Batch, FloatArray
from offpolicy.data.checks import is_number, whole
from offpolicy.data.features import Features
from offpolicy.data.log import Log
from offpolicy.diagnostics.propensity_tests import Plausible
from offpolicy.engines import Engine, Resampled, engine_for
from offpolicy.estimators import Estimator, Run
from offpolicy.inference.bootstrap import Key, Redraws
from offpolicy.inference.jackknife import Fitted
from offpolicy.models.propensities import FittedLogging, estimate_logging
from offpolicy.models.rewards import Fits, FitShape, Linear, Predictor
from offpolicy.models.rewards.base import NO_FEATURES
from offpolicy.policies.base import Policy
from offpolicy.policies.tables import as_policy
from offpolicy.ratios.embedding_fits import PooledFits
from offpolicy.ratios.outcomes import OutcomeFits, OutcomeRows
from offpolicy.ratios.weights import Outcome, Pooled
from offpolicy.results.assembly import Assembly
from offpolicy.results.evaluation import Evaluation
from offpolicy.results.provenance import written
from offpolicy.scoring.audit import audited
from offpolicy.scoring.memory_plan import Rung, Sizes, folds_kept, rows_for, rung_for
from offpolicy.scoring.plan import Family, FitKey, ModelKey, Plan, Terms, fit_of, plan_estimators
from offpolicy.scoring.requirements import Lacking, Wanted, choose
from offpolicy.scoring.score_pass import ScorePass
from offpolicy.scoring.scorer import Scorer, ratio_of
from offpolicy.statistics import Joint, Statistic

PLANNED_THREADS = 2
"""What fits the memory is planned for at least so many threads: or the choice, and with it the numbers, would differ on
one thread and on two."""
LEAST_GROUPS = 20
MOST_GROUPS = 200
MASS_ROWS = 10_000
"""Rows that are enough to know on which actions the target's mass lies."""
TABLE_ROWS = 100_000
"""Rows that are enough to know how an estimate moves with its reward model, for the fit's share of the error."""


def evaluate(
    log: Log,
    target: Any,
    estimators: Estimator | Sequence[Estimator] | None = None,
    *,
    level: float = 0.95,
    cross_fit: int | None = None,
    engine: Engine | None = None,
    memory: str | int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Evaluation:
    """What `target` would have earned, by each estimator.

    `target` is a policy, anything `as_policy` takes, or a dict of them by name. Estimators that lack what they need are an
    error when named and are skipped, with the reason in the result, when they came from the defaults. The log is read once
    to fit what must be fitted and once to score everything. `memory` ("2GB"; by default a quarter of the machine) bounds
    what is held: a job that cannot keep to it says so, with the sum, before it reads a row.
    """
    if not isinstance(log, Log):
        raise InputError(f"log is a {type(log).__name__}; make a log of it first, with op.read_log(…) or op.Log(…).")
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"level is {level!r}; it must lie between 0 and 1.")
    if cross_fit is not None:
        cross_fit = whole("cross_fit", cross_fit, 2, besides=" (an estimator's own cross_fit=0 turns it off)")
    seed = whole("seed", seed, -(2**63))
    policies = {name: policy.settled(log) for name, policy in _policies(target).items()}
    for policy in policies.values():
        policy.check(log)
    engine = engine_for(log, engine)
    budget = Budget.of(memory)
    as_given, log = log, estimate_logging(log, engine, seed, progress)

    settings: dict[str, Any] = {"level": level, "cross_fit": cross_fit, "memory": memory, "seed": seed}

    def run(some: Sequence[Estimator]) -> Evaluation:
        return evaluate(log, policies, some, **settings, engine=engine, progress=progress)

    def redrawn(draw: int) -> Mapping[Key, float]:
        """The same evaluation of a log drawn anew; propensities that were estimated are estimated again."""
        drawn = Resampled(engine, seed, draw)
        return evaluate(as_given, policies, job.asked, **settings, engine=drawn, progress=False)._values()

    wanted = Wanted.of(estimators)
    job = Job.fitting(log, policies, wanted, cross_fit, seed, run, budget, engine)
    with one_blas_thread():  # many small products: threads over partitions and refits keep the cores busy
        try:
            fits, scorer = job.fitted(engine, progress)
        except Exception:
            if not wanted.can_spare:
                raise
            fewer = wanted.without_failing(run, job.features)
            job = Job.fitting(log, policies, fewer, cross_fit, seed, run, budget, engine)
            fits, scorer = job.fitted(engine, progress)
        return job.score(engine, fits, scorer, level, progress, Redraws(redrawn, progress))


def fit_pass(
    log: Log, engine: Engine, needed: Mapping[Any, tuple[Statistic, ...]], progress: bool | None
) -> dict[Any, list[Any]]:
    """Everything that is fitted, from one pass: the results of each key's statistics, equal ones folded once."""
    distinct: dict[Statistic, Statistic] = {s: s for several in needed.values() for s in several}
    results = {}
    if distinct:
        with PassProgress("fitting", len(log), progress) as told:
            results = engine.reduce(log, Joint(distinct), told)
    return {key: [results[statistic] for statistic in several] for key, several in needed.items()}


def _policies(target: Any) -> dict[str, Policy]:
    if not isinstance(target, Mapping):
        return {"target": as_policy(target)}
    if not target or not all(isinstance(name, str) for name in target):
        raise InputError("target: give a policy, or a dict of policies with text as names (and at least one).")
    return {name: as_policy(policy) for name, policy in target.items()}


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
            n_actions=self.log.n_actions,
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
        logging = None if log.logging is None else as_policy(log.logging).settled(log)
        if logging is not None:
            logging.check(log)
        features = Features.of(log.schema)
        chosen, skipped = choose(wanted, Lacking(log, policies, logging, features), cross_fit)
        asked = tuple(chosen)
        chosen = [estimator.settled(features, run) for estimator in chosen]
        has_ratio = log.schema.propensity or logging is not None
        plan, members, references = plan_estimators(chosen, len(policies), len(log.schema.rewards), cross_fit, has_ratio)
        groups = groups_for(plan.folds)
        return cls(
            log, policies, logging, tuple(chosen), skipped, plan, members, references, features, groups, seed,
            cross_fit=cross_fit, asked=asked,
        )  # fmt: skip

    def fit(self, engine: Engine, progress: bool | None) -> Fitted:
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
        return Fitted(
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
            n_actions=self.log.n_actions,
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

    def fitted(self, engine: Engine, progress: bool | None) -> tuple[Fitted, Scorer]:
        """What was fitted, and the same ready to score."""
        fitted = self.fit(engine, progress)
        return fitted, self.scorer(fitted)

    def scorer(self, fitted: Fitted) -> Scorer:
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
            anchor=self.log.anchor,
            centre=centre,
            groups=self.groups,
            table_groups=self._groups_of(TABLE_ROWS),
            mass_groups=self._groups_of(MASS_ROWS),
            seed=self.seed,
            plausible=self._plausible,
            many=self.many,
        )
        return scorer.with_near({ratio: fits.logged() for ratio, fits in fitted.pooled.items()})

    @property
    def _plausible(self) -> Plausible | None:
        """Only where there are propensities to doubt."""
        if not (self.log.schema.propensity or self.logging is not None):
            return None
        trim = self.logging.setting.trim if isinstance(self.logging, FittedLogging) else None
        return Plausible(self.log.n_actions, len(self.log), self.logging, trim)

    def _listed(self, score_pass: ScorePass) -> float:
        """How many actions the policies list in a round, from the first of them."""
        policies = (*score_pass.scorer.policies, score_pass.scorer.logging)
        listing = [policy for policy in policies if policy is not None and policy.lists]
        if not listing:
            return 0.0
        first = self.log.head(64, score_pass.columns)
        return float(sum(len(policy.listed(first).codes) for policy in listing)) / len(first)

    def score(
        self, engine: Engine, fitted: Fitted, scorer: Scorer, level: float, progress: bool | None, redraws: Redraws
    ) -> Evaluation:
        """The one pass that scores every estimator for every policy and reward."""
        score_pass = ScorePass(scorer, self.log.n_actions, len(self.log.schema.slices or ()), self.log.schema.clustered)
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
            asked=tuple(written(estimator) for estimator in self.asked),
            members=self.members,
            references=self.references,
            scorer=scorer,
            fitted=fitted,
            state=state,
            level=level,
            cross_fit=self.cross_fit,
            skipped=self.skipped,
            redraws=redraws,
        )
        return assembly.evaluation()


def groups_for(folds: set[int]) -> int:
    """How many groups of units: a multiple of every number of folds, and of a few, among which penalties are chosen."""
    for few in (5, 4, 3, 2):
        groups = math.lcm(few, *folds)
        groups *= -(-LEAST_GROUPS // groups)
        if groups <= MOST_GROUPS:
            return groups
    raise InputError(f"the folds {sorted(folds)} share no small multiple; use the same cross_fit throughout.")


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
    linear = (p for predictors in models.values() for p in predictors if isinstance(p, Linear))
    first = next(linear, None)
    return np.zeros(context) if first is None else first.centre


def _moved(predictor: Predictor, centre: FloatArray) -> Predictor:
    return predictor.moved(centre) if isinstance(predictor, Linear) else predictor
