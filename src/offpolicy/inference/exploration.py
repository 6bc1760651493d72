"""How precise estimates would be if the logging policy explored more: one more pass over the log.

Under π0' = (1 − ε)π0 + εu, with u uniform, the weights are w' = π/π0', and E'[w'²ρ²] = E[w·w'·ρ²] for any residual ρ, which
the present log can tell: w' is w/((1 − ε) + εu/π0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.inference.functionals import Functional
from offpolicy.scoring.plan import CorrectionColumn, Plan, WeightColumn
from offpolicy.scoring.score_pass import ScorePass
from offpolicy.statistics.base import State, added


def weighted_part(f: Functional, plan: Plan) -> FloatArray | None:
    """The gradient in the columns that are weighted by π/π0; None if the value depends on other weights as well."""
    part = np.zeros_like(f.gradient)
    for column, key in enumerate(plan.columns, start=1):
        if isinstance(key, (WeightColumn, CorrectionColumn)) and f.gradient[column] != 0 and key.weight.weighs:
            if not key.weight.exact or not key.weight.ratio.of_actions:
                return None
            part[column] = f.gradient[column]
    return part


@dataclass(frozen=True)
class ExplorationPass:
    """The statistic: for each gradient and share of exploration, the mean of w·w'·ρ².

    `uniform` is the probability of each action under uniform exploration.
    """

    score_pass: ScorePass
    gradients: FloatArray
    shares: Sequence[float]
    uniform: float

    @property
    def columns(self) -> tuple[str, ...]:
        return self.score_pass.columns

    @property
    def batch_rows(self) -> int:
        return self.score_pass.batch_rows

    def zero(self) -> State:
        return {"n": np.zeros(()), "squares": np.zeros((len(self.gradients), len(self.shares)))}

    def fold(self, state: State, batch: Batch) -> State:
        scorer = self.score_pass.scorer
        ordered, bucket = scorer.ordered(batch)
        scored = scorer.score(ordered, bucket, self.score_pass.zero())
        assert scored.propensity is not None
        squares = (self.gradients @ scored.columns) ** 2
        factors = np.array([1 / ((1 - share) + share * self.uniform / scored.propensity) for share in self.shares])
        return {"n": state["n"] + len(batch), "squares": state["squares"] + squares @ factors.T}

    def merge(self, a: State, b: State) -> State:
        return added(a, b)

    def finish(self, state: State) -> FloatArray:
        """Per round, estimates × shares."""
        means: FloatArray = state["squares"] / max(float(state["n"]), 1.0)
        return means
