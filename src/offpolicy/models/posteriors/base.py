"""The base class of posteriors: from embeddings to the share of each action in the weight of a round.

Every posterior gives a round with embedding z the scores s_a(z) = z·weight_a + bias_a, and exp(s_a) is either p(e|a) or
p(a|e), up to a factor per round. With Q = exp(s), the weight of a round has one of two forms:

    ratio form      Σ_a π(a|x) Q_a / Σ_a π0(a|x) Q_a           Q ∝ p(e|a): Gaussian, Predicted, Categorical, Exact, clusters
    posterior form  Σ_a Q_a π(a|x)/π0(a|x) / Σ_a Q_a           Q ∝ p(a|e): Logistic

The ratio form takes the context into account: π0(a|x) is the prior. The posterior form replaces p(a|x, e) by p(a|e), as
published; the two agree where π0 does not depend on the context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import Array, FloatArray, IntArray, library, to_numpy
from offpolicy.core.errors import RowsError
from offpolicy.core.imports import Named
from offpolicy.data.batch import Batch
from offpolicy.data.features import Combinations, Features
from offpolicy.data.spaces import Serves
from offpolicy.models.embedding_table import Affine, Embedding, FeatureMap
from offpolicy.models.posteriors.nearest_actions import Near, nearest
from offpolicy.models.rewards.base import NO_FEATURES, FitShape, FitStatistic, mean_features
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.statistics.base import State, Statistic

Form = Literal["ratio", "posterior"]
MOST_ELEMENTS = 1 << 22
"""Shares are stored as a table (embeddings × actions) of up to 32 MB, and otherwise recomputed for each block."""
SAFE = 500.0
"""Scores whose exponentials, summed, are neither too large nor 0."""
ROUNDING = 1e-12
"""A difference below this fraction of what was subtracted is rounding error."""
Influence = Callable[[FloatArray, FloatArray], "Callable[[Embedding, Known], FloatArray]"]
"""From the derivatives of sums in weight and bias, a function giving the change of the sums under a refit, to first order.

The θ = (weight, bias) of a refit minimises another loss, so dθ ≈ −H⁻¹∇loss(θ): one solve with H serves all refits.
"""


@dataclass(frozen=True)
class Pooling:
    """A fitted posterior: the scores z·weight_a + bias_a of each action a in a round with embedding z.

    Parameters
    ----------
    form : {"ratio", "posterior"}
        Whether exp(score) is p(e|a), or p(a|e), up to a factor per round.
    embedding : Embedding
        The embedding of each action.
    affine : Affine
        The map from embeddings e to the coordinates z.
    weight : array of shape (n_actions, m)
        The slope of each action's score.
    bias : array of shape (n_actions,)
        The constant of each action's score; −∞ for an action without a share in any round.
    context : Affine, optional
        The scale of the context, if the scores depend on it too.
    likelihood : callable, optional
        Gives exp(score) itself for a batch, if there are no scores.
    groups : (array of shape (n_actions,), array of shape (n_clusters, n_actions)), optional
        The cluster of each action, and the members of each cluster as 0 and 1, if actions share in a round exactly where
        they share the cluster.
    width : float, optional
        If given, scores are predicted rewards, and exp(score) is replaced by a normal density, with this standard deviation,
        of the distance between an action's prediction and that of the logged action.
    precision : array of shape (m, m), optional
        The inverse covariance of the normal distribution around each action, if there is one.
    free : bool, default=False
        Whether the posterior is the same in any coordinates of the embedding.
    table : array of shape (n_kinds, n_actions), optional
        exp(score), by action if rounds of one action are alike, or by combination of categories, if there is memory for it.
    combinations : Combinations, optional
        The combinations of categories that the table has a row for; None: it has one for each action.
    neighbours : int, optional
        Sum over this number of actions nearest to the logged one, if policies cover all of very many actions.
    near : Near, optional
        The nearest actions.
    details : dict, optional
        What the result reports about the fit.
    influence : callable, optional
        How sums that depend on weight and bias change with the embeddings, if weight and bias come from an iteration.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> from offpolicy.models.embedding_table import Affine, Embedding
    >>> embedding, plain = Embedding(np.eye(2), np.ones(2)), Affine(np.zeros(2), np.eye(2))
    >>> op.Pooling("ratio", embedding, plain, weight=np.eye(2), bias=np.zeros(2)).tabled(room=100).table.round(2)
    array([[1.  , 0.37],
           [0.37, 1.  ]])
    """

    form: Form
    embedding: Embedding
    affine: Affine
    weight: Array
    bias: Array
    context: Affine | None = None
    likelihood: Callable[[Batch], FloatArray] | None = None
    groups: tuple[IntArray, FloatArray] | None = None
    width: float | None = None
    precision: FloatArray | None = None
    free: bool = False
    table: FloatArray | None = field(default=None, repr=False)
    combinations: Combinations | None = field(default=None, repr=False)
    neighbours: int | None = None
    near: Near | None = field(default=None, repr=False)
    details: dict[str, Any] = field(default_factory=dict)
    influence: Influence | None = field(default=None, repr=False)

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Actions that the embedding was fitted on."""
        seen: npt.NDArray[np.bool_] = self.embedding.counts > 0
        return seen

    @property
    def varies(self) -> bool:
        """Whether two rounds with the same action may differ."""
        return self.embedding.varying is not None or self.context is not None or self.likelihood is not None

    @property
    def normal(self) -> bool:
        """Whether exp(score) is a normal density around the embedding of each action, and rounds of one action are alike."""
        return self.form == "ratio" and self.precision is not None and not self.varies and self.neighbours is None

    @property
    def sight(self) -> FloatArray:
        """The range of the posterior as a precision matrix, m × m; by default the spread of the embeddings."""
        if self.precision is not None:
            return self.precision
        share = self.embedding.counts / self.embedding.counts.sum()
        z = self.affine(self.embedding.table)
        variance = share @ (z - share @ z) ** 2
        return np.eye(len(variance)) / max(float(variance.mean()), 1e-300)

    def points(self, batch: Batch) -> FloatArray:
        """Return z of each round, rounds × m.

        Parameters
        ----------
        batch : Batch
            Rounds of the log.
        """
        if self.width is not None and self.context is not None:
            z: FloatArray = self.context(batch.context)
            return z  # scores are predictions in this context, whatever was logged
        varying = self.embedding.varying
        e = self.embedding.table[batch.action] if varying is None else varying.rows(batch)
        z = self.affine(e)
        return z if self.context is None else np.hstack([z, self.context(batch.context)])

    def shares(self, batch: Batch, layout: Layout) -> FloatArray:
        """Return exp(score) of each round for the actions of the layout, up to a factor per round.

        Parameters
        ----------
        batch : Batch
            Rounds of the log.
        layout : Layout
            The actions of each round: all of them, or a list per round.
        """
        if self.width is not None:
            return normal_density(self.distances(batch, layout))
        if isinstance(layout, Lists):
            return self._listed(batch, layout)
        if self.groups is not None:
            return self.groups[1][self.groups[0][batch.codes]]
        if self.table is not None:
            return self.table[self._kinds(batch)]
        if self.likelihood is not None:
            return self._checked(self.likelihood(batch), batch)
        return self._exp(self.points(batch))

    def _listed(self, batch: Batch, layout: Lists) -> FloatArray:
        """exp(score) of the listed actions only."""
        assert self.likelihood is None
        if self.groups is not None:
            cluster = self.groups[0]
            same: FloatArray = (cluster[layout.codes] == cluster[batch.action][layout.row]).astype(np.float64)
            return same
        if self.table is not None:
            return self.table[self._kinds(batch)[layout.row], layout.codes]
        scores = layout.scores(self.points(batch), self.weight, self.bias)
        most = layout.most(scores)
        scores -= layout.spread(np.where(np.isfinite(most), most, 0.0))  # all of the listed actions may have −∞
        return np.exp(scores, out=scores)

    def _kinds(self, batch: Batch) -> IntArray:
        """The row of the table for each round."""
        return batch.codes if self.combinations is None else self.combinations.codes(batch.features)

    def distances(self, batch: Batch, layout: Layout) -> FloatArray:
        """Return how far each action's score is from that of the logged action, in units of `width`.

        Parameters
        ----------
        batch : Batch
            Rounds of the log.
        layout : Layout
            The actions of each round: all of them, or a list per round.
        """
        assert self.width is not None
        z = self.points(batch)
        own = np.einsum("ij,ij->i", z, self.weight[batch.codes]) + self.bias[batch.codes]
        scores = layout.scores(z, self.weight, self.bias)
        scores -= layout.spread(own)
        scores /= self.width
        return scores

    @cached_property
    def _largest_bias(self) -> float:
        """Of the actions that the scores do not exclude."""
        return float(np.abs(self.bias[np.isfinite(self.bias)]).max(initial=0.0))

    def _exp(self, z: FloatArray) -> FloatArray:
        scores: FloatArray = z @ self.weight.T
        scores += self.bias
        posterior = self.form == "posterior"
        if not posterior or largest_norm(z) * largest_norm(self.weight) + self._largest_bias > SAFE:
            scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        if posterior:
            scores /= (scores @ np.ones(scores.shape[1]))[:, None]
        return scores

    @staticmethod
    def _checked(shares: FloatArray, batch: Batch) -> FloatArray:
        bad = ~(shares.min(axis=1) >= 0) | ~np.isfinite(shares.sum(axis=1)) | ~(shares.max(axis=1) > 0)
        if bad.any():
            raise RowsError(
                "Exact", "have an embedding with p(e|a) = 0 for every action (or a negative or NaN p)", batch.row[bad],
                "Check that p(e|a) covers every embedding in the log.",
            )  # fmt: skip
        return shares

    def with_near(self, logged: npt.NDArray[np.bool_]) -> Pooling:
        """Return a copy with the neighbours of some actions.

        Parameters
        ----------
        logged : bool array of shape (n_actions,)
            The actions whose neighbours are needed.
        """
        assert self.neighbours is not None
        assert self.precision is not None
        near = nearest(self.affine(self.embedding.table), self.precision, self.seen, logged, self.neighbours)
        return replace(self, near=near)

    def tabled(self, room: int) -> Pooling:
        """Return a copy with exp(score) as a table, if there are few kinds of rounds and the table is small enough.

        Parameters
        ----------
        room : int
            The largest number of elements.
        """
        n, varying = len(self.bias), self.embedding.varying
        combinations = None
        if isinstance(varying, FeatureMap) and self.context is None and self.likelihood is None and self.width is None:
            rounds = int(self.embedding.counts.sum())
            combinations = varying.combinations(min(room // n, rounds // 2))
        if self.groups is not None or (combinations is None and (self.varies or n * n > room)):
            return self
        if library(self.weight) is not np:
            return self.on_host().tabled(room)
        e = self.embedding.table
        if combinations is not None:
            assert isinstance(varying, FeatureMap)
            e = varying.own[0] + combinations.table @ varying.shared
        return replace(self, table=self._exp(self.affine(e)), combinations=combinations)

    def on_host(self) -> Pooling:
        """Return a copy with arrays in memory, of a pooling that was fitted on a device."""
        weight, bias = to_numpy(self.weight), to_numpy(self.bias)
        return replace(self, embedding=self.embedding.on_host(), weight=weight, bias=bias)


def largest_norm(rows: npt.NDArray[np.floating[Any]]) -> float:
    """The largest Euclidean norm of a row."""
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0)))


def normal_density(distances: FloatArray) -> FloatArray:
    """exp(−d²/2), in place."""
    np.multiply(distances, distances, out=distances)
    distances *= -0.5
    return np.exp(distances, out=distances)


@dataclass(frozen=True)
class FeatureSums(FitStatistic):
    """By group and action, rows and Σφ; by group, Σφφᵀ, both around a typical φ. Without features, only the rows."""

    summed: ClassVar[frozenset[str]] = frozenset({"n", "sum", "square"})

    @property
    def size(self) -> int:
        return self.shape.features.size

    def zero(self) -> State:
        g, n, f = self.shape.groups, self.shape.n_actions, self.size
        return {"n": np.zeros(g * n), "sum": np.zeros((g * n, f)), "square": np.zeros((g, f, f))}

    def fold(self, state: State, batch: Batch) -> State:
        s = self.shape
        group = s.group(batch)
        key = group * s.n_actions + batch.action
        weight = s.weights(batch)
        state["n"] += np.bincount(key, weight, len(state["n"]))
        if self.size:
            y = s.features.rows(batch) - self._origin
            yw = y if weight is None else y * weight[:, None]
            for j in range(self.size):
                state["sum"][:, j] += np.bincount(key, yw[:, j], len(state["n"]))
            order = np.argsort(group, kind="stable")
            edges = np.searchsorted(group[order], np.arange(s.groups + 1))
            for g in range(s.groups):
                rows = order[edges[g] : edges[g + 1]]
                state["square"][g] += yw[rows].T @ y[rows]
        return state

    @property
    def _origin(self) -> FloatArray:
        d = self.shape.context
        return self.shape.origin[d : d + self.size]

    def finish(self, state: State) -> FeatureMoments:
        """Scaled as if row weights had mean 1, since posteriors count rounds."""
        g, n, scale = self.shape.groups, self.shape.n_actions, self.shape.weight_scale(float(state["n"].sum()))
        return FeatureMoments(
            state["n"].reshape(g, n) * scale, state["sum"].reshape(g, n, -1) * scale, state["square"] * scale, self._origin,
            self.shape.features,
        )  # fmt: skip


@dataclass(frozen=True)
class FeatureMoments:
    """Rows and Σφ of each action, and Σφφᵀ, both around `origin`; with a leading axis of groups until `of` sums over it."""

    n: FloatArray
    total: FloatArray
    square: FloatArray
    origin: FloatArray
    features: Features

    def of(self, keep: npt.NDArray[np.bool_]) -> FeatureMoments:
        """The sums over some groups. (Groups are added, never subtracted.)"""
        n, total, square = (part[keep].sum(axis=0) for part in (self.n, self.total, self.square))
        return FeatureMoments(n, total, square, self.origin, self.features)

    def means(self) -> FloatArray:
        """φ̄ of each action."""
        return mean_features(self.features, self.n, self.total, self.origin)

    def within(self) -> FloatArray:
        """The covariance of φ around the mean of its action."""
        around = self.means() - self.origin
        scatter: FloatArray = self.square - around.T @ (around * self.n[:, None])
        size = np.sqrt(np.diag(self.square))
        scatter = np.where(np.abs(scatter) > ROUNDING * np.outer(size, size), scatter, 0.0)
        return scatter / max(float(self.n.sum()), 1e-300)


@dataclass(frozen=True)
class Known:
    """The statistics that a posterior is fitted from, restricted to the rows of some groups.

    `rows` is the result of the posterior's second statistic, if it has one. `columns` are the columns of the features that
    make up the embedding, if it is pre-defined.
    """

    sums: FeatureMoments
    rows: Any = None
    features: Features = NO_FEATURES
    columns: IntArray = field(default_factory=lambda: np.empty(0, np.int64))


def kept_at(bandwidth: float | str) -> float:
    """The share of a difference that is left after normal noise of this width, in units of the spread of the actions.

    >>> kept_at(0.5), kept_at("auto")
    (0.8, 1.0)
    """
    return 1.0 if isinstance(bandwidth, str) else 1 / (1 + float(bandwidth) ** 2)


class Posterior(Named, Serves, ABC):
    """The base class of posteriors: a frozen dataclass of settings whose `fit` returns a `Pooling`.

    A class attribute `kind` is the name on the command line. A field `scale` states whether embeddings are brought to a
    common scale first. `neighbours` bounds the number of actions near the logged one that are summed over.

    Examples
    --------
    >>> import offpolicy as op
    >>> isinstance(op.Gaussian(), op.Posterior), op.Gaussian.kind
    (True, 'gaussian')
    """

    scale: bool
    neighbours: int | None = None

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        """Return what is summed over the log for the fit; the first is always `FeatureSums`.

        Parameters
        ----------
        shape : FitShape
            The sizes of the log, and its groups of units.
        """
        return (FeatureSums(shape),)

    def rows_without(self, rows: Any, keep: npt.NDArray[np.bool_]) -> Any:  # noqa: ARG002
        """Restrict the result of the second statistic to some groups of units.

        Parameters
        ----------
        rows : object
            The result of the second statistic.
        keep : bool array of shape (n_groups,)
            The groups to retain.
        """
        return rows

    @abstractmethod
    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:
        """Fit the posterior.

        Parameters
        ----------
        name : str
            The estimator, for error messages.
        embedding : Embedding
            The embedding of each action.
        affine : Affine
            The map to the common scale.
        known : Known
            The statistics of the log, such as `known.sums.n`, the rounds of each action.

        Returns
        -------
        Pooling
            The fitted posterior.
        """

    def numbers_per_action(self, n_actions: int, size: int) -> int:  # noqa: ARG002
        """Return how many numbers the fit holds per action in addition to the embedding, for the memory budget.

        Parameters
        ----------
        n_actions : int
            The number of actions.
        size : int
            The dimension of the embedding.
        """
        return 0

    @property
    def exact(self) -> bool:
        """Whether the weights have mean 1 under the logging policy."""
        return False

    @property
    def true_likelihood(self) -> bool:
        """Whether p(e|a) is the true one, so that the ratio is exact where rewards depend on the embedding alone."""
        return False

    @property
    def fitted(self) -> bool:
        """Whether any of it is estimated from the log."""
        return True

    @property
    def self_normalised(self) -> bool:
        """Whether estimators with these weights divide by the mean weight by default."""
        return False

    @property
    def kept(self) -> float:
        """About which share of the differences between actions pooling keeps, from 0 to 1."""
        return 1.0

    @property
    def smooth(self) -> bool:
        """Whether the weights are smooth in the embedding, so that the error of the fit can be included."""
        return True
