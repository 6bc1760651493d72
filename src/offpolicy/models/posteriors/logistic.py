"""`Logistic`: p(a|e) by multinomial logistic regression, as published, on the distinct embeddings with their counts.

The loss is

    loss(W, b) = Σ_d N_d log Σ_a exp(z_d·W_a + b_a) − Σ_da Y_da (z_d·W_a + b_a) + ‖W‖²/(2C)

Y_da counts the rounds of point d and action a, N_d = Σ_a Y_da. The coordinates of each action are turned and scaled by the
Cholesky factor of its own block of the Hessian, recomputed every few steps, so that few steps are needed.

Up to 300,000 rounds, steps take single precision, which halves their time, until the gradient in double precision is small
as well. Rounding errors would grow from step to step, and rows in another order change the last bits of sums; counts are
therefore rounded first, so that all steps are the same for any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray, rounded_to_24_bits, sums_by, wide
from offpolicy.core.errors import InputError
from offpolicy.core.threads import parallel
from offpolicy.models.embedding_table import Affine, Embedding, FeatureMap
from offpolicy.models.posteriors.base import FeatureSums, Known, Pooling, Posterior, largest_norm
from offpolicy.models.posteriors.pairs import Pairs, PairSample, pair_batch
from offpolicy.models.rewards.base import FitShape
from offpolicy.policies.blocks import blocks
from offpolicy.statistics.base import Statistic

GRADIENT = 0.03
"""Iterations stop when the gradient is below this fraction of a standard error in every coordinate."""
STEPS_AT_ONCE = 10
MOST_ROUNDS_OF_STEPS = 30
FEW_ROUNDS_OF_STEPS = 5
MOST_IN_SINGLE_PRECISION = 3e5
"""The rounds up to which changes of the loss near the minimum are larger than its rounding errors in single precision."""
MOST_SOLVER_STEPS = 50
RESIDUAL = 1e-2
BLOCK_BYTES = 1 << 19
"""Bytes of scores that are computed at a time: each is used several times, and should still be in the cache."""
RUNS = 8
SAFE = {4: 72.0, 8: 500.0}
"""Scores whose exponentials, summed, are neither too large nor 0, by the bytes of a number."""
LEAST_ELEMENTS = 1 << 18
"""Points are processed in up to `RUNS` runs, in threads, each with at least this number of scores."""

Numbers = npt.NDArray[np.floating[Any]]
"""In single or double precision."""


@dataclass(frozen=True)
class Logistic(Posterior):
    """p(a|e) ∝ exp(e·W_a + b_a) by logistic regression, in the posterior form.

    Where embeddings repeat (one per action, or per combination of categories), the cost does not grow with the log.

    Parameters
    ----------
    C : float, default=1.0
        The inverse strength of the penalty on W, as in scikit-learn.
    context : bool, default=False
        Fit p(a|x, e), as MIPS was published.
    scale : bool, default=True
        Bring the embeddings (and the context) to a common scale first.
    rows : int, default=50_000
        Where embeddings do not repeat, fit on at most this number of distinct ones, chosen by hash.

    References
    ----------
    Cief, Golebiowski, Schmidt, Abedjan and Bekasov (2023). Learning action embeddings for off-policy evaluation.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> learned = op.LearnedMIPS(posterior=op.Logistic(C=10))
    >>> round(op.evaluate(log, op.Uniform(), learned)["LearnedMIPS"].value, 3)
    0.458
    """

    C: float = 1.0
    _: KW_ONLY
    context: bool = False
    scale: bool = True
    rows: int = 50_000
    kind = "logistic"

    def __post_init__(self) -> None:
        if not (isinstance(self.C, (int, float)) and self.C > 0):
            raise InputError(f"Logistic: C is {self.C}; it must be above 0 (a larger value penalises less).")
        if not (isinstance(self.rows, int) and self.rows >= 1):
            raise InputError(f"Logistic: rows is {self.rows!r}; give the largest number of distinct embeddings to fit on.")

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        sums = FeatureSums(shape)
        return (sums, Pairs(shape, self.rows, self.context)) if self.context or shape.features.varies else (sums,)

    def rows_without(self, rows: Any, keep: npt.NDArray[np.bool_]) -> Any:
        return None if rows is None else rows.of(keep)

    def numbers_per_action(self, n_actions: int, size: int) -> int:  # noqa: ARG002
        return 25 * size + 4 * size**2

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:  # noqa: ARG002
        context = None
        if self.context:
            sample: PairSample = known.rows
            mean, spread = sample.context.mean(axis=0), sample.context.std(axis=0)
            context = Affine(np.zeros_like(mean), np.eye(len(mean)))
            if self.scale:
                context = Affine(mean, np.diag(1 / np.where(spread > 0, spread, 1.0)))
        rounds = known.sums.n
        if known.rows is not None:  # a sample may lack some actions
            rounds = sums_by(known.rows.action, known.rows.count, len(rounds))
        classes = np.flatnonzero(rounds > 0)
        counts = self._counts(embedding, affine, context, known, classes)
        problem = Problem(counts.rounded(), 1 / self.C)
        theta = problem.minimum()
        weight, bias = problem.to_plain(theta)
        n_actions = len(embedding.table)
        all_weight, all_bias = np.zeros((n_actions, weight.shape[1])), np.full(n_actions, -np.inf)
        all_weight[classes], all_bias[classes] = weight, bias
        details = {"distinct_embeddings": len(counts.points)}
        if known.rows is not None and known.rows.sampled:
            details["fitted_on_a_sample_of_rows"] = len(known.rows.action)

        def influence(weight_slopes: FloatArray, bias_slopes: FloatArray) -> Callable[[Embedding, Known], FloatArray]:
            slopes = [problem.from_plain(w[classes], b[classes]) for w, b in zip(weight_slopes, bias_slopes, strict=True)]
            adjoints = problem.solve(theta, slopes)

            def of_refit(other: Embedding, rest: Known) -> FloatArray:
                gradient = problem.gradient_on(theta, self._counts(other, affine, context, rest, classes))
                return -np.tensordot(adjoints, gradient, axes=2)

            return of_refit

        return Pooling(
            "posterior", embedding, affine, all_weight, all_bias, context=context, details=details, influence=influence
        )

    def _counts(
        self, embedding: Embedding, affine: Affine, context: Affine | None, known: Known, classes: IntArray
    ) -> Counts:
        """The distinct points, and their rounds by action; `classes` are the actions of the model."""
        if embedding.varying is None and context is None:
            z, n = affine(embedding.table[classes]), known.sums.n[classes]
            return Counts(z, n, n, z * n[:, None])
        pairs: PairSample = known.rows
        batch = pair_batch(pairs, len(embedding.table))
        e = embedding.table[pairs.action] if embedding.varying is None else embedding.varying.rows(batch)
        z = affine(e)
        if context is not None:
            z = np.hstack([z, context(pairs.context)])
        position = np.full(len(embedding.table), -1)
        position[classes] = np.arange(len(classes))
        action, count = position[pairs.action], pairs.count
        sums = np.column_stack([sums_by(action, count * column, len(classes)) for column in z.T])
        rounds, points = (count, z) if _by_action(embedding) else _distinct(z, count, pairs.combination)
        return Counts(points, rounds, sums_by(action, count, len(classes)), sums)


def _by_action(embedding: Embedding) -> bool:
    """Whether actions with the same features differ, so that hardly any two points are the same."""
    return not isinstance(embedding.varying, FeatureMap) or embedding.varying.by_action


def _distinct(points: FloatArray, count: FloatArray, combination: IntArray) -> tuple[FloatArray, FloatArray]:
    """The rounds of each distinct point, and the points."""
    _, first, which = np.unique(combination, return_index=True, return_inverse=True)
    return sums_by(which, count, len(first)), points[first]


def _products(left: Numbers, right: Numbers) -> Numbers:
    """leftᵀ·right, in the precision of the left."""
    padded = np.zeros((len(right), wide(right.shape[1])), left.dtype)
    padded[:, : right.shape[1]] = right
    product: Numbers = left.T @ padded
    return product[:, : right.shape[1]]


@dataclass(frozen=True)
class Counts:
    """Distinct points z, the rounds of each, and sums over the rounds of each action."""

    points: FloatArray  # D × m
    rounds: FloatArray  # D
    of_action: FloatArray  # actions
    point_sums: FloatArray  # actions × m: Σ z over the rounds of the action

    def rounded(self) -> Counts:
        """The same to 24 bits."""
        return Counts(*(rounded_to_24_bits(part).astype(np.float64) for part in vars(self).values()))


@dataclass(frozen=True)
class Point:
    """Coordinates, and the loss and its gradient there."""

    theta: FloatArray
    value: float
    gradient: FloatArray


@dataclass(frozen=True)
class Problem:
    """The loss in rotated and scaled coordinates θ (actions × (m + 1), the bias last)."""

    counts: Counts
    penalty: float  # 1/C

    @cached_property
    def centre(self) -> FloatArray:
        return np.asarray(self.counts.rounds @ self.counts.points / self.counts.rounds.sum(), dtype=np.float64)

    @cached_property
    def axes(self) -> tuple[FloatArray, FloatArray]:
        """Variances along the principal axes, and the axes."""
        around = self.counts.points - self.centre
        share = self.counts.rounds / self.counts.rounds.sum()
        values, vectors = np.linalg.eigh((around * share[:, None]).T @ around)
        return np.maximum(values, 0.0), vectors

    def turned(self, points: FloatArray) -> FloatArray:
        """(z − centre) along the axes, and a 1 for the bias."""
        out = np.empty((len(points), points.shape[1] + 1))
        out[:, :-1] = (points - self.centre) @ self.axes[1]
        out[:, -1] = 1.0
        return out

    @cached_property
    def z(self) -> FloatArray:
        return self.turned(self.counts.points)

    @cached_property
    def single(self) -> npt.NDArray[np.float32]:
        """`z` in single precision."""
        return self.z.astype(np.float32)

    def sums_of(self, counts: Counts) -> FloatArray:
        """Σ z̃ over the rounds of each action."""
        turned = (counts.point_sums - counts.of_action[:, None] * self.centre) @ self.axes[1]
        return np.column_stack([turned, counts.of_action])

    @cached_property
    def sums(self) -> FloatArray:
        return self.sums_of(self.counts)

    @cached_property
    def ridge(self) -> FloatArray:
        """The penalty of each coordinate: 0 for the bias."""
        return np.append(np.full(self.z.shape[1] - 1, self.penalty), 0.0)

    def start(self) -> FloatArray:
        theta = np.zeros((len(self.counts.of_action), self.z.shape[1]))
        theta[:, -1] = np.log(self.counts.of_action / self.counts.of_action.sum())
        return theta

    def exponentials(
        self, theta: FloatArray, z: Numbers, points: slice | None = None
    ) -> Iterator[tuple[slice, Numbers, FloatArray, FloatArray]]:
        """For a block of points at a time: exp of their scores, in the precision of z, the sum over actions, and its log."""
        columns, ones = theta.T.astype(z.dtype), np.ones(len(theta), z.dtype)
        room = np.empty(0, z.dtype)
        shifted = largest_norm(z if points is None else z[points]) * largest_norm(theta) > SAFE[z.dtype.itemsize]
        first, last = (0, len(z)) if points is None else (points.start, points.stop)
        for block in blocks(last - first, len(theta), BLOCK_BYTES // z.dtype.itemsize):
            rows = slice(first + block.start, first + block.stop)
            size = (rows.stop - rows.start) * len(theta)
            room = room if len(room) >= size else np.empty(size, z.dtype)
            scores = np.matmul(z[rows], columns, out=room[:size].reshape(-1, len(theta)))
            top = scores.max(axis=1) if shifted else np.zeros(len(scores), z.dtype)
            if shifted:
                scores -= top[:, None]
            np.exp(scores, out=scores)
            total = (scores @ ones).astype(np.float64)
            yield rows, scores, total, np.log(total) + top

    def loss(self, theta: FloatArray, z: Numbers) -> tuple[float, FloatArray]:
        """The loss and its gradient in θ, with exponentials in the precision of z."""

        def part(points: slice) -> tuple[float, FloatArray]:
            value, gradient = 0.0, np.zeros_like(theta)
            for rows, scores, total, log_sum in self.exponentials(theta, z, points):
                n = self.counts.rounds[rows]
                value += float(n @ log_sum)
                gradient += _products(scores, z[rows] * (n / total)[:, None])
            return value, gradient

        values, gradients = zip(*self._over_points(part, len(theta)), strict=True)
        value, gradient = sum(values), self.ridge * theta - self.sums + sum(gradients)
        value += 0.5 * float((self.ridge * theta**2).sum()) - float((theta * self.sums).sum())
        return value, gradient

    def _over_points(self, part: Callable[[slice], Any], actions: int) -> list[Any]:
        """The results of `part` on runs of points, in threads where that pays. The runs are the same on any machine."""
        count = min(RUNS, max(1, len(self.z) * actions // LEAST_ELEMENTS))
        runs = [slice(len(self.z) * k // count, len(self.z) * (k + 1) // count) for k in range(count)]
        return parallel(part, runs) if count > 1 else [part(runs[0])]

    def gradient_on(self, theta: FloatArray, counts: Counts) -> FloatArray:
        """The gradient of the loss of other counts, at the same θ."""
        z = self.turned(counts.points)
        gradient = self.ridge * theta - self.sums_of(counts)
        for rows, scores, total, _ in self.exponentials(theta, z):
            gradient += _products(scores, z[rows] * (counts.rounds[rows] / total)[:, None])
        return gradient

    def factors(self, theta: FloatArray, z: Numbers) -> FloatArray:
        """The inverse of L_a, with L_a·L_aᵀ the action's own block of the Hessian."""

        def part(points: slice) -> FloatArray:
            packed = np.zeros((len(theta), len(self._pairs[0])))
            for rows, scores, total, _ in self.exponentials(theta, z, points):
                scores *= (1 / total).astype(z.dtype)[:, None]
                scores -= scores * scores
                packed += _products(scores, self._squares(rows))
            return packed

        return self._factors(reduce(np.add, self._over_points(part, len(theta))))

    @property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """The entries of a symmetric matrix of two coordinates that are stored."""
        return np.triu_indices(self.z.shape[1])

    def _squares(self, points: slice) -> FloatArray:
        """N z̃z̃ᵀ of some points."""
        i, j = self._pairs
        products: FloatArray = self.z[points][:, i] * self.z[points][:, j] * self.counts.rounds[points, None]
        return products

    def _factors(self, packed: FloatArray) -> FloatArray:
        """From the action's own blocks of the Hessian, without the penalty."""
        i, j = self._pairs
        full = np.empty((len(packed), self.z.shape[1], self.z.shape[1]))
        full[:, i, j] = full[:, j, i] = packed
        diagonal = np.einsum("aii->ai", full)
        diagonal += self.ridge
        diagonal += 1e-6 * diagonal.max(axis=1, keepdims=True)
        inverse: FloatArray = np.linalg.inv(np.linalg.cholesky(full))
        return inverse

    def minimum(self) -> FloatArray:
        few = self.counts.rounds.sum() <= MOST_IN_SINGLE_PRECISION
        z = self.single if few else self.z
        point, factors = self._first()
        point, _ = self._steps(point, factors, z)  # where these end, the first factors may be far off
        point, factors = self._descended(point, self.factors(point.theta, z), z)
        if few:  # this is mostly the end already
            point, _ = self._descended(Point(point.theta, *self.loss(point.theta, self.z)), factors, self.z)
        return point.theta

    def _descended(self, point: Point, factors: FloatArray, z: Numbers) -> tuple[Point, FloatArray]:
        """Steps until the gradient is small, with factors that are renewed every few steps; and the last factors."""
        for _ in range(MOST_ROUNDS_OF_STEPS if z is self.z else FEW_ROUNDS_OF_STEPS):
            point, done = self._steps(point, factors, z)
            if done:
                break
            factors = self.factors(point.theta, z)
        return point, factors

    def _first(self) -> tuple[Point, FloatArray]:
        """The start, where every point has the shares of the actions in the log as probabilities, and the factors there."""
        theta, n = self.start(), self.counts.of_action
        share = n / n.sum()
        value = -float((theta * self.sums).sum())
        gradient = np.outer(share, self.counts.rounds @ self.z) - self.sums
        squares = sum(self._squares(points).sum(axis=0) for points in blocks(len(self.z), len(self._pairs[0])))
        return Point(theta, value, gradient), self._factors(np.outer(share * (1 - share), squares))

    def _steps(self, start: Point, factors: FloatArray, z: Numbers) -> tuple[Point, bool]:
        """A few steps of L-BFGS in u, θ = θ0 + |g|·L⁻ᵀu with the gradient g in L⁻ᵀ: the first step that is tried is −g."""
        from scipy.optimize import minimize  # here, so that importing stays light

        latest, unit = start, float(np.linalg.norm(factors @ start.gradient[..., None]))

        def scaled(flat: FloatArray) -> tuple[float, FloatArray]:
            nonlocal latest
            step = (flat.reshape(len(start.theta), 1, -1) @ factors)[:, 0]
            theta = start.theta + unit * step
            if not np.array_equal(theta, latest.theta):
                latest = Point(theta, *self.loss(theta, z))
            return latest.value, unit * (factors @ latest.gradient[..., None]).ravel()

        options = {"gtol": unit * GRADIENT, "ftol": 1e-12, "maxiter": STEPS_AT_ONCE, "maxcor": STEPS_AT_ONCE}
        result = minimize(scaled, np.zeros(start.theta.size), jac=True, method="L-BFGS-B", options=options)
        scaled(result.x)
        return latest, result.status == 0

    def solve(self, theta: FloatArray, rights: Sequence[FloatArray]) -> FloatArray:
        """H⁻¹·right at θ, for each right-hand side."""
        factors = self.factors(theta, self.z)
        return np.stack([self._solve(theta, right, factors) for right in rights])

    def _solve(self, theta: FloatArray, right: FloatArray, factors: FloatArray) -> FloatArray:
        """By conjugate gradients. H ignores a constant added to all biases, and so must `right`."""

        def scaled(r: FloatArray) -> FloatArray:
            y: FloatArray = (factors.transpose(0, 2, 1) @ (factors @ r[..., None]))[..., 0]
            return y

        x, r, y = np.zeros_like(right), right.copy(), scaled(right)
        d, product = y, float((right * y).sum())
        enough = RESIDUAL**2 * product
        for _ in range(MOST_SOLVER_STEPS):
            if not product > max(enough, 0.0):
                break
            hd = self._hessian_times(theta, d)
            step = product / float((d * hd).sum())
            x += step * d
            r -= step * hd
            y = scaled(r)
            before, product = product, float((r * y).sum())
            d = y + (product / before) * d
        return x

    def _hessian_times(self, theta: FloatArray, direction: FloatArray) -> FloatArray:
        columns = direction.T

        def part(points: slice) -> FloatArray:
            out = np.zeros_like(theta)
            for rows, scores, total, _ in self.exponentials(theta, self.z, points):
                change = self.z[rows] @ columns
                change -= (np.einsum("da,da->d", scores, change) / total)[:, None]
                change *= scores
                out += _products(change, self.z[rows] * (self.counts.rounds[rows] / total)[:, None])
            return out

        return np.asarray(self.ridge * direction + sum(self._over_points(part, len(theta))), dtype=np.float64)

    def to_plain(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """W and b in the original coordinates of the points."""
        weight = theta[:, :-1] @ self.axes[1].T
        return weight, theta[:, -1] - weight @ self.centre

    def from_plain(self, weight_slope: FloatArray, bias_slope: FloatArray) -> FloatArray:
        """The derivative in θ of a function with these derivatives in W and b."""
        around = weight_slope - bias_slope[:, None] * self.centre
        return np.column_stack([around @ self.axes[1], bias_slope])
