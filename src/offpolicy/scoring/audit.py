"""When some rows of a policy or a given q are bad: read on to the end, to say how many there are and which are the first."""

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
    """The same complaint for the whole log. The scoring pass stops at the first block of rows that fails."""
    rows: list[int] = []
    for partition in log.partitions(columns):
        for batch in partition.batches(BATCH_ROWS):
            for block in blocks(len(batch), batch.space.count or 1):
                rows += (row for other in _complaints(batch.take(block), scorer, error.column) for row in other.rows)
    found = np.unique(rows) if len(rows) > len(error.rows) else error.rows
    return RowsError(error.column, error.what, found, error.advice, where=[log.where(int(row)) for row in found[:3]])


def _question(policy: Policy, batch: Batch) -> Callable[[], Any]:
    """What asks a policy for all that it can give."""
    if policy.deterministic:
        return partial(policy.actions, batch)
    return partial(policy.probabilities, batch, None if policy.whole else batch.action)


def _complaints(batch: Batch, scorer: Scorer, column: str) -> Iterator[RowsError]:
    """What the policies and the models that are not ours say of a batch, about one column."""
    asked = [*scorer.policies, *([scorer.logging] if scorer.logging else [])]
    models = [p for predictors in scorer.models.values() for p in predictors if not isinstance(p, LinearPredictor)]
    questions: list[Callable[[], Any]] = [
        *(_question(policy, batch) for policy in asked),
        *(partial(model.all, batch) for model in models),
    ]
    for question in questions:
        try:
            question()
        except RowsError as error:
            if error.column == column:
                yield error
