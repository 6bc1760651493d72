"""Which engine reads a log."""

from __future__ import annotations

from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.engines.local import Local
from offpolicy.engines.spark import Spark


def engine_for(log: Log, requested: Engine | None, one_thread: bool = False) -> Engine:
    """The requested engine, if it can read this log; without one, the engine that can.

    With `one_thread`, this machine uses the calling thread alone; Spark's workers have one each anyway.
    """
    engine = requested or (Local() if log.source.ordered else Spark())
    engine.check(log)
    return engine.on_one_thread() if one_thread else engine
