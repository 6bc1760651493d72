"""Blends: the joint covariance of the candidates' functionals, and the one functional that a rule makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.estimators import Combined
from offpolicy.estimators.selection import CandidateEstimates, Choice
from offpolicy.inference.functionals import Blended, Functional, ScoreSums, Undefined, distance_variance, joined, variance
from offpolicy.inference.learning_curve import LearningCurve


@dataclass(frozen=True)
class Candidate:
    """One of the estimates to be blended.

    `known`: whether its error is known, including that of its fit. `uncorrected`: the share of a reward model's error that
    its weights leave uncorrected. `weighs`: whether it has weights at all. `curve`: how the value of its reward model alone
    changed from half of the rounds to all of them. `missed`: for lists, the share of each kind of interaction between slots
    that its weights leave out, and of the error of a reward model. `effective`: the number of effective rounds. `column`:
    the column of its weights among the sums. `width`: that of its kernel. `modelled`: whether it has a reward model.
    `divided`: whether what its weights add up to is divided by the mean weight, or nothing is weighted.
    """

    name: str
    functional: Functional
    unbiased: bool
    known: bool
    uncorrected: float
    weighs: bool = True
    curve: LearningCurve | None = None
    missed: tuple[float, ...] = ()
    effective: float = float("nan")
    column: int | None = None
    width: float = 0.0
    modelled: bool = False
    divided: bool = True

    @property
    def required(self) -> float:
        """The number of effective rounds from which on its variance can be relied on; 0 for SNIPS."""
        if not self.divided:
            return REQUIRED_UNDIVIDED
        return REQUIRED_MODEL if self.modelled else 0.0

    @property
    def least_bias(self) -> float:
        """The bias that the learning curve shows at least: that of its model, as far as its weights do not correct it."""
        return 0.0 if self.curve is None else self.uncorrected * self.curve.least_bias


# If the mean weight is below 1 by more than the first number of standard errors, errors are multiplied by that number, up to
# the second.
MISSED, MOST_MISSED = 2.0, 5.0
REQUIRED_MODEL, REQUIRED_UNDIVIDED = 17.0, 55.0
"""Effective rounds required by a reward model, and by weights that are not divided by their mean (from building worlds)."""
GROUPS = 5
"""The number of groups of units that weights of a mix are held out from."""


def _is_defined(f: Functional, sums: ScoreSums) -> bool:
    """Whether the value is a number, also if any bucket or group of rounds is left out."""
    if not (np.isfinite(f.value) and np.isfinite(f.gradient).all()):
        return False
    left_out = sums.buckets.sum(axis=0) - sums.buckets[sums.buckets[:, 0] > 0]
    return bool(np.isfinite(f.evaluate(left_out)).all() and f.sampling is not None and np.isfinite(f.sampling).all())


def covariance(functionals: Sequence[Functional], sums: ScoreSums) -> FloatArray:
    """The covariance of the estimates' errors: of sampling by a jackknife over buckets, of fits by one over groups.

    A jackknife, because if a few rounds have most of the weight, the delta method regards a self-normalised estimate as
    nearly exact. The errors of sampling and fit are joined pair by pair as in `variance`.
    """
    sampled = sampled_covariance(functionals, sums).sum(axis=0)
    alone = np.array([f.sampling for f in functionals])
    fitted = np.array([np.zeros(alone.shape[1]) if f.fit is None else f.fit for f in functionals])
    groups, both = _jackknifed(alone), _jackknifed(alone + fitted)
    own = np.maximum(joined(*(np.diag(part) for part in (sampled, groups, both))), 0.0)
    of_differences = np.maximum(joined(*(_between(part) for part in (sampled, groups, both))), 0.0)
    values, vectors = np.linalg.eigh((own[:, None] + own[None] - of_differences) / 2)
    joint: FloatArray = (vectors * np.maximum(values, 0.0)) @ vectors.T  # joined pair by pair, it may not be positive
    return joint


def sampled_covariance(functionals: Sequence[Functional], sums: ScoreSums) -> FloatArray:
    """The covariance of the estimates' sampling errors by a jackknife over buckets, as the sum of what groups contribute."""
    total, filled = sums.buckets.sum(axis=0), sums.buckets[sums.buckets[:, 0] > 0]
    changes = _changes(np.array([f.evaluate(total - filled) for f in functionals]))
    return np.stack([part @ part.T for part in np.array_split(changes, GROUPS, axis=1)])


def _jackknifed(left_out: FloatArray) -> FloatArray:
    """The covariance of estimates (rows) from their values when each part of the log (columns) is left out."""
    changes = _changes(left_out)
    jackknifed: FloatArray = changes @ changes.T
    return jackknifed


def _changes(left_out: FloatArray) -> FloatArray:
    """The centred values, scaled so that their sum of squares is the jackknife's variance."""
    parts = left_out.shape[1]
    changes: FloatArray = (left_out - left_out.mean(axis=1, keepdims=True)) * np.sqrt((parts - 1) / parts)
    return changes


def _between(matrix: FloatArray) -> FloatArray:
    """The variance of every difference."""
    diagonal = np.diag(matrix)
    between: FloatArray = diagonal[:, None] + diagonal[None] - 2 * matrix
    return between


@dataclass(frozen=True)
class BlendEvidence:
    """What the log says besides the candidates.

    `shortfall` is the number of standard errors by which the mean weight is below 1, `logged` the mean reward, `rewards` the
    number of effective rounds with a reward other than 0, `spread` the standard deviation of the rewards, and `missing` the
    share of the new policy that the log lacks at least.
    """

    shortfall: float
    logged: float
    rewards: float
    spread: float = float("nan")
    missing: float = 0.0


@dataclass(frozen=True)
class Combination:
    """A blend of candidates by a rule.

    `parts` are the candidates that gave a number, `undefined` the names of the others.
    """

    estimator: Combined
    parts: tuple[Candidate, ...]
    sums: ScoreSums
    evidence: BlendEvidence
    undefined: tuple[str, ...] = ()

    @classmethod
    def of(cls, estimator: Combined, parts: Sequence[Candidate], sums: ScoreSums, evidence: BlendEvidence) -> Combination:
        defined = tuple(part for part in parts if _is_defined(part.functional, sums))
        names = {part.name for part in defined}
        undefined = tuple(part.name for part in parts if part.name not in names)
        return cls(estimator, defined, sums, evidence, undefined)

    @property
    def defined(self) -> bool:
        return any(part.known and (part.unbiased or not self.estimator.compares) for part in self.parts)

    @property
    def missed(self) -> float:
        """The factor by which the errors of nearly unbiased candidates are multiplied, compared with the others."""
        if all(part.unbiased for part in self.parts):  # all are equally affected, and none is preferred for it
            return 1.0
        shortfall = self.evidence.shortfall
        return min(shortfall, MOST_MISSED) if shortfall > MISSED else 1.0

    @cached_property
    def candidates(self) -> CandidateEstimates:
        functionals = [part.functional for part in self.parts]
        # If the weights sum to too little, the largest ones are missing from the log, which their spread does not show.
        missed = np.array([self.missed if part.unbiased else 1.0 for part in self.parts])
        return CandidateEstimates(
            names=tuple(part.name for part in self.parts),
            values=np.array([f.value for f in functionals]),
            covariance=covariance(functionals, self.sums) * np.outer(missed, missed),
            sampled=sampled_covariance(functionals, self.sums) * np.outer(missed, missed),
            unbiased=tuple(part.unbiased and part.known for part in self.parts),
            known=tuple(part.known for part in self.parts),
            uncorrected=tuple(part.uncorrected for part in self.parts),
            least_biases=tuple(part.least_bias for part in self.parts),
            logged=self.evidence.logged,
            evidence=self.evidence.rewards,
            resampled=self._resampled,
            buckets=len(self.sums.buckets),
            effective=np.array([part.effective for part in self.parts]),
            spread=self.evidence.spread,
            missed=np.array([part.missed for part in self.parts]),
            widths=np.array([part.width for part in self.parts]),
            modelled=tuple(part.modelled for part in self.parts),
            required=np.array([part.required for part in self.parts]),
        )

    def _resampled(self, k: int, counts: FloatArray) -> FloatArray:
        """The value with buckets counted this often; what was fitted moves with groups of buckets, to first order."""
        f = self.parts[k].functional
        return f.evaluate(counts @ self.sums.buckets) + self._moved(f, counts)

    def _moved(self, f: Functional, counts: FloatArray) -> FloatArray | float:
        if f.fit is None:
            return 0.0
        group = np.arange(counts.shape[1]) * len(f.fit) // counts.shape[1]
        missing = 1 - np.stack([counts[:, group == g].mean(axis=1) for g in range(len(f.fit))], axis=1)
        moved: FloatArray = missing @ f.fit
        return moved

    @cached_property
    def choice(self) -> Choice:
        return self.estimator.choose(self.candidates)

    @property
    def weights(self) -> FloatArray:
        return self.choice.weights if self.defined else np.zeros(len(self.parts))

    @property
    def anchor(self) -> FloatArray:
        """The weights of the nearly unbiased blend that the choice starts from."""
        anchor = self.choice.anchor
        return np.eye(len(self.parts))[self.candidates.anchor] if anchor is None else anchor

    @property
    def value(self) -> float:
        return float(self.candidates.values @ self.weights) if self.defined else float("nan")

    @cached_property
    def functional(self) -> Functional:
        """The weighted sum, with what the jackknife adds to its variance, and its distance from the anchor."""
        if not self.defined:
            nothing = np.full(len(self.sums.moments["mean"]), np.nan)
            return Functional(float("nan"), nothing, Undefined())
        functionals, weights = [part.functional for part in self.parts], self.choice.weights
        summed = combined(functionals, weights)
        sampled, stated = self.candidates.variance(weights) * (1 + self.choice.optimism), self.choice.variance
        step = weights - self.anchor
        whole = sampled if stated is None or step.any() else stated
        extra = max(whole - variance(summed, self.sums), 0.0) + self._unseen_variance
        if self.choice.hedge:
            summed = replace(summed, hedge=combined(functionals, self.anchor * np.sqrt(self.choice.hedge)))
        if not step.any():
            return replace(summed, extra=extra)
        distance = combined(functionals, step)
        beyond = max(self.candidates.variance(step) - variance(distance, self.sums), 0.0)
        way = replace(distance, extra=beyond)
        if stated is not None:  # of the distance, the rule counts so much as bias
            share = max(stated - sampled, 0.0) / distance_variance(way, self.sums)
            return replace(summed, extra=extra, way=way.divided_by(1 / np.sqrt(share)) if share > 0 else None)
        return replace(summed, extra=extra, way=way)

    @property
    def _unseen_variance(self) -> float:
        """What no candidate knows: rewards of the share that the log lacks may be off by a standard deviation of rewards."""
        missing = self.evidence.missing
        return (missing * self.evidence.spread) ** 2 if missing else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The candidates by decreasing weight: the value of each, its difference from the anchor, and its weight."""
        candidates, choice, rows = self.candidates, self.choice, []
        for k in np.lexsort((candidates.errors**2 + choice.biases**2, -choice.weights)):
            difference, error = candidates.difference(int(k), candidates.anchor)
            curve = None if self.parts[k].weighs else self.parts[k].curve
            learning = None if curve is None else curve.to_dict(float(candidates.values[k]))
            rows.append(
                {"name": candidates.names[k], "value": float(candidates.values[k]), "std_error": float(candidates.errors[k]),
                 "weight": float(choice.weights[k]), "nearly_unbiased": candidates.unbiased[k], "estimated_bias":
                 float(choice.biases[k]), "difference": difference, "difference_error": error,
                 "error_known": candidates.known[k], "learning": learning}
            )  # fmt: skip
        out = dict(self.estimator.left_out) | dict.fromkeys(self.undefined, "gave no number")
        return {
            "candidates": rows,
            "anchor": candidates.names[candidates.anchor],
            "left_out": out,
            "rule": self.estimator.rule,
            **choice.details,
            "errors_of_nearly_unbiased_multiplied_by": self.missed,
        }


def combined(functionals: Sequence[Functional], weights: FloatArray) -> Functional:
    """Σ weight·functional: functionals are linear in everything except the formula of their value."""
    used = [(f, float(w)) for f, w in zip(functionals, weights, strict=True) if w]
    fits = [w * f.fit for f, w in used if f.fit is not None]
    sampled = [w * f.sampling for f, w in used if f.sampling is not None]
    return Functional(
        value=sum(w * f.value for f, w in used),
        gradient=np.sum([w * f.gradient for f, w in used], axis=0),
        evaluate=Blended(tuple(f.evaluate for f, _ in used), tuple(w for _, w in used)),
        origin=used[0][0].origin,
        fit=np.sum(fits, axis=0) if fits else None,
        sampling=np.sum(sampled, axis=0) if len(sampled) == len(used) else None,
    )
