"""Estimators made of others: one answer from several candidates, which are all scored in the same pass."""

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
    """The settings of the standard candidates."""

    penalty: float = 0.3
    """In rounds, of the reward model that the candidates share; the direct method has others as well."""
    clips: Sequence[float] = (30.0, 3.0)
    width: float = 0.56
    shrinkage: float = 10.0
    penalties: Sequence[float] = (1.0, 10.0)

    def candidates(self, features: Features | None = None) -> tuple[Estimator, ...]:
        """From nearly unbiased to smooth: exact weights, bounded ones, those of embeddings, models of growing penalty.

        Features help where they are a function of the action; where they vary within one, the error of the fit is not
        known, and where they are wide its cost is much larger than that of all the rest.
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
    """One answer from several candidates; without a list, from a standard family of them. They stand from the least biased
    to the smoothest.

    A candidate that needs what the log or the policy does not have is left out, and so is one that gives no number; the
    result says which. At least one must be nearly unbiased (IPS, SNIPS, DR, SNDR, …): the others are held against it.
    """

    rule: ClassVar[str] = ""
    """How it weighs, in a sentence."""
    candidates: Sequence[Estimator] | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    """Candidates that cannot be computed here, each with the reason; filled in by an evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in self.left_out):
            raise InputError(f"{self.name}: left_out is filled in by an evaluation; shorten the list of candidates instead.")
        if self.candidates is None:
            return
        given = self.candidates
        empty = not given and not self.left_out
        if isinstance(given, (Estimator, str, type)) or not isinstance(given, Sequence) or empty:
            raise InputError(
                f"{self.name}: candidates is {given!r}; give a list of estimators, such as [op.SNIPS(), op.DM()]."
            )
        for each in given:
            if not isinstance(each, Estimator) or isinstance(each, (Combined, LoggedMean)):
                raise InputError(f"{self.name}: {each!r} cannot be a candidate; give objects such as op.SNIPS() or op.DM().")
        names = [each.name for each in given]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{self.name}: two candidates are called {twice!r}; give one of them another `name=`.")
        object.__setattr__(self, "candidates", tuple(given))

    @property
    def parts(self) -> tuple[Estimator, ...]:
        return CandidateFamily().candidates() if self.candidates is None else tuple(self.candidates)

    def settled(self, features: Features, run: Run) -> Combined:
        kept, out = [], [*self.left_out, *self._unused(features)]
        for each in self._filled(features):
            try:
                kept.append(each.settled(features, run))
            except InputError as error:
                out.append((each.name, str(error).removeprefix(f"{each.name}: ")))
        return replace(self, candidates=tuple(kept), left_out=tuple(out)).checked()

    def _filled(self, features: Features) -> tuple[Estimator, ...]:
        return CandidateFamily().candidates(features) if self.candidates is None else self.parts

    def _unused(self, features: Features) -> list[tuple[str, str]]:
        """Why features that there are have no part in the default family."""
        if self.candidates is not None or not features.size or (features.size <= MOST_FEATURES and not features.varies):
            return []
        why = (
            "features that vary within actions leave the error of the fit unknown"
            if features.varies
            else f"{features.size} columns of features take long"
        )
        return [("candidates with features", f"{why}; name one in a list of your own to see it")]

    def without(self, reason: Callable[[Estimator], str | None], features: Features) -> Combined:
        """The same without the candidates for which there is a reason to leave them out."""
        why = {each.name: reason(each) for each in self._filled(features)}
        kept = [each for each in self._filled(features) if why[each.name] is None]
        if not kept and self.candidates is None:  # weights alone, where nothing can be modelled
            kept = [each for each in (SNIPS(), IPS()) if reason(each) is None]
        out = tuple((name, text.rstrip(".")) for name, text in why.items() if text is not None)
        if not out:
            return self
        return replace(self, candidates=tuple(kept), left_out=(*self.left_out, *self._unused(features), *out))

    @property
    def anchored(self) -> bool:
        """Whether a candidate is nearly unbiased."""
        return any(_is_exact(each) for each in self.parts)

    def checked(self) -> Combined:
        """Raise where nothing shows how biased the candidates are."""
        if not self.anchored:
            lost = "".join(f" ({name} was left out: {why})" for name, why in self.left_out)
            raise InputError(
                f"{self.name}: none of the candidates ({', '.join(each.name for each in self.parts)}) is nearly unbiased, "
                f"so nothing shows how far off they are: all may be wrong in the same way.{lost} Add one that weighs by the "
                "exact ratio of actions: op.SNIPS(), op.IPS(), op.DR() or op.SNDR()."
            )
        return self

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(member for each in self.parts for member in each.members(cross_fit))

    @abstractmethod
    def choose(self, candidates: CandidateEstimates) -> Choice:
        """The weight of each candidate."""


def _is_exact(estimator: Estimator) -> bool:
    """Whether it is nearly unbiased: it weighs by the exact ratio of actions, whatever is picked."""
    return all(member.weight.exact for member in estimator.members())


@dataclass(frozen=True)
class _Reaching(Combined):
    """What holds differences against their standard errors."""

    reach: float = 1.5

    def _check(self) -> None:
        reach = self.reach
        if not isinstance(reach, (int, float, np.number)) or isinstance(reach, bool) or not 0 <= reach < float("inf"):
            raise InputError(f"{self.name}: reach is {reach!r}; give a number of standard errors, 0 or more.")


@register
@dataclass(frozen=True)
class Auto(_Reaching):
    """A chain from a nearly unbiased candidate along ever smoother ones, as far as their differences allow.

    `reach`: a difference counts as bias as far as it goes beyond so many standard errors. Smaller trusts models less.
    """

    rule: ClassVar[str] = (
        "From the nearly unbiased candidate the blend goes along the others, each as far as its precision is worth its bias."
        " Bias is what chance does not explain of the difference to the blend so far."
    )

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return chain(candidates, self.reach)


@register
@dataclass(frozen=True)
class Blend(_Reaching):
    """The convex combination of least estimated mean squared error (after MAGIC, Thomas & Brunskill 2016)."""

    rule: ClassVar[str] = (
        "The weights give the least estimated mean squared error. Bias is what chance does not explain of the difference to "
        "the nearly unbiased candidate."
    )
    reach: float = 1.0

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return blend(candidates, self.reach)


@register
@dataclass(frozen=True)
class SLOPE(_Reaching):
    """The last candidate, in the order given, that agrees with all before it (Su et al. 2020), judged by paired differences.

    The list stands from the least biased candidate to the most, and the first must be nearly unbiased.
    """

    rule: ClassVar[str] = "It is the last candidate, in the order of the list, that agrees with all before it."
    reach: float = 2.0

    def checked(self) -> Combined:
        if self.parts and not _is_exact(self.parts[0]):
            raise InputError(
                f"{self.name}: the first candidate, {self.parts[0].name}, is not nearly unbiased, and all others would be "
                "held against it. Begin with one that weighs by the exact ratio of actions, such as op.SNIPS() or op.SNDR()."
            )
        return super().checked()

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return widest(candidates, self.reach)


@register
@dataclass(frozen=True)
class OCV(Combined):
    """The candidate nearest to a nearly unbiased one on rounds it has not seen (after Cief, Kveton & Kompan 2025)."""

    rule: ClassVar[str] = "It is the candidate that comes nearest to the nearly unbiased one on rounds it has not seen."
    one_error: bool = True
    """Take the most precise candidate whose loss is within a standard error of the least."""

    def _check(self) -> None:
        if not isinstance(self.one_error, (bool, np.bool_)):
            raise InputError(f"{self.name}: one_error is {self.one_error!r}; give True or False.")

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return cross_validated(candidates, self.one_error)
