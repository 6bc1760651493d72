"""Estimators that smooth over actions that are numbers, for policies that take one number, or one vector, per round."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from offpolicy.core.arrays import LARGEST_NUMBER
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import is_number
from offpolicy.data.features import Features
from offpolicy.estimators.base import CrossFitted, Estimator, Member, Run, register
from offpolicy.estimators.combined import Combined
from offpolicy.estimators.selection import CandidateEstimates, Choice
from offpolicy.estimators.widths import WIDTHS, KernelEstimates
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.kernels import KERNELS, Bandwidth, Boundary, KernelRatio, bandwidth_of
from offpolicy.ratios.smoothed import SmoothedRatio
from offpolicy.ratios.weights import Weight

Width = float | Sequence[float] | Literal["slope"] | Bandwidth


@dataclass(frozen=True)
class WidthBlend(Combined):
    """The mix of kernel estimators of several widths, with or without a reward model, and of the model alone.

    `bandwidth="slope"` becomes it, and so does `Auto` where the target has one action per round. The rule is in widths.py.
    """

    rule: ClassVar[str] = (
        "The candidates have kernels of several widths. Wider kernels have less variance and more bias, which shows in the "
        "paired differences of the candidates. The mix has the least expected error given these, and its standard error "
        "includes the bias that may remain. A negative weight subtracts a bias that two candidates share."
    )

    compares: ClassVar[bool] = False

    @property
    def anchored(self) -> bool:
        return True

    def checked(self) -> Combined:
        return self

    def choose(self, candidates: CandidateEstimates) -> Choice:
        mix = KernelEstimates(
            candidates.values, candidates.covariance, candidates.widths, candidates.effective, candidates.spread,
            candidates.modelled,
        ).mixed()  # fmt: skip
        details = {"bias_share": mix.share, "bias_power": mix.power}
        return Choice(mix.weights, mix.biases, anchor=mix.weights, variance=mix.variance, details=details)


@dataclass(frozen=True)
class _Smoothing(Estimator):
    """The base of estimators with a kernel of one width, or of several that are mixed."""

    bandwidth: Any = "slope"
    kernel: Literal["epanechnikov", "gaussian"] = "epanechnikov"

    def _check(self) -> None:
        if self.kernel not in KERNELS:
            raise unknown_name("kernel", str(self.kernel), KERNELS)
        width = self.bandwidth
        if isinstance(width, Bandwidth) or (isinstance(width, str) and width == "slope"):
            return
        if isinstance(width, str) and (share := re.fullmatch(r"range/(\d+\.?\d*)", width)) and float(share[1]) >= 1:
            object.__setattr__(self, "bandwidth", bandwidth_of(1 / float(share[1]), share=True))
            return
        several = list(width) if isinstance(width, (Sequence, np.ndarray)) and not isinstance(width, str) else [width]
        if not several or not all(is_number(h) and 1 / LARGEST_NUMBER <= h <= LARGEST_NUMBER for h in several):
            raise InputError(
                f"{self.name}: bandwidth is {width!r}; give a positive number, in the unit of the actions, or one per "
                'dimension, a share of the range such as "range/16", or "slope".'
            )
        object.__setattr__(self, "bandwidth", bandwidth_of(several))

    @property
    def mixes(self) -> bool:
        return not isinstance(self.bandwidth, Bandwidth)

    def _ratio(self, bandwidth: Bandwidth) -> Ratio:
        """The ratio of one width."""
        raise NotImplementedError

    def _member(self, weight: Weight, cross_fit: int | None) -> Member:  # noqa: ARG002
        """The member of one width."""
        return Member(weight)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        every = [self.bandwidth] if isinstance(self.bandwidth, Bandwidth) else [bandwidth_of(h, True) for h in WIDTHS]
        members = (self._member(Weight(self._ratio(each)), cross_fit) for each in every)
        return tuple(replace(member, setting=each.size) for member, each in zip(members, every, strict=True))

    def settled(self, features: Features, run: Run) -> Estimator:
        if isinstance(self.bandwidth, Bandwidth):
            return self
        each = [bandwidth_of(h, True) for h in WIDTHS]
        widths = [replace(self, bandwidth=h, name=f"{self.name} ({h.text})").settled(features, run) for h in each]
        return WidthBlend(candidates=widths, name=self.name)


@dataclass(frozen=True)
class _Kernel(_Smoothing):
    """The base of estimators with the kernel around the action of a deterministic policy."""

    boundary: Boundary = "exact"

    def _check(self) -> None:
        super()._check()
        if self.boundary not in ("exact", "linear"):
            raise InputError(f'{self.name}: boundary is {self.boundary!r}; give "exact" or "linear".')

    def _ratio(self, bandwidth: Bandwidth) -> Ratio:
        return KernelRatio(bandwidth, KERNELS[self.kernel], self.boundary)


@register
@dataclass(frozen=True)
class KernelIPS(_Kernel):
    """Kernel-weighted IPS: mean[K_h(a − τ(x)) / (α(x)·p0(a|x)) · r].

    For an `op.Deterministic` policy on a log whose actions are an `op.Box`. It estimates the value of a policy that is
    spread over h around τ(x), so it is biased where the reward is curved on that scale.

    Parameters
    ----------
    bandwidth : float, sequence of float, str or "slope", default="slope"
        h, in the unit of the actions: actions farther than h from τ(x) get weight 0. One number per dimension if actions are
        vectors; or a share of the range, such as "range/16". "slope" mixes seven widths from 1/128 to 1/2 of the range, all
        from the same pass, by their paired differences; its interval allows for the bias that may remain. With a number it
        does not.
    kernel : {"epanechnikov", "gaussian"}, default="epanechnikov"
        K.
    boundary : {"exact", "linear"}, default="exact"
        How K is corrected where it leaves the box: divided by its mass inside, α(x); or by a linear function, with which the
        bias at the bounds falls like h² instead of h, at the price of more variance and of negative weights.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Kallus and Zhou (2018). Policy evaluation and optimization with continuous treatments. AISTATS.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, propensity=np.ones(10), actions=op.Box(0, 1))
    >>> target = op.Deterministic(lambda x: np.full(len(x), 0.5))
    >>> round(op.evaluate(log, target, op.KernelIPS(bandwidth=0.3))["KernelIPS"].value, 2)
    0.51
    """


@register
@dataclass(frozen=True)
class KernelSNIPS(_Kernel):
    """Self-normalised `KernelIPS`: mean[w·r] / mean[w], with the kernel weights w.

    Parameters
    ----------
    bandwidth : float, sequence of float or "slope", default="slope"
        As for `op.KernelIPS`.
    kernel : {"epanechnikov", "gaussian"}, default="epanechnikov"
        As for `op.KernelIPS`.
    boundary : {"exact", "linear"}, default="exact"
        As for `op.KernelIPS`.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Kallus and Zhou (2018). Policy evaluation and optimization with continuous treatments. AISTATS.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, propensity=np.ones(10), actions=op.Box(0, 1))
    >>> target = op.Deterministic(lambda x: np.full(len(x), 0.5))
    >>> round(op.evaluate(log, target, op.KernelSNIPS(bandwidth=0.3))["KernelSNIPS"].value, 2)
    0.5
    """

    def _member(self, weight: Weight, cross_fit: int | None) -> Member:  # noqa: ARG002
        return Member(weight, normalised=True)


@register
@dataclass(frozen=True)
class KernelDR(_Kernel, CrossFitted):
    """Kernel-weighted DR: mean[q(x, τ(x))] + mean[w·(r − q(x, a))], with the kernel weights w.

    The model takes away most of the bias of the kernel, since only what it leaves unexplained is smoothed.

    Parameters
    ----------
    bandwidth : float, sequence of float or "slope", default="slope"
        As for `op.KernelIPS`.
    kernel : {"epanechnikov", "gaussian"}, default="epanechnikov"
        As for `op.KernelIPS`.
    boundary : {"exact", "linear"}, default="exact"
        As for `op.KernelIPS`.
    rewards : reward model, default=Ridge()
        A model of the context and the action, such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    normalised : bool, default=False
        Divide the correction by the mean weight.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Kallus and Zhou (2018). Policy evaluation and optimization with continuous treatments. AISTATS.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, propensity=np.ones(10), actions=op.Box(0, 1))
    >>> target = op.Deterministic(lambda x: np.full(len(x), 0.5))
    >>> dr = op.KernelDR(bandwidth=0.3, rewards=op.Given(lambda x, a: a))
    >>> round(op.evaluate(log, target, dr)["KernelDR"].value, 6)
    0.5
    """

    rewards: Any = field(default_factory=Ridge)
    normalised: bool = False
    cross_fit: int | None = None

    def _member(self, weight: Weight, cross_fit: int | None) -> Member:
        return Member(weight, self.rewards, self.folds(cross_fit), self.normalised)


@register
@dataclass(frozen=True)
class KernelMIPS(_Smoothing):
    """Both policies smoothed: mean[w·r], where w compares them at the action plus noise.

    With e = a + h·ε, w is the mean over ε of ∫π(u|x)K_h(e − u)du / ∫π0(u|x)K_h(e − u)du: marginalised IPS with the noisy
    action as its embedding. The target may be deterministic or have a density. The mean weight is 1 also near bounds, and
    where the logging policy is steep. It needs the logging policy itself (`logging=`), not only the logged densities. At the
    same h, its bias is about twice that of `op.KernelIPS`.

    Parameters
    ----------
    bandwidth : float or "slope", default="slope"
        As for `op.KernelIPS`.
    kernel : {"epanechnikov", "gaussian"}, default="epanechnikov"
        As for `op.KernelIPS`.
    normalised : bool, default=False
        Divide by the mean weight.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, logging=op.Uniform(), actions=op.Box(0, 1))
    >>> target = op.Deterministic(lambda x: np.full(len(x), 0.5))
    >>> round(op.evaluate(log, target, op.KernelMIPS(bandwidth=0.2))["KernelMIPS"].value, 2)
    0.5
    """

    normalised: bool = False

    def _ratio(self, bandwidth: Bandwidth) -> Ratio:
        return SmoothedRatio(bandwidth, KERNELS[self.kernel])

    def _member(self, weight: Weight, cross_fit: int | None) -> Member:  # noqa: ARG002
        return Member(weight, normalised=self.normalised)
