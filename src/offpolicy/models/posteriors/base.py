"""What a posterior must do: from embeddings, say how much each action speaks for a round.

Every posterior here gives a round with embedding z the scores s_a(z) = z·weight_a + bias_a, and exp(s_a) is, up to a factor
of the round, either p(e|a) or p(a|e). With Q = exp(s) the weight of a round is one of

    ratio form      Σ_a π(a|x) Q_a / Σ_a π0(a|x) Q_a           Q ∝ p(e|a): Gaussian, Categorical, Exact, clusters
    posterior form  Σ_a Q_a π(a|x)/π0(a|x) / Σ_a Q_a           Q ∝ p(a|e): Logistic

The ratio form knows the context: π0(a|x) is the prior. The posterior form takes p(a|e) for p(a|x, e), as published, and
agrees with it where π0 does not depend on the context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import RowsError
from offpolicy.core.imports import Named
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.data.spaces import Serves
from offpolicy.models.embedding_table import Affine, Embedding
from offpolicy.models.posteriors.nearest_actions import Near, nearest
from offpolicy.models.rewards.base import NO_FEATURES, FitShape, FitStatistic, mean_features
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.statistics.base import State, Statistic

Form = Literal["ratio", "posterior"]
MOST_ELEMENTS = 1 << 22
"""Shares are kept as a table of (embeddings × actions) up to 32 MB of them; else they are made anew for each block."""
ROUNDING = 1e-12
"""What is left below this part of what was subtracted is nothing."""
Influence = Callable[[FloatArray, FloatArray], "Callable[[Embedding, Known], FloatArray]"]
"""From the slopes of sums in weight and bias, a function that tells how the sums move with a refit, to first order.

A refit's θ = (weight, bias) is the minimum of another loss, so dθ ≈ −H⁻¹∇loss(θ): one solve with H serves all refits.
"""


@dataclass(frozen=True)
class Pooling:
    """A fitted posterior: how much each action speaks for each round."""

    form: Form
    embedding: Embedding
    affine: Affine
    weight: FloatArray
    """Actions × m."""
    bias: FloatArray
    """−∞ where an action takes no part."""
    context: Affine | None = None
    """The context on its own scale, where the scores depend on it as well."""
    likelihood: Callable[[Batch], FloatArray] | None = None
    """Gives Q itself, where there are no scores."""
    groups: tuple[IntArray, FloatArray] | None = None
    """The cluster of each action, and clusters × actions of 0 and 1, where Q is whether two actions share a cluster."""
    precision: FloatArray | None = None
    """Of the normal around each action, where there is one."""
    free: bool = False
    """Whether it is the same in whatever coordinates the embedding is written."""
    table: FloatArray | None = field(default=None, repr=False)
    neighbours: int | None = None
    """Of how many actions near the logged one sums are taken, where policies answer for all actions and these are many."""
    near: Near | None = field(default=None, repr=False)
    details: dict[str, Any] = field(default_factory=dict)
    influence: Influence | None = field(default=None, repr=False)
    """Where weight and bias are the result of an iteration: how sums that depend on them move with the embeddings."""

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Actions that the embedding was fitted on."""
        seen: npt.NDArray[np.bool_] = self.embedding.counts > 0
        return seen

    @property
    def varies(self) -> bool:
        """Whether rounds of one action may differ."""
        return self.embedding.varying is not None or self.context is not None or self.likelihood is not None

    @property
    def sight(self) -> FloatArray:
        """m × m: how far it sees, as a precision matrix; without one, as far as the embeddings are spread."""
        if self.precision is not None:
            return self.precision
        share = self.embedding.counts / self.embedding.counts.sum()
        z = self.affine(self.embedding.table)
        variance = share @ (z - share @ z) ** 2
        return np.eye(len(variance)) / max(float(variance.mean()), 1e-300)

    def points(self, batch: Batch) -> FloatArray:
        """z of each round."""
        varying = self.embedding.varying
        e = self.embedding.table[batch.action] if varying is None else varying.rows(batch)
        z = self.affine(e)
        return z if self.context is None else np.hstack([z, self.context(batch.context)])

    def shares(self, batch: Batch, layout: Layout) -> FloatArray:
        """Q of each round for the actions of the layout, up to a factor of the round."""
        if isinstance(layout, Lists):
            return self._listed(batch, layout)
        if self.groups is not None:
            return self.groups[1][self.groups[0][batch.codes]]
        if self.table is not None:
            return self.table[batch.codes]
        if self.likelihood is not None:
            return self._checked(self.likelihood(batch), batch)
        return self._exp(self.points(batch))

    def _listed(self, batch: Batch, layout: Lists) -> FloatArray:
        """Q of the listed actions alone."""
        assert self.likelihood is None
        if self.groups is not None:
            cluster = self.groups[0]
            same: FloatArray = (cluster[layout.codes] == cluster[batch.action][layout.row]).astype(np.float64)
            return same
        if self.table is not None:
            return self.table[batch.codes[layout.row], layout.codes]
        scores = layout.scores(self.points(batch), self.weight, self.bias)
        most = layout.most(scores)
        scores -= layout.spread(np.where(np.isfinite(most), most, 0.0))  # none of the listed actions may take part
        return np.exp(scores, out=scores)

    def _exp(self, z: FloatArray) -> FloatArray:
        scores = z @ self.weight.T
        scores += self.bias
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        if self.form == "posterior":
            scores /= scores.sum(axis=1, keepdims=True)
        return scores

    @staticmethod
    def _checked(shares: FloatArray, batch: Batch) -> FloatArray:
        bad = ~(shares.min(axis=1) >= 0) | ~np.isfinite(shares.sum(axis=1)) | ~(shares.max(axis=1) > 0)
        if bad.any():
            raise RowsError(
                "Exact", "have an embedding to which no action gives a chance (or a negative or NaN one)", batch.row[bad],
                "Check that p(e|a) covers every embedding in the log.",
            )  # fmt: skip
        return shares

    def with_near(self, asked: npt.NDArray[np.bool_]) -> Pooling:
        """The same with the neighbours of some actions looked up."""
        assert self.neighbours is not None
        assert self.precision is not None
        near = nearest(self.affine(self.embedding.table), self.precision, self.seen, asked, self.neighbours)
        return replace(self, near=near)

    def tabled(self, room: int) -> Pooling:
        """The same with Q as a table, where there is room for one and rounds of one action are alike."""
        n = len(self.bias)
        if self.varies or self.groups is not None or n * n > room:
            return self
        return replace(self, table=self._exp(self.affine(self.embedding.table)))


@dataclass(frozen=True)
class FeatureSums(FitStatistic):
    """By group and action: rows and Σφ; by group: Σφφᵀ around a typical φ. Without features, only the rows."""

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
        """As if row weights had mean 1: posteriors count rounds."""
        g, n, scale = self.shape.groups, self.shape.n_actions, self.shape.weight_scale(float(state["n"].sum()))
        return FeatureMoments(
            state["n"].reshape(g, n) * scale, state["sum"].reshape(g, n, -1) * scale, state["square"] * scale, self._origin,
            self.shape.features,
        )  # fmt: skip


@dataclass(frozen=True)
class FeatureMoments:
    """Rows and Σφ of each action, and Σφφᵀ, both around `origin`; with a leading axis of groups until `of` sums them."""

    n: FloatArray
    total: FloatArray
    square: FloatArray
    origin: FloatArray
    features: Features

    def of(self, keep: npt.NDArray[np.bool_]) -> FeatureMoments:
        """The sums of some groups. (Groups are added, never subtracted.)"""
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
    """What the fit pass kept for a posterior, for the rows of some groups."""

    sums: FeatureMoments
    rows: Any = None
    """Pairs or a sample of rows, already without those of other groups."""
    features: Features = NO_FEATURES
    columns: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Which columns of the features the embedding is, where it is pre-defined."""


class Posterior(Named, Serves, ABC):
    """Settings of a posterior. Frozen; `fit` gives a `Pooling`.

    A class that states its `kind` can be chosen by that name on the command line.
    """

    scale: bool
    neighbours: int | None = None
    """Of how many actions near the logged one sums are taken, where there is such a bound."""

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        """What it needs of the fit pass; the first is always `FeatureSums`."""
        return (FeatureSums(shape),)

    def rows_without(self, rows: Any, keep: npt.NDArray[np.bool_]) -> Any:  # noqa: ARG002
        """The second statistic's result for the groups that are kept."""
        return rows

    @abstractmethod
    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling: ...

    def numbers_per_action(self, n_actions: int, size: int) -> int:  # noqa: ARG002
        """Numbers that the fit holds per action, beside the embedding of `size` numbers: its share of the memory."""
        return 0

    @property
    def exact(self) -> bool:
        """Whether the weights have mean 1 under the logging policy."""
        return False

    @property
    def true_likelihood(self) -> bool:
        """Whether p(e|a) is the true one, so that its ratio is exact wherever rewards depend on the embedding alone."""
        return False

    @property
    def fitted(self) -> bool:
        """Whether anything of it comes from the log."""
        return True

    @property
    def self_normalised(self) -> bool:
        """Whether estimators with these weights divide by the mean weight unless told otherwise."""
        return False

    @property
    def smooth(self) -> bool:
        """Whether the weights move smoothly with the embedding, so that its error can be counted."""
        return True
