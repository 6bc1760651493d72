"""Estimators with a reward model: the direct method, and the family of DR."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from offpolicy.data.features import Features, Inputs
from offpolicy.estimators.base import CrossFitted, Estimator, Member, Number, Run, register
from offpolicy.estimators.ips import CLIPS, SHRINKAGES, Bent
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.ratios.weights import Clip, Shrink, Switch, Weight


@dataclass(frozen=True)
class _Modelled(CrossFitted):
    """An estimator with a reward model."""

    rewards: Any = field(default_factory=Ridge)
    cross_fit: int | None = None
    inputs: Inputs | None = "identity"

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        return replace(self, inputs=features.resolve(self.inputs, self.name))

    def member(self, weight: Weight, cross_fit: int | None, **parts: Any) -> Member:
        rewards = self.rewards if weight.exact else self.rewards.uncorrected()
        return Member(weight, rewards, self.folds(cross_fit), inputs=self.inputs, **parts)


@register
@dataclass(frozen=True)
class DM(_Modelled):
    """The direct method: mean[q(x, π)], which is only as good as its reward model.

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; not cross-fitted if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.DM())["DM"].value, 3)
    0.463
    """

    default_folds: ClassVar[int] = 0

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight("none"), cross_fit),)


@register
@dataclass(frozen=True)
class DR(_Modelled):
    """Doubly robust: q as a baseline, corrected by the weighted residuals, mean[q(x, π)] + mean[w·(r − q(x, a))].

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Dudík, Erhan, Langford and Li (2014). Doubly robust policy evaluation and optimization. Statistical Science.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.DR())["DR"].value, 3)
    0.463
    """

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight(), cross_fit),)


@register
@dataclass(frozen=True)
class SNDR(_Modelled):
    """DR with a self-normalised correction: mean[q(x, π)] + mean[w·(r − q(x, a))] / mean[w].

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Thomas and Brunskill (2016). Data-efficient off-policy policy evaluation for reinforcement learning. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.SNDR())["SNDR"].value, 3)
    0.463
    """

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight(), cross_fit, normalised=True),)


@register
@dataclass(frozen=True)
class MRDR(_Modelled):
    """More robust DR: the reward model is fitted with row weights w², which lowers the variance of DR.

    There is one fit per target policy.

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Farajtabar, Chow and Ghavamzadeh (2018). More robust doubly robust off-policy evaluation. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.MRDR())["MRDR"].value, 3)
    0.468
    """

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight(), cross_fit, fit_by_weight=True),)


@dataclass(frozen=True)
class _BentModelled(_Modelled, Bent):
    remainder: ClassVar[bool] = False

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(self.member(weight, cross_fit, remainder=self.remainder, setting=v) for v, weight in self.weights())


@register
@dataclass(frozen=True)
class SwitchDR(_BentModelled):
    """DR that relies on the reward model alone where w > threshold.

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    threshold : float or "auto", default="auto"
        The largest weight that corrects the model. "auto" lets SLOPE choose from a grid.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Wang, Agarwal and Dudík (2017). Optimal and adaptive off-policy evaluation in contextual bandits. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.SwitchDR())["SwitchDR"].value, 3)
    0.467
    """

    threshold: Number = "auto"
    tuned, bend, values, straight = "threshold", Switch, CLIPS, np.inf


@register
@dataclass(frozen=True)
class DRos(_BentModelled):
    """DR with optimistic shrinkage: weights λw / (w² + λ).

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    shrinkage : float or "auto", default="auto"
        λ: DR as it goes to infinity, DM at 0. "auto" lets SLOPE choose from a grid.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Su, Dimakopoulou, Krishnamurthy and Dudík (2020). Doubly robust off-policy evaluation with shrinkage. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.DRos())["DRos"].value, 3)
    0.467
    """

    shrinkage: Number = "auto"
    tuned, bend, values, straight = "shrinkage", Shrink, SHRINKAGES, np.inf


@register
@dataclass(frozen=True)
class ScaledDR(_BentModelled):
    """DR with clipped weights h = min(w, clip), whose correction is multiplied by mean[h·w] / (mean[h²]·mean[w]).

    The factor is right for residuals r − q that are proportional to h, as in the fluctuation step of targeted maximum
    likelihood. With clip = ∞ it is SNDR; as clip goes to 0, it adds the mean residual to DM.

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    clip : float or "auto", default="auto"
        The largest weight. "auto" lets SLOPE choose from a grid.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    van der Laan and Rubin (2006). Targeted maximum likelihood learning. International Journal of Biostatistics.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.ScaledDR())["ScaledDR"].value, 3)
    0.467
    """

    clip: Number = "auto"
    tuned, bend, values, straight, least = "clip", Clip, CLIPS, np.inf, 1e-6

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(self.member(weight, cross_fit, scaled=True, setting=v) for v, weight in self.weights())


@register
@dataclass(frozen=True)
class CAB(_BentModelled):
    """Continuous adaptive blending: IPS with weights up to `clip`, and the reward model for the mass above it.

    Parameters
    ----------
    rewards : reward model, default=Ridge()
        A model such as `op.Ridge()`, `op.Given(q)`, or a scikit-learn regressor.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters the reward model. None means "both" where the log has action features.
    clip : float or "auto", default="auto"
        The largest weight. "auto" lets SLOPE choose from a grid.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Su, Wang, Santacatterina and Joachims (2019). CAB: Continuous adaptive blending for policy evaluation and learning. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.CAB())["CAB"].value, 3)
    0.463
    """

    clip: Number = "auto"
    tuned, bend, values, straight = "clip", Clip, CLIPS, np.inf
    remainder: ClassVar[bool] = True
