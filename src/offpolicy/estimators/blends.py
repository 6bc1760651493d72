"""Estimators that combine others: one estimate from several candidates, all scored in the same pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features
from offpolicy.estimators.base import Estimator, register
from offpolicy.estimators.bias_prior import BiasPrior
from offpolicy.estimators.candidates import CandidateFamily
from offpolicy.estimators.combined import Combined, is_exact, smooths
from offpolicy.estimators.dr import DM
from offpolicy.estimators.kernels import KernelDR, KernelSNIPS, WidthBlend
from offpolicy.estimators.list_candidates import ListFamily
from offpolicy.estimators.reading_prior import ReadingPrior
from offpolicy.estimators.selection import CandidateEstimates, Choice, blend, cross_validated, stacked, widest

FAMILY = CandidateFamily()
LISTS = ListFamily()


@dataclass(frozen=True)
class _Standard(Combined):
    """A combination with the standard candidates."""

    def standard(self, features: Features | None) -> tuple[Estimator, ...]:
        if features is not None and features.slots is not None:
            return LISTS.all()
        return (*FAMILY.unbiased(features), *FAMILY.smoother(features))

    def unused(self, features: Features) -> list[tuple[str, str]]:
        return FAMILY.unused(features)


KERNELS = (KernelSNIPS(), KernelDR(), DM())
"""The candidates for policies with one action per round, where actions are numbers."""


@register
@dataclass(frozen=True)
class Auto(_Standard):
    """The default estimator: a blend of nearly unbiased candidates with smoother ones.

    It starts from a mix of nearly unbiased candidates, as `StackedDR` is one. How far it moves towards smoother candidates
    follows from their differences, with known errors, and from a prior of their bias, whose unit is the gap between the
    value and the mean of the log. On lists, the prior is about which slots matter to each other.

    Where actions are numbers and the policy takes one per round, no candidate is nearly unbiased. It is then the mix of
    kernel estimators of several widths, with and without a reward model, and of that model alone, by the rule of
    `bandwidth="slope"`.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, from the least biased to the smoothest; a standard family by default. At least one must be nearly
        unbiased (IPS, SNIPS, DR, SNDR, …), since the others are compared with it. A candidate that needs something the log
        or the policy does not have is left out, as is one that gives no number; the result names them.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    prior : BiasPrior, default=BiasPrior()
        What is assumed about the bias of smoother candidates.
    reading : ReadingPrior, default=ReadingPrior()
        What is assumed of lists, in place of `prior`: how people read them.
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
        "The nearly unbiased candidates are first mixed for the least variance. The blend then moves towards smoother"
        " candidates as far as two things allow: their differences from that mix, and the assumption that a model is biased"
        " towards the mean of the log by some share of the gap between the two."
    )
    remedy: ClassVar[str] = (
        f"{Combined.remedy[:-1]}; or, for a policy that takes one number per round, one with a kernel: op.KernelDR() or "
        "op.KernelSNIPS()."
    )
    prior: BiasPrior = field(default_factory=BiasPrior)
    reading: ReadingPrior = field(default_factory=ReadingPrior)

    def _check(self) -> None:
        if not isinstance(self.prior, BiasPrior):
            raise InputError(f"{self.name}: prior is {self.prior!r}; give an op.BiasPrior().")
        if not isinstance(self.reading, ReadingPrior):
            raise InputError(f"{self.name}: reading is {self.reading!r}; give an op.ReadingPrior().")

    def without(self, reason: Callable[[Estimator], str | None], features: Features) -> Combined:
        fewer = super().without(reason, features)
        if fewer.anchored or self.candidates is not None:
            return fewer
        kernels = [each for each in KERNELS if reason(each) is None]
        return replace(self, candidates=kernels) if any(map(smooths, kernels)) else fewer

    @property
    def anchored(self) -> bool:
        """Whether a candidate is nearly unbiased, or has a kernel, whose bias follows from its width."""
        return super().anchored or any(map(smooths, self.parts))

    def checked(self) -> Combined:
        if super().anchored or not self.anchored:
            return super().checked()
        return WidthBlend(self.candidates, self.left_out, name=self.name)

    def choose(self, candidates: CandidateEstimates) -> Choice:
        prior = self.reading if candidates.missed.size else self.prior
        return prior.choose(candidates)


@register
@dataclass(frozen=True)
class StackedDR(Combined):
    """The mix of nearly unbiased candidates with the least variance: IPS, SNIPS, DR, and SNDR with several reward models.

    The weights are 0 or more, sum to 1, and follow from the covariance of the candidates' errors; where effective rounds are
    few, SNIPS is preferred. The standard error allows for the fit of the weights to the same rounds.

    Parameters
    ----------
    candidates : sequence of Estimator, optional
        The candidates, all of them nearly unbiased (IPS, SNIPS, DR, SNDR, …); by default IPS, SNIPS, DR, and SNDR with ridge
        models of several penalties. A candidate may have any reward model, such as a scikit-learn regressor.
    left_out : tuple of (str, str), default=()
        Candidates that cannot be computed here, each with the reason; filled in by an evaluation.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.StackedDR())["StackedDR"].value, 3)
    0.463
    """

    rule: ClassVar[str] = "All candidates are nearly unbiased, and the weights minimise the variance of the mix."

    def standard(self, features: Features | None) -> tuple[Estimator, ...]:
        return FAMILY.stack(features)

    def unused(self, features: Features) -> list[tuple[str, str]]:
        return FAMILY.unused(features)

    def checked(self) -> Combined:
        biased = next((each for each in self.parts if not is_exact(each)), None)
        if biased is not None:
            raise InputError(
                f"{self.name}: {biased.name} is not nearly unbiased, and a mix for the least variance would hide its bias. "
                "Use op.Auto([…]) for such candidates, which weighs bias against variance."
            )
        return super().checked()

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return stacked(candidates, candidates.doubts)


@dataclass(frozen=True)
class _Reaching(_Standard):
    """A combination that compares differences between candidates with their standard errors."""

    reach: float = 2.0

    def _check(self) -> None:
        reach = self.reach
        if not isinstance(reach, (int, float, np.number)) or isinstance(reach, bool) or not 0 <= reach < float("inf"):
            raise InputError(f"{self.name}: reach is {reach!r}; give a number of standard errors, 0 or more.")


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
    0.463
    """

    rule: ClassVar[str] = "It is the last candidate of the list that agrees with all before it."
    reach: float = 2.0

    def checked(self) -> Combined:
        if self.parts and not is_exact(self.parts[0]):
            raise InputError(
                f"{self.name}: the first candidate, {self.parts[0].name}, is not nearly unbiased, and all others would be "
                "compared with it. Begin with one that has the exact weights of actions, such as op.SNIPS() or op.SNDR()."
            )
        return super().checked()

    def choose(self, candidates: CandidateEstimates) -> Choice:
        return widest(candidates, self.reach)


@register
@dataclass(frozen=True)
class OCV(_Standard):
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
