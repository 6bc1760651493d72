"""The columns of a scoring pass: each distinct weight, baseline and correction once, however many estimators share it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from offpolicy.core.arrays import FloatArray
from offpolicy.data.features import Inputs
from offpolicy.estimators import Estimator, Member, Number
from offpolicy.models.rewards.base import RewardModel
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.weights import Times, Weight

MOST_SHARE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class FitKey:
    """One fit of a reward model: `policy` is the target whose w² are the row weights, or None.

    `slot` is the slot of a list whose reward is modelled, given the context and the item there; None for single actions.
    `every_slot`: one model of the items in all slots, with the position as context.
    """

    rewards: RewardModel
    policy: int | None
    inputs: Inputs | None = "identity"
    slot: int | None = None
    every_slot: bool = False


@dataclass(frozen=True)
class ModelKey:
    """The predictors of one fit for one reward: one on all rows (folds = 0), or one without each fold."""

    fit: FitKey
    folds: int
    reward: int


@dataclass(frozen=True)
class RatioKey:
    """One fit of a ratio: for one policy, or (None) for all of them."""

    ratio: Ratio
    policy: int | None


@dataclass(frozen=True)
class WeightColumn:
    policy: int
    weight: Weight


@dataclass(frozen=True)
class BaselineColumn:
    """Σ_a share(a|x)·q(x, a) less the origin; the share is π, or with `clip` the part of π above clip·π0."""

    policy: int
    model: ModelKey
    clip: float | None = None


@dataclass(frozen=True)
class CorrectionColumn:
    """weight · (r − control); the control is q(x, a), or the origin if there is no model.

    r is the reward of the round, or of one `slot` of a list.
    """

    policy: int
    weight: Weight
    reward: int
    model: ModelKey | None = None
    slot: int | None = None


@dataclass(frozen=True)
class SmoothedColumn:
    """log(1 + λ·weight·r)/λ, on the scale of the rewards; or, for `misses`, the same of 1 − r for rewards from 0 to 1."""

    policy: int
    weight: Weight
    reward: int
    smoothing: Number
    misses: bool = False


@dataclass(frozen=True)
class ShareTable:
    """Σ share(a|x)·x̃, actions × (features + 1): how a baseline depends on the coefficients of a linear model."""

    policy: int
    clip: float | None
    slot: int | None = None


@dataclass(frozen=True)
class WeightTable:
    """Σ weight·x̃ over the rows of each action: how a correction depends on the coefficients of its control.

    For lists, the actions are the items of a slot.
    """

    policy: int
    weight: Weight
    slot: int | None = None


TableKey = ShareTable | WeightTable
ColumnKey = WeightColumn | BaselineColumn | CorrectionColumn | SmoothedColumn


@dataclass(frozen=True)
class Scaling:
    """The columns of h·w, h² and w: the factor of a correction by h is mean[h·w] / (mean[h²]·mean[w]).

    In results that were saved before the factor was divided by mean[w], `weight` is None.
    """

    product: int
    square: int
    weight: int | None = None

    def factor(self, means: FloatArray) -> FloatArray:
        """Of means, or of sums, in the last axis."""
        quotient: FloatArray = means[..., self.product] / means[..., self.square]
        return quotient if self.weight is None else quotient * means[..., 0] / means[..., self.weight]


@dataclass(frozen=True)
class Terms:
    """The columns of one member's three numbers (None: the number is 0), and how they combine.

    Attributes
    ----------
    scaling : Scaling | None
        The columns of the factor of the correction, if it is scaled.
    shifted_baseline : bool
        Whether the baseline is stored less the origin; otherwise the correction is stored less origin·weight.
    slot : int | None
        The slot whose reward it is; None if it is the reward of the round.
    tables : tuple[TableKey | None, TableKey | None]
        The share's and the weight's table, for estimators that depend on the fit to first order. With the exact
        ratio they do not: baseline and control change alike on average.
    misses : int | None
        The column of the smoothed weight·(1 − r), if the correction is smoothed. It then includes its origin.
    variates : tuple[tuple[int, float], ...]
        The columns of control variates, weights of mean 1, each with its coefficient β, of which β·(mean − 1) is subtracted.
    """

    baseline: int | None
    correction: int | None
    weight: int | None
    normalised: bool
    scaling: Scaling | None
    shifted_baseline: bool
    tables: tuple[TableKey | None, TableKey | None] = (None, None)
    misses: int | None = None
    slot: int | None = None
    variates: tuple[tuple[int, float], ...] = ()

    @property
    def parts(self) -> tuple[tuple[float, Terms], ...]:
        """What is added up to the value: itself."""
        return ((1.0, self),)

    @property
    def slots(self) -> tuple[Terms, ...]:
        """The terms of the reward of each slot, if rewards belong to slots."""
        return ()

    def origins(self, origin: float) -> tuple[float, float]:
        """The origins subtracted from the baseline and from the correction."""
        if self.misses is not None:
            return 0.0, 0.0
        return (origin, 0.0) if self.shifted_baseline else (0.0, origin)


@dataclass(frozen=True)
class ListTerms:
    """The terms of a member where rewards belong to the slots of a list: each slot is a formula of its own.

    Attributes
    ----------
    slots : tuple[Terms, ...]
        Each is normalised by its own mean weight.
    gain : tuple[float, ...]
        How much each slot counts.
    whole : Terms | None
        The terms of the value of the list, if every slot has the same weight: then one formula gives the same value.
    """

    slots: tuple[Terms, ...]
    gain: tuple[float, ...]
    whole: Terms | None = None

    @property
    def parts(self) -> tuple[tuple[float, Terms], ...]:
        """What is added up to the value."""
        return tuple(zip(self.gain, self.slots, strict=True)) if self.whole is None else self.whole.parts


AnyTerms = Terms | ListTerms


@dataclass
class Plan:
    """The columns of a scoring pass. Column 0 is the row weight, so that every mean is a ratio to it.

    `gain` is how much each slot of a list counts, if rewards belong to slots; `slots` is the number of slots, if actions are
    lists.
    """

    n_policies: int
    rewards: int
    gain: tuple[float, ...] | None = None
    slots: int | None = None
    columns: list[ColumnKey] = field(default_factory=list)
    models: list[ModelKey] = field(default_factory=list)
    tables: list[TableKey] = field(default_factory=list)
    _index: dict[ColumnKey, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return 1 + len(self.columns)

    def shares_by_group(self, groups: int, n_actions: int, size: int) -> list[int]:
        """The tables of shares that are summed by group of units, for learning curves; none if they exceed 8 MB."""
        shares = [table for table, key in enumerate(self.tables) if isinstance(key, ShareTable)]
        return shares if len(shares) * groups * n_actions * size <= MOST_SHARE_ELEMENTS else []

    @property
    def fits(self) -> list[FitKey]:
        learned = [fit_of(key.ratio) for key in self.ratios]
        return list(dict.fromkeys([*(model.fit for model in self.models), *(fit for fit in learned if fit is not None)]))

    @property
    def folds(self) -> set[int]:
        """Every number of folds in use."""
        return {*(model.folds for model in self.models), *(key.ratio.cross_fit for key in self.ratios)} - {0}

    def folds_of(self, fit: FitKey) -> set[int]:
        """The numbers of folds that one fit is cross-fitted in."""
        models = {model.folds for model in self.models if model.fit == fit}
        return (models | {key.ratio.cross_fit for key in self.ratios if fit_of(key.ratio) == fit}) - {0}

    @property
    def ratios(self) -> list[RatioKey]:
        """Every fit of a ratio, once."""
        return list(dict.fromkeys(ratio_key(key) for key in self.weights))

    @property
    def by_items(self) -> bool:
        """Whether the probabilities of all items in every slot of lists are needed."""
        slots = any(key.fit.slot is not None for key in self.models)
        return slots or any(key.weight.ratio.items for key in self.weights)

    @property
    def weights(self) -> list[WeightColumn]:
        """The weights of each policy; the sums of a ratio are named by the position of its weight here."""
        return [key for key in self.columns if isinstance(key, WeightColumn)]

    def corrections(self, weight: WeightColumn) -> list[CorrectionColumn]:
        """The corrections that use a weight."""
        corrections = (key for key in self.columns if isinstance(key, CorrectionColumn))
        return [key for key in corrections if (key.policy, key.weight) == (weight.policy, weight.weight)]

    def _column(self, key: ColumnKey) -> int:
        if key not in self._index:
            self._index[key] = self.width
            self.columns.append(key)
        return self._index[key]

    def raw_weight(self, policy: int) -> int:
        """The column of w itself, for the diagnostics."""
        return self._column(WeightColumn(policy, Weight()))

    def add(self, member: Member, policy: int, reward: int) -> AnyTerms:
        """Add the columns of one member's numbers, or of the member of each slot."""
        if self.gain is None or member.smoothing is not None:
            return self._add(member, policy, reward)
        of_slots = [replace(member, weight=member.weight.for_slot(k)) for k in range(len(self.gain))]
        alike = member.rewards is None and all(each.weight == of_slots[0].weight for each in of_slots)
        slots = tuple(self._add(each, policy, reward, k) for k, each in enumerate(of_slots))
        return ListTerms(slots, self.gain, self._add(of_slots[0], policy, reward) if alike else None)

    def _add(self, member: Member, policy: int, reward: int, slot: int | None = None) -> Terms:
        model = self._model(member, policy, reward, slot)
        clip = getattr(member.weight.bend, "limit", float("inf")) if member.remainder else None
        control = None if member.remainder else model
        weighted = member.weight.ratio.corrects
        if member.smoothing is not None:
            hits, misses = (
                self._column(SmoothedColumn(policy, member.weight, reward, member.smoothing, each)) for each in (False, True)
            )
            weight = self._column(WeightColumn(policy, member.weight))
            return Terms(None, hits, weight, False, None, False, misses=misses)
        return Terms(
            baseline=None if model is None else self._column(BaselineColumn(policy, model, clip)),
            correction=self._column(CorrectionColumn(policy, member.weight, reward, control, slot)) if weighted else None,
            weight=self._column(WeightColumn(policy, member.weight)) if weighted else None,
            normalised=member.normalised,
            scaling=self._scaling(member, policy) if member.scaled else None,
            shifted_baseline=control is not None,
            tables=self._tables(member, model, policy, clip),
            slot=slot,
            variates=tuple((column, 0.0) for column in self._variates(member, policy)),
        )

    def _variates(self, member: Member, policy: int) -> list[int]:
        """The columns of the control variates of every slot."""
        if member.variate is None:
            return []
        each = (member.variate.for_slot(k) for k in range(self.slots or 0))
        return [self._column(WeightColumn(policy, weight)) for weight in each]

    def _scaling(self, member: Member, policy: int) -> Scaling:
        bend = member.weight.bend
        weights = (replace(member.weight, bend=each) for each in (Times(bend), Times(bend, True), Weight().bend))
        return Scaling(*(self._column(WeightColumn(policy, weight)) for weight in weights))

    def _tables(
        self, member: Member, model: ModelKey | None, policy: int, clip: float | None
    ) -> tuple[TableKey | None, TableKey | None]:
        """The tables that show how a member depends on its model; none if it does not, to first order."""
        slot = None if model is None else model.fit.slot
        if model is None or member.weight.exact or (slot is not None and member.weight.model_error_cancels):
            return None, None
        share = ShareTable(policy, clip, slot)
        weighted = not member.remainder and member.weight.ratio.corrects
        weight = WeightTable(policy, member.weight, slot) if weighted else None
        for key in (share, weight):
            if key is not None and key not in self.tables:
                self.tables.append(key)
        return share, weight

    def _model(self, member: Member, policy: int, reward: int, slot: int | None) -> ModelKey | None:
        key = model_key(member, policy, reward, slot)
        if key is not None and key not in self.models:
            self.models.append(key)
        return key

    def whole(self, policy: int) -> bool:
        """Whether the policy's probabilities of all actions are needed."""
        return any(
            isinstance(key, BaselineColumn) or (isinstance(key, WeightColumn) and key.weight.ratio.whole)
            for key in self.columns
            if key.policy == policy
        )


def ratio_key(weight: WeightColumn) -> RatioKey:
    """The fit that a weight comes from."""
    ratio = weight.weight.ratio.for_slot(0)  # the slots share a fit
    return RatioKey(ratio, weight.policy if ratio.per_policy else None)


def fit_of(ratio: Ratio) -> FitKey | None:
    """The reward model that a ratio is fitted from, if any."""
    return None if ratio.rewards is None else FitKey(ratio.rewards, None, ratio.inputs, every_slot=ratio.items)


def model_key(member: Member, policy: int, reward: int, slot: int | None = None) -> ModelKey | None:
    """The predictors that a member's baseline and control come from."""
    if member.rewards is None:
        return None
    fit = FitKey(member.rewards, policy if member.fit_by_weight else None, member.inputs, slot)
    return ModelKey(fit, member.cross_fit, reward)


Family = list[tuple[Member, AnyTerms]]  # members from which SLOPE selects one


def plan_estimators(
    estimators: Sequence[Mapping[int, Estimator]], plan: Plan, cross_fit: int | None, weighable: Collection[int]
) -> tuple[dict[tuple[int, int, int], list[Family]], dict[tuple[int, int], AnyTerms]]:
    """Plan the members of each part of each (policy, estimator, reward): these with their terms, and the terms of SNIPS.

    Estimators are given by the position of the policy; `weighable` are the policies for which π/π0 is known.
    """
    members: dict[Any, list[Family]] = {}
    references: dict[tuple[int, int], AnyTerms] = {}
    for policy in range(plan.n_policies):
        if policy in weighable:
            plan.raw_weight(policy)
            for reward in range(plan.rewards):  # SNIPS, which other estimates are compared with even if it is not requested
                references[policy, reward] = plan.add(Member(Weight(), normalised=True), policy, reward)
        for e, reward in itertools.product(range(len(estimators)), range(plan.rewards)):
            if policy in estimators[e]:
                members[policy, e, reward] = [
                    [
                        (member, plan.add(member, policy, reward))
                        for member in (replace(m, weight=m.weight.for_reward(reward)) for m in part.members(cross_fit))
                    ]
                    for part in estimators[e][policy].parts
                ]
    return members, references
