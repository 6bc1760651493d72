"""Estimators with a reward model: the direct method, and the family of DR."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from offpolicy.data.features import Features, Inputs
from offpolicy.estimators.base import CrossFitted, Estimator, Member, Number, Run, register
from offpolicy.estimators.ips import CLIPS, SHRINKAGES, Bent
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.ratios.trivial import Zero
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
        return Member(weight, self.rewards, self.folds(cross_fit), inputs=self.inputs, **parts)


@register
@dataclass(frozen=True)
class DM(_Modelled):
    """The direct method: mean[q(x, π)]. Only as right as its reward model."""

    default_folds: ClassVar[int] = 0

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight(Zero()), cross_fit),)


@register
@dataclass(frozen=True)
class DR(_Modelled):
    """Doubly robust: q as a baseline, corrected by the weighted residuals (Dudík et al. 2014)."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight(), cross_fit),)


@register
@dataclass(frozen=True)
class SNDR(_Modelled):
    """DR with a self-normalised correction."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (self.member(Weight(), cross_fit, normalised=True),)


@register
@dataclass(frozen=True)
class MRDR(_Modelled):
    """DR whose reward model is fitted with row weights w², to make its variance small (after Farajtabar et al. 2018)."""

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
    """DR that trusts the model alone where w > `threshold` (Wang et al. 2017)."""

    threshold: Number = "auto"
    tuned, bend, values, straight = "threshold", Switch, CLIPS, np.inf


@register
@dataclass(frozen=True)
class DRos(_BentModelled):
    """DR with weights λw / (w² + λ), λ = `shrinkage` (Su et al. 2020)."""

    shrinkage: Number = "auto"
    tuned, bend, values, straight = "shrinkage", Shrink, SHRINKAGES, np.inf


@register
@dataclass(frozen=True)
class ScaledDR(_BentModelled):
    """DR with weights h = min(w, `clip`), scaled by mean[h·w] / mean[h²]: what is left of r − q is taken to be proportional
    to h, as in the fluctuation of TMLE (van der Laan & Rubin 2006). clip = ∞ is DR; towards 0 it adds the mean residual."""

    clip: Number = "auto"
    tuned, bend, values, straight, least = "clip", Clip, CLIPS, np.inf, 1e-6

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(self.member(weight, cross_fit, scaled=True, setting=v) for v, weight in self.weights())


@register
@dataclass(frozen=True)
class CAB(_BentModelled):
    """Continuous adaptive blending: IPS up to `clip`, the model for the mass above it (Su et al. 2019)."""

    clip: Number = "auto"
    tuned, bend, values, straight = "clip", Clip, CLIPS, np.inf
    remainder: ClassVar[bool] = True
