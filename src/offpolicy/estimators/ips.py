"""Estimators that only weigh: the mean of the log, and the family of IPS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from offpolicy.estimators.base import CrossFitted, Estimator, Member, Number, register
from offpolicy.ratios.outcomes import OutcomeRatio
from offpolicy.ratios.trivial import One
from offpolicy.ratios.weights import Clip, Harmonic, Shrink, Straight, Switch, Weight, check_setting

CLIPS: tuple[float, ...] = (np.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
"""The grid of "auto" for limits on w, from the least biased to the most."""
SHRINKAGES: tuple[float, ...] = (np.inf, 1e5, 1e4, 1e3, 1e2, 10.0, 1.0)
HARMONICS: tuple[float, ...] = (0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)


@register
@dataclass(frozen=True)
class LoggedMean(Estimator):
    """The mean reward of the log: the value of the logging policy, and the naive answer for any other."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(One())),)


@register
@dataclass(frozen=True)
class IPS(Estimator):
    """Inverse propensity score: mean[w·r]. Unbiased where the logging policy supports the target."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight()),)


@register
@dataclass(frozen=True)
class SNIPS(Estimator):
    """Self-normalised IPS: mean[w·r] / mean[w] (Swaminathan & Joachims 2015)."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(), normalised=True),)


@dataclass(frozen=True)
class Bent(Estimator):
    """An estimator whose weights are bent by one number, `tuned`."""

    tuned: ClassVar[str]
    bend: ClassVar[type[Clip] | type[Switch] | type[Shrink] | type[Harmonic]]
    values: ClassVar[tuple[float, ...]]
    straight: ClassVar[float]
    """The value at which nothing is bent."""
    least: ClassVar[float] = 0.0
    most: ClassVar[float] = np.inf

    def _check(self) -> None:
        check_setting(self.name, self.tuned, getattr(self, self.tuned), self.least, self.most)

    def weights(self) -> list[tuple[float, Weight]]:
        """One for the value given, or for each of the grid."""
        bend, given = type(self).bend, getattr(self, self.tuned)
        grid = self.values if given == "auto" else (float(given),)
        return [(v, Weight(bend=Straight() if v == self.straight else bend(v))) for v in grid]

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return tuple(Member(weight, setting=v) for v, weight in self.weights())


@register
@dataclass(frozen=True)
class ClippedIPS(Bent):
    """IPS with weights min(w, clip)."""

    clip: Number = "auto"
    tuned, bend, values, straight = "clip", Clip, CLIPS, np.inf


@register
@dataclass(frozen=True)
class SubGaussianIPS(Bent):
    """IPS with weights w / (1 − λ + λw), λ = `shrinkage` (Metelli et al. 2021)."""

    shrinkage: Number = "auto"
    tuned, bend, values, straight, most = "shrinkage", Harmonic, HARMONICS, 0.0, 1.0


@register
@dataclass(frozen=True)
class MR(CrossFitted):
    """Marginal ratio: mean[E[w | r]·r] (Taufiq et al. 2023), cross-fitted.

    Fitted on the rows that it weighs (`cross_fit=0`) it is IPS again wherever rewards take few values.
    """

    normalised: bool = False
    cross_fit: int | None = None

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(OutcomeRatio(self.folds(cross_fit))), normalised=self.normalised),)
