"""What a diagnostic is: the sums it needs, the findings it draws from them, and the numbers it shows.

In the package's own diagnostics several readings share the same sums, so the two halves are separate classes.
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
from offpolicy.inference.learning_curve import LearningCurve
from offpolicy.scoring.plan import ModelKey
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added


@dataclass(frozen=True)
class Subject:
    """One estimate, as a diagnostic sees it: one estimator, policy and reward, on the whole log or on a slice.

    Parameters
    ----------
    policy, reward : int
        The numbers of the policy and of the reward, counted from 0.
    estimator : Estimator
        The estimator, with its settings.
    functional : Functional
        The value and its gradient in the means of the scored columns.
    std_error : float
        Its standard error.
    sums : ScoreSums
        The moments and bucket sums that the value comes from.
    member : Member, optional
        The member of the estimator that was used; None for a blend.
    model : ModelKey, optional
        The reward model of that member.
    combination : Combination, optional
        The candidates of a blend and their weights.
    weighable : bool, default True
        Whether rounds can be weighted by π/π0: the actions are discrete and the log has propensities.
    fit_missing : bool, default False
        Whether the value depends on something fitted whose error is not included in the standard error.
    curve : LearningCurve, optional
        How the value of the reward model alone changed from half of the rounds to all; None where that is not computed.
    reference : tuple of str and Functional, optional
        A nearly unbiased estimate of the same value, with its name; None for that estimate itself, or if there is none.
    """

    policy: int
    reward: int
    estimator: Estimator
    functional: Functional
    std_error: float
    sums: ScoreSums
    member: Member | None = None
    model: ModelKey | None = None
    combination: Combination | None = None
    weighable: bool = True
    fit_missing: bool = False
    curve: LearningCurve | None = None
    reference: tuple[str, Functional] | None = None

    @property
    def whole(self) -> bool:
        """Whether it is an estimate on the whole log, not on a slice."""
        return self.sums.slice_ is None


class Reading(ABC):
    """What a diagnostic reports once the log has been read."""

    @abstractmethod
    def findings(self, subject: Subject) -> Sequence[Finding]:
        """The result of each check of an estimate, including those that raise no concern."""

    def numbers(self, subject: Subject) -> dict[str, Any]:  # noqa: ARG002
        """Numbers to show among the diagnostics of an estimate."""
        return {}


class Diagnostic(ABC):
    """A check of the estimates. Pass your own to `op.evaluate(…, diagnostics=[…])`.

    A subclass implements `findings`, and `numbers` if it has numbers to show. A check that needs sums over the rounds also
    overrides `zero` and `fold`. Sums are named arrays, so that they can be sent between machines.

    Attributes
    ----------
    columns : tuple of str
        Columns of the log that `fold` reads with `batch.column(name)`.

    Examples
    --------
    >>> import offpolicy as op
    >>> class Small(op.Diagnostic):
    ...     def findings(self, state, subject):
    ...         verdict = op.Verdict.CAUTION if subject.sums.n < 1_000 else op.Verdict.OK
    ...         return [op.Finding(verdict, "small", f"There are {subject.sums.n} rounds.", "That is few.", "Log more.")]
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> result = op.evaluate(world.sample(200, seed=0), world.target, op.SNIPS(), diagnostics=Small())
    >>> [finding.seen for finding in result["SNIPS"].reasons if finding.code == "small"]
    ['There are 200 rounds.']
    """

    columns: tuple[str, ...] = ()

    def zero(self) -> State:
        """Empty sums.

        Returns
        -------
        dict of str to ndarray
            Named arrays, before any round was added.
        """
        return {}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:  # noqa: ARG002
        """Add the rounds of a batch to the sums.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums so far; may be changed in place.
        batch : Batch
            Some rounds of the log.
        scored : ScoredBlock
            What was computed for the same rounds, in the same order.

        Returns
        -------
        dict of str to ndarray
            The sums including these rounds.
        """
        return state

    def merge(self, a: State, b: State) -> State:
        """Combine the sums of two sets of rounds; by default they are added.

        Parameters
        ----------
        a, b : dict of str to ndarray
            The sums of each set.

        Returns
        -------
        dict of str to ndarray
            The sums of both sets together.
        """
        return added(a, b)

    @abstractmethod
    def findings(self, state: State, subject: Subject) -> Sequence[Finding]:
        """The result of each check of an estimate, including those that raise no concern.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the whole log.
        subject : Subject
            The estimate.

        Returns
        -------
        sequence of Finding
            Findings that are not OK become reasons for the verdict.
        """

    def numbers(self, state: State, subject: Subject) -> dict[str, Any]:  # noqa: ARG002
        """Numbers to show among the diagnostics of an estimate.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the whole log.
        subject : Subject
            The estimate.

        Returns
        -------
        dict
            Plain values by name.
        """
        return {}


@dataclass(frozen=True)
class Own(Reading):
    """What a user's own diagnostic reports."""

    diagnostic: Diagnostic
    state: State

    def findings(self, subject: Subject) -> Sequence[Finding]:
        return self.diagnostic.findings(self.state, subject)

    def numbers(self, subject: Subject) -> dict[str, Any]:
        return self.diagnostic.numbers(self.state, subject)
