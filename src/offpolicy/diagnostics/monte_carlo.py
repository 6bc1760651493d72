"""Propensities from draws: whether there were enough of them, and how much variance they add.

With λ = draws × probability, 1/p is too small by a share of e^−λ on average, and the rounds without a win (apart from the
draw that was taken) have a share λ/(e^λ − 1) of the weight: more than the bias, and .034 at λ = 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.data.batch import Batch
from offpolicy.data.monte_carlo import MonteCarlo, noise
from offpolicy.diagnostics.base import Diagnostic, Subject
from offpolicy.diagnostics.verdict import Finding, Measure
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class Draws(Diagnostic):
    """For each policy: Σw, Σw of rounds with the fewest possible wins, Σw², and the part of Σw² due to the draws."""

    counts: MonteCarlo
    policies: int

    def zero(self) -> State:
        return {"sums": np.zeros((self.policies, 4))}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        if batch.wins is None or scored.propensity is None:
            return state
        relative = noise(self.counts, batch.wins, np.minimum(scored.propensity, 1.0))
        fewest = batch.wins == self.counts.least
        for p, ratio in enumerate(scored.ratios):
            if ratio is not None:
                w = scored.omega * ratio
                state["sums"][p] += (w.sum(), w[fewest].sum(), (w**2).sum(), (w**2) @ (relative / (1 + relative)))
        return state

    def findings(self, state: State, subject: Subject) -> Sequence[Finding]:
        numbers = self.numbers(state, subject)
        if not numbers or not self.counts.biased:
            return []
        share = numbers["weight_on_rounds_with_the_fewest_wins"]
        least = "none of the draws" if self.counts.sampling == "separate" else "only the draw that was taken"
        return [
            Measure("draws", share).finding(
                "draws",
                f"Rounds whose action won {least} have {share:.1%} of the weight.",
                "With few draws, 1/propensity is too small on average: by 0.7% where draws × probability is 5, by 5% at 3, "
                "by 37% at 1. The value of what the new policy prefers is then underestimated.",
                'Draw more often; or draw until the action has won a given number of times (op.MonteCarlo(…, "inverse")), '
                "which has no bias.",
            )
        ]

    def numbers(self, state: State, subject: Subject) -> dict[str, Any]:
        weight, fewest, square, added = state["sums"][subject.policy]
        weighs = subject.member is None or subject.member.weight.weighs
        if not (subject.whole and weighs and weight > 0):
            return {}
        return {
            "weight_on_rounds_with_the_fewest_wins": float(fewest / weight),
            "share_of_squared_weights_from_draws": float(added / square),
        }
