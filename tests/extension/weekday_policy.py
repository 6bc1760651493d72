"""A policy that reads a column of the log by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import offpolicy as op


@dataclass(frozen=True)
class SpecialOffer(op.Policy):
    """One action on one weekday, and each action alike on the others."""

    action: int
    day: str
    columns = ("weekday",)

    def distribution(self, batch: op.Batch) -> np.ndarray:
        p = np.full((len(batch), batch.n_actions), 1 / batch.n_actions)
        p[batch.column("weekday") == self.day] = np.eye(batch.n_actions)[self.action]
        return p


monday = SpecialOffer(2, "Mon")
