"""The columns of a scoring pass: each distinct weight, baseline and correction once, however many estimators share it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from offpolicy.data.features import Inputs
from offpolicy.estimators import Estimator, Member
from offpolicy.models.rewards.base import RewardModel
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.weights import Times, Weight

MOST_SHARE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class FitKey:
    """One fit of a reward model: `policy` is the target whose w² are the row weights, or None."""

    rewards: RewardModel
    policy: int | None
    inputs: Inputs | None = "identity"


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
    """weight · (r − control); the control is q(x, a), or the origin if there is no model."""

    policy: int
    weight: Weight
    reward: int
    model: ModelKey | None = None


@dataclass(frozen=True)
class ShareTable:
    """Σ share(a|x)·x̃, actions × (features + 1): how a baseline depends on the coefficients of a linear model."""

    policy: int
    clip: float | None


@dataclass(frozen=True)
class WeightTable:
    """Σ weight·x̃ over the rows of each action: how a correction depends on the coefficients of its control."""

    policy: int
    weight: Weight


TableKey = ShareTable | WeightTable
ColumnKey = WeightColumn | BaselineColumn | CorrectionColumn


@dataclass(frozen=True)
class Terms:
    """The columns of one member's three numbers (None: the number is 0), and how they combine.

    Attributes
    ----------
    scaling : tuple[int, int] | None
        The columns of h·w and h², if the correction by h is scaled by the quotient of their means.
    shifted_baseline : bool
        Whether the baseline is stored less the origin; otherwise the correction is stored less origin·weight.
    tables : tuple[TableKey | None, TableKey | None]
        The share's and the weight's table, for estimators that depend on the fit to first order. With the exact
        ratio they do not: baseline and control change alike on average.
    """

    baseline: int | None
    correction: int | None
    weight: int | None
    normalised: bool
    scaling: tuple[int, int] | None
    shifted_baseline: bool
    tables: tuple[TableKey | None, TableKey | None] = (None, None)


@dataclass
class Plan:
    """The columns of a scoring pass. Column 0 is the row weight, so that every mean is a ratio to it."""

    n_policies: int
    rewards: int
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

    def add(self, member: Member, policy: int, reward: int) -> Terms:
        """Add the columns of one member's numbers."""
        model = self._model(member, policy, reward)
        clip = getattr(member.weight.bend, "limit", float("inf")) if member.remainder else None
        control = None if member.remainder else model
        weighted = member.weight.ratio.corrects
        return Terms(
            baseline=None if model is None else self._column(BaselineColumn(policy, model, clip)),
            correction=self._column(CorrectionColumn(policy, member.weight, reward, control)) if weighted else None,
            weight=self._column(WeightColumn(policy, member.weight)) if weighted else None,
            normalised=member.normalised,
            scaling=self._scaling(member, policy) if member.scaled else None,
            shifted_baseline=control is not None,
            tables=(None, None) if model is None or member.weight.exact else self._tables(member, policy, clip, control),
        )

    def _scaling(self, member: Member, policy: int) -> tuple[int, int]:
        bend = member.weight.bend
        product, square = (replace(member.weight, bend=Times(bend, squared)) for squared in (False, True))
        return self._column(WeightColumn(policy, product)), self._column(WeightColumn(policy, square))

    def _tables(
        self, member: Member, policy: int, clip: float | None, control: ModelKey | None
    ) -> tuple[TableKey, TableKey | None]:
        share = ShareTable(policy, clip)
        weight = None if control is None or not member.weight.ratio.corrects else WeightTable(policy, member.weight)
        for key in (share, weight):
            if key is not None and key not in self.tables:
                self.tables.append(key)
        return share, weight

    def _model(self, member: Member, policy: int, reward: int) -> ModelKey | None:
        key = model_key(member, policy, reward)
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
    return RatioKey(weight.weight.ratio, weight.policy if weight.weight.ratio.per_policy else None)


def fit_of(ratio: Ratio) -> FitKey | None:
    """The reward model that a ratio is fitted from, if any."""
    return None if ratio.rewards is None else FitKey(ratio.rewards, None, ratio.inputs)


def model_key(member: Member, policy: int, reward: int) -> ModelKey | None:
    """The predictors that a member's baseline and control come from."""
    if member.rewards is None:
        return None
    fit = FitKey(member.rewards, policy if member.fit_by_weight else None, member.inputs)
    return ModelKey(fit, member.cross_fit, reward)


Family = list[tuple[Member, Terms]]  # members from which SLOPE selects one


def plan_estimators(
    estimators: Sequence[Mapping[int, Estimator]],
    n_policies: int,
    rewards: int,
    cross_fit: int | None,
    weighable: Collection[int],
) -> tuple[Plan, dict[tuple[int, int, int], list[Family]], dict[tuple[int, int], Terms]]:
    """The plan, the members of each part of each (policy, estimator, reward) with their terms, and the terms of SNIPS.

    Estimators are given by the position of the policy; `weighable` are the policies for which π/π0 is known.
    """
    plan = Plan(n_policies, rewards)
    members: dict[Any, list[Family]] = {}
    references: dict[tuple[int, int], Terms] = {}
    for policy in range(n_policies):
        if policy in weighable:
            plan.raw_weight(policy)
            for reward in range(rewards):  # SNIPS, which other estimates are compared with even if it is not requested
                references[policy, reward] = plan.add(Member(Weight(), normalised=True), policy, reward)
        for e, reward in itertools.product(range(len(estimators)), range(rewards)):
            if policy in estimators[e]:
                members[policy, e, reward] = [
                    [
                        (member, plan.add(member, policy, reward))
                        for member in (replace(m, weight=m.weight.for_reward(reward)) for m in part.members(cross_fit))
                    ]
                    for part in estimators[e][policy].parts
                ]
    return plan, members, references
