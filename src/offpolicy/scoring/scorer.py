"""The planned columns of each row: baselines, weights and corrections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.models.rewards.base import LinearPredictor, Predictor, design
from offpolicy.policies.base import Policy
from offpolicy.ratios.actions import checked_propensity, propensity_of, ratios
from offpolicy.ratios.base import FittedRatio
from offpolicy.ratios.rounds import Pool, Rounds
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.baselines import Baselines
from offpolicy.scoring.plan import BaselineColumn, CorrectionColumn, ModelKey, Plan, TableKey, WeightColumn
from offpolicy.scoring.query import Block, Mode, Query
from offpolicy.scoring.tallies import Tallies
from offpolicy.statistics.base import State


class PropensityStatistic(Protocol):
    """What is summed of the propensities as they pass by; the scorer only hands them on."""

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch, bucket: IntArray, propensity: FloatArray) -> None: ...

    def merge(self, a: State, b: State) -> State: ...


@dataclass(frozen=True)
class BatchWork:
    """A batch on its way through the scorer."""

    batch: Batch
    bucket: IntArray
    x: FloatArray
    omega: FloatArray
    controls: Mapping[ModelKey, FloatArray]
    out: FloatArray
    kept: Tallies
    weights: dict[tuple[int, Weight], FloatArray] = field(default_factory=dict)
    """By policy, once they are known."""


@dataclass(frozen=True)
class Scorer:
    """Computes the planned columns of a batch. Rows come out sorted by group, so that each fold is one run of rows."""

    plan: Plan
    policies: tuple[Policy, ...]
    logging: Policy | None
    ratios: tuple[FittedRatio, ...]
    """Of each weight of the plan."""
    models: Mapping[ModelKey, Sequence[Predictor]]
    """Linear ones are all written around `centre`, so that one design serves them."""
    origin: FloatArray
    centre: FloatArray
    groups: int
    table_groups: int
    """Tables, which only say how large the fit's error is, are summed over the rows of these first groups."""
    mass_groups: int
    """And where the target's mass lies over the rows of these."""
    seed: int
    propensities: PropensityStatistic | None = None
    """What is kept to doubt the propensities."""
    many: bool = False
    """Whether there are so many actions that nothing is kept for the fit's error, and policies may answer with sums."""

    @property
    def tables(self) -> Sequence[TableKey]:
        """What is kept for the fit's error."""
        return () if self.many else self.plan.tables

    @cached_property
    def baselines(self) -> list[list[BaselineColumn]]:
        """The baselines of each policy."""
        keys = [key for key in self.plan.columns if isinstance(key, BaselineColumn)]
        return [[key for key in keys if key.policy == p] for p in range(len(self.policies))]

    def ordered(self, batch: Batch) -> tuple[Batch, IntArray]:
        """The batch in the order it is scored in, and the bucket of each row."""
        bucket = buckets(batch.unit, self.seed)
        if not (self.plan.models or any(key.weight.ratio.fitted or key.weight.ratio.whole for key in self._weights)):
            return batch, bucket
        order = np.argsort(bucket.astype(np.uint16), kind="stable")  # 16 bits: a radix sort
        return batch.take(order), bucket[order]

    def runs(self, bucket: IntArray, groups: int) -> Iterator[tuple[int, slice]]:
        """Each of `groups` groups with its run of rows."""
        group = group_of_bucket(groups)[bucket]
        edges = np.searchsorted(group, np.arange(groups + 1))
        return ((g, slice(int(a), int(b))) for g, (a, b) in enumerate(itertools.pairwise(edges)) if b > a)

    def score(self, batch: Batch, bucket: IntArray, kept: Tallies, weighted: bool = True) -> FloatArray:
        """Columns × rows, the row weight first and (if `weighted`) in every column. `kept` takes the other sums."""
        out = np.zeros((self.plan.width, len(batch)))
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        x = design(batch, self.centre) if self.plan.models else np.empty((0, len(batch)))
        controls = {key: self._control(key, batch, bucket, x) for key in self.plan.models}
        for k, (key, control) in enumerate(controls.items()):
            origin = self.origin[key.reward]
            kept.add_misfit(k, batch.reward[:, key.reward] - origin, control - origin, omega)
        work = BatchWork(batch, bucket, x, omega, controls, out, kept)
        asked = [self._asked(p, work) for p in range(len(self.policies))]
        own = next((logged for _, logged in asked if logged is not None), None)
        if own is None or self.logging is None:
            propensity = propensity_of(batch, self.logging)
        else:
            propensity = checked_propensity(batch, own, self.logging.accuracy)
        if propensity is not None and self.propensities is not None:
            self.propensities.fold(kept.state["propensities"], batch, bucket, propensity)
        for p, (chance, _) in enumerate(asked):
            action = None if propensity is None else ratios(chance, propensity)
            kept.add_weights(p, action, batch.weight)
            for k in self._weights_of[p]:
                if k not in self._whole_weights[p]:
                    self._weigh(k, replace(self._rounds(k, work), action=action), work)
        self._fill(work)
        sampled = slice(0, int(np.searchsorted(group_of_bucket(self.groups)[bucket], self.table_groups)))
        kept.add_weight_tables(self.tables, work.weights, x[:, sampled] * omega[sampled], batch.take(sampled))
        out[0] = 1.0
        if weighted and batch.weight is not None:
            out *= omega
        return out

    def _asked(self, p: int, work: BatchWork) -> tuple[FloatArray, FloatArray | None]:
        """π of the logged actions and, where the whole logging policy was asked on the way, π0 of them."""
        if not self.plan.whole(p):
            return self.policies[p].probabilities(work.batch, work.batch.action), None
        pools = {k: self.ratios[k].pool(self._rounds(k, work), work.kept.ratio(k)) for k in self._whole_weights[p]}
        chances = self._whole(p, work, list(pools.values()))
        for k, pool in pools.items():
            self._weigh(k, replace(self._rounds(k, work), pool=pool), work)
        return chances

    def _rounds(self, k: int, work: BatchWork) -> Rounds:
        """The batch as the ratio of a weight is shown it."""
        folds = max(self._weights[k].weight.ratio.cross_fit, 1)
        return Rounds(work.batch, work.bucket, folds, work.omega, partial(self._residuals, k, work))

    def _weigh(self, k: int, rounds: Rounds, work: BatchWork) -> None:
        """One weight of each round; its ratio keeps its own sums of it."""
        key, ratio = self._weights[k], self.ratios[k].weights(rounds)
        self.ratios[k].fold(work.kept.ratio(k), rounds, ratio)
        work.weights[key.policy, key.weight] = key.weight.bend(ratio)

    def _residuals(self, k: int, work: BatchWork) -> list[FloatArray]:
        """Of the corrections that use a weight."""
        return [self._residual(key, work) for key in self.plan.corrections(self._weights[k])]

    @cached_property
    def _weights(self) -> list[WeightColumn]:
        return self.plan.weights

    @cached_property
    def _weights_of(self) -> list[list[int]]:
        """The weights of each policy, by their positions in the plan."""
        weights = list(enumerate(self._weights))
        return [[k for k, key in weights if key.policy == p] for p in range(len(self.policies))]

    @cached_property
    def _whole_weights(self) -> list[list[int]]:
        """Of these, the ones that sum over all actions."""
        return [[k for k in some if self._weights[k].weight.ratio.whole] for some in self._weights_of]

    def _residual(self, key: CorrectionColumn, work: BatchWork) -> FloatArray:
        """r less the control of a correction."""
        control = self.origin[key.reward] if key.model is None else work.controls[key.model]
        left: FloatArray = work.batch.reward[:, key.reward] - control
        return left

    def _fill(self, work: BatchWork) -> None:
        """The columns of weights and corrections."""
        for column, key in enumerate(self.plan.columns, start=1):
            if isinstance(key, WeightColumn):
                work.out[column] = work.weights[key.policy, key.weight]
            elif isinstance(key, CorrectionColumn):
                work.out[column] = work.weights[key.policy, key.weight] * self._residual(key, work)

    def _control(self, key: ModelKey, batch: Batch, bucket: IntArray, x: FloatArray) -> FloatArray:
        out = np.empty(len(batch))
        predictors = self.models[key]
        for fold, rows in self.runs(bucket, len(predictors)):
            predictor = predictors[fold]
            if isinstance(predictor, LinearPredictor):
                out[rows] = predictor.taken_of(x[:, rows], batch.take(rows))
            else:
                out[rows] = predictor.taken(batch.take(rows))
        return out

    def _whole(self, p: int, work: BatchWork, pools: Sequence[Pool]) -> tuple[FloatArray, FloatArray | None]:
        """Ask a policy for all actions, block by block; fill its baselines and pools; give π and π0 of logged actions."""
        q, batch = self._queries[p], work.batch
        chance = np.empty(len(batch))
        logged = np.empty(len(batch)) if q.asks_logging else None
        target = q.policy.listed(batch) if q.mode == "lists" else None
        logging = q.logging.listed(batch) if q.mode == "lists" and q.asks_logging and q.logging is not None else None
        each = math.lcm(1, *self.plan.folds) if q.mode == "apart" else self.groups  # what is not kept by group needs none
        for part, run in self.runs(work.bucket, each):
            group = part * (self.groups // each)
            baselines = self._work(p, group)
            for rows in q.blocks(run, target, batch.n_actions):
                x, omega, out = work.x[:, rows], work.omega[rows], work.out[:, rows]
                block = Block(q, group, rows, batch.take(rows), x, omega, out, work.kept, pools)
                if q.mode == "apart":
                    chances = block.apart(baselines)
                elif target is not None:
                    chances = block.listed(baselines, target.take(rows), None if logging is None else logging.take(rows))
                else:
                    chances = block.grid(baselines)
                chance[rows] = chances[0]
                if logged is not None and chances[1] is not None:
                    logged[rows] = chances[1]
        return chance, logged

    @cached_property
    def _queries(self) -> list[Query]:
        logging = self.logging if self.logging is not None and self.logging.whole else None
        return [
            Query(
                p, policy, logging, self._asks_logging(p), self._mode(p), self.groups,
                0 if self.many else self.table_groups, self.mass_groups,
            )
            for p, policy in enumerate(self.policies)
        ]  # fmt: skip

    def _asks_logging(self, p: int) -> bool:
        """Whether the whole logging policy is asked for every round."""
        if self.logging is None or not self.logging.whole:
            return False
        return bool(self._whole_weights[p]) or any(key.clip is not None for key in self.baselines[p])

    def with_near(self) -> Scorer:
        """The same with near actions looked up by the ratios that some policy needs them for."""
        unlisted = {k for p in range(len(self.policies)) if self._mode(p) != "lists" for k in self._whole_weights[p]}
        distinct = {id(ratio): ratio for ratio in (self.ratios[k] for k in sorted(unlisted))}
        looked_up = {key: ratio.with_near() for key, ratio in distinct.items()}
        return replace(self, ratios=tuple(looked_up.get(id(ratio), ratio) for ratio in self.ratios))

    def _mode(self, p: int) -> Mode:
        """How a policy is asked: for all actions; for those it lists; or for sums, with pools of near actions alone."""
        ratios = [self.ratios[k] for k in self._whole_weights[p]]
        linear = all(isinstance(m, LinearPredictor) for key in self.baselines[p] for m in self.models[key.model])
        if not linear or any(ratio.needs_grid for ratio in ratios):
            return "grid"
        both = not self._asks_logging(p) or (self.logging is not None and self.logging.lists)
        if self.policies[p].lists and both:
            return "lists"
        clipped = any(key.clip is not None for key in self.baselines[p])
        near = all(ratio.nearest_suffice for ratio in ratios)
        return "apart" if self.many and near and not clipped else "grid"

    def _work(self, p: int, group: int) -> Baselines:
        folds = tuple((key, group * (key.model.folds or 1) // self.groups) for key in self.baselines[p])
        cache: dict[Any, Baselines] = self._works
        if (p, folds) not in cache:
            cache[p, folds] = Baselines.of(self.plan, self.models, self.origin, p, folds)
        return cache[p, folds]

    @cached_property
    def _works(self) -> dict[Any, Baselines]:
        return {}
