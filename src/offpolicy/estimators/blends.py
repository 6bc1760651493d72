"""Estimators that combine others: one estimate from several candidates, all scored in the same pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features
from offpolicy.estimators.base import Estimator, Member, Run, register
from offpolicy.estimators.dr import DM, SNDR, DRos, ScaledDR
from offpolicy.estimators.embedded import LearnedMDR
from offpolicy.estimators.ips import IPS, SNIPS, LoggedMean
from offpolicy.estimators.selection import CandidateEstimates, Choice, blend, chain, cross_validated, widest
from offpolicy.models.posteriors.gaussian import Gaussian
from offpolicy.models.rewards.ridge.model import Ridge

MOST_FEATURES = 20


@dataclass(frozen=True)
class CandidateFamily:
    """The settings of the standard candidates.

    `penalty`, in rounds, is that of the reward model that the candidates share; the direct method also has others.
    """

    penalty: float = 0.3
    clips: Sequence[float] = (30.0, 3.0)
    width: float = 0.56
    shrinkage: float = 10.0
    penalties: Sequence[float] = (1.0, 10.0)

    def candidates(self, features: Features | None = None) -> tuple[Estimator, ...]:
        """From nearly unbiased to smooth: exact weights, bounded ones, those of embeddings, models of growing penalty.

        Features help where they are a function of the action. Where they vary within an action, the error of the fit is
        unknown; where they have many columns, the fit costs much more than all other candidates together.
        """
        light = Ridge(self.penalty)
        known = features is not None and 0 < features.size <= MOST_FEATURES and not features.varies
        with_features = [SNDR(inputs="both", name="SNDR with features")] if known else []
        model_with_features = [DM(light, inputs="both", name="DM with features")] if known else []
        return (
            SNDR(),
            *with_features,
            *(ScaledDR(light, clip=clip, name=f"ScaledDR (clip {clip:g})") for clip in self.clips),
            LearnedMDR("identity", light, Gaussian(self.width)),
            DM(Ridge(self.penalty / 10), name=f"DM (penalty {self.penalty / 10:g})"),
            DRos(light, shrinkage=self.shrinkage),
            DM(light, name=f"DM (penalty {self.penalty:g})"),
            *model_with_features,
            *(DM(Ridge(more), name=f"DM (penalty {more:g})") for more in self.penalties),
        )


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
    def parts(self) -> tuple[Estimator, ...]:
        return CandidateFamily().candidates() if self.candidates is None else tuple(self.candidates)

    def settled(self, features: Features, run: Run) -> Combined:
        settled, out = [], [*self.left_out, *self._unused(features)]
        for each in self._filled(features):
            try:
                settled.append(each.settled(features, run))
            except InputError as error:
                out.append((each.name, str(error).removeprefix(f"{each.name}: ")))
        return replace(self, candidates=tuple(settled), left_out=tuple(out)).checked()

    def _filled(self, features: Features) -> tuple[Estimator, ...]:
        return CandidateFamily().candidates(features) if self.candidates is None else self.parts

    def _unused(self, features: Features) -> list[tuple[str, str]]:
        """Why the default family does not use the features that the log has."""
        if self.candidates is not None or not features.size or (features.size <= MOST_FEATURES and not features.varies):
            return []
        why = (
            "for features that vary within actions, the error of the fit is unknown"
            if features.varies
            else f"{features.size} columns of features are slow to fit"
        )
        return [("candidates with features", f"{why}; name one in your own list of candidates to include it")]

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
        return any(_is_exact(each) for each in self.parts)

    def checked(self) -> Combined:
        """Raise if no candidate is nearly unbiased, so that nothing shows how biased the others are."""
        if not self.anchored:
            reasons = "".join(f" ({name} was left out: {why})" for name, why in self.left_out)
            raise InputError(
                f"{self.name}: none of the candidates ({', '.join(each.name for each in self.parts)}) is nearly unbiased, "
                f"so nothing shows how biased they are: all may be wrong in the same way.{reasons} Add one with the exact "
                "weights of actions: op.SNIPS(), op.IPS(), op.DR() or op.SNDR()."
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


def _is_exact(estimator: Estimator) -> bool:
    """Whether it is nearly unbiased: all its members have the exact weights of actions."""
    return all(member.weight.exact for member in estimator.members())


@dataclass(frozen=True)
class _Reaching(Combined):
    """A combination that compares differences between candidates with their standard errors."""

    reach: float = 1.5

    def _check(self) -> None:
        reach = self.reach
        if not isinstance(reach, (int, float, np.number)) or isinstance(reach, bool) or not 0 <= reach < float("inf"):
            raise InputError(f"{self.name}: reach is {reach!r}; give a number of standard errors, 0 or more.")


@register
@dataclass(frozen=True)
class Auto(_Reaching):
    """The default estimator: a blend of a nearly unbiased candidate with smoother ones.

    Starting from the nearly unbiased candidate, the blend moves towards each of the others in turn, as far as that lowers
    its estimated mean squared error.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, from the least biased to the smoothest; a standard family by default. At least one must be nearly
        unbiased (IPS, SNIPS, DR, SNDR, …), since the others are compared with it. A candidate that needs something the log
        or the policy does not have is left out, as is one that gives no number; the result names them.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    reach : float, default=1.5
        A difference between candidates counts as bias as far as it exceeds this number of standard errors. A smaller value
        gives models less weight.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.Auto())["Auto"].value, 3)
    0.463
    """

    rule: ClassVar[str] = (
        "Starting from the nearly unbiased candidate, the blend moves towards each of the others in turn, as far as that"
        " lowers its estimated mean squared error. Bias is the part of the difference from the current blend that sampling"
        " error does not explain."
    )

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return chain(candidates, self.reach)


@register
@dataclass(frozen=True)
class Blend(_Reaching):
    """The convex combination of the candidates with the least estimated mean squared error, after MAGIC.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, from the least biased to the smoothest; a standard family by default. At least one must be nearly
        unbiased (IPS, SNIPS, DR, SNDR, …), since the others are compared with it. A candidate that needs something the log
        or the policy does not have is left out, as is one that gives no number; the result names them.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    reach : float, default=1.0
        A difference to the nearly unbiased candidate counts as bias as far as it exceeds this number of standard errors.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Thomas and Brunskill (2016). Data-efficient off-policy policy evaluation for reinforcement learning. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.Blend())["Blend"].value, 3)
    0.463
    """

    rule: ClassVar[str] = (
        "The weights minimise the estimated mean squared error. Bias is the part of the difference from the nearly unbiased "
        "candidate that sampling error does not explain."
    )
    reach: float = 1.0

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return blend(candidates, self.reach)


@register
@dataclass(frozen=True)
class SLOPE(_Reaching):
    """SLOPE: the last candidate of the list that agrees with all before it, judged by paired differences.

    The list is ordered from the least biased candidate to the most, and the first must be nearly unbiased.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, from the least biased to the smoothest; a standard family by default. At least one must be nearly
        unbiased (IPS, SNIPS, DR, SNDR, …), since the others are compared with it. A candidate that needs something the log
        or the policy does not have is left out, as is one that gives no number; the result names them.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    reach : float, default=2.0
        Two candidates agree if they differ by at most this number of standard errors of the difference.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Su, Srinath and Krishnamurthy (2020). Adaptive estimator selection for off-policy evaluation. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.SLOPE([op.SNIPS(), op.DM()]))["SLOPE"].value, 3)
    0.471
    """

    rule: ClassVar[str] = "It is the last candidate of the list that agrees with all before it."
    reach: float = 2.0

    def checked(self) -> Combined:
        if self.parts and not _is_exact(self.parts[0]):
            raise InputError(
                f"{self.name}: the first candidate, {self.parts[0].name}, is not nearly unbiased, and all others would be "
                "compared with it. Begin with one that has the exact weights of actions, such as op.SNIPS() or op.SNDR()."
            )
        return super().checked()

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return widest(candidates, self.reach)


@register
@dataclass(frozen=True)
class OCV(Combined):
    """Cross-validation: the candidate closest to a nearly unbiased one on held-out rounds.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, from the least biased to the smoothest; a standard family by default. At least one must be nearly
        unbiased (IPS, SNIPS, DR, SNDR, …), since the others are compared with it. A candidate that needs something the log
        or the policy does not have is left out, as is one that gives no number; the result names them.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    one_error : bool, default=True
        Choose the most precise candidate whose loss is within one standard error of the least.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Cief, Kveton and Kompan (2025). Cross-validated off-policy evaluation. AAAI.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.OCV())["OCV"].value, 3)
    0.463
    """

    rule: ClassVar[str] = "It is the candidate closest to the nearly unbiased one on held-out rounds."
    one_error: bool = True

    def _check(self) -> None:
        if not isinstance(self.one_error, (bool, np.bool_)):
            raise InputError(f"{self.name}: one_error is {self.one_error!r}; give True or False.")

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return cross_validated(candidates, self.one_error)
