"""The planned columns of each row: baselines, weights and corrections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.models.posteriors.base import Pooling
from offpolicy.models.rewards.base import LinearPredictor, Predictor, design
from offpolicy.policies.base import Policy
from offpolicy.ratios.actions import checked_propensity, propensity_of, ratios
from offpolicy.ratios.embeddings import Pool
from offpolicy.ratios.outcomes import OutcomeFits
from offpolicy.ratios.weights import Outcome, Pooled, Weight
from offpolicy.scoring.baselines import Baselines
from offpolicy.scoring.plan import BaselineColumn, CorrectionColumn, ModelKey, Plan, TableKey, WeightColumn
from offpolicy.scoring.query import Block, Mode, Query
from offpolicy.scoring.tallies import Tallies, pool_name
from offpolicy.statistics.base import State

AGREE = 1e-6


class PropensityStatistic(Protocol):
    """What is summed of the propensities as they pass by; the scorer only hands them on."""

    def zero(self) -> State: ...

    def fold(self, state: State, batch: Batch, bucket: IntArray, propensity: FloatArray) -> None: ...

    def merge(self, a: State, b: State) -> State: ...


@dataclass
class Weights:
    """The ratios of a batch, before they are bent."""

    rows: int
    action: list[FloatArray | None] = field(default_factory=list)
    pooled: dict[tuple[int, Any], FloatArray] = field(default_factory=dict)

    def bent(self, policy: int, weight: Weight) -> FloatArray:
        ratio = self.action[policy] if isinstance(weight.ratio, str) else self.pooled[policy, weight.ratio]
        return np.ones(self.rows) if weight.ratio == "one" or ratio is None else weight.bend(ratio)


@dataclass(frozen=True)
class Scorer:
    """Computes the planned columns of a batch. Rows come out sorted by group, so that each fold is one run of rows."""

    plan: Plan
    policies: tuple[Policy, ...]
    logging: Policy | None
    poolings: Mapping[Pooled, Sequence[Pooling]]
    """One a fold, or one."""
    outcomes: Mapping[tuple[int, Outcome], tuple[OutcomeFits, Sequence[FloatArray]]]
    """By policy: the bins, and the weight of each, for each fold or once."""
    sloped: frozenset[Pooled]
    """The ratios whose fit's error is to be counted, so that slopes are kept."""
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
        if not (self.plan.models or self.poolings or self.outcomes):
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
        weights = Weights(len(batch))
        asked = [self._asked(p, batch, bucket, x, omega, out, kept, controls, weights) for p in range(len(self.policies))]
        own = next((logged for _, logged in asked if logged is not None), None)
        if own is None or self.logging is None:
            propensity = propensity_of(batch, self.logging)
        else:
            propensity = checked_propensity(batch, own, self.logging.accuracy)
        if propensity is not None and self.propensities is not None:
            self.propensities.fold(kept.state["propensities"], batch, bucket, propensity)
        for p, (chance, _) in enumerate(asked):
            weights.action.append(None if propensity is None else ratios(chance, propensity))
            kept.add_weights(p, weights.action[-1], batch.weight)
        for (p, outcome), (bins, values) in self.outcomes.items():
            weights.pooled[p, outcome] = self._outcome(outcome, bins, values, batch, bucket, omega, kept, p)
        bent = self._fill(out, batch, weights, controls)
        sampled = slice(0, int(np.searchsorted(group_of_bucket(self.groups)[bucket], self.table_groups)))
        kept.add_weight_tables(self.tables, bent, x[:, sampled] * omega[sampled], batch.take(sampled))
        out[0] = 1.0
        if weighted and batch.weight is not None:
            out *= omega
        return out

    def _asked(
        self, p: int, batch: Batch, bucket: IntArray, x: FloatArray, omega: FloatArray, out: FloatArray, kept: Tallies,
        controls: Mapping[ModelKey, FloatArray], weights: Weights,
    ) -> tuple[FloatArray, FloatArray | None]:  # fmt: skip
        """π of the logged actions and, where the whole logging policy was asked on the way, π0 of them."""
        if not self.plan.whole(p):
            return self.policies[p].probabilities(batch, batch.action), None
        pools = [self._pool(p, weight, batch, omega, controls, kept) for weight in self._pooled[p]]
        chance, logged = self._whole(p, batch, bucket, x, omega, out, kept, pools)
        for pool in pools:
            pool.finish(batch)
            weights.pooled[p, pool.weight.ratio] = pool.ratio
            kept.add_pooled_weights(pool_name(self.plan, p, pool.weight), pool.ratio, batch.weight)
        return chance, logged

    @cached_property
    def _pooled(self) -> list[list[Weight]]:
        """The pooled weights of each policy."""
        return [[weight for _, weight in self.plan.weights(Pooled, p)] for p in range(len(self.policies))]

    def _pool(
        self, p: int, weight: Weight, batch: Batch, omega: FloatArray, controls: Mapping[ModelKey, FloatArray], kept: Tallies
    ) -> Pool:
        """The work on one pooled weight."""
        keys = [self.plan.columns[column - 1] for column in self.plan.corrections(p, weight)]
        residuals = [self.residual(key, batch, controls) for key in keys if isinstance(key, CorrectionColumn)]
        assert isinstance(weight.ratio, Pooled)
        return Pool(
            weight, self.poolings[weight.ratio], kept.state["pools"][pool_name(self.plan, p, weight)], omega, residuals,
            np.empty(len(batch)), weight.ratio in self.sloped and not self._near(p, weight.ratio),
        )  # fmt: skip

    def _near(self, p: int, ratio: Pooled) -> bool:
        """Whether the weights of a policy are sums over near actions, whose slopes are not known."""
        return self._queries[p].mode != "lists" and self.poolings[ratio][0].near is not None

    def residual(self, key: CorrectionColumn, batch: Batch, controls: Mapping[ModelKey, FloatArray]) -> FloatArray:
        """r less the control of a correction."""
        control = self.origin[key.reward] if key.model is None else controls[key.model]
        left: FloatArray = batch.reward[:, key.reward] - control
        return left

    def _outcome(
        self, outcome: Outcome, bins: OutcomeFits, values: Sequence[FloatArray], batch: Batch, bucket: IntArray,
        omega: FloatArray, kept: Tallies, p: int,
    ) -> FloatArray:  # fmt: skip
        """E[w | r] of each round, from the other folds."""
        at = bins.bin_of(batch.reward[:, outcome.reward])
        out = np.empty(len(batch))
        for fold, rows in self.runs(bucket, len(values)):
            out[rows] = values[fold][at[rows]]
        kept.add_outcome(p, outcome, at, omega, batch.reward[:, outcome.reward] - self.origin[outcome.reward])
        return out

    def _fill(
        self,
        out: FloatArray,
        batch: Batch,
        weights: Weights,
        controls: Mapping[ModelKey, FloatArray],
    ) -> dict[tuple[int, Weight], FloatArray]:
        bent: dict[tuple[int, Weight], FloatArray] = {}
        for column, key in enumerate(self.plan.columns, start=1):
            if isinstance(key, BaselineColumn):
                continue
            at = (key.policy, key.weight)
            if at not in bent:
                bent[at] = weights.bent(*at)
            if isinstance(key, WeightColumn):
                out[column] = bent[at]
            else:
                out[column] = bent[at] * self.residual(key, batch, controls)
        return bent

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

    def _whole(
        self, p: int, batch: Batch, bucket: IntArray, x: FloatArray, omega: FloatArray, out: FloatArray, kept: Tallies,
        pools: Sequence[Pool],
    ) -> tuple[FloatArray, FloatArray | None]:  # fmt: skip
        """Ask a policy for all actions, block by block; fill its baselines and pools; give π and π0 of logged actions."""
        q = self._queries[p]
        chance = np.empty(len(batch))
        logged = np.empty(len(batch)) if q.asks_logging else None
        target = q.policy.listed(batch) if q.mode == "lists" else None
        logging = q.logging.listed(batch) if q.mode == "lists" and q.asks_logging and q.logging is not None else None
        each = math.lcm(1, *self.plan.folds) if q.mode == "apart" else self.groups  # what is not kept by group needs none
        for part, run in self.runs(bucket, each):
            group = part * (self.groups // each)
            work = self._work(p, group)
            for rows in q.blocks(run, target, batch.n_actions):
                block = Block(q, group, rows, batch.take(rows), x[:, rows], omega[rows], out[:, rows], kept, pools)
                if q.mode == "apart":
                    chances = block.apart(work)
                elif target is not None:
                    chances = block.listed(work, target.take(rows), None if logging is None else logging.take(rows))
                else:
                    chances = block.grid(work)
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
        return bool(self._pooled[p]) or any(key.clip is not None for key in self.baselines[p])

    def with_near(self, logged: Mapping[Pooled, Sequence[npt.NDArray[np.bool_]]]) -> Scorer:
        """The same with neighbours looked up, where some policy needs them: of the actions logged in each fold."""
        unlisted = {w.ratio for p in range(len(self.policies)) if self._mode(p) != "lists" for w in self._pooled[p]}
        looked_up = {
            ratio: [p.with_near(asked) if p.neighbours else p for p, asked in zip(poolings, logged[ratio], strict=True)]
            if ratio in unlisted
            else poolings
            for ratio, poolings in self.poolings.items()
        }
        return replace(self, poolings=looked_up)

    def _mode(self, p: int) -> Mode:
        """How a policy is asked: for all actions; for those it lists; or for sums, with pools of near actions alone."""
        poolings = [pooling for weight in self._pooled[p] for pooling in self.poolings[weight.ratio]]  # type: ignore[index]
        linear = all(isinstance(m, LinearPredictor) for key in self.baselines[p] for m in self.models[key.model])
        if not linear or any(pooling.likelihood is not None for pooling in poolings):
            return "grid"
        both = not self._asks_logging(p) or (self.logging is not None and self.logging.lists)
        if self.policies[p].lists and both:
            return "lists"
        clipped = any(key.clip is not None for key in self.baselines[p])
        near = all(pooling.neighbours is not None for pooling in poolings)
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
