"""`TwoStep`: q for OffCEM, first the differences between actions of a cluster, then the cluster (Saito et al. 2023).

In the coordinates of solve.py, with Z_a and ρ_a the normal equations of action a around the pooled fit and c its cluster:

    d_c = (Σ Z_a + penalty)⁻¹ Σ ρ_a                     the cluster as one action
    h_a = (Z_a + penalty)⁻¹(ρ_a + penalty·d_c) − d_c    differences within the cluster, with mean 0 over its rounds
    g_c = (Σ Z_a + penalty)⁻¹ Σ (ρ_a − Z_a h_a)         the cluster, fitted to the remainder

and the coefficients are g_c + h_a. A cluster with a single action has h = 0, and g is the plain ridge fit.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Need
from offpolicy.models.embedding_table import Affine
from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor, RewardModel
from offpolicy.models.rewards.ridge import solve
from offpolicy.models.rewards.ridge.model import Ridge, RidgeFits, ridge_needs
from offpolicy.statistics.base import Statistic
from offpolicy.statistics.gram import GramState


@dataclass(frozen=True)
class TwoStep(RewardModel):
    """A ridge model, whose embeddings are clustered and whose penalty both steps use."""

    ridge: Ridge
    clusters: int | tuple[int, ...]
    name: str

    @classmethod
    def of(cls, rewards: RewardModel, clusters: int | tuple[int, ...], name: str) -> RewardModel:
        """The two steps of a ridge model; a model that is not fitted to the log is used as it is."""
        if not rewards.fitted:
            return rewards
        if not isinstance(rewards, Ridge):
            raise InputError(f"{name}: the two steps are defined for op.Ridge(); use that, or op.Given(q).")
        return cls(rewards, clusters, name)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        return self.ridge.statistics(shape)

    def needs(self, shape: FitShape, threads: int) -> tuple[Need, ...]:
        return ridge_needs(shape, threads, at_once=True)

    def refit_numbers(self, shape: FitShape) -> int:
        return self.ridge.refit_numbers(shape)

    def fits(self, shape: FitShape, results: Any) -> Fits:
        return _TwoStepFits(self, RidgeFits.of(self.ridge, shape, results))


@dataclass(frozen=True)
class _TwoStepFits(Fits):
    """The fits. There are no refits, since clusters do not change smoothly."""

    model: TwoStep
    fits: RidgeFits

    def on_all(self, reward: int) -> LinearPredictor:
        return self._refined(reward, self.fits.on_all(reward), self.fits.rows(reward).gram)

    def without_fold(self, reward: int, fold: int, folds: int) -> LinearPredictor:
        return self._refined(
            reward, self.fits.without_fold(reward, fold, folds), self.fits.without(reward, folds)[fold].gram
        )

    def diagnostics(self, reward: int) -> dict[str, Any]:
        return self.fits.diagnostics(reward)

    def _refined(self, reward: int, linear: LinearPredictor, gram: GramState) -> LinearPredictor:
        points = Affine.of(self.fits.on_all(reward).embedding, scaled=True)(linear.embedding.table)
        cluster = clusters_of(self.model.name, points, gram.n, self.model.clusters)
        scaled = solve.Scaled.of(gram, gram.pooled(), self.model.ridge.intercept)
        coef = scaled.own_units(scaled.pool + two_steps(scaled, gram.n, cluster, self.fits.diagnostics(reward)["penalty"]))
        return replace(linear, coef=coef, centre=scaled.centre, varying=None, down=None)


def two_steps(scaled: solve.Scaled, rounds: FloatArray, cluster: IntArray, penalty: float) -> FloatArray:
    """g_c + h_a, as a deviation from the pooled fit."""
    count = int(cluster.max()) + 1

    def summed(values: FloatArray) -> FloatArray:
        out = np.zeros((count, *values.shape[1:]))
        np.add.at(out, cluster, values)
        return out

    of_cluster = solve.damped_inverse(summed(scaled.zz), penalty)
    level = (of_cluster @ summed(scaled.residual)[..., None])[..., 0][cluster]
    inverse = solve.damped_inverse(scaled.zz, penalty)
    own = (inverse @ (scaled.residual + penalty * level)[..., None])[..., 0]
    own = np.where((rounds > 0)[:, None], own, level)  # an action that was never logged does not differ from its cluster
    differences = own - level
    total = np.maximum(summed(rounds), 1e-300)[:, None]
    differences = differences - (summed(differences * rounds[:, None]) / total)[cluster]
    left = scaled.residual - (scaled.zz @ differences[..., None])[..., 0]
    clusters: FloatArray = (of_cluster @ summed(left)[..., None])[..., 0]
    return clusters[cluster] + differences


def clusters_of(name: str, points: FloatArray, counts: FloatArray, clusters: int | tuple[int, ...]) -> IntArray:
    """The cluster of each action. Actions that were never logged go to the nearest cluster of logged ones."""
    if isinstance(clusters, tuple):
        if len(clusters) != len(points):
            raise InputError(f"{name}: clusters has {len(clusters)} labels for {len(points)} actions; give one per action.")
        return np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    if clusters >= len(points):
        return np.arange(len(points))
    from sklearn.cluster import KMeans

    logged = np.flatnonzero(counts > 0)
    if not len(logged):
        return np.zeros(len(points), np.int64)
    distinct = len(np.unique(points[logged], axis=0))
    means = KMeans(min(clusters, distinct), n_init=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than clusters give fewer clusters
        means.fit(points[logged], sample_weight=counts[logged])
    cluster: IntArray = np.unique(means.predict(points), return_inverse=True)[1].astype(np.int64)
    return cluster
