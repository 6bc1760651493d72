"""A diagnostic: whether the weighted rounds come from one country."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import offpolicy as op


@dataclass(frozen=True)
class CountryShare(op.Diagnostic):
    """The share of a country among the rounds, and among the weights π/π0 of each policy."""

    country: str = "DE"
    policies: int = 1
    most: float = 0.5
    columns = ("country",)

    def zero(self) -> dict[str, np.ndarray]:
        return {"rounds": np.zeros(2), "weight": np.zeros((self.policies, 2))}

    def fold(self, state: dict[str, np.ndarray], batch: op.Batch, scored: op.ScoredBlock) -> dict[str, np.ndarray]:
        there = np.vstack([batch.column("country") == self.country, np.ones(len(batch))])
        return {
            "rounds": state["rounds"] + there.sum(axis=1),
            "weight": state["weight"] + np.array([there @ ratio for ratio in scored.ratios]),
        }

    def findings(self, state: dict[str, np.ndarray], subject: op.Subject) -> list[op.Finding]:
        share = self.numbers(state, subject)["country_share_of_weight"]
        verdict = op.Verdict.CAUTION if share > self.most else op.Verdict.OK
        return [
            op.Finding(
                verdict,
                "one country",
                f"{share:.1%} of the weight lies on rounds from {self.country}.",
                "The estimate says little about other countries.",
                "Evaluate each country by itself, with by='country'.",
            )
        ]

    def numbers(self, state: dict[str, np.ndarray], subject: op.Subject) -> dict[str, Any]:
        (rounds, all_rounds), (weight, all_weight) = state["rounds"], state["weight"][subject.policy]
        return {"country_share_of_rounds": rounds / all_rounds, "country_share_of_weight": float(weight / all_weight)}


germany = CountryShare()
