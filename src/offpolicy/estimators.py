"""Every estimator as a composition of weight, reward model and normalisation.

    V(π) = mean[baseline] + mean[weight · (r − control)] / (mean[weight] or 1)

To add one: write a frozen dataclass here that says its `members`, decorate it with `@register`. The contract suite in
tests/test_contract.py then covers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from offpolicy.errors import InputError
from offpolicy.rewards import RewardModel, Ridge, as_reward_model
from offpolicy.weights import Clip, Harmonic, Shrink, Straight, Switch, Weight, check_setting

Number = float | Literal["auto"]

LIMITS: tuple[float, ...] = (np.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
"""The grid of "auto" for limits on w, from the least biased to the most."""
SHRINKAGES: tuple[float, ...] = (np.inf, 1e5, 1e4, 1e3, 1e2, 10.0, 1.0)
HARMONICS: tuple[float, ...] = (0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)

DEFAULT_FOLDS = 5


@dataclass(frozen=True)
class Member:
    """One estimator with every number settled: the parts of the one formula."""

    weight: Weight
    rewards: RewardModel | None = None
    cross_fit: int = 0
    normalised: bool = False
    remainder: bool = False
    """The baseline covers only the mass that clipping removed, Σ_a [π − min(π, Mπ0)]·q, and the control is 0 (CAB)."""
    fit_by_weight: bool = False
    """The reward model is fitted with row weights w² (MRDR): one fit a target."""
    setting: float | None = None


@dataclass(frozen=True)
class Estimator(ABC):
    """Settings of an estimator. `members` are its candidates, the least biased first; SLOPE picks among several."""

    _: KW_ONLY
    name: str = ""
    tuned: ClassVar[str | None] = None
    """The name of the one number that may be "auto"."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", type(self).__name__)
        self._check()

    def _check(self) -> None:  # noqa: B027
        """Raise if a setting is out of range."""

    @abstractmethod
    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        """The members; `cross_fit` is the evaluation's default for estimators that cross-fit and left it open."""

    def grid(self, values: Sequence[float]) -> Sequence[float]:
        """The one value given, or all of the grid."""
        assert self.tuned is not None
        given = getattr(self, self.tuned)
        return values if given == "auto" else [float(given)]


REGISTRY: dict[str, type[Estimator]] = {}
E = TypeVar("E", bound=type[Estimator])


def register(estimator: E) -> E:
    """Make an estimator known by its class name, to the command line and to the contract suite."""
    REGISTRY[estimator.__name__] = estimator
    return estimator


@register
@dataclass(frozen=True)
class LoggedMean(Estimator):
    """The mean reward of the log: the value of the logging policy, and the naive answer for any other."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight("one")),)


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
class _Bent(Estimator):
    """An estimator whose weights are bent by one number, `tuned`."""

    bend: ClassVar[type[Clip] | type[Switch] | type[Shrink] | type[Harmonic]]
    values: ClassVar[tuple[float, ...]]
    straight: ClassVar[float]
    """The value at which nothing is bent."""

    def weights(self) -> list[tuple[float, Weight]]:
        bend = type(self).bend
        return [(v, Weight(bend=Straight() if v == self.straight else bend(v))) for v in self.grid(self.values)]


@register
@dataclass(frozen=True)
class ClippedIPS(_Bent):
    """IPS with weights min(w, clip)."""

    clip: Number = "auto"
    tuned, bend, values, straight = "clip", Clip, LIMITS, np.inf

    def _check(self) -> None:
        check_setting(self.name, "clip", self.clip, 0)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return tuple(Member(weight, setting=v) for v, weight in self.weights())


@register
@dataclass(frozen=True)
class SubGaussianIPS(_Bent):
    """IPS with weights w / (1 − λ + λw), λ = `shrinkage` (Metelli et al. 2021)."""

    shrinkage: Number = "auto"
    tuned, bend, values, straight = "shrinkage", Harmonic, HARMONICS, 0.0

    def _check(self) -> None:
        check_setting(self.name, "shrinkage", self.shrinkage, 0, 1)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return tuple(Member(weight, setting=v) for v, weight in self.weights())


@dataclass(frozen=True)
class _Modelled(Estimator):
    """An estimator with a reward model."""

    rewards: Any = field(default_factory=Ridge)
    cross_fit: int | None = None
    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        if self.cross_fit is not None and (self.cross_fit < 0 or self.cross_fit == 1):
            raise InputError(f"{self.name}: cross_fit is {self.cross_fit}; give 0 for none, or a number of folds from 2.")

    def folds(self, cross_fit: int | None) -> int:
        if self.cross_fit is not None:
            return self.cross_fit
        return self.default_folds if cross_fit is None or not self.default_folds else cross_fit


@register
@dataclass(frozen=True)
class DM(_Modelled):
    """The direct method: mean[q(x, π)]. Only as right as its reward model."""

    default_folds: ClassVar[int] = 0

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight("none"), self.rewards, self.folds(cross_fit)),)


@register
@dataclass(frozen=True)
class DR(_Modelled):
    """Doubly robust: q as a baseline, corrected by the weighted residuals (Dudík et al. 2014)."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(), self.rewards, self.folds(cross_fit)),)


@register
@dataclass(frozen=True)
class SNDR(_Modelled):
    """DR with a self-normalised correction."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(), self.rewards, self.folds(cross_fit), normalised=True),)


@register
@dataclass(frozen=True)
class MRDR(_Modelled):
    """DR whose reward model is fitted with row weights w², to make its variance small (after Farajtabar et al. 2018)."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(), self.rewards, self.folds(cross_fit), fit_by_weight=True),)


@dataclass(frozen=True)
class _BentModelled(_Modelled, _Bent):
    remainder: ClassVar[bool] = False

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        folds = self.folds(cross_fit)
        return tuple(
            Member(weight, self.rewards, folds, remainder=self.remainder, setting=v) for v, weight in self.weights()
        )


@register
@dataclass(frozen=True)
class SwitchDR(_BentModelled):
    """DR that trusts the model alone where w > `threshold` (Wang et al. 2017)."""

    threshold: Number = "auto"
    tuned, bend, values, straight = "threshold", Switch, LIMITS, np.inf

    def _check(self) -> None:
        check_setting(self.name, "threshold", self.threshold, 0)


@register
@dataclass(frozen=True)
class DRos(_BentModelled):
    """DR with weights λw / (w² + λ), λ = `shrinkage` (Su et al. 2020)."""

    shrinkage: Number = "auto"
    tuned, bend, values, straight = "shrinkage", Shrink, SHRINKAGES, np.inf

    def _check(self) -> None:
        check_setting(self.name, "shrinkage", self.shrinkage, 0)


@register
@dataclass(frozen=True)
class CAB(_BentModelled):
    """Continuous adaptive blending: IPS up to `clip`, the model for the mass above it (Su et al. 2019)."""

    clip: Number = "auto"
    tuned, bend, values, straight = "clip", Clip, LIMITS, np.inf
    remainder: ClassVar[bool] = True

    def _check(self) -> None:
        check_setting(self.name, "clip", self.clip, 0)
