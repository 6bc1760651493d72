"""Who runs a statistic over a log."""

from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.engines.local import Local
from offpolicy.engines.resampling import Resampled
from offpolicy.engines.spark import Spark

__all__ = ["Engine", "Local", "Resampled", "Spark", "engine_for"]


def engine_for(log: Log, given: Engine | None) -> Engine:
    """The engine that was given, if it can read this log, else the one that can."""
    if given is None:
        return Local() if log.source.ordered else Spark()
    given.check(log)
    return given
