"""The slots of lists in one table, with their lifts and effective rounds; and what the log says about how people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from offpolicy.estimators.reading_prior import READINGS
from offpolicy.results.estimate import Estimate
from offpolicy.results.estimate_set import EstimateSet


def slot_rows(result: EstimateSet, gain: Sequence[float] | None) -> list[dict[str, Any]]:
    """One row per policy and slot; nothing if rewards do not belong to slots.

    They are those of the headline estimator, or, as a blend has none, of the first estimator that has.
    """
    rows: list[dict[str, Any]] = []
    for policy in result.policies if gain is not None else ():
        names = [result.headline_estimator, *(name for name in result.estimators if name != result.logged_estimator)]
        name = next(
            (name for name in names if (policy, name) in result.estimates and result.estimates[policy, name].slots), ""
        )
        if name:
            rows += _of_policy(result, result.estimates[policy, name], gain or ())
    return rows


def _of_policy(result: EstimateSet, estimate: Estimate, gain: Sequence[float]) -> list[dict[str, Any]]:
    lift = result.lift(estimate.policy, estimator=estimate.estimator)
    rounds = estimate.diagnostics.get("effective_sample_size_by_slot", [None] * len(gain))
    return [
        {
            "slot": own.slot,
            "gain": counts,
            "policy": estimate.policy,
            "estimator": estimate.estimator,
            "value": own.value,
            "std_error": own.std_error,
            "interval": asdict(own.interval),
            "effective_sample_size": each,
            "lift": {"value": change.value, "std_error": change.std_error, "interval": asdict(change.interval)},
        }
        for own, change, counts, each in zip(estimate.slots, lift.slots, gain, rounds, strict=True)
    ]


def browsing(result: EstimateSet, gain: Sequence[float] | None) -> list[dict[str, Any]]:
    """One entry per policy: assumptions with their tests, how likely each way to read is, and the examination curve."""
    rows = []
    for policy in result.policies if gain is not None else ():
        every = [e.diagnostics for (name, _), e in result.estimates.items() if name == policy]
        tested = [each for numbers in every for each in numbers.get("assumptions", ())]
        surest = {each["assumption"]: each for each in sorted(tested, key=lambda each: -float(each["p_value"]))}
        blend = next((numbers for numbers in every if all(name in numbers for name in READINGS)), None)
        curve = next((numbers for numbers in every if "examination" in numbers), {})
        row = {
            "assumptions": list(surest.values()),
            "readings": {} if blend is None else {name: blend[name] for name in READINGS},
            **{name: list(curve.get(name, ())) for name in ("examination", "examination_std_errors")},
        }
        if any(row.values()):
            rows.append({"policy": policy, **row})
    return rows
