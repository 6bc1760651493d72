"""Paired differences of the estimates of one result: what they are computed from, and which interval they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from offpolicy.core.arrays import NEXT_TO_NOTHING
from offpolicy.core.errors import InputError
from offpolicy.inference.intervals import REFITTED, Interval
from offpolicy.results.estimate import Difference, Estimate
from offpolicy.results.evidence import Evidence

NO_SUMS = "This result was saved by an older offpolicy, which kept no sums."


@dataclass(frozen=True)
class Comparison:
    """How estimates of one result are compared."""

    level: float
    method: str
    """Of the interval that the headline shows; differences show a like one, where they can have it."""
    refits: bool
    """Whether the log is at hand to refit on."""
    headline: str
    logged: str
    saved: Mapping[str, Any]
    """The summary of a result from a file; empty for others."""

    def difference(self, first: Estimate, second: Estimate) -> Difference:
        name, told = f"{first.name} − {second.name}", self._told(first, second)
        if first.evidence is not None and second.evidence is not None:
            return self._shown(name, first.evidence.minus(second.evidence), told)
        if told is None:
            pairs = [f"{d['a']} − {d['b']}" for d in self.saved.get("differences", ())]
            has = ", ".join(pairs) or "no differences"
            raise InputError(f"{NO_SUMS} It has {has}, and lifts; for others evaluate again.")
        shown = Interval(**told["interval"])
        return Difference(told["value"], told["std_error"], first.error_covers, shown, None, name)

    def relative(self, first: Estimate, logged: Estimate) -> Difference:
        if abs(logged.value) <= NEXT_TO_NOTHING:
            raise InputError("the log earned 0, so nothing is a part of it; see lift().")
        if first.evidence is None or logged.evidence is None:
            raise InputError(f"{NO_SUMS} The relative lift is in its report; for its error evaluate again.")
        return self._shown(f"{first.name} relative to {self.logged}", first.evidence.relative_to(logged.evidence))

    def _shown(self, name: str, evidence: Evidence, told: Mapping[str, Any] | None = None) -> Difference:
        made, refit = Difference.of(name, evidence, self.level), self.method == REFITTED
        if refit and not self.refits and told is not None:
            return replace(made, interval=Interval(**told["interval"]))
        if self.method not in ("bootstrap", REFITTED):
            return made
        return replace(made, interval=made.confidence_interval(self.level, "bootstrap", refit=refit and self.refits))

    def _told(self, first: Estimate, second: Estimate) -> Mapping[str, Any] | None:
        """A lift or a difference of two policies, where a summary holds it."""
        lead, logged = self.headline, self.logged
        lifts = {((d["policy"], lead), (d["policy"], logged)): d for d in self.saved.get("lifts", ())}
        pairs = {((d["a"], d["estimator"]), (d["b"], d["estimator"])): d for d in self.saved.get("differences", ())}
        return (lifts | pairs).get(((first.policy, first.estimator), (second.policy, second.estimator)))
