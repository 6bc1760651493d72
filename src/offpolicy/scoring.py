"""The scoring pass: the planned columns of each row, and the sums that every estimate is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.errors import InputError, bad_rows
from offpolicy.plan import BaselineColumn, ModelKey, Plan, ShareTable, TableKey, WeightColumn, WeightTable
from offpolicy.policies import Policy, blocks
from offpolicy.rewards import Linear, Predictor
from offpolicy.statistics import LogHistogram, Moments, State
from offpolicy.units import BUCKETS, IntArray, buckets, group_of_bucket
from offpolicy.weights import Weight

SLICE_BUCKETS = 256
AGREE = 1e-6


def propensity_of(batch: Batch, logging: Policy | None) -> FloatArray | None:
    """π0 of each logged action: the column, or the logging policy's own; where both are given they must agree."""
    if logging is None:
        return batch.propensity
    own = logging.probabilities(batch, batch.action)
    if not (own > 0).all():
        raise bad_rows(
            "logging", "took an action to which the logging policy gives no chance", batch.row[~(own > 0)],
            "The logging policy given is not the one that made this log.",
        )  # fmt: skip
    if batch.propensity is not None and (np.abs(own - batch.propensity) > AGREE * batch.propensity).any():
        rows = batch.row[np.abs(own - batch.propensity) > AGREE * batch.propensity]
        raise bad_rows("propensity", "differ from the logging policy given", rows, "Give one of the two, or correct it.")
    return own


def ratio_of(batch: Batch, policy: Policy, logging: Policy | None) -> FloatArray:
    """w = π(a|x) / π0(a|x) of each logged action."""
    propensity = propensity_of(batch, logging)
    if propensity is None:
        raise InputError("the log has no propensities.")
    return policy.probabilities(batch, batch.action) / propensity


@dataclass(frozen=True)
class Scorer:
    """Computes the planned columns of a batch. Rows come out sorted by group, so that each fold is one run of rows."""

    plan: Plan
    policies: tuple[Policy, ...]
    logging: Policy | None
    models: Mapping[ModelKey, Sequence[Predictor]]
    anchor: FloatArray
    centre: FloatArray
    groups: int
    seed: int

    @cached_property
    def baselines(self) -> list[list[BaselineColumn]]:
        """The baselines of each policy."""
        keys = [key for key in self.plan.columns if isinstance(key, BaselineColumn)]
        return [[key for key in keys if key.policy == p] for p in range(len(self.policies))]

    def ordered(self, batch: Batch) -> tuple[Batch, IntArray]:
        """The batch in the order it is scored in, and the bucket of each row."""
        bucket = buckets(batch.unit, self.seed)
        if not self.plan.models:
            return batch, bucket
        order = np.argsort(bucket, kind="stable")
        return batch.take(order), bucket[order]

    def runs(self, bucket: IntArray, groups: int) -> Iterator[tuple[int, slice]]:
        """Each of `groups` groups with its run of rows."""
        group = group_of_bucket(groups)[bucket]
        edges = np.searchsorted(group, np.arange(groups + 1))
        return ((g, slice(int(a), int(b))) for g, (a, b) in enumerate(zip(edges, edges[1:], strict=False)) if b > a)

    def score(self, batch: Batch, bucket: IntArray, kept: Kept) -> FloatArray:
        """Rows × columns, the row weight first. `kept` gathers what is summed besides the columns."""
        out = np.zeros((len(batch), self.plan.width))
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        propensity = propensity_of(batch, self.logging)
        design = Linear(np.empty((0, 0)), self.centre).design(batch) if self.plan.models else np.empty((0, 0))
        ratios: list[FloatArray | None] = []
        for p, policy in enumerate(self.policies):
            if self.plan.whole(p):
                chance = self._whole(p, batch, bucket, design, omega, out, kept)
            else:
                chance = policy.probabilities(batch, batch.action)
            ratios.append(None if propensity is None else chance / propensity)
            kept.add_weights(p, ratios[-1])
        controls = {key: self._control(key, batch, bucket) for key in self.plan.models}
        kept.add_misfit([omega @ (batch.reward[:, key.reward] - control) ** 2 for key, control in controls.items()])
        bent = self._fill(out, batch, ratios, controls)
        kept.add_weight_tables(self.plan.tables, bent, design, omega, batch.action)
        out[:, 0] = 1.0
        out *= omega[:, None]
        return out

    def _fill(
        self, out: FloatArray, batch: Batch, ratios: list[FloatArray | None], controls: Mapping[ModelKey, FloatArray]
    ) -> dict[tuple[int, Weight], FloatArray]:
        bent: dict[tuple[int, Weight], FloatArray] = {}
        for column, key in enumerate(self.plan.columns, start=1):
            if isinstance(key, BaselineColumn):
                continue
            at = (key.policy, key.weight)
            if at not in bent:
                ratio = ratios[key.policy]
                one = key.weight.ratio == "one" or ratio is None
                bent[at] = np.ones(len(batch)) if one else key.weight.bend(ratio)  # type: ignore[arg-type]
            if isinstance(key, WeightColumn):
                out[:, column] = bent[at]
            else:
                control = self.anchor[key.reward] if key.model is None else controls[key.model]
                out[:, column] = bent[at] * (batch.reward[:, key.reward] - control)
        return bent

    def _control(self, key: ModelKey, batch: Batch, bucket: IntArray) -> FloatArray:
        predictors = self.models[key]
        if len(predictors) == 1:
            return predictors[0].taken(batch)
        out = np.empty(len(batch))
        for fold, rows in self.runs(bucket, len(predictors)):
            out[rows] = predictors[fold].taken(batch.take(rows))
        return out

    def _whole(
        self, p: int, batch: Batch, bucket: IntArray, design: FloatArray, omega: FloatArray, out: FloatArray, kept: Kept
    ) -> FloatArray:
        """Ask a policy for all actions, block by block; fill its baselines; give π of the logged actions."""
        chance = np.empty(len(batch))
        logging = self.logging if self.logging is not None and self.logging.whole else None
        for group, run in self.runs(bucket, self.groups):
            work = self._work(p, group)
            for block in blocks(run.stop - run.start, batch.n_actions):
                rows = slice(run.start + block.start, run.start + block.stop)
                some = batch.take(rows)
                pi = self.policies[p].probabilities(some)
                chance[rows] = pi[np.arange(len(some)), some.action]
                pi0 = None if logging is None else logging.probabilities(some)
                kept.add_mass(p, omega[rows], pi, pi0)
                for part in work.parts:
                    share = _share(pi, pi0, part.clip)
                    part.fill(out[rows], some, design[rows], share)
                    kept.add_share(part.table, share, design[rows] * omega[rows, None])
        return chance

    def _work(self, p: int, group: int) -> _Work:
        folds = tuple((key, group * (key.model.folds or 1) // self.groups) for key in self.baselines[p])
        cache: dict[Any, _Work] = self._works
        if (p, folds) not in cache:
            cache[p, folds] = _Work.of(p, folds, self)
        return cache[p, folds]

    @cached_property
    def _works(self) -> dict[Any, _Work]:
        return {}


@dataclass(frozen=True)
class _Part:
    """The baselines of one share of a policy in one fold. Linear models are one matrix product."""

    clip: float | None
    table: int | None
    columns: list[int]
    coef: FloatArray
    """The linear models' coefficients side by side, less the anchor."""
    other: list[tuple[int, Predictor, float]]

    def fill(self, out: FloatArray, batch: Batch, design: FloatArray, share: FloatArray) -> None:
        """Σ_a share(a|x)·(x̃·β_a) = x̃·(share @ β): no rounds × actions array but the share is ever made."""
        if self.columns:
            product = (share @ self.coef).reshape(len(batch), len(self.columns), -1)
            out[:, self.columns] = np.einsum("ij,ikj->ik", design, product)
        for column, predictor, anchor in self.other:
            out[:, column] = np.einsum("ij,ij->i", share, predictor.all(batch) - anchor)


@dataclass(frozen=True)
class _Work:
    """All baselines of one policy in one fold."""

    parts: list[_Part]

    @classmethod
    def of(cls, policy: int, folds: Sequence[tuple[BaselineColumn, int]], scorer: Scorer) -> _Work:
        parts = []
        for clip in dict.fromkeys(key.clip for key, _ in folds):
            columns, coefs, other = [], [], []
            for key, fold in (pair for pair in folds if pair[0].clip == clip):
                column = 1 + scorer.plan.columns.index(key)
                predictor = scorer.models[key.model][fold]
                # An anchor is taken off only where the shares sum to 1, that is, where the share is π itself.
                anchor = float(scorer.anchor[key.model.reward]) if clip is None else 0.0
                if isinstance(predictor, Linear):
                    coef = predictor.moved(scorer.centre).coef
                    coef[:, -1] -= anchor
                    columns.append(column)
                    coefs.append(coef)
                else:
                    other.append((column, predictor, anchor))
            tables = scorer.plan.tables
            table = tables.index(ShareTable(policy, clip)) if ShareTable(policy, clip) in tables and columns else None
            parts.append(_Part(clip, table, columns, np.hstack(coefs) if coefs else np.empty((0, 0)), other))
        return cls(parts)


def _share(pi: FloatArray, pi0: FloatArray | None, clip: float | None) -> FloatArray:
    if clip is None:
        return pi
    if np.isinf(clip):
        return np.zeros_like(pi)
    assert pi0 is not None
    return np.maximum(pi - clip * pi0, 0.0)  # π − min(π, Mπ0)


@dataclass(frozen=True)
class Kept:
    """What is summed besides the columns; it writes into a state of `ScorePass`."""

    state: State

    def add_weights(self, policy: int, ratio: FloatArray | None) -> None:
        if ratio is not None:
            part = self.state["policies"][str(policy)]
            part["weights"] = LogHistogram().fold(part["weights"], ratio)

    def add_mass(self, policy: int, omega: FloatArray, pi: FloatArray, pi0: FloatArray | None) -> None:
        part = self.state["policies"][str(policy)]
        part["mass"] += omega @ pi
        if pi0 is not None:
            part["unsupported"] += omega @ np.where(pi0 > 0, 0.0, pi).sum(axis=1)

    def add_misfit(self, squares: Sequence[float]) -> None:
        self.state["misfit"] += np.asarray(squares)

    def add_share(self, table: int | None, share: FloatArray, design: FloatArray) -> None:
        if table is not None:
            self.state["tables"][table] += share.T @ design

    def add_weight_tables(
        self, tables: Sequence[TableKey], bent: Mapping[tuple[int, Weight], FloatArray], design: FloatArray,
        omega: FloatArray, action: IntArray,
    ) -> None:  # fmt: skip
        for index, key in enumerate(tables):
            if isinstance(key, WeightTable):
                weight = bent[key.policy, key.weight] * omega
                for j in range(design.shape[1]):
                    self.state["tables"][index, :, j] += np.bincount(
                        action, weight * design[:, j], self.state["tables"].shape[1]
                    )


@dataclass(frozen=True)
class ScorePass:
    """The statistic of the scoring pass: moments and bucket sums of the columns, overall and by slice."""

    scorer: Scorer
    n_actions: int
    n_slices: int

    @property
    def columns(self) -> tuple[str, ...]:
        policies = (*self.scorer.policies, *([self.scorer.logging] if self.scorer.logging else []))
        return tuple(dict.fromkeys(name for policy in policies for name in policy.columns))

    @cached_property
    def moments(self) -> Moments:
        return Moments(self.scorer.plan.width)

    def zero(self) -> State:
        width, plan = self.scorer.plan.width, self.scorer.plan
        size = len(self.scorer.centre) + 1
        policies = {
            str(p): {
                "mass": np.zeros(self.n_actions if plan.whole(p) else 0),
                "unsupported": np.zeros(()),
                "weights": LogHistogram().zero(),
            }
            for p in range(plan.n_policies)
        }
        return {
            "moments": self.moments.zero(),
            "buckets": np.zeros((BUCKETS, width)),
            "slices": {str(s): self._zero_slice() for s in range(self.n_slices)},
            "policies": policies,
            "tables": np.zeros((len(plan.tables), self.n_actions, size)),
            "counts": np.zeros(self.n_actions),
            "misfit": np.zeros(len(plan.models)),
            "rewards": Moments(plan.rewards).zero(),
            "nonzero": np.zeros(plan.rewards),
            "reward_low": np.full(plan.rewards, np.inf),
            "reward_high": np.full(plan.rewards, -np.inf),
        }

    def _zero_slice(self) -> State:
        return {"moments": self.moments.zero(), "buckets": np.zeros((SLICE_BUCKETS, self.scorer.plan.width))}

    def fold(self, state: State, batch: Batch) -> State:
        batch, bucket = self.scorer.ordered(batch)
        values = self.scorer.score(batch, bucket, Kept(state))
        state["moments"] = self.moments.fold(state["moments"], values)
        _add_by_bucket(state["buckets"], bucket, values)
        state["counts"] += np.bincount(batch.action, minlength=self.n_actions)
        state["nonzero"] += np.count_nonzero(batch.reward, axis=0)
        state["rewards"] = Moments(batch.reward.shape[1]).fold(state["rewards"], batch.reward)
        np.minimum(state["reward_low"], batch.reward.min(axis=0), out=state["reward_low"])
        np.maximum(state["reward_high"], batch.reward.max(axis=0), out=state["reward_high"])
        if batch.slice is not None:
            for s in np.unique(batch.slice):
                rows = np.flatnonzero(batch.slice == s)
                part = state["slices"][str(s)]
                part["moments"] = self.moments.fold(part["moments"], values[rows])
                _add_by_bucket(part["buckets"], bucket[rows] * SLICE_BUCKETS // BUCKETS, values[rows])
        return state

    def merge(self, a: State, b: State) -> State:
        moments = self.moments
        return {
            "moments": moments.merge(a["moments"], b["moments"]),
            "buckets": a["buckets"] + b["buckets"],
            "slices": {
                s: {
                    "moments": moments.merge(part["moments"], b["slices"][s]["moments"]),
                    "buckets": part["buckets"] + b["slices"][s]["buckets"],
                }
                for s, part in a["slices"].items()
            },
            "policies": {
                p: {
                    **{name: part[name] + b["policies"][p][name] for name in ("mass", "unsupported")},
                    "weights": LogHistogram().merge(part["weights"], b["policies"][p]["weights"]),
                }
                for p, part in a["policies"].items()
            },
            **{name: a[name] + b[name] for name in ("tables", "counts", "misfit", "nonzero")},
            "rewards": Moments(self.scorer.plan.rewards).merge(a["rewards"], b["rewards"]),
            "reward_low": np.minimum(a["reward_low"], b["reward_low"]),
            "reward_high": np.maximum(a["reward_high"], b["reward_high"]),
        }

    def finish(self, state: State) -> State:
        return state


def _add_by_bucket(sums: FloatArray, bucket: IntArray, values: FloatArray) -> None:
    for column in range(values.shape[1]):
        sums[:, column] += np.bincount(bucket, values[:, column], len(sums))
