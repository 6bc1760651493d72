"""How deep the log supports a policy of lists: the effective rounds of each slot, and items that were never shown there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.data.slate import shown
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.overlap import Overlaps
from offpolicy.diagnostics.verdict import ENOUGH, LIMITS, Finding, Measure, Verdict
from offpolicy.inference.scores import Scores
from offpolicy.policies.lists import ListPolicy
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added

NEAR = 1  # how many slots apart an item still counts as shown near a slot
LOOKED_AT, DRAWS = 1_024, 4  # how many of the first rounds, and how many lists of the new policy for each


@dataclass(frozen=True)
class ShownSums:
    """How often each item was logged in each slot."""

    columns: ClassVar[tuple[str, ...]] = ()
    slots: int
    items: int

    def zero(self) -> State:
        return {"counts": np.zeros((self.slots, self.items))}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:  # noqa: ARG002
        for k, codes in enumerate(batch.action.T):
            state["counts"][k] += np.bincount(codes[codes >= 0], minlength=self.items)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)


@dataclass(frozen=True)
class Shown:
    """What the log shows in each slot, and how much of what a policy shows was never logged near it."""

    state: State
    scores: Scores

    def never(self, p: int) -> FloatArray | None:
        """For each slot, the share of a policy's items that were never logged near it; None if it gives no items."""
        policy = self.scores.scorer.policies[p]
        if "counts" not in self.state or not isinstance(policy, ListPolicy) or not policy.gives_items:
            return None
        if p not in self._shares:
            self._shares[p] = self._drawn(policy)
        return self._shares[p]

    @cached_property
    def _shares(self) -> dict[int, FloatArray]:
        return {}

    def _drawn(self, policy: ListPolicy) -> FloatArray:
        """From a few lists of the policy for each of the first rounds."""
        near, counts = np.zeros(self.state["counts"].shape, np.bool_), self.state["counts"] > 0
        for k in range(len(near)):
            near[k] = counts[max(k - NEAR, 0) : k + NEAR + 1].any(axis=0)
        first, rng = self.scores.log.head(LOOKED_AT, policy.columns), np.random.default_rng(self.scores.scorer.seed % 2**64)
        there, missed = shown(first), np.zeros(len(near))
        for _ in range(DRAWS):
            codes, _ = policy.draw(first, rng)
            for k in range(len(near)):
                missed[k] += (~near[k][codes[there[:, k], k]]).sum()
        return np.asarray(missed / np.maximum(DRAWS * there.sum(axis=0), 1), dtype=np.float64)


@dataclass(frozen=True)
class Depth(Reading):
    """The slots that the log supports, and the items that it never shows where the new policy does."""

    overlaps: Overlaps
    shown: Shown

    def findings(self, subject: Subject) -> list[Finding]:
        rounds, found = self._rounds(subject), []
        if rounds is not None and len(rounds) > 1:
            fewest = int(np.argmin(rounds))
            depth = supported(rounds)
            effective = Measure("effective rounds", float(rounds[fewest]))
            found.append(
                effective.finding(
                    "depth",
                    f"The log supports the new policy down to slot {depth} of {len(rounds)}; in slot {fewest + 1} it is "
                    f"worth {rounds[fewest]:,.0f} lists of the new policy.",
                    "Below that depth, few lists determine the value of a slot.",
                    f"{effective.more_rounds(subject.sums.n, 'lists')}, give deep slots less gain, or compare with "
                    "estimators that assume more (op.RIPS, op.IIPS).",
                )
            )
        return [*found, *self._unshown(subject)]

    def numbers(self, subject: Subject) -> dict[str, Any]:
        rounds = self._rounds(subject)
        if rounds is None:
            return {}
        shares = self._never(subject)
        more = {} if shares is None else {"target_mass_never_shown_near_slot": shares.tolist()}
        return {"effective_sample_size_by_slot": rounds.tolist(), "supported_depth": supported(rounds), **more}

    def _rounds(self, subject: Subject) -> FloatArray | None:
        """The effective rounds of each slot; None if rewards do not belong to slots, or nothing is weighted."""
        gain, member = self.overlaps.scores.scorer.plan.gain, subject.member
        if gain is None or member is None or not member.weight.weighs:
            return None
        weights = [member.weight.for_slot(k) for k in range(len(gain))]
        return np.array([self._overlap(subject, weight) for weight in weights])

    def _overlap(self, subject: Subject, weight: Weight) -> float:
        return self.overlaps.of_weight(subject.policy, weight, subject.sums).ess

    def _unshown(self, subject: Subject) -> list[Finding]:
        shares = self._never(subject)
        if shares is None:
            return []
        worst = int(np.argmax(shares))
        modelled = "support, modelled" if subject.model is not None else "support"
        return [
            Measure(modelled, float(shares[worst])).finding(
                "items never shown near a slot",
                f"{shares[worst]:.1%} of what the new policy shows in slot {worst + 1} was never logged there or in a slot "
                "beside it.",
                "The log has no information about these items where they would stand.",
                f"Log lists with those items there ({ENOUGH} lists of the new policy would have "
                f"{ceil(ENOUGH * shares[worst])}), or restrict the new policy to items that were shown.",
            )
        ]

    def _never(self, subject: Subject) -> FloatArray | None:
        return self.shown.never(subject.policy) if subject.whole else None


def supported(rounds: FloatArray) -> int:
    """The number of slots from the top whose effective rounds raise no concern."""
    weak = [LIMITS["effective rounds"].grade(each) is not Verdict.OK for each in rounds]
    return next((k for k, each in enumerate(weak) if each), len(weak))
