"""If a policy or a given q is invalid in some rows: read to the end, to report how many there are and the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from offpolicy.core.errors import RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.engines.base import BATCH_ROWS
from offpolicy.models.rewards.base import LinearPredictor
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.scoring.scorer import Scorer


def audited(error: RowsError, log: Log, scorer: Scorer, columns: tuple[str, ...]) -> RowsError:
    """The same error for the whole log. The scoring pass stops at the first block of rows that fails."""
    rows: list[int] = []
    for partition in log.partitions(columns):
        for batch in partition.batches(scorer.at_most(BATCH_ROWS)):
            for block in blocks(len(batch), batch.space.count or 1):
                rows += (row for other in _errors(batch.take(block), scorer, error.column) for row in other.rows)
    invalid = np.unique(rows) if len(rows) > len(error.rows) else error.rows
    return RowsError(error.column, error.what, invalid, error.advice, where=[log.where(int(row)) for row in invalid[:3]])


def _call(policy: Policy, batch: Batch) -> Callable[[], Any]:
    """A call that checks everything that a policy can compute for a batch."""
    if policy.deterministic:
        return partial(policy.actions, batch)
    if policy.whole and batch.space.n_codes:
        return partial(policy.probabilities, batch)
    return partial(policy.likelihood, batch)


def _errors(batch: Batch, scorer: Scorer, column: str) -> Iterator[RowsError]:
    """The errors about one column that policies, and models other than ours, raise for a batch."""
    policies = [*scorer.policies, *([scorer.logging] if scorer.logging else [])]
    models = [p for predictors in scorer.models.values() for p in predictors if not isinstance(p, LinearPredictor)]
    calls: list[Callable[[], Any]] = [
        *(_call(policy, batch) for policy in policies),
        *(partial(model.all, batch) for model in models),
    ]
    for call in calls:
        try:
            call()
        except RowsError as error:
            if error.column == column:
                yield error
