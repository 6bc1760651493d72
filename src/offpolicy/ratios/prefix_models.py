"""A reward model of each slot that knows the items above it.

The reward of slot k is predicted by r̄_k + z·β_ka for the item a, with z = (1, x, how often each item stands above, the item
just above), by ridge regression from Gram sums. The value of a policy takes the mean over its lists: one list of the policy
is drawn for each round, from the hash of its unit, and slot k follows the policy exactly given the drawn items above it. The
error that the drawing adds is part of the spread of the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.threads import checkpoint
from offpolicy.data.batch import Batch
from offpolicy.data.schema import Schema
from offpolicy.data.slate import Slate, shown
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.ratios.base import Available, FittedRatio, Fitting, Moves, Ratio
from offpolicy.ratios.interactions import Missed
from offpolicy.ratios.pools import Rounds
from offpolicy.ratios.slots import PrefixRatio, sides_of
from offpolicy.statistics.base import State, Statistic

MOST_SUMS = 1 << 18
"""The largest number of Gram sums for each group of units: 2 MB."""
ROWS = 1 << 13  # of a batch
LEAST_WEIGHT = 1e-12  # in place of 0: a round whose weight is 0 still has its baseline


@final
@dataclass(frozen=True)
class PrefixModelRatio(Ratio):
    """The predictions alone, all with the weight 1; or, `corrected`, with what they leave, weighted by Π_{j ≤ k} w_j."""

    penalty: float = 1.0
    corrected: bool = False
    cross_fit: int = 0
    slot: int = 0
    reward: int = 0
    spaces = (Slate,)
    per_policy = False
    items = True

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        return self.corrected

    @property
    def assumes(self) -> str | None:  # type: ignore[override]
        return PrefixRatio.assumes if self.corrected else None

    @property
    def mean_one(self) -> bool:
        return self.corrected

    def lacks(self, available: Available) -> str | None:
        reason = PrefixRatio().lacks(available) if self.corrected else available.lacks_slot_rewards
        return reason or available.lacks_items or _too_many(available.schema)

    def missed(self, slots: int) -> Missed:
        return PrefixRatio().missed(slots) if self.corrected else super().missed(slots)

    def for_slot(self, slot: int) -> Self:
        return replace(self, slot=slot)

    def for_reward(self, reward: int) -> Self:
        return replace(self, reward=reward)

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:
        return (PrefixSums(fitting.shape),)

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        shape, sums = fitting.shape, results[0]
        every = np.ones(shape.groups, bool)
        fold = np.arange(shape.groups) * max(self.cross_fit, 1) // shape.groups
        folds = [fold != k for k in range(self.cross_fit)] or [every]
        models = tuple(self._solved(sums, included) for included in folds)
        refits = shape.jackknife and not self.corrected
        each = np.arange(shape.groups)
        without = tuple(self._solved(sums, each != g) for g in each) if refits else ()
        return _FittedPrefixModel(self, PrefixSums(shape), models, without)

    def _solved(self, sums: State, included: npt.NDArray[np.bool_]) -> SlotModel:
        gram, cross, count, total = (sums[name][included].sum(axis=0) for name in ("gram", "cross", "count", "total"))
        mean = total[:, self.reward] / np.where(count > 0, count, 1.0)
        left = cross[:, :, self.reward] - mean[:, None, None] * gram[..., 0]
        penalty = max(self.penalty, 1e-9) * np.eye(gram.shape[-1])
        return SlotModel(mean, np.linalg.solve(gram + penalty, left[..., None])[..., 0])


def _too_many(schema: Schema) -> str | None:
    """Why a coefficient for each pair of items would take too many sums."""
    if schema.space.slots is None:
        return None
    items = schema.space.n_codes
    sums = schema.space.slots * items * (1 + len(schema.context) + 2 * items) ** 2
    if sums <= MOST_SUMS:
        return None
    return f"its model has a coefficient for each pair of items, which are too many with {items:,} items"


@dataclass(frozen=True)
class SlotModel:
    """r̄ of each slot, and β: slots × items × columns of z."""

    mean: FloatArray
    slopes: FloatArray


@final
@dataclass(frozen=True, eq=False)
class _FittedPrefixModel(FittedRatio):
    """One slot; `models` has one per fold, and `without` one without each group of units."""

    ratio: PrefixModelRatio
    sums: PrefixSums
    models: tuple[SlotModel, ...]
    without: tuple[SlotModel, ...] = field(default=())

    def of_slot(self, ratio: Ratio) -> FittedRatio:
        assert isinstance(ratio, PrefixModelRatio)
        return replace(self, ratio=ratio)

    def light(self) -> FittedRatio:
        return replace(self, without=())

    def weights(self, rounds: Rounds) -> FloatArray:
        if not self.ratio.corrected:
            return np.ones(len(rounds.batch))
        return np.maximum(sides_of(rounds).prefix[:, self.ratio.slot], LEAST_WEIGHT)

    def earned(self, rounds: Rounds) -> FloatArray:
        slots, k = rounds.batch.slots, self.ratio.slot
        assert slots is not None
        assert slots.reward is not None
        out = np.zeros((len(rounds.batch), slots.reward.shape[1]))
        baseline, control, _ = self._predicted(rounds)
        out[:, self.ratio.reward] = baseline[:, k]
        if self.ratio.corrected:
            left = sides_of(rounds).prefix[:, k] * (slots.reward[:, self.ratio.reward, k] - control[:, k])
            out[:, self.ratio.reward] = (baseline[:, k] + left) / self.weights(rounds)
        return out

    def _predicted(self, rounds: Rounds) -> Any:
        """E_π q_k and q_k(a_k), rounds × slots; and Σω·π(a)·z, slots × items × columns. Computed once for all slots."""
        return sides_of(rounds).once(self.ratio.for_slot(0), lambda: self._predict(rounds))  # type: ignore[arg-type,return-value]

    def _predict(self, rounds: Rounds) -> tuple[FloatArray, FloatArray, FloatArray]:
        batch, items, there = rounds.batch, sides_of(rounds).items, shown(rounds.batch)
        slots, fold = there.shape[1], rounds.fold
        drawn = np.where(there, items.drawn(slots, batch.unit, self.sums.shape.seed), -1)
        baseline, control = np.zeros(there.shape), np.zeros(there.shape)
        tables = np.zeros(self.models[0].slopes.shape)
        logged, own = self.sums.columns_above(batch, batch.action), self.sums.columns_above(batch, drawn)
        for k, ((values, total), z, z_logged) in enumerate(zip(items.above(drawn), own, logged, strict=True)):
            checkpoint()
            pi = values / np.where(total > 0, total, 1.0)[:, None]
            tables[k] = (pi * (rounds.omega * there[:, k])[:, None]).T @ z
            for f, model in enumerate(self.models):
                rows = np.flatnonzero(there[:, k] & (fold == f)) if len(self.models) > 1 else np.flatnonzero(there[:, k])
                slopes = model.slopes[k]
                baseline[rows, k] = model.mean[k] + ((pi[rows] @ slopes) * z[rows]).sum(axis=1)
                control[rows, k] = model.mean[k] + (slopes[batch.action[rows, k]] * z_logged[rows]).sum(axis=1)
        return baseline, control, tables

    def zero(self, corrections: int) -> State:  # noqa: ARG002
        return {"largest": np.zeros(()), "rounds": np.zeros(()), "there": np.zeros(()), "table": np.zeros(self._size)}

    @property
    def _size(self) -> tuple[int, ...]:
        return self.models[0].slopes.shape[1:] if not self.ratio.corrected else (0, 0)

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:
        super().fold(state, rounds, ratio)
        if not self.ratio.corrected:
            state["rounds"] += rounds.omega.sum()
            state["there"] += (rounds.omega * shown(rounds.batch)[:, self.ratio.slot]).sum()
            state["table"] += self._predicted(rounds)[2][self.ratio.slot]

    def moves(self, state: State, correction: int) -> Moves | None:  # noqa: ARG002
        if self.ratio.corrected:  # the error of the model cancels to first order
            return np.zeros((self.sums.shape.groups, 2)), 1.0
        if not self.without:
            return None
        (model,), k = self.models, self.ratio.slot
        slopes = np.array([((each.slopes[k] - model.slopes[k]) * state["table"]).sum() for each in self.without])
        means = np.array([each.mean[k] - model.mean[k] for each in self.without]) * float(state["there"])
        return np.column_stack([np.zeros(len(slopes)), slopes + means]), float(state["rounds"])


@dataclass(frozen=True)
class PrefixSums(FitStatistic):
    """Σω·z·zᵀ and Σω·z·r by group of units, slot and item, with Σω and Σω·r of each slot."""

    @property
    def batch_rows(self) -> int | None:
        return ROWS

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        (slots,) = self.shape.action_shape
        return self.shape.groups, slots, self.shape.n_actions, 1 + self.shape.context + 2 * self.shape.n_actions

    def zero(self) -> State:
        groups, slots, items, columns = self._sizes
        rewards = self.shape.rewards
        return {
            "gram": np.zeros((groups, slots, items, columns, columns)),
            "cross": np.zeros((groups, slots, items, rewards, columns)),
            "count": np.zeros((groups, slots)),
            "total": np.zeros((groups, slots, rewards)),
        }

    def columns_above(self, batch: Batch, codes: IntArray) -> Any:
        """For each slot z of each round, which the next slot overwrites."""
        _, slots, items, columns = self._sizes
        context = self.shape.context
        z, row = np.zeros((len(codes), columns)), np.arange(len(codes))
        z[:, 0] = 1.0
        z[:, 1 : 1 + context] = batch.context - self.shape.origin[:context]
        above, last = z[:, 1 + context : 1 + context + items], z[:, 1 + context + items :]
        for k in range(slots):
            if k:
                there = row[codes[:, k - 1] >= 0]
                last[:] = 0.0
                above[there, codes[there, k - 1]] += 1.0
                last[there, codes[there, k - 1]] = 1.0
            yield z

    def fold(self, state: State, batch: Batch) -> State:
        assert batch.slots is not None
        assert batch.slots.reward is not None
        items, weight = self.shape.n_actions, self.shape.weights(batch)
        omega, group = np.ones(len(batch)) if weight is None else weight, self.shape.group(batch)
        for k, z in enumerate(self.columns_above(batch, batch.action)):
            there = np.flatnonzero(batch.action[:, k] >= 0)
            reward = batch.slots.reward[:, :, k]
            key = group[there] * items + batch.action[there, k]
            order = there[np.argsort(key, kind="stable")]
            for rows in np.split(order, np.flatnonzero(np.diff(np.sort(key))) + 1) if len(order) else ():
                at, weighted = (group[rows[0]], k, batch.action[rows[0], k]), z[rows].T * omega[rows]
                state["gram"][at] += weighted @ z[rows]
                state["cross"][at] += (weighted @ reward[rows]).T
            np.add.at(state["count"][:, k], group[there], omega[there])
            np.add.at(state["total"][:, k], group[there], omega[there, None] * reward[there])
        return state
