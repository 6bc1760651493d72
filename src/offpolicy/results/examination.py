"""The diagnostics of an evaluation: what they sum in the scoring pass, and what they report of each estimate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from offpolicy.diagnostics.base import Diagnostic, Own, Reading, Subject
from offpolicy.diagnostics.estimates import Agreement, CandidateAgreement, Concentration, Definition, SampleSize, Setting
from offpolicy.diagnostics.models import FitError, Models, ModelSums
from offpolicy.diagnostics.overlap import Overlaps, OverlapSums, Support, WeightSpread
from offpolicy.diagnostics.propensities import Propensities, PropensityTests
from offpolicy.diagnostics.verdict import ERRORS_SKIPPED, NAIVE, Finding
from offpolicy.inference.scores import Scores
from offpolicy.scoring.scored_block import BlockStatistic

SPEAK_OF_BIAS = ("own bias", "unchecked model")
"""Findings that the measured coverage belongs to."""


@cache
def _read() -> dict[str, dict[str, Any]]:
    """By the class of the estimator: the least and the most coverage over kinds of worlds, and how many these were."""
    read: dict[str, dict[str, Any]] = json.loads(
        resources.files("offpolicy.diagnostics").joinpath("coverage.json").read_text()
    )
    return read


def diagnostics(kind: str) -> dict[str, Any]:
    """For the diagnostics of an estimate; nothing where its intervals promise what they can keep."""
    return {"measured_coverage_of_95%_intervals": dict(_read()[kind])} if kind in _read() else {}


def added(finding: Finding, kind: str) -> Finding:
    """The finding, with the measured coverage where it speaks of a bias of that estimator."""
    if finding.code not in SPEAK_OF_BIAS or kind not in _read():
        return finding
    seen = _read()[kind]
    said = (
        f"In {seen['worlds']} kinds of simulated worlds its 95% interval held the truth in {seen['least']:.0%} to "
        f"{seen['most']:.0%} of the runs."
    )
    return replace(finding, why=f"{finding.why} {said}")


@dataclass(frozen=True)
class Details:
    """What the diagnostics say of one estimate."""

    numbers: Mapping[str, Any]
    checks: tuple[Finding, ...]
    """What was found good as well."""


WITHOUT_ERROR = Details({}, (ERRORS_SKIPPED,))
"""Of values alone."""


@dataclass(frozen=True)
class Checks:
    """The diagnostics of an evaluation: what they sum in the scoring pass, in this order."""

    overlap: OverlapSums
    models: ModelSums
    propensities: PropensityTests | None
    own: tuple[Diagnostic, ...] = ()
    """Those of the user."""

    def statistics(self) -> dict[str, BlockStatistic]:
        tests: dict[str, BlockStatistic] = {} if self.propensities is None else {"propensities": self.propensities}
        own = {f"own {k}": each for k, each in enumerate(self.own)}
        return {"overlap": self.overlap, "models": self.models, **tests, **own}

    def examination(self, scores: Scores) -> Examination:
        """Ready to be asked, once the log has been read."""
        state = scores.state["diagnostics"]
        log = scores.log
        return Examination(
            Overlaps(state["overlap"], scores),
            Models(state["models"], scores),
            Propensities(self.propensities, state.get("propensities", {}), log.space, len(log)),
            FitError(scores.scorer.many),
            [Own(each, state[f"own {k}"]) for k, each in enumerate(self.own)],
        )


@dataclass(frozen=True)
class Examination:
    """What the diagnostics say, composed in the order in which findings are shown."""

    overlaps: Overlaps
    models: Models
    propensities: Propensities
    fit_error: FitError
    own: Sequence[Reading]

    @property
    def _of_estimates(self) -> list[Reading]:
        return [
            Definition(self.overlaps), Support(self.overlaps), WeightSpread(self.overlaps), self.propensities,
            Concentration(), self.models, SampleSize(), Setting(), self.fit_error, Agreement(), *self.own,
        ]  # fmt: skip

    @property
    def _of_blends(self) -> list[Reading]:
        return [
            CandidateAgreement(self.overlaps), self.propensities, Support(self.overlaps), Concentration(), SampleSize(),
            Agreement(), *self.own,
        ]  # fmt: skip

    def details(self, subject: Subject) -> Details:
        """The numbers and every finding of an estimate."""
        member = subject.member
        if member is not None and member.weight.naive:
            return Details({}, (NAIVE,))
        readings = self._of_blends if member is None else self._of_estimates
        numbers: dict[str, Any] = {}
        for each in readings:
            numbers |= each.numbers(subject)
        found = (finding for each in readings for finding in each.findings(subject))
        return Details(numbers, tuple(found))
