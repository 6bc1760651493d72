"""Estimators that weight rounds by embeddings of actions: learned, pre-defined, or clustered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, final

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features, Inputs
from offpolicy.data.spaces import ActionSpace
from offpolicy.estimators.base import DEFAULT_FOLDS, CrossFitted, Estimator, Member, Run, register
from offpolicy.estimators.bias_prior import BiasPrior
from offpolicy.estimators.combined import Combined
from offpolicy.estimators.dr import SNDR
from offpolicy.estimators.ips import SNIPS
from offpolicy.estimators.lists import RIPS, SIPS, OfSlots
from offpolicy.estimators.reading_prior import ReadingPrior
from offpolicy.estimators.selection import CandidateEstimates, Choice
from offpolicy.estimators.windows import AIPS, PairIPS, PartialIPS
from offpolicy.models.posteriors.base import Posterior
from offpolicy.models.posteriors.categorical import Categorical
from offpolicy.models.posteriors.clusters import Clusters
from offpolicy.models.posteriors.gaussian import BANDWIDTHS, Gaussian
from offpolicy.models.posteriors.logistic import Logistic
from offpolicy.models.posteriors.predicted import BANDWIDTHS as PREDICTED_BANDWIDTHS, Predicted
from offpolicy.models.rewards.base import RewardModel, no_embedding
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.models.rewards.torch import AdamW
from offpolicy.models.rewards.two_step import TwoStep
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.embeddings import EmbeddingRatio
from offpolicy.ratios.slot_embeddings import SlotEmbeddingRatio
from offpolicy.ratios.weights import Weight

MOST_FOR_GRIDS = 20_000
"""The largest number of actions whose predictions are computed in every round."""
NEIGHBOURS = 100
WIDE_BANDWIDTHS = (0.1, 0.32, 1.0)
LIST_WIDTH = 0.1
"""How widely the items of lists are pooled."""
LIST_WIDTHS = (0.1, 0.32, 1.0, 3.0)
"""The widths of the slots of lists that SLOPE picks from: first of the other slots, then of the slot itself."""
READINGS: tuple[OfSlots, ...] = (
    SIPS(), AIPS(window=2, name="AIPS (window 2)"), PartialIPS(), RIPS(), PairIPS(), AIPS(window=1, name="AIPS (window 1)"),
    PartialIPS(share=0.0, name="IPS of the slot"),
)  # fmt: skip
"""From all slots of a list to the slot alone."""


class _Pooled(CrossFitted):
    """The base of estimators with weights of embeddings, pooled by a posterior.

    `chosen_later` is the posterior of an estimator that leaves the choice to the features of the log.
    """

    posterior: Any
    normalised: bool | None
    default_folds: ClassVar[int] = 0
    tuned = "bandwidth"
    chosen_later: ClassVar[str | None]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.posterior != self.chosen_later and not isinstance(self.posterior, Posterior):
            hint = f"; write {self.posterior.__name__}()" if isinstance(self.posterior, type) else ""
            raise InputError(
                f"{self.name}: posterior is {self.posterior!r}; give op.Logistic(), op.Gaussian() or another, or leave it "
                f"out{hint}."
            )

    def pooled(self, ratio: EmbeddingRatio, **control: Any) -> tuple[Member, ...]:
        """One member; for Gaussian(bandwidth="slope") one per bandwidth, from which SLOPE picks, the smallest first."""
        single = ratio.posterior
        family: list[tuple[float | None, Ratio]] = [(None, self._over_slots(ratio))]
        if isinstance(single, Gaussian) and single.bandwidth == "slope":
            family = self._family(ratio, single)
        normalised = single.self_normalised if self.normalised is None else self.normalised
        return tuple(Member(Weight(each), normalised=normalised, setting=width, **control) for width, each in family)

    def _family(self, ratio: EmbeddingRatio, posterior: Gaussian) -> list[tuple[float | None, Ratio]]:
        """The ratios that SLOPE picks from, and their widths."""
        return [(width, replace(ratio, posterior=replace(posterior, bandwidth=width))) for width in BANDWIDTHS]

    def _over_slots(self, ratio: EmbeddingRatio, others: Posterior | None = None) -> Ratio:  # noqa: ARG002
        """The same ratio, or that of all slots where actions are lists."""
        return ratio


@dataclass(frozen=True)
class _Learned(_Pooled):
    """An estimator with weights of embeddings that a reward model learns."""

    inputs: Inputs | None = None
    rewards: Any = field(default_factory=Ridge)
    posterior: Posterior | Literal["auto"] = "auto"
    normalised: bool | None = None
    cross_fit: int | None = None
    _: KW_ONLY
    reading: OfSlots | None = None
    others: Posterior | None = None
    chosen_later: ClassVar[str | None] = "auto"

    def _check(self) -> None:
        plain = isinstance(self.reading, OfSlots) and self.reading.rewards is None and len(self.reading.members()) == 1
        if self.reading is not None and not plain:
            raise InputError(
                f"{self.name}: reading is {self.reading!r}; give an estimator of lists without a reward model, such as "
                "op.SIPS(), op.RIPS(), op.IIPS() or op.AIPS(window=1)."
            )

    def over(self, space: ActionSpace) -> Estimator:
        if space.slots is None:
            return self
        if self.posterior != "auto":
            return self if self.reading is not None else replace(self, reading=SIPS())
        _check_embeds(self.name, self.rewards)
        return LearnedBlend((*self._exact_lists, *self._pooled_lists(space.slots)), name=self.name)

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        _check_embeds(self.name, self.rewards)
        if self.posterior != "auto":
            return replace(self, inputs=features.resolve(self.inputs, self.name))
        # For features that vary within actions, the error of the fit is unknown, so that nothing could be blended.
        varying = features.varies and not self.rewards.fitted_before
        inputs = "identity" if self.inputs is None and varying else features.resolve(self.inputs, self.name)
        return LearnedBlend(replace(self, inputs=inputs).candidates(features), name=self.name)

    def candidates(self, features: Features) -> tuple[Estimator, ...]:
        """Return the candidates that posterior="auto" blends: exact weights, then more and more pooling.

        Parameters
        ----------
        features : Features
            The action features of the log.

        Returns
        -------
        tuple of Estimator
            From the least biased to the smoothest.
        """
        pools = [replace(self._pooled, posterior=p, name=_words(p)) for p in self._pools(features)]
        return (*self._exact, *pools)

    def _pooled_lists(self, slots: int) -> tuple[Estimator, ...]:
        """What "auto" blends for lists: every reading with a narrow width; for one slot, all widths."""
        widths = PREDICTED_BANDWIDTHS if self.rewards.linear_embedding else WIDE_BANDWIDTHS
        posterior = Predicted if self.rewards.linear_embedding else Gaussian
        if slots == 1 or self.reading is not None:
            reading = self.reading or SIPS()
            return tuple(
                replace(self._pooled, posterior=posterior(width), reading=reading, name=f"{reading.name}, width {width:g}")
                for width in widths
            )
        return tuple(
            replace(self._pooled, posterior=posterior(LIST_WIDTH), reading=reading, name=f"{reading.name}, pooled")
            for reading in READINGS
        )

    @property
    def _exact_lists(self) -> tuple[Estimator, ...]:
        """The same as `_exact`, for lists."""
        return (SIPS(True, self.rewards, self.cross_fit, name="SIPS with a model"),)

    @property
    def _pooled(self) -> _Learned:
        """The estimator with pooling, apart from its posterior."""
        return self

    @property
    def _exact(self) -> tuple[Estimator, ...]:
        """The estimators with exact weights that "auto" starts from."""
        return (SNDR(self.rewards, self.cross_fit, self.inputs),)

    def _pools(self, features: Features) -> Sequence[Posterior]:
        varying = features.varies and self.inputs != "identity"
        if varying and self.rewards.knows_error:
            return (Gaussian(),)
        if not varying and self.rewards.linear_embedding and features.n_actions <= MOST_FOR_GRIDS:
            return tuple(Predicted(width) for width in PREDICTED_BANDWIDTHS)
        return tuple(Gaussian(width, neighbours=None if varying else NEIGHBOURS) for width in WIDE_BANDWIDTHS)

    def ratio(self, cross_fit: int | None) -> EmbeddingRatio:
        posterior = Predicted() if self.posterior == "auto" else self.posterior
        return EmbeddingRatio(posterior, self.rewards, self.inputs, self.folds(cross_fit))

    def _over_slots(self, ratio: EmbeddingRatio, others: Posterior | None = None) -> Ratio:
        return ratio if self.reading is None else SlotEmbeddingRatio(ratio, self.reading.ratio, others or self.others)

    def _family(self, ratio: EmbeddingRatio, posterior: Gaussian) -> list[tuple[float | None, Ratio]]:
        if self.reading is None:
            return super()._family(ratio, posterior)
        own, *wider = (replace(posterior, bandwidth=width) for width in LIST_WIDTHS)
        pairs = [(own, each) for each in (own, *wider)] + [(each, wider[-1]) for each in wider]
        return [(float(k), self._over_slots(replace(ratio, posterior=one), two)) for k, (one, two) in enumerate(pairs)]


def _words(posterior: Posterior) -> str:
    """The name of a candidate that differs from the others by its posterior."""
    width = getattr(posterior, "bandwidth", "auto")
    return "LDA" if width == "auto" else f"bandwidth {width:g}"


@final
@dataclass(frozen=True)
class LearnedBlend(Combined):
    """What LearnedMIPS and LearnedMDR with posterior="auto" become: a blend over bandwidths, from exact weights on."""

    rule: ClassVar[str] = (
        "Starting from exact weights, the blend pools actions more and more strongly, as far as the differences between the"
        " bandwidths allow, and the assumption that pooling moves an estimate towards the mean of the log."
    )
    embeds: ClassVar[bool] = True

    def choose(self, candidates: CandidateEstimates) -> Choice:
        prior = ReadingPrior() if candidates.missed.size else BiasPrior()
        return prior.choose(candidates)


def _check_embeds(name: str, rewards: RewardModel) -> None:
    if not rewards.embeds:
        raise no_embedding(name)


@register
@dataclass(frozen=True)
class LearnedMIPS(_Learned):
    """Learned MIPS: mean[w(x, e)·r], with embeddings e of the actions that a reward model learns from the log.

    Where actions are lists, the embedding of a list is that of its items, one slot after another. Its weight is made of one
    ratio per slot, at a cost of slots × items, and the items of all slots share one embedding. It needs the logging policy.

    Parameters
    ----------
    inputs : {"identity", "features", "both"} or None, default=None
        How an action enters the reward model. None means "both" where the log has action features, else "identity".
    rewards : reward model, default=Ridge()
        A model that gives embeddings: `op.Ridge()`, `op.AdamW()`, `op.Torch()`, or `op.Regressor()` with `embedding=`.
    posterior : Posterior or "auto", default="auto"
        How actions are pooled by their embeddings. "auto" blends exact weights with `op.Predicted()` of several bandwidths,
        as far as their paired differences allow. Where that is impossible (features that vary within actions, a model that
        is not linear in the context, more than 20,000 actions) the bandwidths are those of `op.Gaussian()`.
    normalised : bool, optional
        Divide by the mean weight. None leaves it to the posterior: no for Logistic, yes for the others.
    cross_fit : int, optional
        The number of folds that the embeddings are cross-fitted on; not cross-fitted if None.
    calibrated : bool, optional
        Adjust the weights so that the weighted mean of the predicted reward is that of the new policy, by a reward model
        that is cross-fitted on 5 folds (a regression estimator). None: only with posterior="auto".
    reading : SIPS, RIPS, IIPS, PI, AIPS, PairIPS or PartialIPS, optional
        For lists: how the ratios of slots by embeddings combine, as those of items do. By default `op.SIPS()`; with
        posterior="auto", several readings are blended.
    others : Posterior, optional
        For lists: how items are pooled in the slots other than the one whose reward is weighted. By default as in that slot.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Cief, Golebiowski, Schmidt, Abedjan and Bekasov (2023). Learning action embeddings for off-policy evaluation.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.LearnedMIPS())["LearnedMIPS"].value, 3)
    0.465
    """

    calibrated: bool | None = None

    @classmethod
    def published(
        cls, inputs: Inputs | None = "identity", rewards: RewardModel | None = None, *, name: str = ""
    ) -> LearnedMIPS:
        """Return Learned MIPS as in the paper: p(a|e) by logistic regression on unscaled embeddings, not self-normalised.

        Parameters
        ----------
        inputs : {"identity", "features", "both"} or None, default="identity"
            OneHot, FineTune or Combined, in the paper's words.
        rewards : reward model, optional
            The model that learns the embeddings; by default `op.AdamW()`, as in the paper, which needs PyTorch.
        name : str, optional
            The name in results; the name of the class by default.

        Returns
        -------
        LearnedMIPS
            The published settings.
        """
        model = AdamW() if rewards is None else rewards
        return cls(inputs, model, Logistic(scale=False), normalised=False, calibrated=False, name=name)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        if not self.calibrated:
            return self.pooled(self.ratio(cross_fit))
        folds = cross_fit or DEFAULT_FOLDS
        return self.pooled(self.ratio(cross_fit), rewards=self.rewards, cross_fit=folds, inputs=self.inputs)

    @property
    def _pooled(self) -> LearnedMIPS:
        return replace(self, calibrated=self.calibrated is not False)

    @property
    def _exact(self) -> tuple[Estimator, ...]:
        return (SNIPS(), *super()._exact) if self.calibrated is not False else (SNIPS(),)

    @property
    def _exact_lists(self) -> tuple[Estimator, ...]:
        return (SIPS(True), *super()._exact_lists) if self.calibrated is not False else (SIPS(True),)


@register
@dataclass(frozen=True)
class LearnedMDR(_Learned):
    """Learned MIPS with q(x, a) as baseline and control.

    It is biased as far as q is wrong about the differences between actions that are pooled. Where actions are lists, every
    slot has a model of its own.

    Parameters
    ----------
    inputs : {"identity", "features", "both"} or None, default=None
        How an action enters the reward model. None means "both" where the log has action features, else "identity".
    rewards : reward model, default=Ridge()
        A model that gives embeddings: `op.Ridge()`, `op.AdamW()`, `op.Torch()`, or `op.Regressor()` with `embedding=`.
    posterior : Posterior or "auto", default="auto"
        How actions are pooled by their embeddings. "auto" blends exact weights (`op.SNDR`) with `op.Predicted()` of several
        bandwidths, as for `op.LearnedMIPS`.
    normalised : bool, optional
        Divide by the mean weight. None leaves it to the posterior: no for Logistic, yes for the others.
    cross_fit : int, optional
        The number of folds that embeddings and reward model are cross-fitted on; the evaluation's default, 5, if None.
    reading : SIPS, RIPS, IIPS, PI, AIPS, PairIPS or PartialIPS, optional
        For lists: how the ratios of slots by embeddings combine, as those of items do. By default `op.SIPS()`; with
        posterior="auto", several readings are blended.
    others : Posterior, optional
        For lists: how items are pooled in the slots other than the one whose reward is weighted. By default as in that slot.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.LearnedMDR())["LearnedMDR"].value, 3)
    0.465
    """

    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        ratio = self.ratio(cross_fit)
        return self.pooled(ratio, rewards=self.rewards, cross_fit=ratio.cross_fit, inputs=self.inputs)


@dataclass(frozen=True)
class _Predefined(_Pooled):
    """An estimator with weights of the pre-defined features of actions."""

    posterior: Posterior | None = None
    normalised: bool | None = None
    cross_fit: int | None = None
    chosen_later: ClassVar[str | None] = None

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        if not features.size:
            raise InputError(
                f"{self.name} needs features of the actions, and the log has none. Name columns that describe the action "
                "of each round with `action_features=` (--features), give one row per action with `catalog=`, or use "
                "op.LearnedMIPS."
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
    """Marginalised IPS: mean[w(x, e)·r], with pre-defined features e of the actions.

    Parameters
    ----------
    posterior : Posterior, optional
        How p(e|a) is estimated. By default `op.Categorical()` where all features are categories, else `op.Gaussian()`.
    normalised : bool, optional
        Divide by the mean weight. None leaves it to the posterior: yes for Gaussian, else no.
    cross_fit : int, optional
        The number of folds that the posterior is cross-fitted on; not cross-fitted if None.
    select : {"exact", "greedy"}, optional
        Choose dimensions of e by SLOPE: "exact" among all subsets, "greedy" along one chain that drops one dimension after
        another, each time the one without which the error is least. "greedy" reads the log once more per dimension.
    subsets : tuple of tuple of str, default=()
        The sets of dimensions to score; filled in by `select`.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Saito and Joachims (2022). Off-policy evaluation for large action spaces via embeddings. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     [[0.0]] * 4, [0, 1, 2, 2], [1.0, 0.0, 0.0, 1.0], logging=op.Fixed([0.25, 0.25, 0.5]),
    ...     catalog=[[0], [0], [1]],
    ... )
    >>> op.evaluate(log, op.Fixed([0.5, 0.5, 0.0]), op.MIPS())["MIPS"].value
    0.5
    """

    select: Literal["exact", "greedy"] | None = None
    subsets: tuple[tuple[str, ...], ...] = ()

    @property
    def lattice(self) -> bool:
        return self.select == "exact"

    def _check(self) -> None:
        if self.select not in (None, "exact", "greedy"):
            raise InputError(f'{self.name}: select is {self.select!r}; give "exact", "greedy" or None.')

    def settled(self, features: Features, run: Run) -> Estimator:
        settled = super().settled(features, run)
        assert isinstance(settled, MIPS)
        if settled.select is None or settled.subsets:
            return settled
        if isinstance(settled.posterior, Gaussian) and settled.posterior.bandwidth == "slope":
            raise InputError(
                f"{self.name}: select chooses dimensions, and numbers in a catalog need a bandwidth, which it cannot also "
                'choose; give one: op.MIPS(op.Gaussian(0.3), select="exact") (mips:select=exact,bandwidth=0.3).'
            )
        names = tuple(d.name for d in features.dimensions if features.distinguishes(d))
        if not names:
            return settled
        if len(names) > MOST_SUBSETS and settled.select == "exact":
            raise InputError(
                f'{self.name}: select="exact" scores all subsets, and {len(names)} dimensions have too many '
                f'(at most {MOST_SUBSETS} dimensions); use select="greedy".'
            )
        if settled.select == "exact":
            return replace(settled, subsets=tuple(s for k in range(len(names), 0, -1) for s in combinations(names, k)))
        chain = [names]
        while len(chain[-1]) > 1:
            shorter = [tuple(n for n in chain[-1] if n != left) for left in chain[-1]]
            candidates = [replace(settled, subsets=(s,), name=f"without {k}") for k, s in enumerate(shorter)]
            result = run(candidates)
            each = list(result.rewards.values()) or [result]
            errors = [sum(np.log(r[p, c.name].std_error) for r in each for p in r.policies) for c in candidates]
            chain.append(shorter[int(np.argmin(errors))])
        return replace(settled, subsets=tuple(chain))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        subsets = self.subsets or (None,)
        return tuple(member for subset in subsets for member in self.pooled(self.ratio(cross_fit, subset)))


@register
@dataclass(frozen=True)
class MDR(_Predefined):
    """Marginalised doubly robust: MIPS with a baseline and a control q(x, e) of the same features.

    Parameters
    ----------
    posterior : Posterior, optional
        How p(e|a) is estimated. By default `op.Categorical()` where all features are categories, else `op.Gaussian()`.
    normalised : bool, optional
        Divide by the mean weight. None leaves it to the posterior: yes for Gaussian, else no.
    cross_fit : int, optional
        The number of folds that posterior and reward model are cross-fitted on; the evaluation's default, 5, if None.
    rewards : reward model, default=Ridge()
        Where features vary within an action it must be linear in them: `op.Ridge()`, or `op.Given(q, control)`.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Shimizu and Forastiere (2023). Doubly robust estimator for off-policy evaluation with large action spaces.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     [[0.0]] * 4, [0, 1, 2, 2], [1.0, 0.0, 0.0, 1.0], logging=op.Fixed([0.25, 0.25, 0.5]),
    ...     catalog=[[0], [0], [1]],
    ... )
    >>> op.evaluate(log, op.Fixed([0.5, 0.5, 0.0]), op.MDR(cross_fit=0))["MDR"].value
    0.5
    """

    rewards: Any = field(default_factory=Ridge)
    default_folds: ClassVar[int] = DEFAULT_FOLDS

    def settled(self, features: Features, run: Run) -> Estimator:
        if features.varies and not self.rewards.linear:
            raise InputError(
                f"{self.name}: the features vary within an action, so the baseline is the mean of q over them, which only "
                "models that are linear in the features provide: use op.Ridge(), or op.Given(q, control) with both."
            )
        return super().settled(features, run)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        ratio = self.ratio(cross_fit)
        return self.pooled(ratio, rewards=self.rewards, cross_fit=ratio.cross_fit, inputs="features")


class _Clustered(CrossFitted):
    """The base of estimators with weights of clusters of actions: a number of clusters to find, or one label per action."""

    clusters: int | Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clusters", self._checked_clusters())

    def _checked_clusters(self) -> int | tuple[int, ...]:
        clusters = self.clusters
        if isinstance(clusters, (int, np.integer)) and not isinstance(clusters, bool):
            if clusters < 1:
                raise InputError(f"{self.name}: clusters is {clusters}; give 1 or more, or a label for each action.")
            return int(clusters)
        labels = np.asarray(clusters)
        if labels.ndim != 1:
            raise InputError(
                f"{self.name}: clusters is {clusters!r}; give a whole number, or a flat list of one label per action."
            )
        return tuple(labels.tolist())

    def weight(self, rewards: RewardModel, inputs: Inputs | None, folds: int) -> Weight:
        """Clusters of a learned embedding; labels need none."""
        if isinstance(self.clusters, tuple):
            return Weight(EmbeddingRatio(Clusters(self.clusters), None, "identity", 0))
        return Weight(EmbeddingRatio(Clusters(self.clusters), rewards, inputs, folds))  # type: ignore[arg-type]


@register
@dataclass(frozen=True)
class GroupIPS(_Clustered):
    """IPS on clusters of actions instead of actions.

    Parameters
    ----------
    clusters : int or sequence of int, default=10
        The number of clusters that k-means finds among the learned embeddings, or one label per action.
    inputs : {"identity", "features", "both"} or None, default=None
        How an action enters the reward model. None means "both" where the log has action features, else "identity".
    rewards : reward model, default=Ridge()
        The model whose embeddings are clustered.
    normalised : bool, default=False
        Divide by the mean weight.
    cross_fit : int, optional
        The number of folds that the embeddings are cross-fitted on; not cross-fitted if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Peng, Zou, Liu, Li, Jiang, Pei and Cui (2023). Offline policy evaluation in large action spaces via outcome-oriented
    action grouping. WWW.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.GroupIPS(5))["GroupIPS"].value, 3)
    0.478
    """

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
    """OffCEM: weights of clusters, with q fitted in two steps, first the differences within clusters, then the clusters.

    Parameters
    ----------
    clusters : int or sequence of int, default=10
        The number of clusters that k-means finds among the learned embeddings, or one label per action.
    rewards : reward model, default=Ridge()
        `op.Ridge()`, whose embeddings are clustered and whose penalty both steps use; or `op.Given(q)`.
    normalised : bool, default=False
        Divide the correction by the mean weight.
    cross_fit : int, optional
        The number of folds that embeddings and reward model are cross-fitted on; the evaluation's default, 5, if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Saito, Ren and Joachims (2023). Off-policy evaluation for large action spaces via conjunct effect modeling. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.OffCEM(5))["OffCEM"].value, 3)
    0.465
    """

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
