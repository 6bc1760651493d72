"""`Scores`: what was computed in the passes over the log, and for which policies and estimators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.estimators import Estimator, LoggedMean, Member
from offpolicy.inference.functionals import Functional, ScoreSums, added, controlled, functional
from offpolicy.models.estimated_policy import EstimatedPolicy
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import AnyTerms, Family, ModelKey, Terms, model_key
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import State
from offpolicy.statistics.strata import stratified


@dataclass(frozen=True)
class Case:
    """A policy and a reward, by number, on the whole log or on a slice."""

    policy: int
    reward: int
    sums: ScoreSums


@dataclass(frozen=True)
class Scores:
    """Everything from which values, errors and findings are computed.

    `references` are the terms of SNIPS for each policy and reward, if there are propensities. `computed` is what a device
    reports about its numbers.
    """

    log: Log
    engine: Engine
    policies: tuple[str, ...]
    estimators: tuple[Mapping[int, Estimator], ...]
    members: Mapping[tuple[int, int, int], Sequence[Family]]
    references: Mapping[tuple[int, int], AnyTerms]
    scorer: Scorer
    fitted: FitResults
    state: State
    computed: Mapping[str, Any] = field(default_factory=dict)

    def sums(self, slice_: str | None = None) -> ScoreSums:
        """The sums of the whole log, or of a slice by its number."""
        state = self.state if slice_ is None else self.state["slices"][slice_]
        moments, buckets = state["moments"], state["buckets"]
        squares = np.diag(moments["m2"])
        if "strata" in state:
            moments, buckets = stratified(moments, buckets, state["strata"])
        clustered, seed = self.log.schema.clustered, self.scorer.seed
        return ScoreSums(moments, buckets, state["nonzero"], clustered, seed, slice_, squares)

    def functional(self, terms: AnyTerms, case: Case) -> Functional:
        """The value of a member: of a list, added up over its slots."""
        return added([(weight, self._alone(part, case)) for weight, part in self.parts(terms, case)])

    def parts(self, terms: AnyTerms, case: Case) -> list[tuple[float, Terms]]:
        """What is added up to the value of a member, with the coefficients of its control variates."""
        moments = case.sums.moments
        return [(share, controlled(part, moments, self.origin(case.reward, part.slot))) for share, part in terms.parts]

    def slots(self, terms: AnyTerms, case: Case) -> tuple[Functional, ...]:
        """The values of each slot, if rewards belong to slots."""
        moments = case.sums.moments
        each = (controlled(part, moments, self.origin(case.reward, part.slot)) for part in terms.slots)
        return tuple(self._alone(part, case) for part in each)

    def _alone(self, terms: Terms, case: Case) -> Functional:
        return functional(terms, case.sums.moments["mean"], self.origin(case.reward, terms.slot))

    def origin(self, reward: int, slot: int | None = None) -> float:
        """The typical value of a reward, or of the reward of one slot, that was subtracted before summing."""
        return self.scorer.origin_of(reward, slot)

    def logged_mean(self, case: Case) -> float:
        """The mean reward of the log: the value of `LoggedMean`, which every evaluation includes."""
        at = next(e for e, column in enumerate(self.estimators) if isinstance(column.get(case.policy), LoggedMean))
        (_, terms), *_ = self.members[case.policy, at, case.reward][0]
        return self.functional(terms, case).value

    def reward_spread(self, case: Case) -> float:
        """The standard deviation of the rewards; of lists, that of what a whole list earns."""
        at = next(e for e, column in enumerate(self.estimators) if isinstance(column.get(case.policy), LoggedMean))
        (_, terms), *_ = self.members[case.policy, at, case.reward][0]
        parts, moments = terms.parts, case.sums.moments
        column = parts[0][1].correction if len(parts) == 1 else None
        if column is None:
            return float("nan")
        squares = np.diag(moments["m2"]) if case.sums.squares is None else case.sums.squares
        return float(np.sqrt(squares[column] / max(case.sums.n, 1)))

    def reward_range(self, reward: int) -> tuple[float, float]:
        """As stated by the log, or else as observed."""
        low, high = self.log.reward_range or (self.state["reward_low"][reward], self.state["reward_high"][reward])
        return float(low), float(high)

    def value_range(self, reward: int) -> tuple[float, float] | None:
        """What every value lies between: the stated range of the rewards, or 0 and 1 if these are 0 and 1; else None."""
        low, high = self.reward_range(reward)
        return (low, high) if self.log.reward_range is not None or (low, high) == (0.0, 1.0) else None

    def slice_name(self, slice_: str | None) -> str | None:
        return None if slice_ is None else (self.log.schema.slices or ())[int(slice_)]

    def cross_fitted(self, reward: int) -> Iterator[tuple[ModelKey, str]]:
        """The cross-fitted models of a reward, each with the name of an estimator that uses it."""
        for (p, e, of), families in self.members.items():
            for member, terms in (each for family in families for each in family if of == reward):
                for _, part in terms.parts:
                    if (model := model_key(member, p, of, part.slot)) is not None and model.folds:
                        yield model, self.estimators[e][p].name

    def learns(self, member: Member, model: ModelKey | None) -> bool:
        """Whether anything about it is fitted to the log, including the propensities in its weights."""
        ratio = member.weight.ratio
        learned = model is not None and model.fit.rewards.fitted
        estimated = isinstance(self.scorer.logging, EstimatedPolicy) and member.weight.weighs
        return ratio.fitted or ratio.rewards is not None or learned or estimated

    def check(self) -> None:
        """Raise if the rewards leave their range, or every row has weight 0."""
        allowed = self.log.reward_range
        for k, name in enumerate(self.log.schema.rewards if allowed else ()):
            low, high = self.state["reward_low"][k], self.state["reward_high"][k]
            if allowed is not None and (low < allowed[0] or high > allowed[1]):
                stated = f"({allowed[0]:g}, {allowed[1]:g})"
                raise InputError(f"{name}: rewards from {low:g} to {high:g} leave the reward_range {stated}.")
        if not self.state["moments"]["mean"][0] > 0:
            raise InputError("weight: every row has weight 0, so there is nothing to average.")
