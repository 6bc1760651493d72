"""What the sums of the scoring pass say of weights and reward models: for findings, and to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.diagnostics import overlap as dx
from offpolicy.diagnostics.views import calibration_view, weights_view
from offpolicy.inference.functionals import Sums, mean_weight, std_error
from offpolicy.inference.jackknife import Fitted
from offpolicy.models.rewards.base import FITTED_BEFORE
from offpolicy.ratios.weights import Pooled, Weight
from offpolicy.results.provenance import written
from offpolicy.scoring.plan import ModelKey, WeightColumn
from offpolicy.scoring.scorer import AGREE, Scorer
from offpolicy.scoring.tallies import pool_name
from offpolicy.statistics import State


@dataclass(frozen=True)
class Looking:
    """Reads overlap, pooling and fit off the state of a scoring pass."""

    policies: tuple[str, ...]
    scorer: Scorer
    fitted: Fitted
    state: State

    def _raw_weight(self, p: int) -> int:
        """The column of w itself."""
        return 1 + self.scorer.plan.columns.index(WeightColumn(p, Weight()))

    def overlap(self, p: int, sums: Sums, kept: State | None) -> dx.Overlap:
        column, logging = self._raw_weight(p), self.scorer.logging
        error = std_error(mean_weight(column, sums), sums)
        whole = logging is not None and logging.whole
        return dx.overlap(sums.moments, column, error, kept, self.state["counts"], whole)

    def pooled_overlap(self, p: int, weight: Weight, sums: Sums, whole: State | None) -> dx.PooledOverlap:
        """What the weights of embeddings or outcomes look like."""
        column = 1 + self.scorer.plan.columns.index(WeightColumn(p, weight))
        error = std_error(mean_weight(column, sums), sums)
        o = dx.overlap(sums.moments, column, error, None, self.state["counts"], False)
        if whole is None or not isinstance(weight.ratio, Pooled):
            return dx.PooledOverlap(o, weight.mean_one)
        pool = self.state["pools"][pool_name(self.scorer.plan, p, weight)]
        own = float(pool["own"] / pool["rows"]) if pool["rows"] > 0 else 1.0
        contextual = float(pool["contextual"]) > AGREE
        near = self.scorer.poolings[weight.ratio][0].near if pool["near_rows"] > 0 else None
        left_out = (
            None if near is None or not o.mean_weight > 0 else float(pool["left_out"][0] / pool["rows"]) / o.mean_weight
        )
        details = {"posterior": type(weight.ratio.posterior).__name__} | self.fitted.pooled[weight.ratio].on_all.details
        details |= {} if near is None else {"neighbours": near.count}
        return dx.PooledOverlap(o, weight.mean_one, 1 - own, int(pool["new"]), contextual, details, left_out)

    def model_fit(self, model: ModelKey) -> tuple[float | None, dict[str, Any]]:
        """R² out of fold: from the scored residuals where the model was cross-fitted, else from the fit's own folds."""
        fitted = self.fitted.models[model.fit].diagnostics(model.reward)
        r2 = fitted.get("r2")
        if model.folds or not fitted or FITTED_BEFORE in fitted:  # then these rounds are new to it
            n, r, rr, misfit = map(float, self.state["misfit"][self.scorer.plan.models.index(model)])
            total = rr - r * r / n
            r2 = 1 - misfit / total if total > 0 else None
        return r2, {**fitted, "r2": r2}

    def weights(self, p: int, weight: Weight, estimators: Sequence[str], sums: Sums) -> dict[str, Any]:
        """How a policy's weights, by actions or by embeddings, are spread over the whole log."""
        if isinstance(weight.ratio, Pooled):
            histogram = self.state["pooled_weights"][pool_name(self.scorer.plan, p, weight)]
            o, kind = self.pooled_overlap(p, weight, sums, None).overlap, "embedding"
        else:
            kept = self.state["policies"][str(p)]
            histogram, o, kind = kept["weights"], self.overlap(p, sums, kept), "action"
        return weights_view(self.policies[p], kind, estimators, histogram, o)

    def calibration(self, model: ModelKey, estimators: Sequence[str]) -> dict[str, Any]:
        """What a cross-fitted model predicted, and what came."""
        fit, sums = model.fit, self.state["calibration"][str(self.scorer.plan.models.index(model))]
        told = written(fit.rewards) + ("" if fit.policy is None else f", rows weighed by w² of {self.policies[fit.policy]}")
        return calibration_view(told, estimators, sums, float(self.scorer.anchor[model.reward]), self.model_fit(model)[0])
