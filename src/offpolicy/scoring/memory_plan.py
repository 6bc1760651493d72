"""How much memory an evaluation needs, and with what it makes do: refits, folds only, or a covariance that actions share.

Counted is what grows with actions, context and rewards; what a batch takes is bounded by its size, which follows from the
budget. Each line is an upper bound of what is alive at one time, with `threads` partitions at work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from offpolicy.core.memory import Budget, Need
from offpolicy.data.features import Features
from offpolicy.data.partitions import CHUNK_ROWS
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.models.rewards.ridge.packed import ACTIONS_FOR_COVARIANCE, BLOCK_NUMBERS
from offpolicy.models.rewards.two_step import TwoStep
from offpolicy.ratios.base import Ratio, RatioNumbers
from offpolicy.scoring.plan import FitKey, Plan
from offpolicy.statistics.gram import DENSE

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

    @property
    def ridges(self) -> list[FitKey]:
        return [fit for fit in self.plan.fits if isinstance(fit.rewards, (Ridge, TwoStep))]

    def _numbers(self, ratio: Ratio) -> RatioNumbers:
        return ratio.numbers(self.context, self.features.size)

    @property
    def _ratios(self) -> list[RatioNumbers]:
        """What each fit of a ratio keeps per action."""
        return [self._numbers(key.ratio) for key in self.plan.ratios]

    def needs(self, rung: Rung) -> list[Need]:
        """What is kept on a rung."""
        found = [Need("the program and its batches", BASE, "fixed")]
        grams = len({fit.policy for fit in self.ridges})
        if grams:
            found += [self._grams(rung, grams), self._solving(rung)]
        found += [self._coefficients(), self._pools(), self._scoring(rung)]
        if rung == "refits":
            found += [self._errors()]
        return [need for need in found if need.bytes]

    def _grams(self, rung: Rung, count: int) -> Need:
        d, r = self.context, self.rewards
        numbers = 1 + d + r + r * (d + 1) + (1 if rung == "shared" else d * (d + 1) // 2)
        kept = self.groups if rung == "refits" else self.folds
        keys = kept * self.n_actions
        part = keys if DENSE * keys <= CHUNK_ROWS else CHUNK_ROWS
        states = keys + (self.threads + 1) * part
        return Need(
            "sums by action for the reward model", 8.0 * numbers * states * count,
            f"{kept} {'groups' if rung == 'refits' else 'folds'} × {self.n_actions:,} actions × {numbers} numbers × 8 bytes "
            f"and those of {self.threads + 1} parts of the log",
        )  # fmt: skip

    def _solving(self, rung: Rung) -> Need:
        """Full matrices: of everything where there are refits, or where features need all actions at once."""
        full = (self.context + 1) ** 2 + 2 * self.context + 3
        by_features = any(fit.inputs != "identity" or isinstance(fit.rewards, TwoStep) for fit in self.ridges)
        if rung == "refits":
            copies = 4 * self.groups + 10 + 4 * self.threads  # as benchmarks.growth context measured
        elif by_features:
            copies = 3 * self.folds + 4 * self.threads
        else:
            chosen = min(self.n_actions, 2 * ACTIONS_FOR_COVARIANCE)
            blocks = BLOCK_NUMBERS * 8 * self.threads + 2 * (self.folds + 1) * chosen * full
            return Need("solving", 8.0 * blocks, f"blocks of actions, and up to {chosen:,} actions to choose the penalty")
        return Need(
            "full matrices for solving", 8.0 * full * self.n_actions * self.rewards * copies,
            f"{self.n_actions:,} actions × {full} numbers × {copies} copies × 8 bytes",
        )  # fmt: skip

    def _coefficients(self) -> Need:
        linear = sum(max(model.folds, 1) for model in self.plan.models)
        numbers = (2 + 2 * self.plan.n_policies) * linear * (self.context + 1)
        return Need("coefficients", 8.0 * numbers * self.n_actions, f"{self.n_actions:,} actions × {numbers} numbers")

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
        size = self.context + 1
        tables = len(self.plan.tables) * size
        for key in self.plan.weights:
            tables += self._numbers(key.weight.ratio).slopes * (1 + len(self.plan.corrections(key)))
        refits = self.groups * size * sum(1 for fit in self.ridges) * self.rewards
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
