"""Ratios of slots that compare the policies at some of the other slots, or at all of them in part.

Here w_k = π(a_k|x, a_<k) / π0(a_k|x, a_<k), as in `ratios/slots.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.ratios.base import Available
from offpolicy.ratios.interactions import Missed, missed_of_window
from offpolicy.ratios.pools import Rounds
from offpolicy.ratios.slots import SlotRatio, sides_of


def lacks_factored(available: Available) -> str | None:
    """Why it is not known that both policies fill slots independently, so that ratios of slots may be multiplied at will."""
    if available.logging is None or not available.logging.factored:
        return (
            "it combines the ratios of some slots, which is right only if slots are filled independently of each other; it "
            "needs the logging policy as `logging=op.Factored(…)`"
        )
    if not all(policy.factored for policy in available.policies.values()):
        return (
            "it combines the ratios of some slots, which is right only if slots are filled independently of each other; the "
            "new policy must be an op.Factored, too"
        )
    return None


@final
@dataclass(frozen=True)
class WindowRatio(SlotRatio):
    """Π w_j over the slots from `above` slots above to `below` slots below."""

    above: int = 0
    below: int = 0

    def lacks(self, available: Available) -> str | None:
        return available.lacks_slot_rewards or available.lacks_slots or lacks_factored(available)

    @property
    def assumes(self) -> str | None:  # type: ignore[override]
        if self.above == self.below == 0:
            return "slots do not matter to each other"
        return f"only the items up to {self.above} slots above and {self.below} below matter to a slot"

    def missed(self, slots: int) -> Missed:
        return missed_of_window(slots, self.above, self.below)

    def weights(self, rounds: Rounds) -> FloatArray:
        window = slice(max(self.slot - self.above, 0), self.slot + self.below + 1)
        weights: FloatArray = sides_of(rounds).ratio[:, window].prod(axis=1)
        return weights


@final
@dataclass(frozen=True)
class PairRatio(SlotRatio):
    """w_k (1 + Σ_j (w_j − 1)) over the other slots, or those above: for rewards that add up over pairs of slots.

    The sum is over what each pair (a_k, a_j) contributes to the reward of slot k. It can be negative.
    """

    below: bool = True
    assumes = "other slots matter to a slot one at a time"

    def lacks(self, available: Available) -> str | None:
        return available.lacks_slot_rewards or available.lacks_slots or lacks_factored(available)

    def missed(self, slots: int) -> Missed:
        kept = np.ones((slots, slots)) if self.below else np.tri(slots, k=-1)
        return Missed.of(kept, 0.0)

    def weights(self, rounds: Rounds) -> FloatArray:
        w = sides_of(rounds).ratio
        own, last = w[:, self.slot], w.shape[1] if self.below else self.slot
        others: FloatArray = (w[:, :last] - 1).sum(axis=1)
        if self.below:
            others = others - (own - 1)
        return own * (1 + others)


@final
@dataclass(frozen=True)
class PartialRatio(SlotRatio):
    """w_k Π_j (1 − λ + λ·w_j) over the other slots, or those above, with the share λ.

    It is the ratio to a policy that follows the target in slot k, and in each other slot with probability λ only, and the
    logging policy otherwise. So λ = 1 is the ratio of the whole list, and λ = 0 that of slot k alone. Without replacement,
    slot k then has not quite the marginal of the target, so that the error of a model of its item cancels only in part.
    """

    share: float = 0.5
    below: bool = True

    def lacks(self, available: Available) -> str | None:
        return available.lacks_slot_rewards or available.lacks_slots

    def missed(self, slots: int) -> Missed:
        kept = self.share * (np.ones((slots, slots)) if self.below else np.tri(slots, k=-1))
        return Missed.of(kept, self.share**2 * (1.0 if self.below else 1 / 3))

    def weights(self, rounds: Rounds) -> FloatArray:
        w = sides_of(rounds).ratio
        mixed = 1 - self.share + self.share * w
        others = mixed[:, : self.slot].prod(axis=1)
        if self.below:
            others = others * mixed[:, self.slot + 1 :].prod(axis=1)
        weights: FloatArray = w[:, self.slot] * others
        return weights
