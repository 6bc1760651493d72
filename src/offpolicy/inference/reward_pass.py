"""A pass for bounds where weights are wrong: on which rewards the weights of each policy lie. Run when first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from offpolicy.core.hashing import buckets
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.scoring.scorer import Scorer, ratio_of
from offpolicy.statistics import RewardBins, State
from offpolicy.statistics.reward_bins import GROUPS, points_of


@dataclass(frozen=True)
class RewardPass:
    """Sums of weights and weighted rewards, by policy and reward, and those of the log itself."""

    policies: Sequence[Policy]
    logging: Policy | None
    bins: Sequence[RewardBins]
    seed: int
    batch_rows: ClassVar[int | None] = None

    @classmethod
    def of(cls, log: Log, scorer: Scorer) -> RewardPass:
        """Rewards are told apart by some first ones."""
        first = log.head().reward.T
        bins = [RewardBins(points_of(r), float(anchor)) for r, anchor in zip(first, scorer.anchor, strict=True)]
        return cls(scorer.policies, scorer.logging, bins, scorer.seed)

    @property
    def columns(self) -> tuple[str, ...]:
        asked = (*self.policies, *([] if self.logging is None else [self.logging]))
        return tuple(dict.fromkeys(name for policy in asked for name in policy.columns))

    def zero(self) -> State:
        return {
            "weighted": {
                f"{p}:{k}": bins.zero() for p in range(len(self.policies)) for k, bins in enumerate(self.bins)
            },
            "logged": np.zeros((len(self.bins), 2, GROUPS)),
        }  # fmt: skip

    def fold(self, state: State, batch: Batch) -> State:
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        weights = [omega * ratio_of(batch, policy, self.logging) for policy in self.policies]
        bucket = buckets(batch.unit, self.seed)
        for k, bins in enumerate(self.bins):
            reward = batch.reward[:, k]
            places = bins.places(reward, bucket)
            state["logged"][k] += bins.by_group(bucket, omega, reward)
            for p, weight in enumerate(weights):
                bins.fold(state["weighted"][f"{p}:{k}"], places, reward, weight)
        return state

    def merge(self, a: State, b: State) -> State:
        weighted = {
            key: {name: sums + b["weighted"][key][name] for name, sums in part.items()}
            for key, part in a["weighted"].items()
        }
        return {"weighted": weighted, "logged": a["logged"] + b["logged"]}

    def finish(self, state: State) -> State:
        return state
