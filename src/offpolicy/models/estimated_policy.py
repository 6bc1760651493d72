"""`EstimatedPolicy`: the base of logging policies that were estimated from the log, with a model per cross-fitting fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.core.arrays import IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import BUCKETS, buckets
from offpolicy.data.batch import Batch
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.policies.base import Policy


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedPolicy(Policy):
    """An estimated logging policy: what is estimated of a round comes from the model without its fold.

    `report` has the settings that were used, and the quality of the fit.
    """

    setting: EstimatedLogging
    seed: int
    models: Sequence[Any]
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"Fitted({self.setting!r})"

    def folds(self, batch: Batch) -> IntArray:
        """The fold of each round's unit, the same as for reward models."""
        return buckets(batch.unit, self.seed) * len(self.models) // BUCKETS


def deterministic(seen: str) -> InputError:
    """The error for a log from which no logging policy can be estimated."""
    return InputError(
        f"logging: the logging policy looks deterministic: {seen}. Such a log has no information about other actions in the "
        "same context, so there is no off-policy estimate: estimated propensities would be 1, or guesses. Randomise some "
        "rounds; or rely on a reward model alone (op.DM(), without logging=), which nothing here can check."
    )
