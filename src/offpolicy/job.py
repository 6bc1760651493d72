"""`evaluate`: plan the passes, run them, and put the answer together. (Not evaluate.py: `op.evaluate` is the function.)"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.audit import audited
from offpolicy.batch import Batch, FloatArray
from offpolicy.engines import Local
from offpolicy.errors import InputError, RowsError
from offpolicy.estimators import DM, DR, IPS, SNIPS, Estimator, LoggedMean, Member
from offpolicy.evaluation import Evaluation
from offpolicy.log import Log
from offpolicy.plan import FitKey, ModelKey, Plan, plan_estimators
from offpolicy.policies import as_policy
from offpolicy.policy import Policy
from offpolicy.progress import PassProgress
from offpolicy.results import Assembly
from offpolicy.rewards import Fits, FitShape, Linear, Predictor
from offpolicy.scoring import ScorePass, Scorer, ratio_of
from offpolicy.statistics import Joint, Statistic

LEAST_GROUPS = 20
MOST_GROUPS = 200
TABLE_ROWS = 100_000
"""Rows that are enough to know how an estimate moves with its reward model, for the fit's share of the error."""


def default_estimators() -> list[Estimator]:
    """What is run when nothing is named."""
    return [LoggedMean(), IPS(), SNIPS(), DM(), DR()]


def evaluate(
    log: Log,
    target: Any,
    estimators: Estimator | Sequence[Estimator] | None = None,
    *,
    level: float = 0.95,
    cross_fit: int | None = None,
    engine: Local | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Evaluation:
    """What `target` would have earned, by each estimator.

    `target` is a policy, anything `as_policy` takes, or a dict of them by name. Estimators that lack what they need are an
    error when named and are skipped, with the reason in the result, when they came from the defaults. The log is read once
    to fit what must be fitted and once to score everything.
    """
    if not 0 < level < 1:
        raise InputError(f"level is {level}; it must lie between 0 and 1.")
    if cross_fit is not None and cross_fit < 2:
        raise InputError(f"cross_fit is {cross_fit}; give at least 2 folds (an estimator's own cross_fit=0 turns it off).")
    if not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; give a whole number of at most 64 bits.")
    policies = _policies(target)
    for policy in policies.values():
        policy.check(log)
    job = _Job.of(log, policies, estimators, cross_fit, seed)
    engine = engine or Local()
    fits = job.fit(engine, progress)
    return job.score(engine, fits, level, progress)


def _policies(target: Any) -> dict[str, Policy]:
    if not isinstance(target, Mapping):
        return {"target": as_policy(target)}
    if not target or not all(isinstance(name, str) for name in target):
        raise InputError("target: give a policy, or a dict of policies with text as names (and at least one).")
    return {name: as_policy(policy) for name, policy in target.items()}


@dataclass(frozen=True)
class _Job:
    """An evaluation whose every choice has been made."""

    log: Log
    policies: dict[str, Policy]
    logging: Policy | None
    estimators: tuple[Estimator, ...]
    skipped: dict[str, str]
    plan: Plan
    members: dict[tuple[int, int, int], list[tuple[Member, Any]]]
    groups: int
    seed: int

    @classmethod
    def of(cls, log: Log, policies: dict[str, Policy], estimators: Any, cross_fit: int | None, seed: int) -> _Job:
        logging = None if log.logging is None else as_policy(log.logging)
        if logging is not None:
            logging.check(log)
        chosen, skipped = _choose(estimators, _Lacking(log, tuple(policies.values()), logging), cross_fit)
        has_ratio = log.schema.propensity or logging is not None
        plan, members = plan_estimators(chosen, len(policies), len(log.schema.rewards), cross_fit, has_ratio)
        folds = {model.folds for model in plan.models if model.folds}
        groups = _groups(folds)
        return cls(log, policies, logging, tuple(chosen), skipped, plan, members, groups, seed)

    def fit(self, engine: Local, progress: bool | None) -> dict[FitKey, Fits]:
        """The one pass that fits every reward model. Models with the same statistic share it."""
        shapes = {key: self._shape(key) for key in self.plan.fits}
        statistics = {key: key.rewards.statistics(shape) for key, shape in shapes.items()}
        distinct: dict[Statistic, Statistic] = {s: s for several in statistics.values() for s in several}
        results = {}
        if distinct:
            with PassProgress("fitting", len(self.log), progress) as told:
                results = engine.reduce(self.log, Joint(distinct), told)
        return {
            key: key.rewards.fits(shapes[key], [results[statistic] for statistic in several])
            for key, several in statistics.items()
        }

    def _shape(self, key: FitKey) -> FitShape:
        schema = self.log.schema
        policy = None if key.policy is None else list(self.policies.values())[key.policy]
        return FitShape(
            n_actions=self.log.n_actions,
            context=len(schema.context),
            rewards=len(schema.rewards),
            groups=self.groups,
            seed=self.seed,
            rows=len(self.log),
            columns=() if policy is None else (*policy.columns, *(self.logging.columns if self.logging else ())),
            row_weight=None if policy is None else _SquaredRatio(policy, self.logging),
        )

    def _table_groups(self) -> int:
        """Groups that hold enough rows for the tables; all of them where units are clusters, which may be few."""
        share = 1.0 if self.log.schema.clustered else min(1.0, TABLE_ROWS / len(self.log))
        return math.ceil(self.groups * share)

    def score(self, engine: Local, fits: dict[FitKey, Fits], level: float, progress: bool | None) -> Evaluation:
        """The one pass that scores every estimator for every policy and reward."""
        schema = self.log.schema
        models = {key: _predictors(fits[key.fit], key) for key in self.plan.models}
        centre = _centre(models, len(schema.context))
        scorer = Scorer(
            plan=self.plan,
            policies=tuple(self.policies.values()),
            logging=self.logging,
            models={key: [_moved(p, centre) for p in predictors] for key, predictors in models.items()},
            anchor=self.log.anchor,
            centre=centre,
            groups=self.groups,
            table_groups=self._table_groups(),
            seed=self.seed,
        )
        score_pass = ScorePass(scorer, self.log.n_actions, len(schema.slices or ()))
        try:
            with PassProgress("scoring", len(self.log), progress) as told:
                state = engine.reduce(self.log, score_pass, told)
        except RowsError as error:
            raise audited(error, self.log, scorer, score_pass.columns) from None
        assembly = Assembly(
            log=self.log,
            engine=engine,
            policies=tuple(self.policies),
            estimators=self.estimators,
            members=self.members,
            scorer=scorer,
            fits=fits,
            state=state,
            level=level,
            skipped=self.skipped,
        )
        return assembly.evaluation()


def _groups(folds: set[int]) -> int:
    """How many groups of units: a multiple of every number of folds, and of a few, among which penalties are chosen."""
    for few in (5, 4, 3, 2):
        groups = math.lcm(few, *folds)
        groups *= -(-LEAST_GROUPS // groups)
        if groups <= MOST_GROUPS:
            return groups
    raise InputError(f"the folds {sorted(folds)} share no small multiple; use the same cross_fit throughout.")


@dataclass(frozen=True)
class _SquaredRatio:
    """The row weights w² of MRDR's fit."""

    policy: Policy
    logging: Policy | None

    def __call__(self, batch: Batch) -> FloatArray:
        return ratio_of(batch, self.policy, self.logging) ** 2


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


@dataclass(frozen=True)
class _Lacking:
    """What an estimator needs and the log or a policy does not have."""

    log: Log
    policies: tuple[Policy, ...]
    logging: Policy | None

    def __call__(self, members: Sequence[Member]) -> str | None:
        if any(m.weight.ratio == "action" for m in members) and not (self.log.schema.propensity or self.logging):
            return "it weighs by π/π0, and the log has neither propensities nor a logging policy"
        if any(m.rewards is not None for m in members) and not all(policy.whole for policy in self.policies):
            return (
                "it needs the new policy's chance of every action, and only that of the logged action is known; "
                "give list columns of candidates, a matrix or a function"
            )
        if any(m.remainder for m in members) and not (self.logging is not None and self.logging.whole):
            return "it needs the logging policy's chance of every action; give it as `logging=`"
        return None


def _choose(given: Any, lacking: _Lacking, cross_fit: int | None) -> tuple[list[Estimator], dict[str, str]]:
    """The estimators to run, `LoggedMean` always among them, and those left out with the reason."""
    wanted = default_estimators() if given is None else [given] if isinstance(given, Estimator) else list(given)
    for estimator in wanted:
        if not isinstance(estimator, Estimator):
            hint = f"; write {estimator.__name__}()" if isinstance(estimator, type) else ""
            raise InputError(f"estimators: {estimator!r} is not an estimator{hint}.")
    if not any(isinstance(estimator, LoggedMean) for estimator in wanted):
        wanted.insert(0, LoggedMean())
    names = [estimator.name for estimator in wanted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two estimators are called {twice!r}; give one of them another `name=`.")
    chosen, skipped = [], {}
    for estimator in wanted:
        reason = lacking(estimator.members(cross_fit))
        if reason is None:
            chosen.append(estimator)
        elif given is None:
            skipped[estimator.name] = reason
        else:
            raise InputError(f"{estimator.name} cannot be computed: {reason}.")
    if given is None and len(chosen) == 1:
        reasons = "; ".join(dict.fromkeys(skipped.values()))
        raise InputError(f"nothing can be said of the new policy: {reasons}.")
    return chosen, skipped
