"""`Logistic`: p(a|e) by multinomial logistic regression, as published, on the distinct embeddings with their counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray, sums_by
from offpolicy.core.errors import InputError
from offpolicy.models.embedding_table import Affine, Embedding, FeatureMap
from offpolicy.models.posteriors.base import Known, Pooling, Posterior
from offpolicy.models.posteriors.logistic_solver import Counts, Problem
from offpolicy.models.posteriors.pairs import Pairs, PairSample, pair_batch
from offpolicy.models.posteriors.sums import FeatureSums
from offpolicy.models.rewards.base import FitShape
from offpolicy.statistics.base import Statistic


@dataclass(frozen=True)
class Logistic(Posterior):
    """p(a|e) ∝ exp(e·W_a + b_a), in the posterior form; `C` is the inverse strength of the penalty on W, as usual.

    `context=True` fits p(a|x, e), as MIPS was published. Where embeddings repeat (one an action, or one a combination of
    categories) the cost does not grow with the log; where they do not, it is fitted on at most `rows` distinct ones.
    """

    C: float = 1.0
    _: KW_ONLY
    context: bool = False
    scale: bool = True
    rows: int = 50_000
    kind = "logistic"

    def __post_init__(self) -> None:
        if not (isinstance(self.C, (int, float)) and self.C > 0):
            raise InputError(f"Logistic: C is {self.C}; it must be above 0 (a larger one penalises less).")

        if not (isinstance(self.rows, int) and self.rows >= 1):
            raise InputError(f"Logistic: rows is {self.rows!r}; give how many distinct embeddings to fit on, at most.")

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
            context = Affine(mean, np.diag(1 / np.where(spread > 0, spread, 1.0)) if self.scale else np.eye(len(mean)))
            context = context if self.scale else replace(context, shift=np.zeros_like(mean))
        rounds = known.sums.n
        if known.rows is not None:  # a sample may lack some
            rounds = sums_by(known.rows.action, known.rows.count, len(rounds))
        classes = np.flatnonzero(rounds > 0)
        counts = self._counts(embedding, affine, context, known, classes)
        problem = Problem(counts, 1 / self.C)
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
        """The distinct points, and their rounds by action; `classes` are the actions that take part."""
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
    """Whether two actions with the same features differ, so that hardly any two points are the same."""
    varying = embedding.varying
    plain = isinstance(varying, FeatureMap) and varying.features.catalog is None
    return not (plain and bool((varying.own == varying.own[0]).all()))  # type: ignore[union-attr]


def _distinct(points: FloatArray, count: FloatArray, combination: IntArray) -> tuple[FloatArray, FloatArray]:
    """The rounds of each distinct point, and the points."""
    _, first, which = np.unique(combination, return_index=True, return_inverse=True)
    return sums_by(which, count, len(first)), points[first]
