"""The fit pass: everything that is fitted, from one reading of the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Budget
from offpolicy.core.progress import PassProgress
from offpolicy.core.threads import cores
from offpolicy.data.features import Features
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.models.rewards.base import NO_FEATURES, Fits, FitShape
from offpolicy.policies.base import Policy
from offpolicy.ratios.actions import LoggedRatio
from offpolicy.ratios.base import FittedRatio, Fitting, Ratio
from offpolicy.scoring.memory_plan import Rung, Sizes, folds_kept, rows_for, rung_for
from offpolicy.scoring.plan import FitKey, Plan, RatioKey, fit_of, ratio_key
from offpolicy.statistics.base import Joint, Statistic

LEAST_GROUPS = 20
MOST_GROUPS = 200
PLANNED_THREADS = 2
"""What fits the memory is planned for at least so many threads: or the choice, and with it the numbers, would differ on
one thread and on two."""


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


def groups_for(folds: set[int]) -> int:
    """How many groups of units: a multiple of every number of folds, and of a few, among which penalties are chosen."""
    for few in (5, 4, 3, 2):
        groups = math.lcm(few, *folds)
        groups *= -(-LEAST_GROUPS // groups)
        if groups <= MOST_GROUPS:
            return groups
    raise InputError(f"the folds {sorted(folds)} share no small multiple; use the same cross_fit throughout.")


@dataclass(frozen=True)
class FitResults:
    """What the fit pass gave: reward models, and the ratio of each weight of the plan."""

    models: Mapping[FitKey, Fits]
    ratios: tuple[FittedRatio, ...]


@dataclass(frozen=True)
class FitPlan:
    """What a plan has fitted, in which shape, and what fits into the memory."""

    log: Log
    plan: Plan
    features: Features
    seed: int
    policies: tuple[Policy, ...] = ()
    logging: Policy | None = None
    names: Mapping[Ratio, str] = field(default_factory=dict)
    """The estimator that first uses each ratio, for messages."""
    rung: Rung = "refits"
    sizes: Sizes | None = None
    budget: Budget = field(default_factory=lambda: Budget.of(None))

    @cached_property
    def groups(self) -> int:
        return groups_for(self.plan.folds)

    def within(self, budget: Budget, engine: Engine) -> FitPlan:
        """The same with what fits into the budget; an error, before a row is read, where nothing does."""
        schema = self.log.schema
        sizes = Sizes(
            n_actions=self.log.space.n_codes,
            context=len(schema.context),
            rewards=len(schema.rewards),
            groups=self.groups,
            folds=folds_kept(self.plan.folds),
            threads=max(engine.threads or cores(), PLANNED_THREADS),
            plan=self.plan,
            features=self.features,
            listed=all(policy.lists for policy in (*self.policies, self.logging) if policy is not None),
        )
        return replace(self, sizes=sizes, rung=rung_for(sizes, budget), budget=budget)

    @property
    def many(self) -> bool:
        """Whether actions are too many for refits."""
        return self.rung != "refits"

    def batch_rows(self, listed: float) -> int | None:
        """How many rows a batch may have, where policies list so many actions in a round."""
        schema = self.log.schema
        columns = len(schema.context) + len(schema.features) + len(schema.rewards) + self.plan.width
        return None if self.sizes is None else rows_for(self.sizes, self.budget, columns, listed)

    def run(self, engine: Engine, progress: bool | None) -> FitResults:
        """The one pass that fits everything. What needs the same statistic shares it."""
        shapes = {key: self.shape(key, progress) for key in self.plan.fits}
        models = {key: key.rewards.on(self.log.schema) for key in shapes}
        fittings = {key: self.fitting(key) for key in self.plan.ratios}
        needed: dict[Any, tuple[Statistic, ...]] = {key: models[key].statistics(s) for key, s in shapes.items()}
        needed |= {key: key.ratio.statistics(fitting) for key, fitting in fittings.items()}
        found = fit_pass(self.log, engine, needed, progress)
        fits = {key: models[key].fits(shape, found[key]) for key, shape in shapes.items()}
        ratios = {}
        for key, fitting in fittings.items():
            model = fit_of(key.ratio)
            fitting = replace(fitting, fits=None if model is None else fits[model])
            ratios[key] = key.ratio.fit(fitting, found[key])
        return FitResults(fits, tuple(ratios[ratio_key(weight)] for weight in self.plan.weights))

    @cached_property
    def _base_shape(self) -> FitShape:
        schema = self.log.schema
        return FitShape(
            n_actions=self.log.space.n_codes,
            context=len(schema.context),
            rewards=len(schema.rewards),
            groups=self.groups,
            seed=self.seed,
            rows=len(self.log),
            origin=self._origin(),
            most_rows=self.batch_rows(0.0),
            ordered=self.log.source.ordered,
        )

    @cached_property
    def _shape_by_action(self) -> FitShape:
        """For what is kept by action: groups only as fine as there is room for."""
        if not self.many or self.sizes is None:
            return self._base_shape
        return replace(self._base_shape, groups=self.sizes.folds, jackknife=False, shared=self.rung == "shared")

    def _origin(self) -> FloatArray:
        """A typical row of context, features and rewards: the median of the first rows."""
        first = self.log.head()
        phi = self.features.rows(first) if self.features.size else np.empty((len(first), 0))
        return np.concatenate([np.median(part, axis=0) for part in (first.context, phi, first.reward)])

    def shape(self, key: FitKey, progress: bool | None) -> FitShape:
        """Of the fit of a reward model."""
        assert key.inputs is not None
        return replace(
            self._shape_by_action,
            columns=self._columns(key.policy),
            row_weight=None if key.policy is None else LoggedRatio(self.policies[key.policy], self.logging, power=2),
            inputs=key.inputs,
            features=NO_FEATURES if key.inputs == "identity" else self.features,
            folds=math.lcm(1, *self.plan.folds_of(key)),
            progress=progress,
        )

    def fitting(self, key: RatioKey) -> Fitting:
        """Of the fit of a ratio."""
        columns = (*key.ratio.columns, *self._columns(key.policy))
        return Fitting(
            name=self.names.get(key.ratio, ""),
            shape=replace(self._base_shape, columns=columns),
            by_action=replace(self._shape_by_action, columns=columns),
            features=self.features,
            action_ratio=None if key.policy is None else LoggedRatio(self.policies[key.policy], self.logging),
            families=sum(other.ratio.whole for other in self.plan.ratios),
        )

    def _columns(self, policy: int | None) -> tuple[str, ...]:
        """What the ratio of a policy reads."""
        if policy is None:
            return ()
        return (*self.policies[policy].columns, *(self.logging.columns if self.logging else ()))
