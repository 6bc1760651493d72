"""The slots of lists in one table: the headline of each slot, its lift, and the rounds that it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from offpolicy.results.estimate_set import EstimateSet


def slot_rows(result: EstimateSet, gain: Sequence[float] | None) -> list[dict[str, Any]]:
    """One row per policy and slot, by the headline estimator; nothing if rewards do not belong to slots."""
    rows: list[dict[str, Any]] = []
    for policy in result.policies if gain is not None else ():
        estimate, lift = result.estimates[policy, result.headline_estimator], result.lift(policy)
        rounds = estimate.diagnostics.get("effective_sample_size_by_slot", [None] * len(estimate.slots))
        rows += [
            {
                "slot": own.slot,
                "gain": counts,
                "policy": policy,
                "estimator": estimate.estimator,
                "value": own.value,
                "std_error": own.std_error,
                "interval": asdict(own.interval),
                "effective_sample_size": each,
                "lift": {"value": change.value, "std_error": change.std_error, "interval": asdict(change.interval)},
            }
            for own, change, counts, each in zip(estimate.slots, lift.slots, gain or (), rounds, strict=True)
        ]
    return rows
