"""What a diagnostic is: the sums it needs, the findings it draws from them, and the numbers it shows.

Those of the package sum what several readings share, so that for them the two halves are classes of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.data.batch import Batch
from offpolicy.diagnostics.verdict import Finding
from offpolicy.estimators import Estimator, Member
from offpolicy.inference.blending import Combination
from offpolicy.inference.functionals import Functional, ScoreSums
from offpolicy.scoring.plan import ModelKey
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added


@dataclass(frozen=True)
class Subject:
    """One estimate, as diagnostics see it: of one estimator, policy and reward, on the whole log or on a slice."""

    policy: int
    reward: int
    estimator: Estimator
    functional: Functional
    std_error: float
    sums: ScoreSums
    member: Member | None = None
    """The member of the estimator that counts; None for a blend."""
    model: ModelKey | None = None
    """Its reward model."""
    combination: Combination | None = None
    """What a blend makes of its candidates."""
    weighable: bool = True
    """Whether rounds can be weighted by π/π0: the actions are discrete, and the log has propensities."""
    fit_missing: bool = False
    """Whether the value moves with what was fitted, and the error does not count that."""
    reference: tuple[str, Functional] | None = None
    """A nearly unbiased estimate of the same value, by name; None for that estimate itself, or where there is none."""

    @property
    def whole(self) -> bool:
        """Whether it is of the whole log."""
        return self.sums.slice_ is None


class Reading(ABC):
    """What a diagnostic says once the log has been read."""

    @abstractmethod
    def findings(self, subject: Subject) -> Sequence[Finding]:
        """What was checked of an estimate, what was found good as well."""

    def numbers(self, subject: Subject) -> dict[str, Any]:  # noqa: ARG002
        """What stands among the diagnostics of an estimate."""
        return {}


class Diagnostic(ABC):
    """One check of the estimates. Give one of your own to `op.evaluate(…, diagnostics=[…])`.

    It gives `findings`, and `numbers` where some are to be shown beside them. A check that needs sums over the rounds also
    overrides `zero` and `fold`; the sums are plain arrays by name, so that they can travel between machines.
    """

    columns: tuple[str, ...] = ()
    """Columns of the log that it reads by name, with `batch.column(name)`."""

    def zero(self) -> State:
        """Empty sums."""
        return {}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:  # noqa: ARG002
        """Add the rounds of a batch."""
        return state

    def merge(self, a: State, b: State) -> State:
        """The sums of two sets of rounds."""
        return added(a, b)

    @abstractmethod
    def findings(self, state: State, subject: Subject) -> Sequence[Finding]:
        """What was checked of an estimate, what was found good as well; `state` holds the sums."""

    def numbers(self, state: State, subject: Subject) -> dict[str, Any]:  # noqa: ARG002
        """What stands among the diagnostics of an estimate."""
        return {}


@dataclass(frozen=True)
class Own(Reading):
    """What a diagnostic of the user's own says."""

    diagnostic: Diagnostic
    state: State

    def findings(self, subject: Subject) -> Sequence[Finding]:
        return self.diagnostic.findings(self.state, subject)

    def numbers(self, subject: Subject) -> dict[str, Any]:
        return self.diagnostic.numbers(self.state, subject)
