"""The planned columns of each row: baselines, weights and corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.models.rewards.base import LinearPredictor, Predictor, design
from offpolicy.policies.base import Policy
from offpolicy.ratios.actions import checked_propensity, propensity_of, ratios
from offpolicy.ratios.base import FittedRatio
from offpolicy.ratios.pools import Rounds
from offpolicy.scoring.batch_work import BatchWork
from offpolicy.scoring.kernel import Kernel, NumpyKernel
from offpolicy.scoring.plan import CorrectionColumn, ModelKey, Plan, TableKey, WeightColumn
from offpolicy.scoring.query import Groups, Query
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.scoring.tallies import Tallies


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
    many: bool = False
    """Whether there are so many actions that nothing is kept for the fit's error, and policies may answer with sums."""
    errors: bool = True
    """Whether what the fit's error takes is kept at all."""
    kernel: Kernel = field(default_factory=NumpyKernel)

    @property
    def tables(self) -> Sequence[TableKey]:
        """What is kept for the fit's error."""
        return () if self.many or not self.errors else self.plan.tables

    def ordered(self, batch: Batch) -> tuple[Batch, IntArray]:
        """The batch in the order it is scored in, and the bucket of each row."""
        bucket = buckets(batch.unit, self.seed)
        if not (self.plan.models or any(key.weight.ratio.fitted or key.weight.ratio.whole for key in self._weights)):
            return batch, bucket
        order = np.argsort(bucket.astype(np.uint16), kind="stable")  # 16 bits: a radix sort
        return batch.take(order), bucket[order]

    def score(self, batch: Batch, bucket: IntArray, kept: Tallies, weighted: bool = True) -> ScoredBlock:
        """All columns of a batch, the row weight first and (if `weighted`) in every column. `kept` takes the other sums."""
        x = design(batch, self.centre) if self.plan.models else np.empty((0, len(batch)))
        work = BatchWork(batch, bucket, x, np.zeros((self.plan.width, len(batch))), kept)
        work.controls.update({key: self._control(key, work) for key in self.plan.models})
        asked = [self._asked(p, work) for p in range(len(self.policies))]
        own = next((logged for _, logged in asked if logged is not None), None)
        if own is None or self.logging is None:
            propensity = propensity_of(batch, self.logging)
        else:
            propensity = checked_propensity(batch, own, self.logging.accuracy)
        action = tuple(None if p is None or propensity is None else ratios(p, propensity) for p, _ in asked)
        for p, some in enumerate(self._weights_of):
            target = self.policies[p].actions(batch) if self.policies[p].deterministic else None
            for k in some:
                if k not in self._whole_weights[p]:
                    rounds = replace(self._rounds(k, work), action=action[p], propensity=propensity, target=target)
                    self._weigh(k, rounds, work)
        self._fill(work)
        sampled = slice(0, int(np.searchsorted(group_of_bucket(self.groups)[bucket], self.table_groups)))
        kept.add_weight_tables(self.tables, work.weights, x[:, sampled] * work.omega[sampled], batch.take(sampled))
        work.out[0] = 1.0
        if weighted and batch.weight is not None:
            work.out[:] *= work.omega
        return ScoredBlock(work.out, bucket, work.omega, propensity, action, work.controls, self.origin, kept.masses)

    def _asked(self, p: int, work: BatchWork) -> tuple[FloatArray | None, FloatArray | None]:
        """π of the logged actions (None: deterministic) and, where the whole logging policy was asked too, π0 of them."""
        if self.policies[p].deterministic:
            return None, None
        if not self.plan.whole(p):
            return self.policies[p].probabilities(work.batch, work.batch.action), None
        pools = {k: self.ratios[k].pool(self._rounds(k, work), work.kept.ratio(k)) for k in self._whole_weights[p]}
        chances = self._queries[p].answer(work, list(pools.values()))
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

    def _control(self, key: ModelKey, work: BatchWork) -> FloatArray:
        """q of the logged actions, each by the model without its fold."""
        out = np.empty(len(work.batch))
        for fold, rows in work.runs(len(self.models[key])):
            predictor, batch = self.models[key][fold], work.batch.take(rows)
            if isinstance(predictor, LinearPredictor):
                out[rows] = predictor.taken_of(work.x[:, rows], batch)
            else:
                out[rows] = predictor.taken(batch)
        return out

    @cached_property
    def _queries(self) -> list[Query]:
        logging = self.logging if self.logging is not None and self.logging.whole else None
        groups = Groups(self.groups, self.table_groups if self.errors else 0, self.mass_groups)
        ratios = [[self.ratios[k] for k in some] for some in self._whole_weights]
        return [
            Query(p, policy, logging, self.plan, self.models, self.origin, ratios[p], groups, self.many, self.kernel)
            for p, policy in enumerate(self.policies)
        ]

    def with_near(self) -> Scorer:
        """The same with near actions looked up by the ratios that some policy needs them for."""
        unlisted = {k for p in range(len(self.policies)) if self._queries[p].mode != "lists" for k in self._whole_weights[p]}
        distinct = {id(ratio): ratio for ratio in (self.ratios[k] for k in sorted(unlisted))}
        looked_up = {key: ratio.with_near() for key, ratio in distinct.items()}
        return replace(self, ratios=tuple(looked_up.get(id(ratio), ratio) for ratio in self.ratios))
