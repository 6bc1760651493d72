"""How much memory an evaluation needs, and with what it makes do: refits, folds only, or a covariance that actions share.

Counted is what grows with actions, context and rewards; what a batch takes is bounded by its size, which follows from the
budget. Each line is an upper bound of what is alive at one time, with `threads` partitions at work.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal, get_args

from offpolicy.core.memory import Budget, Need
from offpolicy.data.features import Features
from offpolicy.models.rewards.base import FitShape
from offpolicy.ratios.base import Ratio, RatioNumbers
from offpolicy.scoring.plan import FitKey, Plan

Rung = Literal["refits", "folds", "shared"]
RUNGS: tuple[Rung, ...] = get_args(Rung)
BASE = 250e6
"""The libraries, and what batches take at least."""
BATCH_SHARE = 0.2
"""Of the budget, for batches."""
FEWEST_ROWS = 1_024
ENTRY_BYTES = 120
"""Of a listed action on its way through the scoring pass."""
COLUMN_BYTES = 64
"""Of a number of a row: raw, decoded, sorted, stacked, centred."""


@dataclass(frozen=True)
class Sizes:
    """What the memory of a job depends on."""

    n_actions: int
    context: int
    rewards: int
    groups: int
    folds: int
    """Groups that are kept where there are no refits."""
    threads: int
    plan: Plan
    features: Features
    listed: bool = False
    """Whether all policies list the few actions of a round, so that no neighbours are looked up."""

    def needs(self, rung: Rung) -> list[Need]:
        """What is kept on a rung."""
        found = [Need("the program and its batches", BASE, "fixed")]
        found += [*self._models(rung), self._coefficients(), self._pools(), self._scoring(rung)]
        if rung == "refits":
            found += [self._errors()]
        return [need for need in found if need.bytes]

    def shape(self, fit: FitKey, rung: Rung) -> FitShape:
        """What a reward model's memory depends on."""
        assert fit.inputs is not None
        return FitShape(
            n_actions=self.n_actions, context=self.context, rewards=self.rewards,
            groups=self.groups if rung == "refits" else self.folds, seed=0, inputs=fit.inputs, features=self.features,
            folds=math.lcm(1, *self.plan.folds_of(fit)), jackknife=rung == "refits", shared=rung == "shared",
        )  # fmt: skip

    def _models(self, rung: Rung) -> list[Need]:
        """What reward models hold. Fits with the same row weights share equal needs, and all share what is used in turn."""
        distinct = dict.fromkeys(
            (None if need.in_turn else fit.policy, need)
            for fit in self.plan.fits
            for need in fit.rewards.needs(self.shape(fit, rung), self.threads)
        )
        covered = {need.covers for _, need in distinct}
        times = Counter(need for _, need in distinct if need.what not in covered)
        return [replace(need, bytes=need.bytes * count) for need, count in times.items()]

    def _coefficients(self) -> Need:
        linear = sum(max(model.folds, 1) for model in self.plan.models)
        numbers = (2 + 2 * self.plan.n_policies) * linear * (self.context + 1)
        return Need("coefficients", 8.0 * numbers * self.n_actions, f"{self.n_actions:,} actions × {numbers} numbers")

    def _numbers(self, ratio: Ratio) -> RatioNumbers:
        return ratio.numbers(self.n_actions, self.context, self.features.size)

    @property
    def _ratios(self) -> list[RatioNumbers]:
        """What each fit of a ratio keeps per action."""
        return [self._numbers(key.ratio) for key in self.plan.ratios]

    def _pools(self) -> Need:
        """Embeddings, and what turns them into weights."""
        kept = self._ratios
        near = 0 if self.listed else max((ratio.near for ratio in kept), default=0)
        numbers = sum(ratio.fitted + ratio.folds * near for ratio in kept)
        return Need("embeddings", 8.0 * numbers * self.n_actions, f"{self.n_actions:,} actions × {numbers:.0f} numbers")

    def _scoring(self, rung: Rung) -> Need:
        """Counts, masses and sums of features of each part of the log at work."""
        kept = self.groups if rung == "refits" else self.folds
        sums = max((ratio.sums for ratio in self._ratios), default=0)
        numbers = (self.threads + 2) * (1 + self.plan.n_policies + kept * sums)
        return Need("counts", 8.0 * numbers * self.n_actions, f"{self.n_actions:,} actions × {numbers} numbers")

    def _errors(self) -> Need:
        """How estimates move with what was fitted."""
        tables = len(self.plan.tables) * (self.context + 1)
        for key in self.plan.weights:
            tables += self._numbers(key.weight.ratio).slopes * (1 + len(self.plan.corrections(key)))
        refits = sum(fit.rewards.refit_numbers(self.shape(fit, "refits")) for fit in self.plan.fits)
        numbers = tables * (self.threads + 2) + refits
        told = f"{self.n_actions:,} actions × {numbers} numbers"
        return Need("the fit's share of the errors", 8.0 * numbers * self.n_actions, told)


def rung_for(sizes: Sizes, budget: Budget) -> Rung:
    """The most that fits: refits for the error of the fit, else folds only, else a covariance that actions share."""
    for rung in RUNGS:
        if budget.holds(sizes.needs(rung)):
            return rung
    raise budget.refusal(
        min((sizes.needs(rung) for rung in RUNGS), key=lambda needs: sum(need.bytes for need in needs)),
        "Give more with `memory=` (--memory), fewer context columns or folds (cross_fit=2), or estimators without a reward "
        "model, such as SNIPS.",
    )


def rows_for(sizes: Sizes, budget: Budget, columns: int, listed: float) -> int:
    """How many rows a batch may have: `columns` numbers and `listed` actions each."""
    each = COLUMN_BYTES * columns + ENTRY_BYTES * listed
    return max(FEWEST_ROWS, int(BATCH_SHARE * budget.bytes / (sizes.threads * max(each, 1.0))))


def folds_kept(folds: set[int]) -> int:
    """The groups that are kept without refits: a multiple of every number of folds, and enough to choose a penalty."""
    return math.lcm(*folds) if folds else 2
