"""From the candidates' functionals to one: how they vary together, and what a rule makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.estimators import Combined
from offpolicy.estimators.selection import CandidateEstimates, Choice
from offpolicy.inference.functionals import Blended, Functional, ScoreSums, Undefined, joined, variance


@dataclass(frozen=True)
class Candidate:
    """One of the estimates that are to become one."""

    name: str
    functional: Functional
    unbiased: bool
    known: bool
    """Whether its whole error is known, that of its fit included."""


MISSED, MOST_MISSED = 2.0, 5.0
"""Where the mean weight falls short of 1 by more than so many standard errors, errors are multiplied with that number, up to
the second."""


def _speaks(f: Functional, sums: ScoreSums) -> bool:
    """Whether there is a number, and one without any bucket or group of rounds."""
    if not (np.isfinite(f.value) and np.isfinite(f.gradient).all()):
        return False
    left_out = sums.buckets.sum(axis=0) - sums.buckets[sums.buckets[:, 0] > 0]
    return bool(np.isfinite(f.evaluate(left_out)).all() and f.sampling is not None and np.isfinite(f.sampling).all())


def covariance(functionals: Sequence[Functional], sums: ScoreSums) -> FloatArray:
    """Of the estimates' errors. Sampling by a jackknife over buckets of units, fits by that over groups.

    A jackknife, because where a few rounds hold most of the weight the delta method calls a self-normalised estimate nearly
    exact. The shares of sampling and fit are joined pair by pair as in `inference.variance`.
    """
    total, filled = sums.buckets.sum(axis=0), sums.buckets[sums.buckets[:, 0] > 0]
    sampled = _jackknifed(np.array([f.evaluate(total - filled) for f in functionals]))
    alone = np.array([f.sampling for f in functionals])
    fitted = np.array([np.zeros(alone.shape[1]) if f.fit is None else f.fit for f in functionals])
    groups, both = _jackknifed(alone), _jackknifed(alone + fitted)
    own = np.maximum(joined(*(np.diag(part) for part in (sampled, groups, both))), 0.0)
    of_differences = np.maximum(joined(*(_between(part) for part in (sampled, groups, both))), 0.0)
    values, vectors = np.linalg.eigh((own[:, None] + own[None] - of_differences) / 2)
    joint: FloatArray = (vectors * np.maximum(values, 0.0)) @ vectors.T  # what was joined pair by pair may be no covariance
    return joint


def _jackknifed(left_out: FloatArray) -> FloatArray:
    """The covariance of estimates (rows) from their values when each part of the log (columns) is left out."""
    parts = left_out.shape[1]
    centred = left_out - left_out.mean(axis=1, keepdims=True)
    found: FloatArray = centred @ centred.T * (parts - 1) / parts
    return found


def _between(matrix: FloatArray) -> FloatArray:
    """The variance of every difference."""
    diagonal = np.diag(matrix)
    found: FloatArray = diagonal[:, None] + diagonal[None] - 2 * matrix
    return found


@dataclass(frozen=True)
class Combination:
    """What a rule made of some candidates."""

    estimator: Combined
    parts: tuple[Candidate, ...]
    """Those that gave a number."""
    sums: ScoreSums
    shortfall: float
    """By how many of its standard errors the mean weight falls short of 1."""
    silent: tuple[str, ...] = ()
    """Those that did not."""

    @classmethod
    def of(cls, estimator: Combined, parts: Sequence[Candidate], sums: ScoreSums, shortfall: float) -> Combination:
        spoke = [_speaks(part.functional, sums) for part in parts]
        return cls(
            estimator,
            tuple(part for part, said in zip(parts, spoke, strict=True) if said),
            sums,
            shortfall,
            tuple(part.name for part, said in zip(parts, spoke, strict=True) if not said),
        )

    @property
    def defined(self) -> bool:
        return any(part.unbiased and part.known for part in self.parts)

    @property
    def missed(self) -> float:
        """What the errors of nearly unbiased candidates are multiplied with."""
        return min(self.shortfall, MOST_MISSED) if self.shortfall > MISSED else 1.0

    @cached_property
    def candidates(self) -> CandidateEstimates:
        functionals = [part.functional for part in self.parts]
        # Weights that sum to too little have missed what they are largest for, and their own spread does not show it.
        missed = np.array([self.missed if part.unbiased else 1.0 for part in self.parts])
        return CandidateEstimates(
            names=tuple(part.name for part in self.parts),
            values=np.array([f.value for f in functionals]),
            covariance=covariance(functionals, self.sums) * np.outer(missed, missed),
            unbiased=tuple(part.unbiased and part.known for part in self.parts),
            known=tuple(part.known for part in self.parts),
            resampled=self._resampled,
            buckets=len(self.sums.buckets),
        )

    def _resampled(self, k: int, counts: FloatArray) -> FloatArray:
        """One value when buckets count so often; what was fitted moves with the groups of buckets, to first order."""
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
    def value(self) -> float:
        return float(self.candidates.values @ self.weights) if self.defined else float("nan")

    @cached_property
    def functional(self) -> Functional:
        """The weighted sum, with what the jackknife adds to its error, and the way to it from the anchor."""
        if not self.defined:
            nothing = np.full(len(self.sums.moments["mean"]), np.nan)
            return Functional(float("nan"), nothing, Undefined())
        functionals, weights = [part.functional for part in self.parts], self.choice.weights
        summed = combined(functionals, weights)
        extra = max(self.candidates.variance(weights) - variance(summed, self.sums), 0.0)
        step = weights - np.eye(len(weights))[self.candidates.anchor]
        if not step.any():
            return replace(summed, extra=extra)
        way = combined(functionals, step)
        beyond = max(self.candidates.variance(step) - variance(way, self.sums), 0.0)
        return replace(summed, extra=extra, way=replace(way, extra=beyond))

    def told(self) -> dict[str, Any]:
        """The candidates, the heaviest first: what each says, how it differs from the anchor, and what it counts."""
        found, choice = self.candidates, self.choice
        rows = []
        for k in np.lexsort((found.errors**2 + choice.biases**2, -choice.weights)):
            difference, error = found.difference(int(k), found.anchor)
            rows.append(
                {"name": found.names[k], "value": float(found.values[k]), "std_error": float(found.errors[k]),
                 "weight": float(choice.weights[k]), "nearly_unbiased": found.unbiased[k], "estimated_bias":
                 float(choice.biases[k]), "difference": difference, "difference_error": error, "error_known": found.known[k]}
            )  # fmt: skip
        out = dict(self.estimator.left_out) | dict.fromkeys(self.silent, "gave no number")
        return {
            "candidates": rows,
            "anchor": found.names[found.anchor],
            "left_out": out,
            "rule": self.estimator.rule,
            "errors_of_nearly_unbiased_multiplied_by": self.missed,
        }


def combined(functionals: Sequence[Functional], weights: FloatArray) -> Functional:
    """Σ weight·functional: functionals are linear in everything but their value's own formula."""
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
