"""`split`: one log as two, for training on the one and evaluating on the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import is_number, whole
from offpolicy.data.log import Log
from offpolicy.data.subset import ALL, Subset
from offpolicy.engines.choice import engine_for
from offpolicy.statistics.base import State, added


def split(log: Log, share: float = 0.5, *, seed: int = 0) -> tuple[Log, Log]:
    """Split a log by unit into two logs, to train a policy on one and evaluate it on the other.

    Whether a round belongs to the first log depends only on the hash of its unit: its `cluster` if the log has one, else
    its `row_id`, else its file and row. All rounds of a unit stay together, the same unit is on the same side in every run,
    on every engine and in logs that contain other units as well, and no rows are copied: both logs read the same source
    and select rounds as they stream. Counting them takes one pass over the log.

    Parameters
    ----------
    log : Log
        The log. A log that is the result of a split can be split again.
    share : float, default 0.5
        The expected share of units in the first log, between 0 and 1.
    seed : int, default 0
        Another seed gives another split, independent of this one.

    Returns
    -------
    tuple of Log
        The first log, with about `share` of the units, and the second log with all others. They have the actions,
        columns, logging policy and reward range of the whole log. Row numbers, and policies given as one array row per
        round, refer to the whole log.

    Raises
    ------
    InputError
        If one of the two logs would have fewer than 2 rounds.

    Examples
    --------
    >>> import numpy as np
    >>> import offpolicy as op
    >>> log = op.Log(None, action=np.arange(1000) % 2, reward=np.ones(1000), propensity=np.full(1000, 0.5))
    >>> train, test = op.split(log, 0.3)
    >>> len(train), len(test)
    (319, 681)
    """
    if not isinstance(log, Log):
        raise InputError(f"log is a {type(log).__name__}; make a log of it first, with op.read_log(…) or op.Log(…).")
    if not is_number(share) or not 0 < share < 1:
        raise InputError(f"share is {share!r}; it must lie between 0 and 1.")
    seed = whole("seed", seed, -(2**63))
    subsets = (log.subset or ALL).cut(float(share), seed)
    rows = engine_for(log, None).reduce(log, _Rows(subsets))
    for side, count in zip(("first", "second"), rows, strict=True):
        if count < 2:
            raise InputError(
                f"share is {share:g}: that leaves {count} of {len(log):,} rounds to the {side} log, and a log needs at "
                f"least 2. Give another share{' or a cluster with more values' if log.schema.clustered else ''}."
            )
    first, second = (log.limited_to(replace(subset, rows=count)) for subset, count in zip(subsets, rows, strict=True))
    return first, second


@dataclass(frozen=True)
class _Rows:
    """The number of rounds in each subset."""

    subsets: tuple[Subset, ...]
    columns: tuple[str, ...] = ()
    batch_rows: int | None = None

    def zero(self) -> State:
        return {"rows": np.zeros(len(self.subsets), np.int64)}

    def fold(self, state: State, batch: Batch) -> State:
        state["rows"] += [int(subset.contains(batch.unit).sum()) for subset in self.subsets]
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)

    def finish(self, state: State) -> Any:
        return state["rows"].tolist()
