"""Windows of slots that differ between groups of contexts, learned from the log alone.

The contexts are divided at quantiles of one column, and each range has the window with the least estimated mean squared
error,

    Var(V_j) + max over wider windows i of (|V_j − V_i| − se(V_j − V_i))₊²,

of what the range contributes to the value of the list. The column, too, is the one with the least estimated error, or none.
All of this is chosen for each fold from the other folds, so that no list has a part in the choice of its own weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.data.slate import Slate
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.policies.lists import ListPolicy
from offpolicy.ratios.base import Available, FittedRatio, Fitting, PoolingDiagnostics, Ratio
from offpolicy.ratios.pools import Rounds
from offpolicy.ratios.sides import LoggedSlots, SlotSides, as_list_policy
from offpolicy.ratios.slots import sides_of
from offpolicy.ratios.windows import WindowRatio
from offpolicy.statistics.base import State, Statistic

SUPPORTED = 500
"""The number of effective lists that each range of contexts must have."""
ROWS = 1 << 13  # of a batch: lists × slots × windows are in memory


@final
@dataclass(frozen=True)
class GroupedWindowRatio(Ratio):
    """Π w_j over the window of the context's group.

    Attributes
    ----------
    windows : tuple[int, ...]
        Candidates, the widest first.
    groups : int
        The largest number of ranges of contexts.
    """

    windows: tuple[int, ...]
    groups: int
    cross_fit: int = 5
    slot: int = 0
    reward: int = 0
    spaces = (Slate,)
    mean_one = True
    model_error_cancels = True
    fitted = False  # the choice is from other folds, and counts as given, as that of SLOPE does

    def lacks(self, available: Available) -> str | None:
        return WindowRatio().lacks(available)

    def for_slot(self, slot: int) -> Self:
        return replace(self, slot=slot)

    def for_reward(self, reward: int) -> Self:
        return replace(self, reward=reward)

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:
        return (self._sums(fitting),)

    def _sums(self, fitting: Fitting) -> WindowSums:
        assert fitting.target is not None
        assert fitting.first is not None
        (slots,) = fitting.shape.action_shape
        reach = tuple(dict.fromkeys(min(window, slots - 1) for window in self.windows))
        context, shares = fitting.first().context, np.arange(1, self.groups) / self.groups
        edges = np.quantile(context, shares, axis=0).T if context.shape[1] else np.empty((1, self.groups - 1))
        logging = None if fitting.logging is None else as_list_policy(fitting.logging)
        return WindowSums(fitting.shape, as_list_policy(fitting.target), logging, reach, tuple(map(tuple, edges.tolist())))

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        statistic, sums = self._sums(fitting), results[0]
        fold = np.arange(fitting.shape.groups) * self.cross_fit // fitting.shape.groups
        gain = np.array(fitting.gain)
        chosen = tuple(
            _chosen(sums["lists"][fold != k], sums["windows"][fold != k][..., [0, 1 + self.reward]], gain)
            for k in range(self.cross_fit)
        )
        return _FittedWindows(self, statistic, chosen)


@dataclass(frozen=True)
class ChosenWindows:
    """The windows of one fold, by their positions: of ranges of a column of the context, as fine as the edges."""

    column: int
    windows: tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class _FittedWindows(FittedRatio):
    """The weights of one slot; `chosen` has one choice per fold."""

    ratio: GroupedWindowRatio
    sums: WindowSums
    chosen: tuple[ChosenWindows, ...]

    def of_slot(self, ratio: Ratio) -> FittedRatio:
        assert isinstance(ratio, GroupedWindowRatio)
        return replace(self, ratio=ratio)

    def weights(self, rounds: Rounds) -> FloatArray:
        window = np.empty(len(rounds.batch), np.int64)
        for fold, choice in enumerate(self.chosen):
            rows = np.flatnonzero(rounds.fold == fold)
            ranges = self.sums.ranges(rounds.batch.take(rows))[choice.column]
            window[rows] = np.array(choice.windows)[ranges]
        weights = np.empty(len(window))
        for used in np.unique(window):
            reach, rows = self.sums.windows[used], window == used
            weights[rows] = _window(sides_of(rounds).ratio[rows], self.ratio.slot, reach)
        return weights

    def diagnostics(self, state: State, mean_weight: float) -> PoolingDiagnostics:  # noqa: ARG002
        folds: list[Mapping[str, Any]] = []
        for choice in self.chosen:
            windows = [self.sums.windows[k] for k in choice.windows]
            split = len(set(windows)) > 1
            where = {"context_column": choice.column, "edges": list(self.sums.edges[choice.column])} if split else {}
            folds.append({**where, "windows": windows if split else windows[:1]})
        return PoolingDiagnostics(details={"windows_by_fold": folds})


@dataclass(frozen=True)
class WindowSums(FitStatistic):
    """Σω·w and Σω·w·r of every window, in ranges of every column of the context.

    `lists`: groups of units × columns × ranges × (Σω, Σω·w, Σω·w²) with the weights of whole lists. `windows`: groups ×
    columns × ranges × windows × slots × (Σω·w, Σω·w·r of each reward).
    """

    target: ListPolicy
    logging: ListPolicy | None
    windows: tuple[int, ...]
    edges: tuple[tuple[float, ...], ...] = field(default=((),))

    @property
    def batch_rows(self) -> int | None:
        return ROWS

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.shape.groups, len(self.edges), len(self.edges[0]) + 1

    def zero(self) -> State:
        (slots,) = self.shape.action_shape
        sizes = self._sizes
        return {
            "lists": np.zeros((*sizes, 3)),
            "windows": np.zeros((*sizes, len(self.windows), slots, 1 + self.shape.rewards)),
        }

    def ranges(self, batch: Batch) -> list[IntArray]:
        """For each column of the context, the range that each round is in; one range if there is no context."""
        columns = batch.context.T if batch.context.shape[1] else np.zeros((1, len(batch)))
        return [np.searchsorted(edges, column) for edges, column in zip(self.edges, columns, strict=True)]

    def fold(self, state: State, batch: Batch) -> State:
        assert batch.slots is not None
        assert batch.slots.reward is not None
        ratio = SlotSides(LoggedSlots.of(batch, self.logging), self.target).ratio
        weight = self.shape.weights(batch)
        omega = np.ones(len(batch)) if weight is None else weight
        slots, whole = range(ratio.shape[1]), ratio.prod(axis=1)
        every = np.stack(
            [np.stack([_window(ratio, slot, reach) for slot in slots], axis=1) for reach in self.windows], axis=1
        )
        earned = every[..., None] * batch.slots.reward.transpose(0, 2, 1)[:, None]
        each = omega[:, None, None, None] * np.concatenate([every[..., None], earned], axis=3)
        lists = omega[:, None] * np.stack([np.ones(len(batch)), whole, whole**2], axis=1)
        group, (_, _, parts) = self.shape.group(batch), self._sizes
        for column, ranges in enumerate(self.ranges(batch)):
            key = group * parts + ranges
            order = np.argsort(key, kind="stable")
            keys, starts = np.unique(key[order], return_index=True)
            at = (keys // parts, column, keys % parts)
            state["lists"][at] += np.add.reduceat(lists[order], starts)
            state["windows"][at] += np.add.reduceat(each[order], starts)
        return state


def _window(ratio: FloatArray, slot: int, reach: int) -> FloatArray:
    """Π w_j over the slots near one."""
    product: FloatArray = ratio[:, max(slot - reach, 0) : slot + reach + 1].prod(axis=1)
    return product


def _chosen(lists: FloatArray, windows: FloatArray, gain: FloatArray) -> ChosenWindows:
    """The column and the windows of its ranges with the least estimated error; one window for all if nothing is less."""
    ranges = lists.shape[2]
    error, (one,) = _least_errors(lists[:, 0], windows[:, 0], gain, 1)
    best = ChosenWindows(0, (int(one),) * ranges)
    for column in range(lists.shape[1]):
        parts = _supported(lists[:, column].sum(axis=0))
        if parts > 1:
            own, picked = _least_errors(lists[:, column], windows[:, column], gain, parts)
            if own < error:
                error, best = own, ChosenWindows(column, tuple(np.repeat(picked, ranges // parts).tolist()))
    return best


def _supported(lists: FloatArray) -> int:
    """The largest number of ranges, joined from neighbouring ones, with enough effective lists in each."""
    for parts in range(len(lists), 1, -1):
        if len(lists) % parts == 0:
            _, first, second = lists.reshape(parts, -1, 3).sum(axis=1).T
            if (first**2 >= SUPPORTED * second).all() and (second > 0).all():
                return parts
    return 1


def _least_errors(lists: FloatArray, windows: FloatArray, gain: FloatArray, parts: int) -> tuple[float, IntArray]:
    """The sum of the least errors of so many ranges, and their windows; a jackknife over groups of units."""
    groups = len(lists)
    total = lists[..., 0].sum()
    share = lists[..., 0].sum(axis=0).reshape(parts, -1).sum(axis=1) / (total if total > 0 else 1.0)
    joined = windows.reshape(groups, parts, -1, *windows.shape[2:]).sum(axis=2)
    values = share[:, None] * _values(joined.sum(axis=0), gain)
    changes = share[:, None] * _values(joined.sum(axis=0) - joined, gain)
    changes = (changes - changes.mean(axis=0)) * np.sqrt((groups - 1) / groups)
    covariance = np.einsum("gpi,gpj->pij", changes, changes)
    variance = np.einsum("pii->pi", covariance)
    gap = np.abs(values[:, :, None] - values[:, None])
    spread = np.sqrt(np.maximum(variance[:, :, None] + variance[:, None] - 2 * covariance, 0.0))
    wider = np.tri(values.shape[1], k=-1)  # windows are sorted, the widest first
    bias = (np.maximum(gap - spread, 0.0) * wider).max(axis=2)
    errors = variance + bias**2
    errors = np.where(np.isfinite(errors), errors, np.inf)
    picked = errors.argmin(axis=1)
    return float(errors.min(axis=1).sum()), picked


def _values(sums: FloatArray, gain: FloatArray) -> FloatArray:
    """Σ_k gain_k Σw·r/Σw, NaN where there is no weight; the last two axes of the sums are slots and (w, w·r)."""
    weight = np.where(sums[..., 0] > 0, sums[..., 0], np.nan)
    values: FloatArray = (sums[..., 1] / weight) @ gain
    return values
