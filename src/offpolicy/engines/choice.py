"""Which engine reads a log."""

from __future__ import annotations

from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.engines.local import Local
from offpolicy.engines.spark import Spark


def engine_for(log: Log, requested: Engine | None) -> Engine:
    """The requested engine, if it can read this log; without one, the engine that can."""
    if requested is None:
        return Local() if log.source.ordered else Spark()
    requested.check(log)
    return requested
