"""Every estimator as a composition of weight, reward model and normalisation.

    V(π) = mean[baseline] + mean[weight · (r − control)] / (mean[weight] or 1)

To add one: write a frozen dataclass here that says its `members`, decorate it with `@register`. The contract suite in
tests/test_contract.py then covers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np

from offpolicy.errors import InputError
from offpolicy.features import Features, Inputs
from offpolicy.posteriors import Categorical, Clusters, Gaussian, Logistic, Posterior
from offpolicy.posteriors.gaussian import BANDWIDTHS
from offpolicy.rewards import Given, RewardModel, Ridge, TwoStep, as_reward_model
from offpolicy.weights import Clip, Harmonic, Outcome, Pooled, Shrink, Straight, Switch, Weight, check_setting

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
    inputs: Inputs | None = "identity"
    """What the reward model knows of an action; None: features too, where there are any."""
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
    by_error: ClassVar[bool] = False
    """Whether members are ordered by their standard errors, largest first, instead of as they stand."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", type(self).__name__)
        self._check()

    def _check(self) -> None:  # noqa: B027
        """Raise if a setting is out of range."""

    @abstractmethod
    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        """The members; `cross_fit` is the evaluation's default for estimators that cross-fit and left it open."""

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        """The same with every choice made that needs to know the log's features, or (by `run`) other estimates."""
        return self

    def grid(self, values: Sequence[float]) -> Sequence[float]:
        """The one value given, or all of the grid."""
        assert self.tuned is not None
        given = getattr(self, self.tuned)
        return values if given == "auto" else [float(given)]


Run = Callable[[Sequence[Estimator]], Any]
"""Evaluates some estimators on the same log and policies."""

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


class _Fitted(Estimator):
    """What estimators with something to fit share: the number of folds it is left out of."""

    default_folds: ClassVar[int] = DEFAULT_FOLDS
    cross_fit: int | None

    def _check_folds(self) -> None:
        if self.cross_fit is not None and (self.cross_fit < 0 or self.cross_fit == 1):
            raise InputError(f"{self.name}: cross_fit is {self.cross_fit}; give 0 for none, or a number of folds from 2.")

    def folds(self, cross_fit: int | None) -> int:
        if self.cross_fit is not None:
            return self.cross_fit
        return self.default_folds if cross_fit is None or not self.default_folds else cross_fit


def _check_inputs(name: str, inputs: Any) -> None:
    if inputs is not None and inputs not in get_args(Inputs):
        raise InputError(f'{name}: inputs is {inputs!r}; give "identity", "features", "both", or None to choose.')


@dataclass(frozen=True)
class _Modelled(_Fitted):
    """An estimator with a reward model."""

    rewards: Any = field(default_factory=Ridge)
    cross_fit: int | None = None
    inputs: Inputs | None = "identity"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        self._check_folds()
        _check_inputs(self.name, self.inputs)

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
        return (self.member(Weight("none"), cross_fit),)


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
class _BentModelled(_Modelled, _Bent):
    remainder: ClassVar[bool] = False

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(self.member(weight, cross_fit, remainder=self.remainder, setting=v) for v, weight in self.weights())


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


@dataclass(frozen=True)
class _Learned(_Fitted):
    """Weights by an embedding that a reward model learns from `inputs`: the action's identity, its features, or both.

    `normalised` divides by the mean weight; None: as the posterior likes it (Gaussian yes, Logistic no).
    """

    inputs: Inputs | None = None
    rewards: Any = field(default_factory=Ridge)
    posterior: Posterior = field(default_factory=Logistic)
    normalised: bool | None = None
    cross_fit: int | None = None
    default_folds: ClassVar[int] = 0
    tuned = "bandwidth"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        self._check_folds()
        _check_inputs(self.name, self.inputs)
        _check_posterior(self.name, self.posterior)

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        return replace(self, inputs=features.resolve(self.inputs, self.name))

    def pooled(self, cross_fit: int | None) -> list[tuple[float | None, Weight, bool]]:
        """The setting, the weight, and whether it is normalised, of each member."""
        folds = self.folds(cross_fit)
        return [
            (setting, Weight(Pooled(posterior, self.rewards, self.inputs, folds)), _normalised(self.normalised, posterior))
            for setting, posterior in _bandwidths(self.posterior)
        ]


def _check_posterior(name: str, posterior: Any) -> None:
    if not isinstance(posterior, Posterior):
        hint = f"; write {posterior.__name__}()" if isinstance(posterior, type) else ""
        raise InputError(f"{name}: posterior is {posterior!r}; give op.Logistic(), op.Gaussian() or another{hint}.")


def _normalised(given: bool | None, posterior: Posterior) -> bool:
    return posterior.self_normalised if given is None else given


def _bandwidths(posterior: Posterior) -> list[tuple[float | None, Posterior]]:
    """The posterior itself, or the family that SLOPE picks from, from the least pooling to the most."""
    if isinstance(posterior, Gaussian) and posterior.bandwidth == "slope":
        return [(width, replace(posterior, bandwidth=width)) for width in BANDWIDTHS]
    return [(None, posterior)]


@register
@dataclass(frozen=True)
class LearnedMIPS(_Learned):
    """Learned action embeddings: mean[w(x, e)·r], e from a reward model (Cief et al. 2023)."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(Member(w, normalised=n, setting=s) for s, w, n in self.pooled(cross_fit))


@register
@dataclass(frozen=True)
class LearnedMDR(_Learned):
    """Learned MIPS with q(x, a) as baseline and control. It needs q right on differences between pooled actions."""

    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        folds = self.folds(cross_fit)
        return tuple(Member(w, self.rewards, folds, n, self.inputs, setting=s) for s, w, n in self.pooled(cross_fit))


@dataclass(frozen=True)
class _Predefined(_Fitted):
    """Weights by the pre-defined features of actions. Without a `posterior`: Categorical for categories, else Gaussian."""

    posterior: Posterior | None = None
    normalised: bool | None = None
    cross_fit: int | None = None
    default_folds: ClassVar[int] = 0
    tuned = "bandwidth"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_folds()
        if self.posterior is not None:
            _check_posterior(self.name, self.posterior)

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        if not features.size:
            raise InputError(
                f"{self.name}: weighs by features of the actions, and the log has none. Name columns seen in each round "
                "with `action_features=`, give one row an action with `catalog=`, or use op.LearnedMIPS."
            )
        if self.posterior is not None:
            return self
        categories = all(d.categorical for d in features.dimensions)
        return replace(self, posterior=Categorical() if categories else Gaussian() if features.varies else Gaussian("slope"))

    def pooled(self, cross_fit: int | None, dimensions: tuple[str, ...] | None) -> list[tuple[float | None, Weight, bool]]:
        posterior = self.posterior or Categorical()
        return [
            (
                setting,
                Weight(Pooled(p, None, "features", self.folds(cross_fit), dimensions)),
                _normalised(self.normalised, p),
            )
            for setting, p in _bandwidths(posterior)
        ]


MOST_SUBSETS = 10


@register
@dataclass(frozen=True)
class MIPS(_Predefined):
    """Marginalised IPS: mean[w(x, e)·r] with pre-defined e (Saito & Joachims 2022).

    `select` picks dimensions of e by SLOPE: "exact" among all subsets, "greedy" along one chain that leaves out, one by one,
    the dimension without which the error is least (it reads the log once more for each).
    """

    select: Literal["exact", "greedy"] | None = None
    subsets: tuple[tuple[str, ...], ...] = ()
    """The sets of dimensions to score; `select` fills them in."""
    by_error = True

    def _check(self) -> None:
        if self.select not in (None, "exact", "greedy"):
            raise InputError(f'{self.name}: select is {self.select!r}; it must be "exact", "greedy" or None.')

    def settled(self, features: Features, run: Run) -> Estimator:
        settled = super().settled(features, run)
        assert isinstance(settled, MIPS)
        if settled.select is None or settled.subsets:
            return settled
        if isinstance(settled.posterior, Gaussian) and settled.posterior.bandwidth == "slope":
            raise InputError(f'{self.name}: select chooses dimensions, so it cannot choose a bandwidth ("slope") as well.')
        names = tuple(d.name for d in features.dimensions)
        if len(names) > MOST_SUBSETS and settled.select == "exact":
            raise InputError(
                f'{self.name}: select="exact" tries all subsets, and {len(names)} dimensions have too many '
                f'(at most {MOST_SUBSETS} dimensions); use select="greedy".'
            )
        if settled.select == "exact":
            return replace(settled, subsets=tuple(s for k in range(len(names), 0, -1) for s in combinations(names, k)))
        chain = [names]
        while len(chain[-1]) > 1:
            shorter = [tuple(n for n in chain[-1] if n != left) for left in chain[-1]]
            tried = [replace(settled, subsets=(s,), name=f"without {k}") for k, s in enumerate(shorter)]
            result = run(tried)
            errors = [sum(result[p, t.name].std_error for p in result.policies) for t in tried]
            chain.append(shorter[int(np.argmin(errors))])
        return replace(settled, subsets=tuple(chain))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return tuple(
            Member(w, normalised=n, setting=len(subset) if subset and len(self.subsets) > 1 else s)
            for subset in (self.subsets or (None,))
            for s, w, n in self.pooled(cross_fit, subset)
        )


@register
@dataclass(frozen=True)
class MDR(_Predefined):
    """MIPS with a baseline and a control q(x, e) of the same features (Shimizu & Forastiere 2023)."""

    rewards: Any = field(default_factory=Ridge)
    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()

    def settled(self, features: Features, run: Run) -> Estimator:
        if features.varies and not (self.rewards.linear or isinstance(self.rewards, Given)):
            raise InputError(
                f"{self.name}: the features vary within an action, so the baseline is the mean of q over them, which only a "
                "q linear in the features gives: use op.Ridge(), or op.Given(q, control) with both."
            )
        return super().settled(features, run)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        folds = self.folds(cross_fit)
        return tuple(Member(w, self.rewards, folds, n, "features", setting=s) for s, w, n in self.pooled(cross_fit, None))


Labels = int | Sequence[int]


def _clusters(name: str, given: Any) -> int | tuple[int, ...]:
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        if given < 1:
            raise InputError(f"{name}: clusters is {given}; give a number from 1, or a label for each action.")
        return int(given)
    return tuple(np.asarray(given).tolist())


@register
@dataclass(frozen=True)
class GroupIPS(_Fitted):
    """IPS on clusters of actions with like learned outcomes (Peng et al. 2023), or on the clusters given."""

    clusters: Labels = 10
    inputs: Inputs | None = None
    rewards: Any = field(default_factory=Ridge)
    normalised: bool = False
    cross_fit: int | None = None
    default_folds: ClassVar[int] = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        object.__setattr__(self, "clusters", _clusters(self.name, self.clusters))
        self._check_folds()
        _check_inputs(self.name, self.inputs)

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        return replace(self, inputs=features.resolve(self.inputs, self.name))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        ratio = Pooled(Clusters(self.clusters), self.rewards, self.inputs, self.folds(cross_fit))  # type: ignore[arg-type]
        return (Member(Weight(ratio), normalised=self.normalised),)


@register
@dataclass(frozen=True)
class OffCEM(_Fitted):
    """Cluster weights, with q fitted in two steps: differences within clusters, then the clusters (Saito et al. 2023)."""

    clusters: Labels = 10
    rewards: Any = field(default_factory=Ridge)
    normalised: bool = False
    cross_fit: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        object.__setattr__(self, "clusters", _clusters(self.name, self.clusters))
        self._check_folds()
        if not isinstance(self.rewards, (Ridge, Given)):
            raise InputError(f"{self.name}: the two steps are those of op.Ridge(); give that, or op.Given(q).")

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        given = isinstance(self.rewards, Given)
        q = self.rewards if given else TwoStep(self.rewards, self.clusters, self.name)  # type: ignore[arg-type]
        found = Clusters(self.clusters)  # type: ignore[arg-type]
        folds = self.folds(cross_fit)
        ratio = Pooled(found, Ridge() if given else self.rewards, "identity", folds)
        return (Member(Weight(ratio), q, folds, self.normalised),)


@register
@dataclass(frozen=True)
class MR(_Fitted):
    """Marginal ratio: mean[E[w | r]·r] (Taufiq et al. 2023), cross-fitted.

    Fitted on the rows that it weighs (`cross_fit=0`) it is IPS again wherever rewards take few values.
    """

    normalised: bool = False
    cross_fit: int | None = None

    def _check(self) -> None:
        self._check_folds()

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(Outcome(self.folds(cross_fit))), normalised=self.normalised),)
