"""The base of estimators that combine others: one estimate from several candidates, all scored in the same pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features
from offpolicy.data.spaces import ActionSpace
from offpolicy.estimators.base import Estimator, Member, Run
from offpolicy.estimators.ips import IPS, SNIPS, LoggedMean
from offpolicy.estimators.selection import CandidateEstimates, Choice


@dataclass(frozen=True)
class Combined(Estimator):
    """The base of estimators that combine candidates. `rule` describes in words how they are weighted.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, from the least biased to the smoothest; a standard family by default. At least one must be nearly
        unbiased (IPS, SNIPS, DR, SNDR, …), since the others are compared with it. A candidate that needs something the log
        or the policy does not have is left out, as is one that gives no number; the result names them.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    name : str, optional
        The name in results; the name of the class by default.
    """

    rule: ClassVar[str] = ""
    remedy: ClassVar[str] = "Add one with the exact weights of actions: op.SNIPS(), op.IPS(), op.DR() or op.SNDR()."
    """What to do if no candidate is nearly unbiased."""
    embeds: ClassVar[bool] = False
    """Whether its candidates share an embedding, which is then its own."""
    compares: ClassVar[bool] = True
    """Whether candidates are compared with a nearly unbiased one, without which there is no estimate."""
    candidates: Sequence[Estimator] | None = None
    left_out: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in self.left_out):
            raise InputError(f"{self.name}: left_out is filled in by an evaluation; shorten the list of candidates instead.")
        if self.candidates is None:
            return
        candidates = self.candidates
        empty = not candidates and not self.left_out
        if isinstance(candidates, (Estimator, str, type)) or not isinstance(candidates, Sequence) or empty:
            raise InputError(
                f"{self.name}: candidates is {candidates!r}; give a list of estimators, such as [op.SNIPS(), op.DM()]."
            )
        for each in candidates:
            if not isinstance(each, Estimator) or isinstance(each, (Combined, LoggedMean)):
                raise InputError(f"{self.name}: {each!r} cannot be a candidate; give objects such as op.SNIPS() or op.DM().")
        names = [each.name for each in candidates]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{self.name}: two candidates are called {twice!r}; give one of them another `name=`.")
        object.__setattr__(self, "candidates", tuple(candidates))

    @property
    def mixes(self) -> bool:
        return True

    @property
    def parts(self) -> tuple[Estimator, ...]:
        return self.standard(None) if self.candidates is None else tuple(self.candidates)

    def over(self, space: ActionSpace) -> Combined:
        if self.candidates is None:
            return self
        return replace(self, candidates=tuple(each for given in self.candidates for each in _single(given.over(space))))

    def settled(self, features: Features, run: Run) -> Combined:
        settled: list[Estimator] = []
        out = [*self.left_out, *self._unused(features)]
        for each in self._filled(features):
            try:
                settled += _single(each.settled(features, run))
            except InputError as error:
                out.append((each.name, str(error).removeprefix(f"{each.name}: ")))
        return replace(self, candidates=tuple(settled), left_out=tuple(out)).checked()

    def _unused(self, features: Features) -> list[tuple[str, str]]:
        return self.unused(features) if self.candidates is None else []

    def _filled(self, features: Features) -> tuple[Estimator, ...]:
        return self.standard(features) if self.candidates is None else self.parts

    def standard(self, features: Features | None) -> tuple[Estimator, ...]:  # noqa: ARG002
        """Return the candidates where none are given, from the least biased to the smoothest.

        Parameters
        ----------
        features : Features, optional
            The action features of the log.

        Returns
        -------
        tuple of Estimator
            The standard family.
        """
        return ()

    def unused(self, features: Features) -> list[tuple[str, str]]:  # noqa: ARG002
        """Return what the standard family leaves out although the log has it, each with the reason.

        Parameters
        ----------
        features : Features
            The action features of the log.

        Returns
        -------
        list of tuple of str
            Names and reasons.
        """
        return []

    def without(self, reason: Callable[[Estimator], str | None], features: Features) -> Combined:
        """Return a copy without the candidates for which there is a reason to leave them out.

        Parameters
        ----------
        reason : callable
            From a candidate to the reason in words, or None.
        features : Features
            The action features of the log.

        Returns
        -------
        Combined
            A copy; itself if no candidate is left out.
        """
        why = {each.name: reason(each) for each in self._filled(features)}
        retained = [each for each in self._filled(features) if why[each.name] is None]
        if not retained and self.candidates is None:  # weights alone, where nothing can be modelled
            retained = [each for each in (SNIPS(), IPS()) if reason(each) is None]
        out = tuple((name, text.rstrip(".")) for name, text in why.items() if text is not None)
        if not out:
            return self
        return replace(self, candidates=tuple(retained), left_out=(*self.left_out, *self._unused(features), *out))

    @property
    def anchored(self) -> bool:
        """Whether a candidate is nearly unbiased."""
        return any(is_exact(each) for each in self.parts)

    def checked(self) -> Combined:
        """Raise if no candidate is nearly unbiased, so that nothing shows how biased the others are."""
        if not self.anchored:
            reasons = "".join(f" ({name} was left out: {why})" for name, why in self.left_out)
            raise InputError(
                f"{self.name}: none of the candidates ({', '.join(each.name for each in self.parts)}) is nearly unbiased, "
                f"so nothing shows how biased they are: all may be wrong in the same way.{reasons} {self.remedy}"
            )
        return self

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(member for each in self.parts for member in each.members(cross_fit))

    @abstractmethod
    def choose(self, candidates: CandidateEstimates) -> Choice:
        """Return the weight of each candidate.

        Parameters
        ----------
        candidates : CandidateEstimates
            The estimates, and the covariance of their errors.

        Returns
        -------
        Choice
            The weights, and the biases as the rule estimated them.
        """


def _single(estimator: Estimator) -> list[Estimator]:
    """A candidate; of one that turned out to be a blend itself, its candidates without exact weights."""
    if not isinstance(estimator, Combined):
        return [estimator]
    parts = [each for each in estimator.parts if not is_exact(each)]
    apart = [each.name.startswith(f"{estimator.name} (") for each in parts]  # already named after it
    return [
        each if own else replace(each, name=f"{estimator.name} ({each.name})")
        for each, own in zip(parts, apart, strict=True)
    ]


def smooths(estimator: Estimator) -> bool:
    """Whether it weights rounds by a kernel."""
    return all(member.weight.ratio.smooths for member in estimator.members())


def is_exact(estimator: Estimator) -> bool:
    """Whether it is nearly unbiased: all its members have the exact weights of actions."""
    return all(member.weight.exact for member in estimator.members())
