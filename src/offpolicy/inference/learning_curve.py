"""How far a reward model alone is from what it would estimate with more rounds, read off fits on half of the log.

Shrinkage holds the value of a model near that of the pooled one, and lets go as rounds are added. With V(n) the value of the
model alone (DM) after n rounds, and a bias in proportion to n^−γ,

    V(2n) − V(n) = (V(n) − V(n/2)) / 2^γ,      V(∞) − V(n) = (V(n) − V(n/2)) / (2^γ − 1),

where γ follows from the slope dV/d log n at the end of the curve, which the refits without each group show:

    slope / (V(n) − V(n/2)) = γ / (2^γ − 1).

A bias falls like 1/n where actions have many rounds, and faster where many actions have few. Rates below 1 are not claimed.

The log is split into two halves in several ways that are balanced against each other. Each half has its own fit, by the
same Gram sums and the same penalty, and the two are averaged, so that the part of the value that is linear in the rounds
cancels from the difference, and with it nearly all of the sampling error. What remains of it shows in the spread over the
splits. Every value is the product of coefficients with the table Σ π(a|x)·x̃ of the rounds that the coefficients were fitted
on, which the scoring pass sums by group of units, so no row is read again. (On other rounds a model of many coefficients is
another one: DM is not cross-fitted, and fits the rounds it is evaluated on better.) No weight is involved: the curve sees
what rounds will change, and not that a model is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.threads import parallel
from offpolicy.inference.functionals import ScoreSums
from offpolicy.inference.jackknife import Refits
from offpolicy.scoring.plan import ModelKey, Terms

REACH = 2.0
"""The number of standard errors from which a change counts as seen."""
PATTERNS = (1, 2, 3, 5)
"""Splits of the groups into halves, by the parity of the bits of their number that a pattern selects."""
RATES = np.linspace(1.0, 8.0, 141)


@dataclass(frozen=True)
class LearningCurve:
    """The end of the learning curve of a reward model alone: V(n) − V(n/2), and the slope dV/d log n.

    `std_error` is the standard deviation of the change over the splits into halves. That is the error of a single split. The
    mean over the splits varies about half as much for this reason, and for the rest because all of them share the log.

    >>> curve = LearningCurve(change=0.2, slope=0.2, std_error=0.01)
    >>> curve.rate, round(curve.next_change, 3), round(curve.remaining, 3)
    (1.0, 0.1, 0.2)
    """

    change: float
    slope: float
    std_error: float

    @property
    def seen(self) -> bool:
        """Whether the change is more than sampling error explains."""
        return abs(self.change) > REACH * self.std_error

    @property
    def rate(self) -> float:
        """γ: the bias falls like n^−γ, from 1."""
        ratio = self.slope / self.change if self.change else 0.0
        return float(np.interp(-ratio, -RATES / (2**RATES - 1), RATES))  # np.interp needs ascending numbers

    @property
    def next_change(self) -> float:
        """V(2n) − V(n)."""
        return self.change / 2**self.rate

    @property
    def remaining(self) -> float:
        """V(∞) − V(n): what is still on its way from the logged mean."""
        return self.change / (2**self.rate - 1)

    @property
    def least_bias(self) -> float:
        """What twice the rounds would change at least; 0 if that may be sampling error."""
        return max(abs(self.change) - REACH * self.std_error, 0.0) / 2**self.rate

    def to_dict(self, value: float) -> dict[str, float]:
        """Of an estimate that comes from the model alone: with half of the rounds, as it is, and expected with more."""
        return {
            "half": value - self.change,
            "whole": value,
            "twice": value + self.next_change,
            "limit": value + self.remaining,
            "std_error": self.std_error,
        }


@dataclass(frozen=True)
class LearningCurves:
    """The learning curves of the models that the jackknife refits, on logs whose tables of shares are summed by group."""

    refits: Refits

    def of(self, model: ModelKey | None, terms: Terms, sums: ScoreSums) -> LearningCurve | None:
        """The curve of the model behind an estimate; None if there is no model, or no fit on a part of the log."""
        scorer, state = self.refits.scorer, self.refits.state
        if model is None or terms.tables[0] is None or sums.slice_ is not None:
            return None
        table = state["shares"].get(str(scorer.plan.tables.index(terms.tables[0])))
        refits = None if table is None else self.refits.coefficients(model)
        halves = None if refits is None else self._halves(model)
        if table is None or refits is None or halves is None:
            return None
        rows, whole = sums.by_group(scorer.groups)[:, 0], table.sum(axis=0)
        value = float((refits[0] * whole).sum() / rows.sum())
        tables = np.array([[table[half].sum(axis=0) for half in split(scorer.groups, pattern)] for pattern in PATTERNS])
        changes = value - np.einsum("shak,shak->s", halves, tables) / rows.sum()
        left_out = np.einsum("gak,gak->", refits[1:], whole - table) / (rows.sum() - rows).sum()
        slope = (scorer.groups - 1) * (value - float(left_out))
        return LearningCurve(float(changes.mean()), slope, float(changes.std(ddof=1)))

    @cached_property
    def _computed(self) -> dict[tuple[object, int], FloatArray | None]:
        return {}

    def _halves(self, model: ModelKey) -> FloatArray | None:
        """Splits × halves × coefficients, around the scorer's centre."""
        key = (model.fit, model.reward)  # however it is cross-fitted
        if key not in self._computed:
            fits, scorer = self.refits.fitted.models[model.fit], self.refits.scorer
            halves = [half for pattern in PATTERNS for half in split(scorer.groups, pattern)]
            fitted = parallel(lambda half: fits.on_groups(model.reward, half), halves)
            moved = [linear.moved(scorer.centre).coef for linear in fitted if linear is not None]
            complete = len(moved) == len(halves)
            self._computed[key] = np.stack(moved).reshape(len(PATTERNS), 2, *moved[0].shape) if complete else None
        return self._computed[key]


def split(groups: int, pattern: int) -> tuple[IntArray, IntArray]:
    """Two halves of the groups; those of different patterns have about half of their groups in common.

    >>> [half.tolist() for half in split(8, 3)]
    [[0, 3, 4, 7], [1, 2, 5, 6]]
    """
    odd = np.array([(group & pattern).bit_count() % 2 for group in range(groups)], dtype=bool)
    return np.flatnonzero(~odd), np.flatnonzero(odd)
