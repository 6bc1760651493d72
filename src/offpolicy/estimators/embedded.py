"""Estimators that weigh by embeddings: Learned MIPS, what it came from, and what came after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features, Inputs
from offpolicy.estimators.base import DEFAULT_FOLDS, CrossFitted, Estimator, Member, Run, register
from offpolicy.models.posteriors.base import Posterior
from offpolicy.models.posteriors.categorical import Categorical
from offpolicy.models.posteriors.clusters import Clusters
from offpolicy.models.posteriors.gaussian import BANDWIDTHS, Gaussian
from offpolicy.models.posteriors.logistic import Logistic
from offpolicy.models.rewards.base import RewardModel, no_embedding
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.models.rewards.two_step import TwoStep
from offpolicy.ratios.embeddings import EmbeddingRatio
from offpolicy.ratios.weights import Weight

MOST_FOR_LOGISTIC = 5_000
NEIGHBOURS = 100


class _Pooled(CrossFitted):
    """What estimators share that weigh by embeddings, pooled by a posterior."""

    posterior: Any
    normalised: bool | None
    default_folds: ClassVar[int] = 0
    tuned = "bandwidth"
    chosen_later: ClassVar[str | None]
    """The posterior of an estimator that leaves the choice to the log's features."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.posterior != self.chosen_later and not isinstance(self.posterior, Posterior):
            hint = f"; write {self.posterior.__name__}()" if isinstance(self.posterior, type) else ""
            raise InputError(
                f"{self.name}: posterior is {self.posterior!r}; give op.Logistic(), op.Gaussian() or another, or leave it "
                f"out{hint}."
            )

    def pooled(self, ratio: EmbeddingRatio, **control: Any) -> tuple[Member, ...]:
        """One member; of a Gaussian with bandwidth="slope" the family that SLOPE picks from, the least pooling first."""
        given = ratio.posterior
        family: list[tuple[float | None, Posterior]] = [(None, given)]
        if isinstance(given, Gaussian) and given.bandwidth == "slope":
            family = [(width, replace(given, bandwidth=width)) for width in BANDWIDTHS]
        normalised = given.self_normalised if self.normalised is None else self.normalised
        return tuple(
            Member(Weight(replace(ratio, posterior=posterior)), normalised=normalised, setting=width, **control)
            for width, posterior in family
        )


@dataclass(frozen=True)
class _Learned(_Pooled):
    """Weights by an embedding that a reward model learns from `inputs`: the action's identity, its features, or both.

    `normalised` divides by the mean weight; None: as the posterior likes it (Gaussian yes, Logistic no). `posterior="auto"`
    is Logistic, as published, up to 5,000 actions, and beyond that Gaussian with the nearest 100: the work of a logistic fit
    grows with the square of the actions.
    """

    inputs: Inputs | None = None
    rewards: Any = field(default_factory=Ridge)
    posterior: Posterior | Literal["auto"] = "auto"
    normalised: bool | None = None
    cross_fit: int | None = None
    chosen_later: ClassVar[str | None] = "auto"

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        _check_embeds(self.name, self.rewards)
        posterior = self.posterior
        if posterior == "auto":
            width: Any = "auto" if self.rewards.knows_error else "slope"
            many = features.n_actions > MOST_FOR_LOGISTIC
            posterior = Gaussian(width, neighbours=NEIGHBOURS) if many else Logistic()
        return replace(self, inputs=features.resolve(self.inputs, self.name), posterior=posterior)

    def ratio(self, cross_fit: int | None) -> EmbeddingRatio:
        posterior = Logistic() if self.posterior == "auto" else self.posterior
        return EmbeddingRatio(posterior, self.rewards, self.inputs, self.folds(cross_fit))


def _check_embeds(name: str, rewards: RewardModel) -> None:
    if not rewards.embeds:
        raise no_embedding(name)


@register
@dataclass(frozen=True)
class LearnedMIPS(_Learned):
    """Learned action embeddings: mean[w(x, e)·r], e from a reward model (Cief et al. 2023)."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return self.pooled(self.ratio(cross_fit))


@register
@dataclass(frozen=True)
class LearnedMDR(_Learned):
    """Learned MIPS with q(x, a) as baseline and control. It needs q right on differences between pooled actions."""

    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        ratio = self.ratio(cross_fit)
        return self.pooled(ratio, rewards=self.rewards, cross_fit=ratio.cross_fit, inputs=self.inputs)


@dataclass(frozen=True)
class _Predefined(_Pooled):
    """Weights by the pre-defined features of actions. Without a `posterior`: Categorical for categories, else Gaussian."""

    posterior: Posterior | None = None
    normalised: bool | None = None
    cross_fit: int | None = None
    chosen_later: ClassVar[str | None] = None

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        if not features.size:
            raise InputError(
                f"{self.name}: weighs by features of the actions, and the log has none. Name columns seen in each round "
                "with `action_features=` (--features), give one row an action with `catalog=`, or use op.LearnedMIPS."
            )
        if self.posterior is not None:
            return self
        categories = all(d.categorical for d in features.dimensions)
        return replace(self, posterior=Categorical() if categories else Gaussian() if features.varies else Gaussian("slope"))

    def ratio(self, cross_fit: int | None, dimensions: tuple[str, ...] | None = None) -> EmbeddingRatio:
        return EmbeddingRatio(self.posterior or Categorical(), None, "features", self.folds(cross_fit), dimensions)


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

    @property
    def lattice(self) -> bool:
        return self.select == "exact"

    def _check(self) -> None:
        if self.select not in (None, "exact", "greedy"):
            raise InputError(f'{self.name}: select is {self.select!r}; it must be "exact", "greedy" or None.')

    def settled(self, features: Features, run: Run) -> Estimator:
        settled = super().settled(features, run)
        assert isinstance(settled, MIPS)
        if settled.select is None or settled.subsets:
            return settled
        if isinstance(settled.posterior, Gaussian) and settled.posterior.bandwidth == "slope":
            raise InputError(
                f"{self.name}: select chooses dimensions, and numbers in a catalog need a bandwidth, which it cannot choose "
                'as well; give one: op.MIPS(op.Gaussian(0.3), select="exact") (mips:select=exact,bandwidth=0.3).'
            )
        # a dimension with one category tells no actions apart: without it there is the same to choose from
        names = tuple(d.name for d in features.dimensions if d.width > 1 or not d.categorical)
        if not names:
            return settled
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
            each = list(result.rewards.values()) or [result]
            errors = [sum(np.log(r[p, t.name].std_error) for r in each for p in r.policies) for t in tried]
            chain.append(shorter[int(np.argmin(errors))])
        return replace(settled, subsets=tuple(chain))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        subsets = self.subsets or (None,)
        return tuple(member for subset in subsets for member in self.pooled(self.ratio(cross_fit, subset)))


@register
@dataclass(frozen=True)
class MDR(_Predefined):
    """MIPS with a baseline and a control q(x, e) of the same features (Shimizu & Forastiere 2023)."""

    rewards: Any = field(default_factory=Ridge)
    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def settled(self, features: Features, run: Run) -> Estimator:
        if features.varies and not self.rewards.linear:
            raise InputError(
                f"{self.name}: the features vary within an action, so the baseline is the mean of q over them, which only a "
                "q linear in the features gives: use op.Ridge(), or op.Given(q, control) with both."
            )
        return super().settled(features, run)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        ratio = self.ratio(cross_fit)
        return self.pooled(ratio, rewards=self.rewards, cross_fit=ratio.cross_fit, inputs="features")


class _Clustered(CrossFitted):
    """What estimators share that weigh by clusters of actions: a number of them to find, or a label per action."""

    clusters: int | Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clusters", self._checked_clusters())

    def _checked_clusters(self) -> int | tuple[int, ...]:
        given = self.clusters
        if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
            if given < 1:
                raise InputError(f"{self.name}: clusters is {given}; give a number from 1, or a label for each action.")
            return int(given)
        labels = np.asarray(given)
        if labels.ndim != 1:
            raise InputError(
                f"{self.name}: clusters is {given!r}; give a whole number, or a flat list of one label an action."
            )
        return tuple(labels.tolist())

    def weight(self, rewards: RewardModel, inputs: Inputs | None, folds: int) -> Weight:
        """Clusters of a learned embedding; labels that were given need none."""
        if isinstance(self.clusters, tuple):
            return Weight(EmbeddingRatio(Clusters(self.clusters), None, "identity", 0))
        return Weight(EmbeddingRatio(Clusters(self.clusters), rewards, inputs, folds))  # type: ignore[arg-type]


@register
@dataclass(frozen=True)
class GroupIPS(_Clustered):
    """IPS on clusters of actions with like learned outcomes (Peng et al. 2023), or on the clusters given."""

    clusters: int | Sequence[int] = 10
    inputs: Inputs | None = None
    rewards: Any = field(default_factory=Ridge)
    normalised: bool = False
    cross_fit: int | None = None
    default_folds: ClassVar[int] = 0

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        if not isinstance(self.clusters, tuple):
            _check_embeds(self.name, self.rewards)
        return replace(self, inputs=features.resolve(self.inputs, self.name))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        weight = self.weight(self.rewards, self.inputs, self.folds(cross_fit))
        return (Member(weight, normalised=self.normalised),)


@register
@dataclass(frozen=True)
class OffCEM(_Clustered):
    """Cluster weights, with q fitted in two steps: differences within clusters, then the clusters (Saito et al. 2023)."""

    clusters: int | Sequence[int] = 10
    rewards: Any = field(default_factory=Ridge)
    normalised: bool = False
    cross_fit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._q()

    def _q(self) -> RewardModel:
        return TwoStep.of(self.rewards, self.clusters, self.name)  # type: ignore[arg-type]

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        folds = self.folds(cross_fit)
        clustered = self.rewards if self.rewards.fitted else Ridge()
        return (Member(self.weight(clustered, "identity", folds), self._q(), folds, self.normalised),)
