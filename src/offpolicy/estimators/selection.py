"""Rules that combine several estimates of one value, given only the estimates and the covariance of their errors.

All candidates are scored on the same rows, so the covariance of their errors is known, and the difference of two of them is
known far better than either. The difference to a nearly unbiased candidate shows how biased the others may be.

`slope` and `smallest_error` select from a family ordered by bias, after SLOPE (Su et al. 2020; Tucker & Lee 2021). SLOPE
moves on to the next, smoother member as long as its interval overlaps those of all earlier members; here the intervals are
those of the differences, which must contain 0. The rule and its limit of 2 standard errors were chosen by hand from six
variants in a few small linear worlds; the benchmark judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from offpolicy.core.arrays import FloatArray

SUM_WEIGHT = 1e4
ITERATIONS = 100
CYCLING = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
"""What is added to the variances, relative to the largest, until the solver converges."""
SPLITS = 20
REACH = 2.0


@dataclass(frozen=True)
class CandidateEstimates:
    """Estimates of the same value, and the covariance of their errors.

    `unbiased` marks those with the exact weights of actions, `known` those whose whole error is known; the others get no
    weight. `sampled` are the parts of the covariance that each of some groups of units contributes; they sum to the whole,
    except for errors of fits. `uncorrected` is the share of a reward model's error that the weights of a candidate leave
    uncorrected, and `least_biases` are the biases that the learning curves of the models show at least. `logged` is the mean
    reward of the log, `spread` the standard deviation of the rewards, `evidence` the number of effective rounds with a
    reward other than 0, `effective` the number of effective rounds of each candidate. `resampled(k, counts)` is candidate k
    in each draw, where `counts` (draws × buckets) states how often each bucket of units counts. `missed` is, for lists, what
    each candidate leaves out of each kind of interaction between slots, and of a reward model's error. `widths` are those of
    kernels (0 for exact weights, infinite without weights), and `modelled` marks the candidates with a reward model.
    `required` is the number of effective rounds from which on the variance of a candidate can be relied on.
    """

    names: tuple[str, ...]
    values: FloatArray
    covariance: FloatArray
    sampled: FloatArray
    unbiased: tuple[bool, ...]
    known: tuple[bool, ...]
    uncorrected: tuple[float, ...]
    least_biases: tuple[float, ...]
    logged: float
    evidence: float
    resampled: Callable[[int, FloatArray], FloatArray]
    buckets: int
    effective: FloatArray = field(default_factory=lambda: np.empty(0))
    spread: float = float("nan")
    missed: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    widths: FloatArray = field(default_factory=lambda: np.empty(0))
    modelled: tuple[bool, ...] = ()
    required: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def doubts(self) -> FloatArray:
        """What is added to each variance because few effective rounds determine it.

        A log without the rounds whose large weights would have made an estimate vary has a small variance and the wrong
        value. Of the nearly unbiased candidates, the one that requires the fewest rounds, k, is relied on. With m effective
        rounds, (k'² − k²) / m² times the least variance of these candidates is added to that of one that requires k' rounds.
        """
        trusted = [k for k in range(len(self.required)) if self.unbiased[k]]
        if not trusted:
            return np.zeros(len(self.names))
        k = min(trusted, key=lambda k: (self.required[k], self.covariance[k, k]))
        more = np.maximum(self.required**2 - self.required[k] ** 2, 0.0)
        least = min(float(self.covariance[k, k]) for k in trusted)
        doubts: FloatArray = more / max(float(self.effective[k]), 1.0) ** 2 * least
        return doubts

    def variance(self, weights: FloatArray) -> float:
        """The variance of a weighted sum of the candidates."""
        return max(float(weights @ self.covariance @ weights), 0.0)

    @property
    def errors(self) -> FloatArray:
        """Standard errors."""
        errors: FloatArray = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return errors

    @property
    def anchor(self) -> int:
        """The nearly unbiased candidate with the least error, with which the others are compared; else the first."""
        unbiased = [k for k, exact in enumerate(self.unbiased) if exact]
        return min(unbiased, key=lambda k: float(self.errors[k]), default=0)

    def difference(self, i: int, j: int) -> tuple[float, float]:
        """Candidate i minus candidate j, and its standard error."""
        step = np.eye(len(self.names))[i] - np.eye(len(self.names))[j]
        return float(self.values[i] - self.values[j]), float(np.sqrt(self.variance(step)))

    def z(self, i: int, j: int) -> float:
        """The difference in standard errors."""
        return standardised(*self.difference(i, j))


@dataclass(frozen=True)
class Choice:
    """The weight of each candidate, and its bias as the rule estimated it.

    `anchor` are the weights of the nearly unbiased blend that the rule starts from; None: the candidate with the least error
    among those. `optimism` is the share of its variance that the estimated variance misses because the weights were fitted
    to the same rounds. `variance`, if the rule states it, is the variance of the whole error, with that of the bias that may
    remain. `hedge` is the share of its variance that is added for biases that no candidate can show. `allows` states whether
    the variance allows for these, by a hedge or otherwise. `details` are further numbers to report.
    """

    weights: FloatArray
    biases: FloatArray
    anchor: FloatArray | None = None
    optimism: float = 0.0
    hedge: float = 0.0
    variance: float | None = None
    allows: bool = False
    details: Mapping[str, float] = field(default_factory=dict)


def beyond(difference: float, error: float, reach: float) -> float:
    """The part of a difference that sampling error does not explain.

    >>> beyond(-0.5, 0.25, 1.0), beyond(0.1, 0.25, 1.0)
    (-0.25, 0.0)
    """
    return float(np.copysign(max(abs(difference) - reach * error, 0.0), difference)) + 0.0


def stacked(candidates: CandidateEstimates, doubts: FloatArray | None = None) -> Choice:
    """The weights on the simplex, on nearly unbiased candidates alone, with the least variance, or that and doubts.

    On the simplex, because free weights chase differences between almost equal candidates: they gain more where rounds are
    many, and lose more where they are few.
    """
    size = len(candidates.names)
    some = np.flatnonzero(candidates.unbiased)
    doubts = np.zeros((len(some), len(some))) if doubts is None else np.diag(doubts[some])
    weights = np.zeros(size)
    weights[some] = on_simplex(candidates.covariance[np.ix_(some, some)] + doubts)
    missed = optimism(candidates.sampled[:, some][:, :, some], doubts)
    return Choice(weights, np.zeros(size), anchor=weights, optimism=missed)


def optimism(parts: FloatArray, doubts: FloatArray | float = 0.0) -> float:
    """The share of the variance of the least-variance mix that its own estimate misses.

    Weights that minimise an estimated variance make it too small. Where each group of units is mixed by weights from the
    other groups, the variance is too large, since these weights rest on fewer units. Half way between is closest to the
    spread over logs. `doubts` is added to the variance for the choice of weights alone.

    >>> apart = np.array([np.diag([1.0, 3.0]), np.diag([3.0, 1.0])])
    >>> round(optimism(apart), 3), optimism(apart[:1])
    (0.375, 0.0)
    """
    whole = parts.sum(axis=0)
    weights = on_simplex(whole + doubts)
    within = float(weights @ whole @ weights)
    if len(parts) < 2 or not within > 0:
        return 0.0
    held_out = sum(float(w @ part @ w) for part in parts for w in [on_simplex(whole - part + doubts)])
    return max(held_out / within - 1, 0.0) / 2


def blend(candidates: CandidateEstimates, reach: float) -> Choice:
    """The weights on the simplex with the least estimated mean squared error, xᵀ(Σ + bbᵀ)x (Thomas & Brunskill 2016).

    The biases b are the parts of the differences to the anchor that sampling error does not explain.
    """
    anchor, size = candidates.anchor, len(candidates.names)
    biases = np.array([beyond(*candidates.difference(k, anchor), reach) for k in range(size)])
    some = np.flatnonzero(candidates.known)
    weights = np.zeros(size)
    weights[some] = on_simplex((candidates.covariance + np.outer(biases, biases))[np.ix_(some, some)])
    return Choice(weights, biases)


def on_simplex(matrix: FloatArray) -> FloatArray:
    """argmin xᵀMx over x ≥ 0, Σx = 1, as a least-squares problem with a row of large weight for the sum.

    Candidates that are almost equal can make the solver cycle; a little more variance for each of them ends that.
    """
    values, vectors = np.linalg.eigh(matrix)
    scale = float(values.max(initial=0.0))
    if scale <= 0:
        return np.full(len(matrix), 1 / len(matrix))
    for more in CYCLING:
        root = (vectors * np.sqrt(np.maximum(values, 0.0) / scale + more)).T
        rows = np.vstack([root, np.full((1, len(matrix)), SUM_WEIGHT)])
        solution = _nonnegative(rows, np.append(np.zeros(len(matrix)), SUM_WEIGHT))
        if solution is not None:
            weights: FloatArray = solution / solution.sum()
            return weights
    alone: FloatArray = np.eye(len(matrix))[int(np.argmin(np.diag(matrix)))]
    return alone


def _nonnegative(rows: FloatArray, target: FloatArray) -> FloatArray | None:
    """The least-squares solution x ≥ 0; None if the solver does not converge."""
    from scipy.optimize import nnls  # here, so that importing stays fast

    try:
        solution = np.asarray(nnls(rows, target, maxiter=ITERATIONS * len(target))[0], dtype=np.float64)
    except RuntimeError:
        return None
    return solution if np.isfinite(solution).all() and solution.sum() > 0 else None


def widest(candidates: CandidateEstimates, reach: float) -> Choice:
    """SLOPE: the last candidate that agrees with all before it."""
    some = np.flatnonzero(candidates.known)
    picked = some[slope(len(some), lambda i, j: candidates.z(some[i], some[j]), reach)]
    return Choice(np.eye(len(candidates.names))[picked], candidates.values - candidates.values[candidates.anchor])


def cross_validated(candidates: CandidateEstimates, one_error: bool) -> Choice:
    """The candidate closest to the anchor on held-out rounds (after OCV, Cief, Kveton & Kompan 2025).

    Each of `SPLITS` splits gives a candidate some buckets of units and the anchor the rest, in proportion to their
    variances, so that both are about equally precise. With `one_error` the choice is the most precise candidate whose loss
    is within one standard error of the least.
    """
    anchor, size = candidates.anchor, len(candidates.names)
    rng = np.random.default_rng(0xC805)
    keys = rng.random((SPLITS, candidates.buckets))
    variances = np.diag(candidates.covariance)
    losses = np.empty((SPLITS, size))
    for k in range(size):
        both = variances[k] + variances[anchor]
        share = float(np.clip(variances[k] / both if both > 0 else 0.5, 0.1, 0.9))
        train = (keys < share).astype(np.float64)
        losses[:, k] = (candidates.resampled(k, train) - candidates.resampled(anchor, 1 - train)) ** 2
    loss = losses.mean(axis=0)
    loss[[not known for known in candidates.known]] = np.inf
    loss[~np.isfinite(loss)] = np.inf
    picked = int(np.argmin(loss)) if np.isfinite(loss).any() else anchor
    if one_error:
        limit = loss[picked] + float(losses[:, picked].std() / np.sqrt(SPLITS))
        picked = min((k for k in range(size) if loss[k] <= limit), key=lambda k: float(variances[k]))
    return Choice(np.eye(size)[picked], candidates.values - candidates.values[anchor])


def standardised(value: float, error: float) -> float:
    """The value in standard errors; 0 if the value is 0, as for the difference of two equal estimates."""
    if error > 0:
        return value / error
    return 0.0 if abs(value) < 1e-12 else math.copysign(math.inf, value)


def slope(count: int, z: Callable[[int, int], float], reach: float = REACH) -> int:
    """The last member that agrees with all before it. Members are ordered from the least biased to the most.

    `z(i, j)` is the difference of members i and j in standard errors of that difference.

    >>> slope(3, lambda i, j: [[0, 0, 0], [1.2, 0, 0], [3.1, 2.5, 0]][i][j])
    1
    """
    for i in range(1, count):
        if any(abs(z(i, j)) > reach for j in range(i)):
            return i - 1
    return count - 1


def smallest_error(
    sets: Sequence[frozenset[str]], z: Callable[[int, int], float], errors: Sequence[float], reach: float = REACH
) -> int:
    """Among subsets of dimensions, the full one first: the one with the least error that agrees with all its supersets.

    >>> sets = [frozenset("ab"), frozenset("a"), frozenset("b")]
    >>> smallest_error(sets, lambda i, j: 0.5 if i == 1 else 9.0, [0.3, 0.1, 0.05])
    1
    """
    agree: set[int] = set()
    for i, subset in enumerate(sets):
        above = [j for j in range(i) if subset < sets[j]]
        if all(j in agree and abs(z(i, j)) <= reach for j in above):
            agree.add(i)
    return min(agree, key=lambda i: errors[i])
