"""The ratio of embeddings, p(e|π, x)/p(e|π0, x): actions are pooled by a learned or pre-defined embedding.

Clusters are embeddings, too: their posterior is whether two actions share a cluster; everything else is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.threads import parallel
from offpolicy.data.features import Inputs
from offpolicy.data.spaces import ActionSpace
from offpolicy.models.embedding_table import Affine, Embedding, FeatureMap
from offpolicy.models.posteriors.base import MOST_ELEMENTS, FeatureMoments, Known, Pooling, Posterior
from offpolicy.models.rewards.base import NO_FEATURES, Fits, FitShape, RewardModel, embedding_of
from offpolicy.ratios.base import Available, FittedRatio, Fitting, Moves, PoolingDiagnostics, Ratio, RatioNumbers
from offpolicy.ratios.pools import Pool, Rounds
from offpolicy.statistics.base import State, Statistic
from offpolicy.statistics.histogram import LogHistogram

AGREE = 1e-6  # the largest difference at which the logging policy's probabilities of an action count as equal in all rounds


@final
@dataclass(frozen=True)
class EmbeddingRatio(Ratio):
    """p(e|π, x)/p(e|π0, x).

    Attributes
    ----------
    posterior : Posterior
        What pools actions by their embedding.
    rewards : RewardModel | None
        The model that the embedding is taken from; None: the pre-defined features themselves.
    reward : int
        Which reward the embedding is learned from.
    """

    posterior: Posterior
    rewards: RewardModel | None
    inputs: Inputs | None = "identity"
    cross_fit: int = 0
    dimensions: tuple[str, ...] | None = None
    reward: int = 0
    whole = True
    per_policy = False
    shown = True

    @property
    def spaces(self) -> tuple[type[ActionSpace], ...]:
        return self.posterior.spaces

    def lacks(self, available: Available) -> str | None:
        reason = available.lacks_propensities or available.lacks_whole_policies
        if reason is not None or available.has_whole_logging:
            return reason
        return (
            "it weights rounds by embeddings, and needs the logging policy's probability of every action, not only of the "
            "logged one. Pass it as `logging=` (--logging: a policy, or list columns of candidates), "
            "estimate it from the log and pass that, or use IPS, SNIPS or DR, which need only the propensity"
        )

    def for_reward(self, reward: int) -> Self:
        return self if self.rewards is None else replace(self, reward=reward)

    @property
    def mean_one(self) -> bool:
        return self.posterior.exact

    @property
    def model_error_cancels(self) -> bool:
        return self.posterior.true_likelihood

    @property
    def fitted(self) -> bool:
        return self.posterior.fitted

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:
        return self.posterior.statistics(self._shape(fitting))

    def fits(self, fitting: Fitting, results: Sequence[Any]) -> PooledFits:
        """The embedding, and what its posterior is fitted from."""
        sums, *rows = results
        return PooledFits(fitting.name, self, self._shape(fitting), sums, rows[0] if rows else None, fitting.fits)

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedEmbeddings:
        fits = self.fits(fitting, results)
        return FittedEmbeddings(fits.poolings(fitting.families), fits.covered, fits)

    def _shape(self, fitting: Fitting) -> FitShape:
        return replace(fitting.by_action, features=NO_FEATURES if self.inputs == "identity" else fitting.features)

    def numbers(self, n_actions: int, context: int, features: int) -> RatioNumbers:
        size, folds = max(context + 1, features), max(self.cross_fit, 1)
        width = features if self.rewards is None else context + 1
        return RatioNumbers(
            fitted=folds * 6 * size + self.posterior.numbers_per_action(n_actions, size),
            folds=folds,
            near=self.posterior.neighbours or 0,
            sums=1 + (0 if self.inputs == "identity" else features),
            slopes=folds * (2 * width + 1),
        )


@final
@dataclass(frozen=True, eq=False)
class FittedEmbeddings(FittedRatio):
    """Weights by embeddings, from one pooling per fold, or one for all rounds.

    Attributes
    ----------
    sloped : bool
        Whether slopes are summed, so that the fit's share of the error can be computed.
    fits : PooledFits | None
        None on workers.
    """

    poolings: Sequence[Pooling]
    sloped: bool
    fits: PooledFits | None

    def pool(self, rounds: Rounds, state: State) -> Pool:
        return Pool(self.poolings, rounds, state, self.sloped)

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.pool is not None
        return rounds.pool.finish()

    def zero(self, corrections: int) -> State:
        own = {"histogram": LogHistogram(coarse=True).zero(), **Pool.zero(self.poolings, 1 + corrections, self.sloped)}
        return super().zero(corrections) | own

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:
        super().fold(state, rounds, ratio)
        state["histogram"] = LogHistogram(coarse=True).fold(state["histogram"], ratio, rounds.batch.weight)

    def histogram(self, state: State) -> State | None:
        histogram: State = state["histogram"]
        return histogram

    def diagnostics(self, state: State, mean_weight: float) -> PoolingDiagnostics:
        assert self.fits is not None
        near = self.poolings[0].near if state["near_rows"] > 0 else None
        details = {"posterior": type(self.fits.ratio.posterior).__name__} | self.fits.on_all.details
        bounded = near is not None and mean_weight > 0
        return PoolingDiagnostics(
            pooling=1 - (float(state["own"] / state["rows"]) if state["rows"] > 0 else 1.0),
            new_actions=int(state["new"]),
            misread=float(state["contextual"]) > AGREE,
            details=details | ({} if near is None else {"neighbours": near.count}),
            left_out=float(state["left_out"][0] / state["rows"]) / mean_weight if bounded else None,
        )

    def moves(self, state: State, correction: int) -> Moves | None:
        if not self.sloped or not state["sloped_rows"] > 0 or self.fits is None:
            return None
        return self.fits.moves(Slopes.by_fold(state))[:, [0, 1 + correction]], float(state["sloped_rows"])

    @property
    def embedding(self) -> Embedding | None:
        return None if self.fits is None else replace(self.fits.embedding.on_host(), varying=None, covariance=None)

    def light(self) -> FittedEmbeddings:
        return replace(self, fits=None)

    def on_host(self) -> FittedEmbeddings:
        return replace(self, poolings=[pooling.on_host() for pooling in self.poolings])

    @property
    def needs_grid(self) -> bool:
        return any(pooling.likelihood is not None for pooling in self.poolings)

    @property
    def nearest_suffice(self) -> bool:
        return all(pooling.neighbours is not None for pooling in self.poolings)

    @property
    def normal(self) -> bool:
        return all(pooling.normal for pooling in self.poolings)

    def with_near(self) -> FittedRatio:
        assert self.fits is not None
        pairs = zip(self.poolings, self.fits.logged(), strict=True)
        return replace(self, poolings=[p.with_near(logged) if p.neighbours else p for p, logged in pairs])


@dataclass(frozen=True)
class PooledFits:
    """Everything that is fitted for one embedding. Every fold uses the scale of the fit on all rows.

    Attributes
    ----------
    rows : Any
        The second statistic of the posterior, if it has one.
    fits : Fits | None
        The fits of the reward model; None if the embedding is the features themselves.
    """

    name: str
    ratio: EmbeddingRatio
    shape: FitShape
    sums: FeatureMoments
    rows: Any
    fits: Fits | None

    @cached_property
    def affine(self) -> Affine:
        return Affine.of(self.embedding, self.ratio.posterior.scale)

    @cached_property
    def embedding(self) -> Embedding:
        """On all rows; checked."""
        everything = np.ones(self.shape.groups, bool)
        predictor = None if self.fits is None else self.fits.on_all(self.ratio.reward)
        embedding = self._embedding(predictor, self.known(everything))
        if self.ratio.posterior.fitted:
            embedding.check(self.name)
        return embedding

    def known(self, included: npt.NDArray[np.bool_]) -> Known:
        """What the posterior may be fitted from: the rows of some groups."""
        rows = None if self.rows is None else self.ratio.posterior.rows_without(self.rows, included)
        return Known(self.sums.of(included), rows, self.shape.features, self.columns)

    @cached_property
    def columns(self) -> IntArray:
        """The columns of pre-defined features that are the embedding; none if it is learned."""
        if self.ratio.rewards is not None:
            return np.empty(0, np.int64)
        names = self.ratio.dimensions
        return np.arange(self.shape.features.size) if names is None else self.shape.features.only(names)

    def _embedding(self, predictor: Any, known: Known) -> Embedding:
        if self.ratio.rewards is None:
            return self._predefined(known.sums)
        embedding = replace(embedding_of(predictor, self.name), counts=known.sums.n)
        if isinstance(embedding.varying, FeatureMap):
            shared = embedding.varying.shared
            embedding = replace(embedding, within=shared.T @ known.sums.within() @ shared)
        return embedding

    def _predefined(self, sums: FeatureMoments) -> Embedding:
        features = self.shape.features
        if not features.size:  # clusters from the user: nothing is embedded
            return Embedding(np.arange(float(len(sums.n)))[:, None], sums.n)
        if not features.varies:
            assert features.catalog is not None
            return Embedding(features.catalog[:, self.columns], sums.n)
        shared = np.eye(features.size)[:, self.columns]
        varying = FeatureMap(np.zeros((len(sums.n), len(self.columns))), shared, features)
        within = sums.within()[np.ix_(self.columns, self.columns)]
        return Embedding(sums.means()[:, self.columns], sums.n, varying=varying, within=within)

    @cached_property
    def on_all(self) -> Pooling:
        return self._fit(self.embedding, self.known(np.ones(self.shape.groups, bool)))

    def _fit(self, embedding: Embedding, known: Known) -> Pooling:
        return self.ratio.posterior.fit(self.name, embedding, self.affine, known)

    def poolings(self, count: int) -> list[Pooling]:
        """One, or one without each fold. `count` of such families share the memory for tables."""
        folds = self.ratio.cross_fit
        if not folds:
            return [self.on_all.tabled(MOST_ELEMENTS // count)]
        fold = np.arange(self.shape.groups) * folds // self.shape.groups
        _ = self.affine  # what the folds share, so that no two threads compute it
        threads = None if self.shape.device is None else 1  # a device is busy with one, and each takes memory there
        fitted = parallel(lambda k: self._left_out(fold != k, k, folds), range(folds), threads=threads)
        return [pooling.tabled(MOST_ELEMENTS // (count * folds)) for pooling in fitted]

    def logged(self) -> list[npt.NDArray[np.bool_]]:
        """The actions that occur in each fold, or at all: those that weights are computed for."""
        folds = max(self.ratio.cross_fit, 1)
        fold = np.arange(self.shape.groups) * folds // self.shape.groups
        return [self.sums.of(fold == k).n > 0 for k in range(folds)]

    def _left_out(self, included: npt.NDArray[np.bool_], fold: int, folds: int) -> Pooling:
        predictor = None if self.fits is None else self.fits.without_fold(self.ratio.reward, fold, folds)
        known = self.known(included)
        return self._fit(self._refitted(predictor, known), known)

    def _refitted(self, predictor: Any, known: Known) -> Embedding:
        """On fewer rows; the covariance of the coefficients is that of the fit on all rows."""
        refit = self._embedding(predictor, known)
        if refit.turned:
            refit = refit.turned_to(self.embedding)
        return replace(refit, covariance=self.embedding.covariance)

    @cached_property
    def covered(self) -> bool:
        """Whether the fit's error can be computed: the weights are smooth, and refits need only sums."""
        posterior, pooling = self.ratio.posterior, self.on_all
        known = (
            self.shape.jackknife and pooling.likelihood is None and (pooling.context is None or pooling.width is not None)
        )
        if not (posterior.fitted and posterior.smooth and known):
            return False
        return self.fits is None or self.fits.can_refit

    def refits(self) -> Iterator[tuple[Embedding, Known]]:
        """The embedding without each group of units."""
        for g in range(self.shape.groups):
            known = self.known(np.arange(self.shape.groups) != g)
            predictor = None if self.fits is None else self.fits.without_group(self.ratio.reward, g)
            yield self._refitted(predictor, known), known

    def moves(self, by_fold: Sequence[Slopes]) -> FloatArray:
        """How sums with these slopes change when each group is left out of the fit: groups × sums, to first order.

        Rounds in the same fold as the group are already weighted without it. The others are weighted by fits on fewer rows,
        in which a group has correspondingly more influence.
        """
        folds = len(by_fold)
        others = list(by_fold) if folds == 1 else [
            _sum([*by_fold[:left], *by_fold[left + 1 :]], folds / (folds - 1)) for left in range(folds)
        ]  # fmt: skip
        pooling = self.on_all
        implicit = [None if pooling.influence is None else pooling.influence(s.weight, s.bias) for s in others]
        out = []
        for g, (refit, known) in enumerate(self.refits()):
            fold = g * folds // self.shape.groups
            slopes, refitted = others[fold], implicit[fold]
            embedding = within_reach(pooling, aligned(pooling, refit, known) if pooling.free else refit)
            moved = slopes.of_points(pooling.embedding, embedding, self.affine) if pooling.width is None else 0.0
            if refitted is not None:
                moved = moved + refitted(embedding, known)
            else:
                other = self._fit(embedding, known)
                moved = moved + np.tensordot(slopes.weight, other.weight - pooling.weight, axes=2)
                moved = moved + slopes.bias @ (other.bias - pooling.bias)
            out.append(moved)
        return np.array(out)


def aligned(pooling: Pooling, refit: Embedding, known: Known) -> Embedding:
    """The refit in the coordinates of the fit, for a posterior that does not depend on the coordinates.

    Otherwise a small rotation of an axis with little variation would look like a large change.
    """
    old, new = pooling.embedding.varying, refit.varying
    if not isinstance(old, FeatureMap) or not isinstance(new, FeatureMap):
        return refit
    features = np.sqrt(np.maximum(np.diag(known.sums.within()), 0.0))[:, None]
    rounds = np.sqrt(known.sums.n / known.sums.n.sum())[:, None]

    def rows(e: Embedding, varying: FeatureMap) -> FloatArray:
        return np.vstack([features * varying.shared, rounds * (e.table - rounds[:, 0] ** 2 @ e.table)])

    turn: FloatArray = np.asarray(np.linalg.lstsq(rows(refit, new), rows(pooling.embedding, old), rcond=None)[0])
    within = None if refit.within is None else turn.T @ refit.within @ turn
    return replace(refit, table=refit.table @ turn, varying=new.mapped(turn), within=within)


def within_reach(pooling: Pooling, refit: Embedding) -> Embedding:
    """The refit, with no action moved farther than the range of the posterior.

    Weights stop changing once an embedding has left its neighbourhood, but a linear extrapolation would not: least squares
    on two rounds can place an embedding anywhere.
    """
    before = pooling.embedding
    precision = pooling.sight

    def capped(old: FloatArray, new: FloatArray) -> FloatArray:
        step = new - old
        z = step @ pooling.affine.matrix
        far = np.sqrt(np.einsum("ai,ij,aj->a", z, precision, z) / z.shape[1])
        moved: FloatArray = old + step / np.maximum(far, 1.0)[:, None]
        return moved

    if isinstance(before.varying, FeatureMap) and isinstance(refit.varying, FeatureMap):
        own = capped(before.varying.own, refit.varying.own)
        return replace(refit, varying=replace(refit.varying, own=own), table=refit.table + own - refit.varying.own)
    return replace(refit, table=capped(before.table, refit.table))


@dataclass(frozen=True)
class Slopes:
    """Derivatives of sums over the rounds with respect to what was fitted; each array has a leading axis of sums."""

    weight: FloatArray  # actions × m: to the weights of the scores
    bias: FloatArray  # actions
    points: FloatArray  # actions × m: to the embedding of the rounds of each action
    features: FloatArray  # features × m: to that of rounds, through their features

    @classmethod
    def by_fold(cls, state: State) -> list[Slopes]:
        """Those summed by a `Pool`."""
        parts = zip(state["scores"].transpose(0, 2, 1, 3), state["points"], state["features"], strict=True)
        return [cls(scores[..., :-1], scores[..., -1], points, features) for scores, points, features in parts]

    def of_points(self, before: Embedding, after: Embedding, affine: Affine) -> FloatArray:
        if isinstance(before.varying, FeatureMap) and isinstance(after.varying, FeatureMap):
            own = (after.varying.own - before.varying.own) @ affine.matrix
            shared = (after.varying.shared - before.varying.shared) @ affine.matrix
            moved: FloatArray = np.tensordot(self.points, own, 2) + np.tensordot(self.features, shared, 2)
            return moved
        alone: FloatArray = np.tensordot(self.points, (after.table - before.table) @ affine.matrix, 2)
        return alone


def _sum(parts: Sequence[Slopes], factor: float) -> Slopes:
    """Their sum, times a factor."""
    names = ("weight", "bias", "points", "features")
    return Slopes(*(factor * np.sum([getattr(part, name) for part in parts], axis=0) for name in names))
