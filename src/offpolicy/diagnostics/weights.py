"""The weights of a policy, by actions and by embeddings: read off the sums of the scoring pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.diagnostics.overlap import Overlap, PooledOverlap, overlap
from offpolicy.inference.functionals import ScoreSums, mean_weight, std_error
from offpolicy.ratios.weights import Pooled, Weight
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import WeightColumn
from offpolicy.scoring.scorer import AGREE, Scorer
from offpolicy.scoring.tallies import pool_name
from offpolicy.statistics.base import State
from offpolicy.statistics.histogram import LogHistogram


@dataclass(frozen=True)
class WeightDiagnostics:
    """Overlap, and how weights are spread."""

    policies: tuple[str, ...]
    scorer: Scorer
    fitted: FitResults
    state: State

    def _raw_weight(self, p: int) -> int:
        """The column of w itself."""
        return 1 + self.scorer.plan.columns.index(WeightColumn(p, Weight()))

    def of_actions(self, p: int, sums: ScoreSums, kept: State | None) -> Overlap:
        column, logging = self._raw_weight(p), self.scorer.logging
        error = std_error(mean_weight(column, sums), sums)
        whole = logging is not None and logging.whole
        return overlap(sums.moments, column, error, kept, self.state["counts"], whole)

    def of_embeddings(self, p: int, weight: Weight, sums: ScoreSums, whole: State | None) -> PooledOverlap:
        """What the weights of embeddings or outcomes look like."""
        column = 1 + self.scorer.plan.columns.index(WeightColumn(p, weight))
        error = std_error(mean_weight(column, sums), sums)
        o = overlap(sums.moments, column, error, None, self.state["counts"], False)
        if whole is None or not isinstance(weight.ratio, Pooled):
            return PooledOverlap(o, weight.mean_one)
        pool = self.state["pools"][pool_name(self.scorer.plan, p, weight)]
        own = float(pool["own"] / pool["rows"]) if pool["rows"] > 0 else 1.0
        contextual = float(pool["contextual"]) > AGREE
        near = self.scorer.poolings[weight.ratio][0].near if pool["near_rows"] > 0 else None
        left_out = (
            None if near is None or not o.mean_weight > 0 else float(pool["left_out"][0] / pool["rows"]) / o.mean_weight
        )
        details = {"posterior": type(weight.ratio.posterior).__name__} | self.fitted.pooled[weight.ratio].on_all.details
        details |= {} if near is None else {"neighbours": near.count}
        return PooledOverlap(o, weight.mean_one, 1 - own, int(pool["new"]), contextual, details, left_out)

    def view(self, p: int, weight: Weight, estimators: Sequence[str], sums: ScoreSums) -> dict[str, Any]:
        """How a policy's weights, by actions or by embeddings, are spread over the whole log."""
        if isinstance(weight.ratio, Pooled):
            histogram = self.state["pooled_weights"][pool_name(self.scorer.plan, p, weight)]
            o, kind = self.of_embeddings(p, weight, sums, None).overlap, "embedding"
        else:
            kept = self.state["policies"][str(p)]
            histogram, o, kind = kept["weights"], self.of_actions(p, sums, kept), "action"
        return weights_view(self.policies[p], kind, estimators, histogram, o)


def weights_view(policy: str, kind: str, estimators: Sequence[str], histogram: State, o: Overlap) -> dict[str, Any]:
    """How the weights are spread, and how far the log speaks for the policy."""
    edges, masses, zero = LogHistogram(coarse=kind == "embedding").steps(histogram)
    rounds = o.n / max(float(histogram["mass"].sum()), 1e-300)  # row weights count, but all together as the rounds
    return {
        "policy": policy,
        "kind": kind,
        "estimators": list(estimators),
        "rounds": o.n,
        "edges": edges.tolist(),
        "counts": (rounds * masses).tolist(),
        "zero": rounds * zero,
        "mean": o.mean_weight,
        "effective_sample_size": o.ess,
        "largest": float(histogram["max"]),
        "largest_share": LogHistogram.largest_share(histogram),
        "top_1_percent_share": LogHistogram.top_share(histogram, 0.01),
        "target_mass_never_logged": o.never_logged,
        "target_mass_without_support": o.no_support,
    }
