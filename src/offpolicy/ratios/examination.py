"""Weights of the position-based model: a click needs a user who looks at the slot, and an item that is relevant there.

If a click in slot k has the probability b_k·ρ(x, d) for the item d, clicks on an item say what it would earn in any slot:

    E[Σ_k r_k · π(d_k at j) b_j / Σ_l π0(d_k at l) b_l] = Σ_d π(d at j) b_j ρ(x, d),

the value of slot j. The same sum with b_k/b_j in place of r_k has mean 1, and normalises it.

The curve b is estimated from items that stand in different slots by chance. For slots k and l,

    S_kl = Σ r_k · π0(d_k at l) / (π0(d_k at k) + π0(d_k at l))

has the expectation b_k·V_kl with V symmetric, whatever the relevance is: S_kl/S_lk estimates b_k/b_l, with weights below 1.
All pairs are put together as wins and losses are in the model of Bradley and Terry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.slate import Slate, shown
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.policies.lists import ListPolicy
from offpolicy.ratios.base import Available, FittedRatio, Fitting, Moves, PoolingDiagnostics, Ratio
from offpolicy.ratios.interactions import Missed
from offpolicy.ratios.pools import Rounds
from offpolicy.ratios.sides import as_list_policy, placements
from offpolicy.ratios.slots import sides_of
from offpolicy.statistics.base import State, Statistic

STEPS, CONVERGED = 100, 1e-12  # of Newton's method
LONGEST = 2.0  # the largest change of a logarithm in one step


@final
@dataclass(frozen=True)
class ExaminationRatio(Ratio):
    """Σ_k b_k π(d_k at j)/Σ_l π0(d_k at l) b_l for slot j, with the curve b given or estimated from the log."""

    curve: tuple[float, ...] | None = None
    slot: int = 0
    reward: int = 0
    spaces = (Slate,)
    per_policy = False
    mean_one = True
    assumes = "an item earns the same wherever users look at it, whatever the other slots hold"

    @property
    def fitted(self) -> bool:
        return self.curve is None

    def for_slot(self, slot: int) -> Self:
        return replace(self, slot=slot)

    def for_reward(self, reward: int) -> Self:
        return replace(self, reward=reward)

    def missed(self, slots: int) -> Missed:
        """All of what other slots contribute; and an item may earn something else in another slot than a model has it."""
        return replace(super().missed(slots), own=1.0)

    def lacks(self, available: Available) -> str | None:
        slots = available.schema.space.slots
        if self.curve is not None and len(self.curve) != slots:
            return f"its examination curve has {len(self.curve)} numbers, and lists have {slots} slots"
        return available.lacks_slot_rewards or available.lacks_placements

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:
        if self.curve is not None:
            return ()
        assert fitting.logging is not None
        return (ClicksByPosition(fitting.shape, as_list_policy(fitting.logging)),)

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        if self.curve is not None:
            return _Fitted(self, np.array(self.curve))
        wins: FloatArray = results[0][:, self.reward]
        whole = wins.sum(axis=0)
        curve = examination(whole)
        unknown = np.flatnonzero(np.isnan(curve))
        if len(unknown):
            raise InputError(
                f"{fitting.name}: how often users look at slot {unknown[0] + 1} cannot be estimated: no item with clicks "
                "was shown both there and in other slots by chance. State the curve as `examination=`, one number per slot."
            )
        return _Fitted(self, curve, np.array([examination(whole - each) for each in wins]))


@final
@dataclass(frozen=True, eq=False)
class _Fitted(FittedRatio):
    """The weights of one slot under a curve; `without` are the curves without each group of units, if it was estimated."""

    ratio: ExaminationRatio
    curve: FloatArray
    without: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    def of_slot(self, ratio: Ratio) -> FittedRatio:
        assert isinstance(ratio, ExaminationRatio)
        return replace(self, ratio=ratio)

    def weights(self, rounds: Rounds) -> FloatArray:
        there = shown(rounds.batch)[:, self.ratio.slot]
        return np.where(there, self._moved(rounds) @ self.curve, 1.0)

    def earned(self, rounds: Rounds) -> FloatArray:
        assert rounds.batch.slots is not None
        assert rounds.batch.slots.reward is not None
        weights, moved = self.weights(rounds), self._moved(rounds)
        clicks = np.einsum("nrk,nk->nr", rounds.batch.slots.reward, moved) * self.curve[self.ratio.slot]
        return np.asarray(clicks / np.where(weights > 0, weights, 1.0)[:, None])

    def _moved(self, rounds: Rounds) -> FloatArray:
        """Rounds × slots k: π(d_k at j) / Σ_l π0(d_k at l) b_l."""
        seen = self._seen(rounds)
        share: FloatArray = sides_of(rounds).placements[:, :, self.ratio.slot] / np.where(seen > 0, seen, np.inf)
        return share

    def _seen(self, rounds: Rounds) -> FloatArray:
        """Rounds × slots k: Σ_l π0(d_k at l) b_l, the probability that a user sees the item."""
        sides = sides_of(rounds)
        return sides.once(("seen", self.curve.tobytes()), lambda: sides.logged.placements @ self.curve)

    def zero(self, corrections: int) -> State:
        return {"largest": np.zeros(()), "rounds": np.zeros(()), "slopes": np.zeros((len(self.curve), 1 + corrections))}

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:
        """Σω·∂weight/∂log b and Σω·∂(weight·residual)/∂log b."""
        super().fold(state, rounds, ratio)
        if not len(self.without):
            return
        state["rounds"] += rounds.omega.sum()
        assert rounds.batch.slots is not None
        assert rounds.batch.slots.reward is not None
        own, j = self.ratio.reward, self.ratio.slot
        moved, seen = self._moved(rounds), self._seen(rounds)
        looks = sides_of(rounds).logged.placements * self.curve / np.where(seen > 0, seen, np.inf)[:, :, None]
        weight = self._slopes(moved * self.curve, looks)
        clicks = moved * rounds.batch.slots.reward[:, own] * self.curve[j]
        earned = -np.einsum("nk,nkl->nl", clicks, looks)
        earned[:, j] += clicks.sum(axis=1)
        state["slopes"][:, 0] += rounds.omega @ weight
        for c, residual in enumerate(rounds.residuals(), start=1):
            origin = self.earned(rounds)[:, own] - residual
            state["slopes"][:, c] += rounds.omega @ (earned - origin[:, None] * weight)

    @staticmethod
    def _slopes(terms: FloatArray, looks: FloatArray) -> FloatArray:
        """Rounds × slots l: ∂ Σ_k b_k m_k/(Σ_l p_kl b_l) / ∂ log b_l, from its terms."""
        return np.asarray(terms - np.einsum("nk,nkl->nl", terms, looks))

    def moves(self, state: State, correction: int) -> Moves | None:
        if not len(self.without) or not np.isfinite(self.without).all():
            return None
        return self._logs @ state["slopes"][:, [0, 1 + correction]], float(state["rounds"])

    @property
    def _logs(self) -> FloatArray:
        """Groups × slots: how log b changes if a group is left out; 0 for a slot without clicks."""
        known = (self.curve > 0) & (self.without > 0)
        return np.log(np.where(known, self.without, 1.0)) - np.log(np.where(known, self.curve, 1.0))

    def diagnostics(self, state: State, mean_weight: float) -> PoolingDiagnostics:  # noqa: ARG002
        details: Mapping[str, Any] = {"examination": self.curve.tolist()}
        if len(self.without):
            left, scale = self.without - self.without.mean(axis=0), (len(self.without) - 1) / len(self.without)
            details = {**details, "examination_std_errors": np.sqrt(scale * (left**2).sum(axis=0)).tolist()}
        return PoolingDiagnostics(details=details)

    def light(self) -> FittedRatio:
        return self


@dataclass(frozen=True)
class ClicksByPosition(FitStatistic):
    """S_kl of every pair of slots: groups × rewards × slots × slots."""

    logging: ListPolicy

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.shape.columns, *self.logging.columns)))

    def zero(self) -> State:
        (slots,) = self.shape.action_shape
        return {"clicks": np.zeros((self.shape.groups, self.shape.rewards, slots, slots))}

    def fold(self, state: State, batch: Batch) -> State:
        assert batch.slots is not None
        assert batch.slots.reward is not None
        reward = batch.slots.reward
        below = (reward < 0).any(axis=(1, 2))
        if below.any():
            raise RowsError(
                "reward", "are below 0, and so not examination times relevance", batch.row[below],
                "State the curve as `examination=`, or use op.IIPS.",
            )  # fmt: skip
        there = placements(self.logging, batch)
        own = np.einsum("nkk->nk", there)[:, :, None]
        total = own + there
        share = there / np.where(total > 0, total, 1.0)
        weight, group = self.shape.weights(batch), self.shape.group(batch)
        for g in np.unique(group):
            rows = group == g
            counted = reward[rows] if weight is None else reward[rows] * weight[rows, None, None]
            state["clicks"][g] += np.einsum("nrk,nkl->rkl", counted, share[rows])
        return state

    def finish(self, state: State) -> Any:
        return state["clicks"]


def examination(wins: FloatArray) -> FloatArray:
    """b of every slot, 1 in the first, from S_kl: the Bradley–Terry model. NaN where the pairs do not determine it.

    >>> b = np.array([1.0, 0.5, 0.2])
    >>> examination(b[:, None] * np.array([[0, 3, 1], [3, 0, 2], [1, 2, 0]])).round(12).tolist()
    [1.0, 0.5, 0.2]
    """
    wins = wins * (1 - np.eye(len(wins)))
    if len(wins) == 1:
        return np.ones(1)
    some = wins.sum(axis=1) > 0
    curve = np.zeros(len(wins))
    if not some.any():
        return np.full(len(wins), np.nan)
    among = wins[np.ix_(some, some)]
    logs = _fitted_logs(among) if _linked(among).all() else np.where(_linked(among)[0], 0.0, np.nan)
    curve[some] = np.exp(logs - logs[0])
    return curve


def _linked(wins: FloatArray) -> Any:
    """Which slots are linked to each other by wins in both directions."""
    reach = (wins > 0) | np.eye(len(wins), dtype=bool)
    for _ in range(len(wins).bit_length()):
        reach = reach @ reach
    return reach & reach.T


def _fitted_logs(wins: FloatArray) -> FloatArray:
    """Newton's method for Σ S_kl log(b_k / (b_k + b_l)), with log b of the first slot 0."""
    both, logs = wins + wins.T, np.zeros(len(wins))
    for _ in range(STEPS):
        won = 1 / (1 + np.exp(logs[None] - logs[:, None]))
        score = (wins - both * won).sum(axis=1)
        curvature = -both * won * (1 - won)
        curvature[np.diag_indices(len(wins))] -= curvature.sum(axis=1)
        step = np.linalg.solve(curvature[1:, 1:], score[1:])
        logs[1:] += np.clip(step, -LONGEST, LONGEST)
        if np.abs(step).max(initial=0.0) < CONVERGED:
            break
    return logs
