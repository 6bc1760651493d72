"""`Ridge` for very many actions: Gram matrices stay packed, and actions are solved in blocks.

Sums are only separate by fold, so there are no refits for the jackknife. If even that exceeds the memory budget, products of
the context are not stored by action. The scatter of the contexts of an action with n rounds is then assumed to be n − 1
times a covariance that all actions share (with row weights ω, Σω − Σω²/Σω times), and only means and products with the
reward are its own. The residuals of such a model on its own rows are uninformative, so its noise is estimated out of fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import Array, FloatArray, IntArray, library, like, to_numpy, zeros
from offpolicy.core.errors import InputError
from offpolicy.core.threads import parallel
from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor
from offpolicy.models.rewards.ridge import solve
from offpolicy.models.rewards.ridge.shared import GroupSums, SharedEquations
from offpolicy.models.rewards.ridge.solutions import Coefficients, Regression, RidgeSettings, RowSums, identity_alone
from offpolicy.statistics.base import State
from offpolicy.statistics.gram import Gram, GramState

BLOCK_NUMBERS = 1 << 17
"""The numbers in the matrices of a block of actions: 1 MB."""
DEVICE_NUMBERS = 1 << 22
"""The same on a GPU: 32 MB."""
ACTIONS_FOR_COVARIANCE = 10_000
Keep = npt.NDArray[np.bool_]


def normalised(state: State, shape: FitShape) -> State:
    """The sums by action as if row weights had mean 1: the penalty counts rounds, so their unit must not matter."""
    total = float(state["n"].sum()) if "n" in state else 0.0
    if not total > 0:
        raise InputError("weight: every row has weight 0, so there is nothing to fit or average.")
    scale = shape.weight_scale(total)
    for name in state.keys() - {"mean"} if scale != 1.0 else ():
        state[name] = state[name] * (scale**2 if name == "square" else scale)
    return state


@dataclass(frozen=True)
class Packed:
    """Sums with leading shape (groups, actions): arrays, or tensors on the device that they were summed on."""

    gram: Gram
    state: State
    groups: int

    @property
    def n_actions(self) -> int:
        return int(self.state["n"].shape[1])

    @property
    def on_gpu(self) -> bool:
        return bool(getattr(self.state["n"], "is_cuda", False))

    def counts(self, keep: Keep) -> FloatArray:
        """The rounds of each action in some groups."""
        return to_numpy(self.state["n"][np.flatnonzero(keep)].sum(axis=0))

    def block(self, keep: Keep, reward: int, actions: slice | IntArray) -> GramState:
        """Full matrices of some actions, summed over some groups."""
        return self.apart(keep, reward, actions).pooled() if keep.sum() > 1 else self.apart(keep, reward, actions).at(0)

    def apart(self, keep: Keep, reward: int, actions: slice | IntArray) -> GramState:
        """Full matrices of some actions, with a leading axis of groups."""
        some = {name: to_numpy(values) for name, values in self._some(keep, actions).items()}
        if not self.gram.shared:
            return self.gram.unpack(some, reward)
        return self.gram.unpack(some, reward, _freedom(some)[..., None, None] * self.within(keep))

    def _some(self, keep: Keep, actions: slice | IntArray) -> dict[str, Array]:
        """The sums of some actions, with a leading axis of groups."""
        groups, stack = np.flatnonzero(keep), library(self.state["n"]).stack
        return {name: stack([self.state[name][g][actions] for g in groups]) for name in self.gram.by_key}

    def group_sums(self, keep: Keep, reward: int, actions: slice | IntArray) -> GroupSums:
        """The sums of some actions where the covariance of the context is shared, with a leading axis of groups."""
        some = self._some(keep, actions)
        gram = self.gram.unpack(some, reward, np.empty(0))
        return GroupSums(gram.n, gram.x, gram.r, gram.xr, gram.rr, _freedom(some))

    @cached_property
    def _covariances(self) -> dict[bytes, FloatArray]:
        return {}

    def within(self, keep: Keep) -> FloatArray:
        """The covariance of the contexts within actions, which all actions share."""
        key, groups = keep.tobytes(), np.flatnonzero(keep)
        if key not in self._covariances:  # every block of actions needs it
            freedom = sum(float(_freedom({n: self.state[n][g] for n in ("n", "square")}).sum()) for g in groups)
            self._covariances[key] = to_numpy(self.state["xx"][groups].sum(axis=0)) / max(freedom, 1e-300)
        return self._covariances[key]

    def full(self, reward: int) -> GramState:
        """Full matrices of all groups and actions."""
        return self.apart(np.ones(self.groups, bool), reward, slice(None))

    @cached_property
    def _totals(self) -> dict[tuple[bytes, int], GramState]:
        return {}

    def whole(self, keep: Keep, reward: int) -> GramState:
        """All actions as one; computed once, as the choice of a penalty and every fit need it."""
        key = (keep.tobytes(), reward)
        if key not in self._totals:
            self._totals[key] = self._total(keep, reward)
        return self._totals[key]

    def _total(self, keep: Keep, reward: int) -> GramState:
        if keep.sum() > 1:  # fits without one group each share the sums of the groups
            each = (self.whole(np.arange(self.groups) == g, reward) for g in np.flatnonzero(keep))
            return reduce(GramState.plus, each)
        total: GramState | None = None
        for some in self.blocks():
            part = (
                self.group_sums(keep, reward, some).pooled() if self.gram.shared else self.block(keep, reward, some).pooled()
            )
            total = part if total is None else total.plus(part)
        assert total is not None
        if not self.gram.shared:
            return total
        return replace(total, xx=total.xx + to_numpy(self.state["xx"][np.flatnonzero(keep)].sum(axis=0)))

    def blocks(self) -> Iterator[slice]:
        """Blocks of actions whose full matrices, or sums by group if there are none, are small."""
        size, numbers = self.gram.size + 1, DEVICE_NUMBERS if self.on_gpu else BLOCK_NUMBERS
        step = max(1, numbers // (size * (self.groups if self.gram.shared else size)))
        return (slice(k, min(k + step, self.n_actions)) for k in range(0, self.n_actions, step))


def _freedom(state: State) -> Array:
    """The degrees of freedom of the rows of each key around their mean: n − 1 if all weights are 1."""
    n = state["n"]
    return (n - state["square"] / library(n).where(n > 0, n, 1.0)).clip(0.0)


class PackedFits(Fits):
    """Fits on all rows and without each fold."""

    def __init__(self, model: RidgeSettings, shape: FitShape, packed: Packed, chosen: Any) -> None:
        self._model, self._shape, self._packed, self._chosen = model, shape, packed, chosen
        self._solved: dict[tuple[int, int, int], LinearPredictor] = {}

    def on_all(self, reward: int) -> LinearPredictor:
        return self.without_fold(reward, -1, 1)

    def without_fold(self, reward: int, fold: int, folds: int) -> LinearPredictor:
        key = (reward, fold, folds)
        if key not in self._solved:
            keep = np.arange(self._packed.groups) * folds // self._packed.groups != fold
            linear = self._solve(keep, reward)
            self._solved[key] = self._with_covariance(linear, keep, reward) if fold < 0 else linear
        return self._solved[key]

    def diagnostics(self, reward: int) -> dict[str, Any]:
        choice = self._choices[reward]
        report: dict[str, Any] = {"r2": choice.r2, "penalty": choice.penalty}
        return report | {"covariance": "shared by all actions"} if self._packed.gram.shared else report

    @cached_property
    def _choices(self) -> list[Any]:
        return [self._chosen(self._packed, reward) for reward in range(self._shape.rewards)]

    def _penalty(self, reward: int) -> float:
        """The penalty of the settings, or the chosen one."""
        return float(self._choices[reward].penalty if self._model.chosen else self._model.penalty)

    def _solve(self, keep: Keep, reward: int) -> LinearPredictor:
        model, packed, penalty = self._model, self._packed, self._penalty(reward)
        whole, counts = packed.whole(keep, reward), packed.counts(keep)
        frame = solve.Scaled.of(whole.at_all(), whole, model.intercept)
        low_rank = packed.gram.shared and penalty > 0
        shape = packed.n_actions, len(frame.pool)
        own: Array = zeros(shape, packed.state["n"]) if low_rank else np.zeros(shape)

        def of_block(some: slice) -> None:
            logged = some.start + np.flatnonzero(counts[some] > 0)
            if low_rank:  # the coefficients of an action without rounds are 0
                own[some] = SharedEquations.of(packed, keep, reward, some, frame).own(penalty)
            elif len(logged):
                gram = packed.block(keep, reward, logged)
                scaled = solve.Scaled.of(gram, whole, model.intercept)
                own[logged] = identity_alone(gram, whole, scaled, penalty)

        if packed.on_gpu:  # which needs no threads, and its blocks take memory
            for some in packed.blocks():
                of_block(some)
        else:
            parallel(of_block, packed.blocks())
        down = None
        if model.rank is not None:
            down, fewer = Coefficients(to_numpy(own)).turned_down(counts, frame.zz[0], model)
            own = fewer.own
        coef = frame.own_units(like(frame.pool, own) + own)
        if model.unseen == "zero":
            coef[counts == 0] = 0.0
        linear = LinearPredictor(coef, frame.centre, frame.scale, counts, down=down, mean=whole.x)
        return linear.on_host() if self._shape.action_shape else linear  # lists are weighted on the processor

    def _with_covariance(self, linear: LinearPredictor, keep: Keep, reward: int) -> LinearPredictor:
        """Add the covariance of the estimated coefficients, from a regular sample of the actions."""
        logged = np.flatnonzero(self._packed.counts(keep) > 0)
        some = logged[:: max(1, len(logged) // ACTIONS_FOR_COVARIANCE)]
        penalty, whole = self._penalty(reward), self._packed.whole(keep, reward)
        if self._packed.gram.shared and penalty > 0:
            return replace(linear, covariance=self._shared_covariance(keep, reward, some, whole))
        regression = Regression(RowSums(self._packed.block(keep, reward, some)), whole, self._model, self._shape)
        noise = self._choices[reward].error if self._packed.gram.shared else None
        covariance = regression.covariance(replace(linear, coef=linear.coef[some]), penalty, noise)
        return replace(linear, covariance=covariance)

    def _shared_covariance(self, keep: Keep, reward: int, actions: IntArray, whole: GramState) -> FloatArray:
        """σ²·(Z_a + penalty)⁻¹, averaged over the rounds of some actions."""
        choice, counts = self._choices[reward], self._packed.counts(keep)[actions]
        frame = solve.Scaled.of(whole.at_all(), whole, self._model.intercept)
        mean = SharedEquations.of(self._packed, keep, reward, actions, frame).mean_inverse(
            counts / counts.sum(), choice.penalty
        )
        out = np.zeros((len(frame.scale) + 1,) * 2)
        out[: len(mean), : len(mean)] = mean * choice.error
        return out
