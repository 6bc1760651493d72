"""The diagnostics of an evaluation: what they sum in the scoring pass, and what they report of each estimate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from offpolicy.diagnostics.action_axis import ActionAxis, ActionAxisSums
from offpolicy.diagnostics.bandwidths import Bandwidths
from offpolicy.diagnostics.base import Diagnostic, Own, Reading, Subject
from offpolicy.diagnostics.browsing import Browsing
from offpolicy.diagnostics.depth import Depth, Shown, ShownSums
from offpolicy.diagnostics.estimates import (
    Agreement,
    CandidateAgreement,
    Concentration,
    Definition,
    Plausibility,
    SampleSize,
    Setting,
)
from offpolicy.diagnostics.loggers import LoggerAgreement, LoggerSums
from offpolicy.diagnostics.models import FitError, Learning, Models, ModelSums
from offpolicy.diagnostics.overlap import Overlaps, OverlapSums, Support, WeightSpread
from offpolicy.diagnostics.propensities import Propensities, PropensityTests
from offpolicy.diagnostics.verdict import Finding, Verdict
from offpolicy.inference.scores import Scores
from offpolicy.scoring.scored_block import BlockStatistic

BIASED = ("own bias", "unchecked model")  # codes of findings to which the measured coverage is added


NAIVE = Finding(
    Verdict.CAUTION,
    "naive",
    "This is what the logging policy earned.",
    "It contains no information about the new policy, however narrow its interval.",
    "Compare the other estimates with it.",
)

ERRORS_SKIPPED = Finding(
    Verdict.CAUTION,
    "errors skipped",
    "No standard error was computed, because the evaluation was run with errors=False.",
    "Without standard errors and checks, nothing shows how far off the value may be.",
    "Evaluate again without errors=False.",
)


@cache
def measured_coverage() -> dict[str, dict[str, Any]]:
    """How often the 95% intervals of estimators that are biased by design contained the true value in the coverage study.

    Such an interval covers sampling error but not the bias, so its coverage was measured in worlds whose value is known.
    `coverage.json` is written from the committed results of `offpolicy study coverage` (docs/coverage.md).
    By the class of the estimator: the lowest and the highest coverage over kinds of worlds, and their number.
    """
    read: dict[str, dict[str, Any]] = json.loads(
        resources.files("offpolicy.diagnostics").joinpath("coverage.json").read_text()
    )
    return read


@dataclass(frozen=True)
class Checks:
    """The diagnostics of an evaluation, and what they sum in the scoring pass. `own` are those of the user."""

    overlap: OverlapSums
    models: ModelSums
    propensities: PropensityTests | None
    own: tuple[Diagnostic, ...] = ()
    loggers: LoggerSums | None = None
    shown: ShownSums | None = None
    axis: ActionAxisSums | None = None

    def statistics(self) -> dict[str, BlockStatistic]:
        tests: dict[str, BlockStatistic] = {} if self.propensities is None else {"propensities": self.propensities}
        loggers: dict[str, BlockStatistic] = {} if self.loggers is None else {"loggers": self.loggers}
        own = {f"own {k}": each for k, each in enumerate(self.own)}
        shown: dict[str, BlockStatistic] = {} if self.shown is None else {"shown": self.shown}
        axis: dict[str, BlockStatistic] = {} if self.axis is None else {"action axis": self.axis}
        return {"overlap": self.overlap, "models": self.models, **tests, **loggers, **shown, **axis, **own}

    def examination(self, scores: Scores) -> Examination:
        """The diagnostics with their sums, once the log has been read."""
        state = scores.state["diagnostics"]
        log, overlaps = scores.log, Overlaps(state["overlap"], scores)
        return Examination(
            overlaps,
            Models(state["models"], scores),
            Propensities(self.propensities, state.get("propensities", {}), len(log)),
            [Own(each, state[f"own {k}"]) for k, each in enumerate(self.own)],
            [] if self.loggers is None else [LoggerAgreement(self.loggers, state["loggers"], scores.scorer.origin)],
            [] if self.shown is None else [Depth(overlaps, Shown(state["shown"], scores)), Browsing(scores, overlaps)],
            None if self.axis is None else ActionAxis(self.axis, state["action axis"], scores),
        )


@dataclass(frozen=True)
class Examination:
    """What the diagnostics report, in the order in which findings are shown."""

    overlaps: Overlaps
    models: Models
    propensities: Propensities
    own: Sequence[Reading]
    loggers: Sequence[Reading] = ()
    depth: Sequence[Reading] = ()
    axis: ActionAxis | None = None

    @property
    def _of_numbers(self) -> list[Reading]:
        """Where actions are numbers."""
        return [] if self.axis is None else [self.axis, Bandwidths(self.models.scores, self.axis)]

    @property
    def _of_estimates(self) -> list[Reading]:
        return [
            Definition(self.overlaps), Plausibility(self.models.scores), Support(self.overlaps), WeightSpread(self.overlaps),
            *self.depth, *self._of_numbers, self.propensities, Concentration(), self.models, Learning(), SampleSize(),
            Setting(), FitError(self.models.scores.scorer.many), Agreement(self.overlaps), *self.loggers, *self.own,
        ]  # fmt: skip

    @property
    def _of_blends(self) -> list[Reading]:
        return [
            CandidateAgreement(self.overlaps), Plausibility(self.models.scores), self.propensities, Support(self.overlaps),
            *self.depth, *self._of_numbers, Concentration(), SampleSize(), Agreement(self.overlaps), *self.loggers,
            *self.own,
        ]  # fmt: skip

    def details(self, subject: Subject, errors: bool) -> tuple[dict[str, Any], tuple[Finding, ...]]:
        """The numbers and every finding of an estimate, with the measured coverage of its intervals, if known."""
        numbers, findings = self._read(subject) if errors else ({}, [ERRORS_SKIPPED])
        measured = measured_coverage().get(type(subject.estimator).__name__)
        if measured is None:
            return numbers, tuple(findings)
        coverage = (
            f"In {measured['worlds']} kinds of simulated worlds, its 95% interval contained the true value in "
            f"{measured['least']:.0%} to {measured['most']:.0%} of the runs."
        )
        numbers["measured_coverage_of_95%_intervals"] = dict(measured)
        return numbers, tuple(replace(f, why=f"{f.why} {coverage}") if f.code in BIASED else f for f in findings)

    def _read(self, subject: Subject) -> tuple[dict[str, Any], list[Finding]]:
        member = subject.member
        if member is not None and member.weight.naive:
            return {}, [NAIVE]
        readings = self._of_blends if member is None else self._of_estimates
        numbers: dict[str, Any] = {}
        for each in readings:
            numbers |= each.numbers(subject)
        return numbers, [finding for each in readings for finding in each.findings(subject)]
