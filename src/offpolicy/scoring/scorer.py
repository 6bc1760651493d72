"""The planned columns of each round: baselines, weights and corrections, from the policies' probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal
from weakref import proxy

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray, library, like, ratios, to_numpy
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.core.threads import checkpoint
from offpolicy.data.batch import Batch
from offpolicy.data.slate import at_slot, reward_of, shown
from offpolicy.models.rewards.base import ContinuousPredictor, LinearPredictor, Predictor, design, on_host
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import BLOCK_ELEMENTS, Grid, Listed, Lists, blocks
from offpolicy.ratios.actions import checked_propensity, propensity_of
from offpolicy.ratios.base import FittedRatio
from offpolicy.ratios.pools import BlockRows, Pool, Rounds, Sides, near_actions, unseen
from offpolicy.ratios.sides import LoggedSlots, SlotSides, as_list_policy
from offpolicy.scoring.kernel import (
    BaselinePart,
    Baselines,
    BlockInput,
    BlockSums,
    Kernel,
    NumpyKernel,
    Probabilities,
    TargetMass,
    only,
)  # fmt: skip
from offpolicy.scoring.plan import (
    BaselineColumn,
    CorrectionColumn,
    ModelKey,
    Plan,
    ShareTable,
    SmoothedColumn,
    TableKey,
    WeightColumn,
)
from offpolicy.scoring.scored_block import BatchWork, ScoredBlock
from offpolicy.scoring.smoothing import Smoothers
from offpolicy.statistics.base import State

Mode = Literal["grid", "lists", "apart", "fused"]
APART_ROWS = 4_096  # rounds per call of a policy that computes sums over actions itself
MASS_ELEMENTS = 1 << 21
# π of the logged actions, and their π0 if the logging policy was evaluated for all actions.
Logged = tuple[FloatArray, FloatArray | None]


@dataclass(frozen=True)
class Scorer:
    """Computes the planned columns of a batch. Rows are sorted by group, so that each fold is one run of rows.

    Attributes
    ----------
    ratios : tuple[FittedRatio, ...]
        One for each weight of the plan.
    models : Mapping[ModelKey, Sequence[Predictor]]
        Linear ones are all centred at `centre`, so that they share one design matrix.
    table_groups : int
        Tables, which only serve to compute the fit's error, are summed over the rows of these first groups.
    slope_groups : int
        Slopes of the weights of lists, whose number grows with the square of the slots, are summed over these first groups.
    mass_groups : int
        The target's mass by action is summed over the rows of these first groups.
    many : bool
        Whether there are too many actions to compute the fit's error, and policies may return sums over them.
    errors : bool
        Whether the sums that the fit's error needs are computed at all.
    most_rows : int | None
        The largest number of rows per batch, for the memory budget.
    """

    plan: Plan
    policies: tuple[Policy, ...]
    logging: Policy | None
    ratios: tuple[FittedRatio, ...]
    models: Mapping[ModelKey, Sequence[Predictor]]
    origin: FloatArray
    centre: FloatArray
    groups: int
    table_groups: int
    slope_groups: int
    mass_groups: int
    seed: int
    many: bool = False
    errors: bool = True
    slot_origin: FloatArray | None = None
    kernel: Kernel = field(default_factory=NumpyKernel)
    most_rows: int | None = None
    smoothers: Smoothers = field(default_factory=lambda: Smoothers(1, None))

    def at_most(self, rows: int) -> int:
        """So many rows, or as many as a batch may have."""
        return rows if self.most_rows is None else min(rows, self.most_rows)

    @property
    def tables(self) -> Sequence[TableKey]:
        """The tables for the fit's error."""
        return () if self.many or not self.errors else self.plan.tables

    @property
    def every_table(self) -> bool:
        """Whether tables are summed over all rows."""
        return self.table_groups == self.groups

    @cached_property
    def weights(self) -> list[WeightColumn]:
        return self.plan.weights

    @cached_property
    def _queries(self) -> list[Query]:
        # Weak references, so that what was fitted, which may be on a device, is freed with the scorer.
        return [Query(proxy(self), p) for p in range(len(self.policies))]

    @property
    def unfused(self) -> list[str | None]:
        """For each policy, why its sums are not left to a kernel that computes probabilities itself."""
        return [query.unfused for query in self._queries]

    def ordered(self, batch: Batch) -> tuple[Batch, IntArray]:
        """The batch in the order in which it is scored, and the bucket of each row."""
        bucket = buckets(batch.unit, self.seed)
        fits = self.plan.models or any(key.weight.ratio.fitted or key.weight.ratio.whole for key in self.weights)
        if self.groups == 1 or not fits:
            return batch, bucket
        order = np.argsort(bucket.astype(np.uint16), kind="stable")  # 16 bits: a radix sort
        return batch.take(order), bucket[order]

    def score(self, batch: Batch, bucket: IntArray, state: State, weighted: bool = True) -> ScoredBlock:
        """All columns of a batch, the row weight first and (if `weighted`) in every column. Adds other sums to `state`."""
        x = design(batch, self.centre) if self.plan.models else np.empty((0, len(batch)))
        sizes = [batch.space.n_codes if self.plan.whole(p) else 0 for p in range(len(self.policies))]
        masses = tuple(TargetMass(np.zeros(size)) for size in sizes)
        work = BatchWork(batch, bucket, x, np.zeros((self.plan.width, len(batch))), state, masses)
        work.controls.update({key: self._control(key, work) for key in self.plan.models})
        scored = self._lists(work) if batch.slots is not None else self._actions(work)
        targets = tuple(policy.actions(batch) if policy.deterministic else None for policy in self.policies)
        for query, ratio, slots, target in zip(self._queries, scored.ratios, scored.slots, targets, strict=True):
            for k in query.logged_weights:
                rounds = self._rounds(k, work)
                both = (query.policy, self.logging)
                rounds = replace(
                    rounds, action=ratio, propensity=scored.propensity, target=target, slots=slots, policies=both
                )
                self._add_weight(k, rounds, work)
        self._fill(work)
        if self.tables:
            sampled = int(np.searchsorted(group_of_bucket(self.groups)[bucket], self.table_groups))
            work.add_weight_tables(self.tables, slice(0, sampled))
        work.out[0] = 1.0
        if weighted and batch.weight is not None:
            work.out[:] *= work.omega
        return ScoredBlock(
            work.out, bucket, work.omega, scored.propensity, scored.ratios, work.controls, self.origin, masses, scored.slots,
            targets,
        )  # fmt: skip

    def _actions(self, work: BatchWork) -> Compared:
        """Both policies at the logged actions."""
        batch = work.batch
        probabilities = [self._probabilities(query, work) for query in self._queries]
        own = next((logged for _, logged in probabilities if logged is not None), None)
        if own is None or self.logging is None:
            propensity = propensity_of(batch, self.logging)
        else:
            propensity = checked_propensity(batch, own, max(self.logging.accuracy, self.kernel.accuracy))
        each = tuple(None if p is None or propensity is None else ratios(p, propensity) for p, _ in probabilities)
        return Compared(propensity, each, (None,) * len(each))

    def _lists(self, work: BatchWork) -> Compared:
        """Both policies in the slots of the logged lists. The logging policy is evaluated once for all targets."""
        batch = work.batch
        pooled = [any(self.weights[k].weight.ratio.items for k in query.logged_weights) for query in self._queries]
        baselines = [ListQuery(query) for query in self._queries]
        logged = LoggedSlots.of(batch, self.logging, any(pooled))
        slots = tuple(
            SlotSides(logged, as_list_policy(query.query.policy), by_items or query.needed)
            for query, by_items in zip(baselines, pooled, strict=True)
        )
        for query, sides in zip(baselines, slots, strict=True):
            query.answer(work, sides)
        ratio = tuple(sides.whole if logged.gives_lists else None for sides in slots)
        return Compared(batch.propensity, ratio, slots)

    def _probabilities(self, query: Query, work: BatchWork) -> tuple[FloatArray | None, FloatArray | None]:
        """π of the logged actions (None: deterministic), and π0 if the logging policy was evaluated for all actions."""
        if work.batch.space.count is None:
            query.integrate(work)
        if query.policy.deterministic:
            return None, None
        if work.batch.space.count is None:
            return query.policy.likelihood(work.batch), None
        if not self.plan.whole(query.index) and query.mode != "fused":
            return query.policy.likelihood(work.batch), None
        pools = {k: self.ratios[k].pool(self._rounds(k, work), work.ratio_state(k)) for k in query.whole_weights}
        logged = query.answer(work, list(pools.values()))
        for k, pool in pools.items():
            self._add_weight(k, replace(self._rounds(k, work), pool=pool), work)
        return logged

    def _rounds(self, k: int, work: BatchWork) -> Rounds:
        """The batch as the ratio of a weight sees it."""
        folds = max(self.weights[k].weight.ratio.cross_fit, 1)
        residuals = partial(self._residuals, k, work)
        sampled = self._sampled(work) if self.weights[k].weight.ratio.fitted else 0
        return Rounds(work.batch, work.bucket, folds, work.omega, residuals, sampled=sampled)

    def _sampled(self, work: BatchWork) -> int:
        """How many rounds of a batch, the first ones, show how estimates depend on what was fitted."""
        if self.many or not self.errors:
            return 0
        return int(np.searchsorted(group_of_bucket(self.groups)[work.bucket], self.slope_groups))

    def _add_weight(self, k: int, rounds: Rounds, work: BatchWork) -> None:
        """Compute one weight of each round, and add to the sums of its ratio."""
        key, ratio = self.weights[k], self.ratios[k].weights(rounds)
        earned = self.ratios[k].earned(rounds)
        if earned is not None:
            work.earned[key.policy, key.weight] = earned
        self.ratios[k].fold(work.ratio_state(k), rounds, ratio)
        work.weights[key.policy, key.weight] = key.weight.bend(ratio)

    def _residuals(self, k: int, work: BatchWork) -> list[FloatArray]:
        """The residuals of the corrections that use a weight."""
        return [self._residual(key, work) for key in self.plan.corrections(self.weights[k])]

    def _residual(self, key: CorrectionColumn, work: BatchWork) -> FloatArray:
        """r minus the control of a correction."""
        earned = work.earned.get((key.policy, key.weight))
        reward = reward_of(work.batch, key.reward, key.slot) if earned is None else earned[:, key.reward]
        left: FloatArray = reward - (self.origin_of(key.reward, key.slot) if key.model is None else work.controls[key.model])
        return left

    def origin_of(self, reward: int, slot: int | None = None) -> float:
        """The typical value of a reward, or of the reward of one slot, that is subtracted before summing."""
        if slot is None:
            return float(self.origin[reward])
        assert self.slot_origin is not None
        return float(self.slot_origin[reward, slot])

    def _fill(self, work: BatchWork) -> None:
        """Fill in the columns of weights and corrections."""
        for column, key in enumerate(self.plan.columns, start=1):
            if isinstance(key, WeightColumn):
                work.out[column] = work.weights[key.policy, key.weight]
            elif isinstance(key, CorrectionColumn):
                np.multiply(work.weights[key.policy, key.weight], self._residual(key, work), out=work.out[column])
            elif isinstance(key, SmoothedColumn):
                smoother = self.smoothers.of(key.smoothing)
                smooth = smoother.misses if key.misses else smoother.hits
                work.out[column] = smooth(work.weights[key.policy, key.weight], work.batch.reward[:, key.reward])

    def _control(self, key: ModelKey, work: BatchWork) -> FloatArray:
        """q of the logged actions, each from the model fitted without its fold."""
        slot, parts, sent = key.fit.slot, [], None
        whole = work.batch if slot is None else at_slot(work.batch, slot)
        for fold, rows in work.runs(len(self.models[key])):
            predictor, batch = self.models[key][fold], whole.take(rows)
            if isinstance(predictor, LinearPredictor):
                sent = like(work.x, predictor.coef) if sent is None else sent
                parts.append(predictor.taken_of(sent[:, rows], batch))
            else:
                parts.append(predictor.taken(batch))
        out = to_numpy(library(parts[0]).concatenate(parts)) if parts else np.empty(0)
        if slot is not None:
            out[~shown(work.batch)[:, slot]] = 0.0
        return out

    def unfitted(self) -> Scorer:
        """Without models and ratios, for whoever needs only its settings."""
        return replace(self, models={}, ratios=())

    def on_host(self) -> Scorer:
        """With arrays in memory, for policies that the kernel leaves to the processor."""
        models = {key: [*map(on_host, predictors)] for key, predictors in self.models.items()}
        return replace(self, ratios=tuple(ratio.on_host() for ratio in self.ratios), models=models)

    def with_near(self) -> Scorer:
        """The same with near actions looked up, for the ratios for which some policy needs them."""
        unlisted = {k for query in self._queries if query.mode != "lists" for k in query.whole_weights}
        distinct = {id(ratio): ratio for ratio in (self.ratios[k] for k in sorted(unlisted))}
        looked_up = {key: ratio.with_near() for key, ratio in distinct.items()}
        return replace(self, ratios=tuple(looked_up.get(id(ratio), ratio) for ratio in self.ratios))


@dataclass(frozen=True)
class Compared:
    """The target policies and the logging policy at what was logged.

    Attributes
    ----------
    propensity : FloatArray | None
        π0 of what was logged.
    ratios : tuple[FloatArray | None, ...]
        π/π0 for each target policy.
    slots : tuple[SlotSides | None, ...]
        Both policies in the slots of lists.
    """

    propensity: FloatArray | None
    ratios: tuple[FloatArray | None, ...]
    slots: tuple[SlotSides | None, ...]


@dataclass(frozen=True)
class Query:
    """How one policy is evaluated: for all actions, for those it lists, or as sums and a few actions."""

    scorer: Scorer
    index: int
    slot: int | None = None

    @property
    def policy(self) -> Policy:
        return self.scorer.policies[self.index]

    @property
    def logging(self) -> Policy | None:
        """The logging policy, if its probabilities of all actions are known."""
        logging = self.scorer.logging
        return logging if logging is not None and logging.whole else None

    @cached_property
    def whole_weights(self) -> list[int]:
        """The weights of this policy that sum over all actions, by their positions in the plan."""
        return [k for k, key in enumerate(self.scorer.weights) if key.policy == self.index and key.weight.ratio.whole]

    @cached_property
    def logged_weights(self) -> list[int]:
        """Those that use the logged actions alone."""
        return [k for k, key in enumerate(self.scorer.weights) if key.policy == self.index and not key.weight.ratio.whole]

    @cached_property
    def baselines(self) -> list[BaselineColumn]:
        keys = (key for key in self.scorer.plan.columns if isinstance(key, BaselineColumn))
        return [key for key in keys if (key.policy, key.model.fit.slot) == (self.index, self.slot)]

    @cached_property
    def needs_logging(self) -> bool:
        """Whether the logging policy's probabilities of all actions are needed in every round."""
        clipped = any(key.clip is not None for key in self.baselines)
        return self.logging is not None and (bool(self.whole_weights) or clipped)

    @cached_property
    def mode(self) -> Mode:
        """All actions; those that the policy lists; sums, with the ratios of near actions alone; or all by the kernel."""
        if self.scorer.kernel.fuses and self.unfused is None:
            return "fused"
        ratios = [self.scorer.ratios[k] for k in self.whole_weights]
        linear = all(isinstance(m, LinearPredictor) for key in self.baselines for m in self.scorer.models[key.model])
        if not linear or any(ratio.needs_grid for ratio in ratios):
            return "grid"
        if self.policy.lists and (not self.needs_logging or (self.logging is not None and self.logging.lists)):
            return "lists"
        clipped = any(key.clip is not None for key in self.baselines)
        near = all(ratio.nearest_suffice for ratio in ratios)
        apart = self.scorer.many and near and not clipped and not self.policy.whole_batches
        return "apart" if apart else "grid"

    @cached_property
    def unfused(self) -> str | None:
        """Why a kernel cannot compute everything from factors; None if it can."""
        if not self.policy.bilinear:
            return "it is not a softmax of products of vectors, such as op.Softmax(op.TwoTower(…)) or op.Softmax of a matrix"
        if self.logging is not None and not self.logging.bilinear:
            return "the logging policy is not a softmax of products of vectors"
        if any(key.clip is not None for key in self.baselines):
            return "a baseline covers only a part of the probabilities (CAB)"
        if not all(isinstance(m, LinearPredictor) for key in self.baselines for m in self.scorer.models[key.model]):
            return "a reward model is not linear in the context"
        if not all(self.scorer.ratios[k].normal for k in self.whole_weights):
            return "weights are not those of op.Gaussian() over all actions, without neighbours or features of rounds"
        return None

    def _fused(self, work: BatchWork, pools: Sequence[Pool]) -> Logged:
        """Let the kernel compute everything from factors, for the whole batch."""
        batch, groups = work.batch, self.scorer.groups
        runs = self._long_runs(work)
        rounds = (BlockRows(rows, batch.take(rows), group, groups, self.sampled(group)) for group, rows in runs)
        blocks = [Block(self, work, each, self.baselines_of(each.group), pools) for each in rounds]
        logging = None if self.logging is None else self.logging.factors(batch)
        sums = self.scorer.kernel.fused(self.policy.factors(batch), logging, [block.input for block in blocks])
        logged = [block.store(own) for block, own in zip(blocks, sums, strict=True)]
        pi0 = None if logging is None else np.concatenate([own0 for _, own0 in logged if own0 is not None])
        return np.concatenate([own for own, _ in logged]), pi0

    def _long_runs(self, work: BatchWork) -> list[tuple[int, slice]]:
        """Runs of rows, each with its first group: groups are kept apart only in the samples, and where folds differ."""
        groups, folds, runs = self.scorer.groups, math.lcm(1, *self.scorer.plan.folds), dict[Any, tuple[int, slice]]()
        for group, rows in work.runs(groups):
            key = (group * folds // groups, group if self.sampled(group) or group < self.scorer.mass_groups else -1)
            first, before = runs.get(key, (group, rows))
            runs[key] = first, slice(before.start, rows.stop)
        return list(runs.values())

    def answer(self, work: BatchWork, pools: Sequence[Pool]) -> Logged:
        """Evaluate the policy block by block; fill in baselines and pools."""
        if self.mode == "fused":
            return self._fused(work, pools)
        batch, lists, groups = work.batch, self.mode == "lists", self.scorer.groups
        pi = np.empty(len(batch))
        pi0 = np.empty(len(batch)) if self.needs_logging else None
        target = self.policy.listed(batch) if lists else None
        logging = self.logging.listed(batch) if lists and self.needs_logging and self.logging is not None else None
        grids = Grids.of(batch, self.policy, self.logging) if self.mode == "grid" else Grids()
        # Sums that are not stored by group need only the folds.
        each = math.lcm(1, *self.scorer.plan.folds) if self.mode == "apart" else groups
        for part, run in work.runs(each):
            group = part * (groups // each)
            for rows in self._blocks(run, target, batch.n_actions):
                checkpoint()
                rounds = BlockRows(rows, batch.take(rows), group, groups, self.sampled(group))
                block = Block(self, work, rounds, self.baselines_of(group), pools)
                if self.mode == "apart":
                    logged = block.apart()
                elif target is not None:
                    logged = block.listed(target.take(rows), None if logging is None else logging.take(rows))
                else:
                    logged = block.grid(grids)
                pi[rows] = logged[0]
                if pi0 is not None and logged[1] is not None:
                    pi0[rows] = logged[1]
        return pi, pi0

    def integrate(self, work: BatchWork) -> None:
        """Fill in the baselines of continuous actions: expectations over a few nodes per round."""
        for group, run in work.runs(self.scorer.groups) if self.baselines else ():
            step = max(1, BLOCK_ELEMENTS // work.batch.space.table_rows)
            for start in range(run.start, run.stop, step):
                checkpoint()
                rows = slice(start, min(start + step, run.stop))
                rounds = BlockRows(rows, work.batch.take(rows), group, self.scorer.groups, self.sampled(group))
                Block(self, work, rounds, self.baselines_of(group), ()).integrate()

    def sampled(self, group: int) -> bool:
        """Whether a group belongs to the sample that shows how estimates depend on what was fitted."""
        return self.scorer.errors and not self.scorer.many and group < self.scorer.table_groups

    def _blocks(self, run: slice, target: Listed | None, n_actions: int) -> Iterator[slice]:
        """Runs of rows with a bounded number of entries: listed actions, or all of them."""
        rows = run.stop - run.start
        if self.mode == "apart":
            edges: Sequence[int] = [*range(run.start, run.stop, APART_ROWS), run.stop]
        elif target is not None:
            entries = target.starts[run.start : run.stop + 1]
            count = max(1, -(-int(entries[-1] - entries[0]) // BLOCK_ELEMENTS))
            steps = np.searchsorted(entries, np.linspace(entries[0], entries[-1], count + 1)[1:-1])
            edges = [run.start, *(run.start + np.unique(steps[(steps > 0) & (steps < rows)])).tolist(), run.stop]
        else:
            return (slice(run.start + block.start, run.start + block.stop) for block in blocks(rows, n_actions))
        return (slice(a, b) for a, b in itertools.pairwise(edges))

    def baselines_of(self, group: int) -> Baselines:
        """The baselines of the folds that a group is in."""
        folds = tuple((key, group * (key.model.folds or 1) // self.scorer.groups) for key in self.baselines)
        if folds not in self._by_folds:
            clips = dict.fromkeys(key.clip for key in self.baselines)
            parts = [self._part(clip, folds) for clip in clips]
            self._by_folds[folds] = Baselines(parts, tuple(fold for _, fold in folds))
        return self._by_folds[folds]

    @cached_property
    def _by_folds(self) -> dict[tuple[tuple[BaselineColumn, int], ...], Baselines]:
        return {}

    def _part(self, clip: float | None, folds: Sequence[tuple[BaselineColumn, int]]) -> BaselinePart:
        """The baselines of one share of the policy."""
        plan, columns, linear, other = self.scorer.plan, [], [], []
        for key, fold in (pair for pair in folds if pair[0].clip == clip):
            column = 1 + plan.columns.index(key)
            predictor = self.scorer.models[key.model][fold]
            # The origin is subtracted only if the shares sum to 1, that is, if the share is π itself.
            origin = self.scorer.origin_of(key.model.reward, self.slot) if clip is None else 0.0
            if isinstance(predictor, LinearPredictor):
                columns.append(column)
                linear.append((predictor.coef, origin))
            else:
                other.append((column, predictor, origin))
        share = ShareTable(self.index, clip, self.slot)
        table = plan.tables.index(share) if share in plan.tables and columns else None
        return BaselinePart(clip, table, columns, linear, other)


@dataclass(frozen=True)
class ListQuery:
    """How a policy of lists is evaluated for baselines: by the probability of every item in every slot."""

    query: Query

    @cached_property
    def _slots(self) -> list[Query]:
        """One query per slot with baselines."""
        columns = (key for key in self.query.scorer.plan.columns if isinstance(key, BaselineColumn))
        slots = {key.model.fit.slot for key in columns if key.policy == self.query.index}
        return [replace(self.query, slot=slot) for slot in sorted(slot for slot in slots if slot is not None)]

    @property
    def needed(self) -> bool:
        """Whether there are any."""
        return bool(self._slots)

    def answer(self, work: BatchWork, sides: SlotSides) -> None:
        """Fill in the baselines, block by block; 0 where a list has no item."""
        if not self.needed:
            return
        scorer, slots = self.query.scorer, work.batch.action.shape[1]
        queries = {query.slot: query for query in self._slots}
        views = {slot: replace(work, batch=at_slot(work.batch, slot)) for slot in queries if slot is not None}
        # Sums that are not stored by group need only the folds.
        each = scorer.groups if scorer.tables else math.lcm(1, *scorer.plan.folds)
        for part, run in work.runs(each):
            group = part * (scorer.groups // each)
            for block in blocks(run.stop - run.start, work.batch.space.n_codes):
                checkpoint()
                rows = slice(run.start + block.start, run.start + block.stop)
                items = sides.items.take(rows)
                for slot, (pi, sum_) in enumerate(items.expected(slots, work.batch.unit[rows], scorer.seed)):
                    if slot in views:
                        query, view = queries[slot], views[slot]
                        rounds = BlockRows(rows, view.batch.take(rows), group, scorer.groups, query.sampled(group))
                        Block(query, view, rounds, query.baselines_of(group), ()).given(pi, sum_)
        there = shown(work.batch)
        for query in self._slots:
            for key in query.baselines:
                column = 1 + query.scorer.plan.columns.index(key)
                work.out[column, ~there[:, query.slot or 0]] = -query.scorer.origin_of(key.model.reward, query.slot)


@dataclass(frozen=True)
class Grids:
    """π and π0 of all actions for a whole batch, of policies that are evaluated for whole batches."""

    target: FloatArray | None = None
    logging: FloatArray | None = None

    @classmethod
    def of(cls, batch: Batch, target: Policy, logging: Policy | None) -> Grids:
        whole = logging is not None and logging.whole_batches
        return cls(
            target.probabilities(batch) if target.whole_batches else None,
            logging.probabilities(batch) if logging is not None and whole else None,
        )


@dataclass(frozen=True)
class Block:
    """Some rounds for which a policy is evaluated."""

    query: Query
    work: BatchWork
    rounds: BlockRows
    baselines: Baselines
    pools: Sequence[Pool]

    @cached_property
    def _x(self) -> FloatArray:
        return self.work.x[:, self.rounds.rows]

    @cached_property
    def _omega(self) -> FloatArray:
        return self.work.omega[self.rounds.rows]

    @property
    def _kernel(self) -> Kernel:
        return self.query.scorer.kernel

    @property
    def _massed(self) -> bool:
        query = self.query
        whole = query.slot is None and query.scorer.plan.whole(query.index)
        return whole and self.rounds.group < query.scorer.mass_groups

    def grid(self, grids: Grids) -> Logged:
        """With π of all actions."""
        q, batch, rows = self.query, self.rounds.batch, self.rounds.rows
        pi, loose = q.policy.proportional(batch) if grids.target is None else (grids.target[rows], False)
        pi0 = None
        if q.logging is not None and (q.needs_logging or self._massed):
            pi0 = q.logging.probabilities(batch) if grids.logging is None else grids.logging[rows]
        if loose and not (self.baselines.only_linear and pi0 is None):
            pi, loose = pi / pi.sum(axis=1, keepdims=True), False
        return self._sum(Probabilities(Grid(batch.codes), pi, pi0, loose))

    def given(self, pi: FloatArray, sums: FloatArray) -> Logged:
        """With the given π of all actions, up to a factor."""
        loose = bool((sums != 1).any())
        if loose and not self.baselines.only_linear:
            pi, loose = pi / sums[:, None], False
        return self._sum(Probabilities(Grid(self.rounds.batch.codes), pi, None, loose))

    def listed(self, target: Listed, logging: Listed | None) -> Logged:
        """With π of the actions that the policy lists (or the logging policy does)."""
        q, batch = self.query, self.rounds.batch
        both = [target] if logging is None else [target, logging]
        layout, sides = Lists.union(batch.codes, batch.n_actions, *both)
        pi0 = sides[1] if logging is not None else None
        if pi0 is None and self._massed and q.logging is not None:
            pi0 = q.logging.entries(batch, layout.row, layout.codes)
        return self._sum(Probabilities(layout, sides[0], pi0))

    def _sum(self, probabilities: Probabilities) -> Logged:
        """Let the kernel sum over the actions, and store its results."""
        return self.store(self._kernel.sums(probabilities, self.input))

    @property
    def input(self) -> BlockInput:
        """What the kernel is given."""
        rounds = self.rounds
        tables = self.work.sets(rounds.batch.slice_code) if rounds.sampled else []
        pools = [(pool.pooling(rounds), pool.multipliers(rounds)) for pool in self.pools]
        return BlockInput(rounds, self._x, self._omega, self.baselines, pools, self._massed, tables)

    def store(self, sums: BlockSums) -> Logged:
        """Store what the kernel returned."""
        self._store(sums.baselines)
        for pool, own in zip(self.pools if sums.pools else (), sums.pools, strict=True):
            pool.add(self.rounds, own)
        if sums.mass is not None:
            self.work.masses[self.query.index].add(sums.mass)
        self.work.add_shares(sums.tables, self.rounds.batch.slice_code, self.rounds.group)
        return sums.target, sums.logging

    def _store(self, baselines: Mapping[int, FloatArray]) -> None:
        for column, values in baselines.items():
            self.work.out[column, self.rounds.rows] = values

    def integrate(self) -> None:
        """With the nodes of a continuous policy."""
        batch, work, rounds = self.rounds.batch, self.work, self.rounds
        space, nodes = batch.space, self.query.policy.nodes(batch)
        shares = nodes.shares(space)
        sets = work.sets(batch.slice_code) if rounds.sampled else []
        for part in self.baselines.parts:
            if part.columns:
                self._store(part.from_product(self._x, part.coef @ shares.T))
            for column, predictor, origin in part.other:
                assert isinstance(predictor, ContinuousPredictor)
                self._store({column: nodes.mean(predictor.at(batch, nodes)) - origin})
            if part.table is not None and sets:
                weighted = self._x * self._omega
                own = [shares.T @ (weighted if some is None else only(weighted, some)).T for some in sets]
                work.add_shares({part.table: own}, batch.slice_code, rounds.group)

    def apart(self) -> Logged:
        """With sums over π, and the probabilities of logged actions and of those near them."""
        q, rounds, batch = self.query, self.rounds, self.rounds.batch
        poolings = [pool.pooling(rounds) for pool in self.pools]
        near = [near_actions(pooling, batch) for pooling in poolings]
        row, code, back = _together([Lists.of_each(batch.codes, batch.n_actions, batch.codes[:, None]), *near])
        parts = [part for part in self.baselines.parts if part.columns]
        new = [unseen(pooling) for pooling in poolings]
        tables = np.hstack([_no_columns(batch), *(part.by_action for part in parts), *new])
        sums, entries = q.policy.answers(batch, tables, row, code)
        edges = np.cumsum([0, *(part.by_action.shape[1] for part in parts)])
        for part, (start, stop) in zip(parts, itertools.pairwise(edges), strict=True):
            self._store(part.from_product(self._x, sums[:, start:stop].T))
        pi = [entries[some] for some in back]
        if self._massed:
            self._add_mass()
        if not q.needs_logging or q.logging is None:
            return pi[0], None
        sums0, entries = q.logging.answers(batch, np.hstack([_no_columns(batch), *new]), row, code)
        pi0 = [entries[some] for some in back]
        ends = np.cumsum([0, *(table.shape[1] for table in new)])
        for k, (start, stop) in enumerate(itertools.pairwise(ends)):
            masses = sums[:, edges[-1] :][:, start:stop], sums0[:, start:stop]
            sides = Sides(pi[1 + k], pi0[1 + k], near[k], (pi[0], pi0[0]))
            self.pools[k].add(rounds, self._kernel.near(poolings[k], rounds, sides, masses))
        return pi[0], pi0[0]

    def _add_mass(self) -> None:
        """Add the mass by action, from all actions of a few rounds."""
        q, few = self.query, slice(0, max(1, MASS_ELEMENTS // self.rounds.batch.n_actions))
        shown = self.rounds.batch.take(few)
        pi0 = None if q.logging is None else q.logging.probabilities(shown)
        shares = Probabilities(Grid(shown.codes), q.policy.probabilities(shown), pi0)
        self.work.masses[q.index].add(self._kernel.mass(shares, self._omega[few], self._omega[few]))


def _no_columns(batch: Batch) -> FloatArray:
    return np.empty((batch.n_actions, 0))


def _together(lists: Sequence[Lists]) -> tuple[IntArray, IntArray, list[IntArray]]:
    """Several lists as one, rounds ascending, and the positions of the entries of each in it."""
    row, code = (np.concatenate([getattr(each, name) for each in lists]) for name in ("row", "codes"))
    order = np.argsort(row, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    edges = np.cumsum([0, *(len(each.codes) for each in lists)])
    return row[order], code[order], [back[a:b] for a, b in itertools.pairwise(edges)]
