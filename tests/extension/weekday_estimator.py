"""An estimator: the reward model's answer, with its residuals weighted by weekday."""

from __future__ import annotations

from dataclasses import dataclass

import offpolicy as op
from tests.extension.action_means import ActionMeans
from tests.extension.weekday_ratio import WeekdayRatio


@dataclass(frozen=True)
class WeekdayDR(op.Estimator):
    mix: tuple[float, ...] = (0.5, 0.3, 0.2)
    normalised: bool = False

    def members(self, cross_fit: int | None = None) -> tuple[op.Member, ...]:
        return (op.Member(op.Weight(WeekdayRatio(self.mix)), ActionMeans(), normalised=self.normalised),)
