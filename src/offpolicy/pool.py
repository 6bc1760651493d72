"""Weights by embeddings for a block of rows, and how they move with what was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.pooled import Slopes
from offpolicy.posteriors import Pooling
from offpolicy.statistics import State
from offpolicy.weights import Pooled, Weight


@dataclass(frozen=True)
class Sides:
    """π and π0 of a block, and their quotient, which all weights in the posterior form share."""

    pi: FloatArray
    pi0: FloatArray

    @cached_property
    def supported(self) -> FloatArray | None:
        """1 where the logging policy gives a chance; None where it does so everywhere."""
        return None if self.pi0.min(initial=1.0) > 0 else (self.pi0 > 0).astype(np.float64)

    @cached_property
    def quotient(self) -> FloatArray:
        """π/π0; 0 where π0 is, for there no round of the log can speak for the action."""
        if self.supported is None:
            return self.pi / self.pi0
        return np.where(self.pi0 > 0, self.pi / np.where(self.pi0 > 0, self.pi0, 1.0), 0.0)


@dataclass
class Pool:
    """The ratios of one embedding for a batch of one policy; `state` takes what is summed besides.

    With Q the shares, u and v the two sides, w = Σ_a Q_a u_a / Σ_a Q_a v_a, and ∂w/∂s_a = Q_a (u_a − w·v_a) / Σ_b Q_b v_b.
    """

    weight: Weight
    poolings: Sequence[Pooling]
    state: State
    omega: FloatArray
    residuals: list[FloatArray]
    """Of the corrections that use this weight."""
    ratio: FloatArray
    sloped: bool
    _points: FloatArray = field(init=False)
    _slopes: FloatArray = field(init=False)

    @property
    def ratio_of(self) -> Pooled:
        assert isinstance(self.weight.ratio, Pooled)
        return self.weight.ratio

    def __post_init__(self) -> None:
        if self.sloped:
            shape = (len(self.ratio), self.poolings[0].weight.shape[1])
            self._points, self._slopes = np.zeros(shape), np.zeros(shape)

    @cached_property
    def multipliers(self) -> FloatArray:
        """What a round's weight is multiplied with in each sum: 1, and the residual of each correction."""
        return np.column_stack([self.omega, *(self.omega * residual for residual in self.residuals)])

    def fill(self, rows: slice, batch: Batch, fold: int, sides: Sides, action: FloatArray, sampled: bool) -> None:
        """The ratios of a block. `action` is w, which stands in where the action is new to the fit."""
        pooling = self.poolings[fold if len(self.poolings) > 1 else 0]
        shares = pooling.shares(batch)
        u, v = (sides.pi, sides.pi0) if pooling.form == "ratio" else (sides.quotient, sides.supported)
        above = np.einsum("ij,ij->i", shares, u)
        below = np.ones(len(batch)) if v is None else np.einsum("ij,ij->i", shares, v)
        at = np.arange(len(batch)), batch.action
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(below > 0, above / below, action)
            own = np.where(above > 0, shares[at] * u[at] / above, 1.0)
        new = ~pooling.seen[batch.action]
        ratio, own = np.where(new, action, ratio), np.where(new, 1.0, own)
        self.ratio[rows] = ratio
        omega = self.omega[rows]
        self.state["rows"] += omega.sum()
        self.state["own"] += omega @ own
        self.state["new"] += new.sum()
        np.maximum(self.state["largest"], ratio.max(initial=0.0), out=self.state["largest"])
        if self.sloped and sampled:
            slope = (u - ratio[:, None]) if v is None else u - ratio[:, None] * v
            slope *= shares
            slope *= (np.where(new, 0.0, 1.0) / np.where(below > 0, below, np.inf))[:, None]
            self._add_slopes(rows, pooling, batch, slope)

    def _add_slopes(self, rows: slice, pooling: Pooling, batch: Batch, slope: FloatArray) -> None:
        """`slope` is ∂w/∂s."""
        z, m = pooling.points(batch), self.multipliers[rows]
        padded = np.column_stack([z, np.ones(len(z))])
        scores = slope.T @ (m[:, :, None] * padded[:, None, :]).reshape(len(z), -1)
        self.state["scores"] += scores.reshape(len(scores), m.shape[1], -1)
        self._slopes[rows] = slope @ pooling.weight
        self._points[rows] = z
        self.state["sloped_rows"] += self.omega[rows].sum()

    def finish(self, batch: Batch) -> None:
        """Sums of ∂w/∂z over the rounds of each action, and against the features of the rounds."""
        if not self.sloped:
            return
        features = getattr(self.poolings[0].embedding.varying, "features", None)
        phi = None if features is None else features.rows(batch)
        for q, multiplier in enumerate(self.multipliers.T):
            weighted = self._slopes * multiplier[:, None]
            for j, column in enumerate(weighted.T):
                self.state["points"][q, :, j] += np.bincount(batch.action, column, self.state["points"].shape[1])
            if phi is not None:
                self.state["features"][q] += phi.T @ weighted


def zero_pool(pooling: Pooling, sums: int, sloped: bool) -> State:
    """Empty sums for one weight with so many multipliers."""
    n, m = pooling.weight.shape if sloped else (0, 0)
    features = getattr(pooling.embedding.varying, "features", None)
    columns = features.size if sloped and features is not None else 0
    return {
        "rows": np.zeros(()),
        "own": np.zeros(()),
        "new": np.zeros(()),
        "largest": np.zeros(()),
        "sloped_rows": np.zeros(()),
        "scores": np.zeros((n, sums, m + 1)),
        "points": np.zeros((sums, n, m)),
        "features": np.zeros((sums, columns, m)),
    }


def merged_pools(a: State, b: State) -> State:
    """The sums of two sets of rows."""
    return {name: np.maximum(part, b[name]) if name == "largest" else part + b[name] for name, part in a.items()}


def slopes_of(pool: State) -> Slopes:
    """The slopes that were summed, with a leading axis of sums."""
    scores = pool["scores"].transpose(1, 0, 2)
    return Slopes(scores[..., :-1], scores[..., -1], pool["points"], pool["features"])
