"""The ratio of embeddings, p(e|π, x)/p(e|π0, x): actions are pooled by what was learned or is known of them.

Clusters are embeddings as well: their posterior is whether two actions share a cluster, and all else is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

from offpolicy.core.arrays import FloatArray
from offpolicy.data.spaces import ActionSpace
from offpolicy.models.posteriors.base import Pooling
from offpolicy.models.rewards.base import NO_FEATURES, FitShape
from offpolicy.ratios.available import Available
from offpolicy.ratios.base import FittedRatio, Fitting, Moves, PoolingDiagnostics, Ratio, RatioNumbers
from offpolicy.ratios.embedding_fits import EmbeddingSettings, PooledFits
from offpolicy.ratios.embedding_pool import EmbeddingPool, slopes_of, zero_pool
from offpolicy.ratios.rounds import Rounds
from offpolicy.statistics.base import State, Statistic
from offpolicy.statistics.histogram import LogHistogram

AGREE = 1e-6
"""Up to which difference the logging policy's probabilities of an action count as the same in all rounds."""


@final
@dataclass(frozen=True)
class EmbeddingRatio(EmbeddingSettings, Ratio):
    """p(e|π, x)/p(e|π0, x)."""

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
            "it weighs by embeddings, for which it needs the logging policy's chance of every action, not only of the "
            "logged one. Give it as `logging=` (--logging: a policy, or list columns of candidates), "
            "estimate it from the log and give that, or use IPS, SNIPS or DR, which need only the propensity"
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

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        fits = self.fits(fitting, results)
        return _Fitted(fits.poolings(fitting.families), fits.covered, fits)

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
class _Fitted(FittedRatio):
    """Weights by embeddings: one pooling per fold, or one."""

    poolings: Sequence[Pooling]
    sloped: bool
    """Whether the fit's error is to be counted, so that slopes are kept."""
    fits: PooledFits | None
    """None on workers."""

    def pool(self, rounds: Rounds, state: State) -> EmbeddingPool:
        return EmbeddingPool(self.poolings, rounds, state, self.sloped)

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.pool is not None
        return rounds.pool.finish()

    def zero(self, corrections: int) -> State:
        own = {"histogram": LogHistogram(coarse=True).zero(), **zero_pool(self.poolings, 1 + corrections, self.sloped)}
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
        return self.fits.moves(slopes_of(state))[:, [0, 1 + correction]], float(state["sloped_rows"])

    @property
    def embedding(self) -> PooledFits | None:
        return self.fits

    def light(self) -> FittedRatio:
        return replace(self, fits=None)

    @property
    def needs_grid(self) -> bool:
        return any(pooling.likelihood is not None for pooling in self.poolings)

    @property
    def nearest_suffice(self) -> bool:
        return all(pooling.neighbours is not None for pooling in self.poolings)

    def with_near(self) -> FittedRatio:
        assert self.fits is not None
        pairs = zip(self.poolings, self.fits.logged(), strict=True)
        return replace(self, poolings=[p.with_near(asked) if p.neighbours else p for p, asked in pairs])
