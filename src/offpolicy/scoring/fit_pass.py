"""The fit pass: everything that is fitted, from one pass over the log, and how much memory that takes.

A memory budget leads to one of three rungs: refits for the error of the fit, folds only, or one covariance for all actions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.device import Device
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Budget, Need
from offpolicy.core.progress import PassProgress
from offpolicy.core.threads import cores
from offpolicy.data.features import Features
from offpolicy.data.log import Log
from offpolicy.data.schema import Schema
from offpolicy.data.slate import at_slot
from offpolicy.engines.base import BATCH_ROWS, Engine
from offpolicy.models.rewards.base import NO_FEATURES, Fits, FitShape
from offpolicy.policies.base import Policy
from offpolicy.ratios.actions import LoggedRatio
from offpolicy.ratios.base import FittedRatio, Fitting, Ratio, RatioNumbers
from offpolicy.scoring.plan import FitKey, Plan, RatioKey, fit_of, ratio_key
from offpolicy.statistics.at_slot import AtSlot, OverSlots
from offpolicy.statistics.base import Joint, Statistic

LEAST_GROUPS = 20
MOST_GROUPS = 200
# The rung is chosen for at least two threads: otherwise it, and with it the numbers, could differ between one thread and
# two.
PLANNED_THREADS = 2
Rung = Literal["refits", "folds", "shared"]
RUNGS: tuple[Rung, ...] = get_args(Rung)
BASE = 250e6  # bytes for the libraries and the smallest batches
BATCH_SHARE = 0.2  # the share of the budget that batches may use
FEWEST_ROWS = 16
ITEM_ELEMENTS = 1 << 20  # probabilities of items of lists that are held at a time: 8 MB for each policy
LISTED_ROWS = 64  # rounds whose lists show how long lists are
ENTRY_BYTES = 120  # bytes per listed action in the scoring pass
WHOLE_BYTES = 24  # bytes per probability of a policy that is evaluated for whole batches: its own array, and two copies
COLUMN_BYTES = 64  # bytes per number of a row: raw, decoded, sorted, stacked, centred


@dataclass(frozen=True)
class Sizes:
    """What the memory of a job depends on.

    It counts what grows with actions, context and rewards. The memory of a batch is bounded by its rows, which follow from
    the budget. Each need is an upper bound of what is in memory at one time, with `threads` partitions in progress.

    Attributes
    ----------
    shape : FitShape
        With all groups of units.
    folds : int
        Groups without refits: a multiple of every number of folds, and enough to choose a penalty.
    listed : bool
        Whether all policies list the few actions of a round, so that no neighbours are looked up.
    """

    shape: FitShape
    folds: int
    plan: Plan
    threads: int
    schema: Schema
    listed: bool = False

    def needs(self, rung: Rung) -> list[Need]:
        """The memory that a rung takes."""
        needs = [Need("the program and its batches", BASE, "fixed")]
        needs += [*self._models(rung), self._coefficients(), self._pools(), self._scoring(rung)]
        if rung == "refits":
            needs += [self._errors()]
        return [need for need in needs if need.bytes]

    def on_rung(self, shape: FitShape, rung: Rung) -> FitShape:
        """With groups only as fine as the memory allows."""
        refits = rung == "refits"
        return replace(shape, groups=shape.groups if refits else self.folds, jackknife=refits, shared=rung == "shared")

    def _shape(self, fit: FitKey, rung: Rung) -> FitShape:
        """What a reward model's memory depends on."""
        assert fit.inputs is not None
        shape = self.on_rung(self.shape, rung)
        shape = shape.with_position() if fit.every_slot else shape
        return replace(shape, inputs=fit.inputs, folds=math.lcm(1, *self.plan.folds_of(fit)))

    def _models(self, rung: Rung) -> list[Need]:
        """The memory of reward models. Fits with the same row weights share equal needs; all share what is used in turn."""
        distinct = dict.fromkeys(
            (None if need.in_turn else fit.policy, need)
            for fit in self.plan.fits
            for need in fit.rewards.on(self.schema).needs(self._shape(fit, rung), self.threads)
        )
        covered = {need.covers for _, need in distinct}
        times = Counter(need for _, need in distinct if need.what not in covered)
        return [replace(need, bytes=need.bytes * count) for need, count in times.items()]

    def _coefficients(self) -> Need:
        linear = sum(max(model.folds, 1) for model in self.plan.models)
        return self._by_action("coefficients", (2 + 2 * self.plan.n_policies) * linear * (self.shape.context + 1))

    def _by_action(self, what: str, numbers: int) -> Need:
        n_actions = self.shape.n_actions
        return Need(what, 8.0 * numbers * n_actions, f"{n_actions:,} actions × {numbers} numbers")

    def _numbers(self, ratio: Ratio) -> RatioNumbers:
        return ratio.numbers(self.shape.n_actions, self.shape.context, self.shape.features.size)

    @property
    def _ratios(self) -> list[RatioNumbers]:
        """What each fit of a ratio stores per action."""
        return [self._numbers(key.ratio) for key in self.plan.ratios]

    def _pools(self) -> Need:
        """Embeddings, and what turns them into weights."""
        ratios = self._ratios
        near = 0 if self.listed else max((ratio.near for ratio in ratios), default=0)
        return self._by_action("embeddings", sum(ratio.fitted + ratio.folds * near for ratio in ratios))

    def _scoring(self, rung: Rung) -> Need:
        """Counts, masses and sums of features, of each partition in progress."""
        groups = self.on_rung(self.shape, rung).groups
        sums = max((ratio.sums for ratio in self._ratios), default=0)
        return self._by_action("counts", (self.threads + 2) * (1 + self.plan.n_policies + groups * sums))

    def _errors(self) -> Need:
        """How estimates depend on what was fitted."""
        size = self.shape.context + 1
        shares = self.plan.shares_by_group(self.shape.groups, self.shape.n_actions, size)
        tables = (len(self.plan.tables) + len(shares) * self.shape.groups) * size
        for key in self.plan.weights:
            tables += self._numbers(key.weight.ratio).slopes * (1 + len(self.plan.corrections(key)))
        refits = sum(fit.rewards.refit_numbers(self._shape(fit, "refits")) for fit in self.plan.fits)
        return self._by_action("the fit's share of the errors", tables * (self.threads + 2) + refits)


def rung_for(sizes: Sizes, budget: Budget) -> Rung:
    """The first rung that fits into the budget."""
    for rung in RUNGS:
        if budget.holds(sizes.needs(rung)):
            return rung
    raise budget.refusal(
        min((sizes.needs(rung) for rung in RUNGS), key=lambda needs: sum(need.bytes for need in needs)),
        "Allow more with `memory=` (--memory), use fewer context columns or folds (cross_fit=2), or estimators without a "
        "reward model, such as SNIPS.",
    )


def fit_pass(
    log: Log,
    engine: Engine,
    needed: Mapping[Any, tuple[Statistic, ...]],
    progress: bool | None,
    most_rows: Callable[[tuple[str, ...]], int | None] = lambda columns: None,  # noqa: ARG005
) -> dict[Any, list[Any]]:
    """The results of each key's statistics, from one pass; equal statistics are folded once.

    `most_rows` is the largest number of rows per batch, for the columns that are read.
    """
    distinct: dict[Statistic, Statistic] = {s: s for several in needed.values() for s in several}
    results = {}
    if distinct:
        with PassProgress("fitting", len(log), progress) as report:
            joint = Joint(distinct)
            results = engine.reduce(log, replace(joint, most_rows=most_rows(joint.columns)), report)
    return {key: [results[statistic] for statistic in several] for key, several in needed.items()}


def at(key: FitKey, statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """Statistics of rounds, or of one slot of their lists, or of all slots."""
    if key.every_slot:
        return tuple(OverSlots(each) for each in statistics)
    return statistics if key.slot is None else tuple(AtSlot(each, key.slot) for each in statistics)


def groups_for(folds: set[int], least: int = LEAST_GROUPS) -> int:
    """The number of groups of units: a multiple of every number of folds, and of a small number to choose penalties with."""
    for few in (5, 4, 3, 2):
        groups = math.lcm(few, *folds)
        groups *= -(-least // groups)
        if groups <= MOST_GROUPS:
            return groups
    raise InputError(
        f"the numbers of folds {sorted(folds)} have no small common multiple; use the same cross_fit for all estimators."
    )


@dataclass(frozen=True)
class FitResults:
    """The results of the fit pass: reward models, and the ratio of each weight of the plan."""

    models: Mapping[FitKey, Fits]
    ratios: tuple[FittedRatio, ...]


@dataclass(frozen=True)
class FitPlan:
    """What a plan fits, in which shape, and within which memory.

    Attributes
    ----------
    names : Mapping[Ratio, str]
        The estimator that first uses each ratio, for messages.
    errors : bool
        Whether errors of what is fitted are needed, or only values.
    """

    log: Log
    plan: Plan
    features: Features
    seed: int
    policies: tuple[Policy, ...] = ()
    logging: Policy | None = None
    names: Mapping[Ratio, str] = field(default_factory=dict)
    errors: bool = True
    rung: Rung = "refits"
    sizes: Sizes | None = None
    device: Device | None = None
    budget: Budget = field(default_factory=lambda: Budget.of(None))

    @cached_property
    def groups(self) -> int:
        return groups_for(self.plan.folds)

    @property
    def scored_groups(self) -> int:
        """The groups of units whose sums are apart in the scoring pass: values need only the folds."""
        return self.groups if self.errors else math.lcm(1, *self.plan.folds)

    def within(self, budget: Budget, engine: Engine) -> FitPlan:
        """The same with the rung that fits into the budget; raises, before a row is read, if none does."""
        listed = all(policy.lists for policy in (*self.policies, self.logging) if policy is not None)
        folds = math.lcm(*self.plan.folds) if self.plan.folds else 2
        threads = max(engine.threads or cores(), PLANNED_THREADS)
        sizes = Sizes(self._shape, folds, self.plan, threads, self.log.schema, listed)
        return replace(self, sizes=sizes, rung=rung_for(sizes, budget), budget=budget, device=engine.accelerator)

    @property
    def many(self) -> bool:
        """Whether there are too many actions for refits."""
        return self.rung != "refits"

    def batch_rows(self, columns: Collection[str] = ()) -> int | None:
        """How many rows a batch may have that includes these columns, for policies to read; None: any number."""
        if self.sizes is None:
            return None
        listed = self._listed(columns)
        schema = self.log.schema
        numbers = len(schema.context) + len(schema.features) + len(schema.rewards) + self.plan.width
        whole = sum(policy.whole_batches for policy in (*self.policies, self.logging) if policy is not None)
        each = COLUMN_BYTES * numbers + ENTRY_BYTES * listed + WHOLE_BYTES * whole * self.log.space.n_codes
        return max(FEWEST_ROWS, int(BATCH_SHARE * self.budget.bytes / (self.sizes.threads * each)))

    def score_rows(self, columns: Collection[str]) -> int | None:
        """The same for the scoring pass, which holds the probabilities of all items where lists need them."""
        rows = self.batch_rows(columns)
        if not self.plan.by_items:
            return rows
        few = max(FEWEST_ROWS, ITEM_ELEMENTS // self.log.space.n_codes)
        return few if rows is None else min(few, rows)

    def _listed(self, columns: Collection[str]) -> float:
        """The mean number of actions per round that policies list in these columns, from the first rounds."""
        policies = [policy for policy in (*self.policies, self.logging) if policy is not None and policy.lists]
        listing = [policy for policy in policies if set(policy.columns) & set(columns)]
        if not listing:
            return 0.0
        first = self.log.head(LISTED_ROWS, tuple(columns))
        return float(sum(len(policy.listed(first).codes) for policy in listing)) / len(first)

    def run(self, engine: Engine, progress: bool | None) -> FitResults:
        """Fit everything in one pass. Equal statistics are shared."""
        shapes = {key: self.shape(key, progress) for key in self.plan.fits}
        models = {key: key.rewards.on(self.log.schema) for key in shapes}
        fittings = {key: self.fitting(key) for key in self.plan.ratios}
        needed: dict[Any, tuple[Statistic, ...]] = {
            key: at(key, models[key].statistics(shape)) for key, shape in shapes.items()
        }
        needed |= {key: key.ratio.statistics(fitting) for key, fitting in fittings.items()}
        results = fit_pass(self.log, engine, needed, progress, self._fit_rows)
        fits = {key: models[key].fits(shape, results[key]) for key, shape in shapes.items()}
        ratios = {}
        for key, fitting in fittings.items():
            model = fit_of(key.ratio)
            fitting = replace(fitting, fits=None if model is None else fits[model])
            ratios[key] = key.ratio.fit(fitting, results[key])
        of_weights = (ratios[ratio_key(weight)].of_slot(weight.weight.ratio) for weight in self.plan.weights)
        return FitResults(fits, tuple(of_weights))

    def _fit_rows(self, columns: tuple[str, ...]) -> int | None:
        """A bound for batches with long lists; others have the size that the statistics prefer."""
        rows = self.batch_rows(columns)
        return None if rows is None or rows >= BATCH_ROWS else rows

    @property
    def _shape(self) -> FitShape:
        """What is known of the log before a row is read."""
        schema, n_actions = self.log.schema, self.log.space.n_codes
        sizes = (n_actions, len(schema.context), len(schema.rewards), self.groups, self.seed)
        return FitShape(
            *sizes, rows=len(self.log), features=self.features, ordered=self.log.source.ordered, device=self.device,
            action_shape=schema.space.shape,
        )  # fmt: skip

    @cached_property
    def _base_shape(self) -> FitShape:
        return replace(self._shape, features=NO_FEATURES, origin=self._origin(), most_rows=self.batch_rows())

    @cached_property
    def _shape_by_action(self) -> FitShape:
        """For sums by action: groups only as fine as the memory allows, and as errors, or values alone, need."""
        shape = self._base_shape if self.sizes is None else self.sizes.on_rung(self._base_shape, self.rung)
        both = any(key.inputs == "both" for key in self.plan.fits)  # where sums are joined as memory allows
        if self.errors or self.many or both or self.log.space.count is None:
            return shape
        return replace(shape, groups=groups_for(self.plan.folds, least=1), jackknife=False)

    def _origin(self, slot: int | None = None) -> FloatArray:
        """A typical row of context, features and rewards (of one slot): the median of the first rows."""
        first = self.log.head() if slot is None else at_slot(self.log.head(), slot)
        phi = self.features.rows(first) if self.features.size else np.empty((len(first), 0))
        return np.concatenate([np.median(part, axis=0) for part in (first.context, phi, first.reward)])

    def shape(self, key: FitKey, progress: bool | None) -> FitShape:
        """The shape of the fit of a reward model."""
        assert key.inputs is not None
        slot = 0 if key.every_slot else key.slot
        whole = replace(self._shape_by_action, origin=self._base_shape.origin if slot is None else self._origin(slot))
        return replace(
            whole.with_position() if key.every_slot else whole,
            columns=self._columns(key.policy),
            row_weight=None if key.policy is None else LoggedRatio(self.policies[key.policy], self.logging, power=2),
            inputs=key.inputs,
            features=NO_FEATURES if key.inputs == "identity" else self.features,
            folds=math.lcm(1, *self.plan.folds_of(key)),
            progress=progress,
        )

    def fitting(self, key: RatioKey) -> Fitting:
        """What a ratio is fitted with."""
        columns = (*key.ratio.columns, *self._columns(key.policy))
        return Fitting(
            name=self.names.get(key.ratio, ""),
            shape=replace(self._base_shape, columns=columns),
            by_action=replace(self._shape_by_action, columns=columns),
            features=self.features,
            action_ratio=None if key.policy is None else LoggedRatio(self.policies[key.policy], self.logging),
            families=sum(other.ratio.whole or other.ratio.items for other in self.plan.ratios),
            logging=self.logging,
            target=None if key.policy is None else self.policies[key.policy],
            first=self.log.head,
            gain=self.plan.gain or (),
        )

    def _columns(self, policy: int | None) -> tuple[str, ...]:
        """The columns that the ratio of a policy reads."""
        if policy is None:
            return ()
        return (*self.policies[policy].columns, *(self.logging.columns if self.logging else ()))
