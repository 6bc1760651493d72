"""Ratios of slots: how much more often the new policy would have shown what a slot of a list holds.

Here w_k = π(a_k|x, a_<k) / π0(a_k|x, a_<k) and m_k = π(a_k in slot k|x) / π0(a_k in slot k|x).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

from offpolicy.core.arrays import FloatArray
from offpolicy.data.slate import Slate
from offpolicy.ratios.base import Available, UnfittedRatio
from offpolicy.ratios.interactions import Missed, missed_of_window
from offpolicy.ratios.pools import Rounds
from offpolicy.ratios.pseudo_inverse import pseudo_inverse_weights
from offpolicy.ratios.sides import SlotSides


def sides_of(rounds: Rounds) -> SlotSides:
    """Both policies in the slots of the rounds."""
    assert rounds.slots is not None
    return rounds.slots


@final
@dataclass(frozen=True)
class ListRatio(UnfittedRatio):
    """Π_j w_j: the whole list, for rewards of any kind."""

    spaces = (Slate,)
    exact = True
    of_actions = True
    shown = True

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.action is not None
        return rounds.action


@dataclass(frozen=True)
class SlotRatio(UnfittedRatio):
    """The weight of the reward of one slot, from 0."""

    slot: int = 0
    spaces = (Slate,)
    mean_one = True
    model_error_cancels = True  # of models of one item: every weight here has the right marginal
    shown = False

    def for_slot(self, slot: int) -> Self:
        return replace(self, slot=slot)


@final
@dataclass(frozen=True)
class PrefixRatio(SlotRatio):
    """Π_{j ≤ k} w_j: the items down to the slot, for rewards that do not depend on what stands below (a cascade)."""

    assumes = "the items below a slot do not matter to it"

    def lacks(self, available: Available) -> str | None:
        return available.lacks_slot_rewards or available.lacks_slots

    def missed(self, slots: int) -> Missed:
        return missed_of_window(slots, slots, 0)

    def weights(self, rounds: Rounds) -> FloatArray:
        return sides_of(rounds).prefix[:, self.slot]


@final
@dataclass(frozen=True)
class PositionRatio(SlotRatio):
    """m_k: the item in its position, for rewards that do not depend on the other items."""

    assumes = "slots do not matter to each other"
    marginal = True

    def lacks(self, available: Available) -> str | None:
        return available.lacks_slot_rewards or available.lacks_positions

    def weights(self, rounds: Rounds) -> FloatArray:
        return sides_of(rounds).marginal[:, self.slot]


@final
@dataclass(frozen=True)
class AdditiveRatio(SlotRatio):
    """1 + Σ_k (m_k − 1): for one reward of the list that is a sum over its slots. It can be negative.

    That is for logging policies that fill slots independently of each other. For those that show each item at most once, it
    takes the pseudo-inverse of the probabilities of pairs.
    """

    assumes = "the reward of the list adds up over its slots"
    marginal = True

    def lacks(self, available: Available) -> str | None:
        return available.lacks_positions

    def lacks_slots_alone(self, available: Available) -> str | None:
        if available.logging is None or available.logging.factored:
            return None
        return "its sum over slots is right only if the logging policy fills them independently of each other (op.Factored)"

    def for_slot(self, slot: int) -> Self:  # noqa: ARG002
        return self

    def weights(self, rounds: Rounds) -> FloatArray:
        sides = sides_of(rounds)
        if sides.logged.without_replacement:
            return sides.once(AdditiveRatio, lambda: pseudo_inverse_weights(sides))
        weights: FloatArray = 1 + (sides.marginal - 1).sum(axis=1)
        return weights
