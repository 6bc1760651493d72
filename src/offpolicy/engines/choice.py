"""Which engine reads a log."""

from __future__ import annotations

from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.engines.local import Local
from offpolicy.engines.spark import Spark


def engine_for(log: Log, given: Engine | None) -> Engine:
    """The engine that was given, if it can read this log, else the one that can."""
    if given is None:
        return Local() if log.source.ordered else Spark()
    given.check(log)
    return given
