"""`RecordedScores`: what the confidence sequences of an evaluation are computed from, estimate by estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from offpolicy.diagnostics.base import Subject
from offpolicy.inference.intervals import Range
from offpolicy.inference.scores import Scores
from offpolicy.inference.sequences import ValueScores
from offpolicy.results.job import Job
from offpolicy.scoring.plan import Terms
from offpolicy.scoring.score_histograms import EXTREMES, RewardRange, ScoreKind
from offpolicy.statistics.base import State
from offpolicy.statistics.signed_histogram import Bins


@dataclass(frozen=True)
class RecordedScores:
    """The scores that the scoring pass recorded."""

    job: Job
    scores: Scores
    _finished: dict[ScoreKind, State] = field(default_factory=dict, init=False)

    def of(self, subject: Subject, parts: Sequence[tuple[float, Terms]], bounds: Range | None) -> ValueScores | None:
        """Those of one estimate. Of a log with clusters, they have no sums of their own."""
        log, job = self.scores.log, self.job
        place = (subject.policy, self._position(subject), subject.reward)
        kind = job.score_kinds.get(place)
        if kind is None or log.reward_range is None or log.schema.weighted or log.schema.loggers is not None:
            return None
        ((_, terms),) = parts
        made = ValueScores(
            RewardRange(*log.reward_range),
            float(self.scores.scorer.origin[subject.reward]),
            terms.correction or 0,
            None if terms.baseline is not None else terms.weight,
            terms.baseline,
            subject.member is not None and subject.member.weight.naive,
            1.0 if bounds is None else bounds.largest_weight,
        )
        if job.histograms is None or job.request.sequences is None:
            return made
        own, gain, baseline = self._state(kind), job.gain_kinds.get(place), job.request.sequences.baseline
        name = baseline if baseline in self.scores.policies else None
        return replace(
            made,
            bins=_bins(own),
            beyond=max((float(own[each]) for each in EXTREMES if each in own), default=0.0),
            gains=() if gain is None else ((name, _bins(self._state(gain))),),
        )

    def _state(self, kind: ScoreKind) -> State:
        """The histograms of all rounds; estimates share them."""
        state = self.scores.state["diagnostics"]

        def weights(column: int) -> State:
            own: State = state["overlap"][str(self.job.sorted_weights[column])]["weights"]
            return own

        if kind not in self._finished:
            assert self.job.histograms is not None
            self._finished[kind] = self.job.histograms.finish(state["sequences"], kind, weights)
        return self._finished[kind]

    def _position(self, subject: Subject) -> int:
        """The number of the estimator."""
        columns = self.scores.estimators
        return next(e for e, column in enumerate(columns) if column.get(subject.policy) is subject.estimator)


def _bins(state: State) -> tuple[tuple[str, Bins], ...]:
    """Of every histogram."""
    return tuple((name, Bins.of(part)) for name, part in state.items() if name not in EXTREMES)
