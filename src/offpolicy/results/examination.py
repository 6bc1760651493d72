"""The diagnostics of an evaluation: what they sum in the scoring pass, and what they say of each estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.diagnostics.agreement import Agreement, CandidateAgreement
from offpolicy.diagnostics.base import Diagnostic, Own, Reading, Subject
from offpolicy.diagnostics.concentration import Concentration
from offpolicy.diagnostics.definition import Definition, Setting
from offpolicy.diagnostics.models import FitError, Models, ModelSums
from offpolicy.diagnostics.overlap import Overlaps, OverlapSums, Support, WeightSpread
from offpolicy.diagnostics.propensities import Propensities
from offpolicy.diagnostics.propensity_tests import PropensityTests
from offpolicy.diagnostics.sample_size import SampleSize
from offpolicy.diagnostics.verdict import ERRORS_SKIPPED, NAIVE, Finding
from offpolicy.inference.scores import Scores
from offpolicy.scoring.scored_block import BlockStatistic


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
