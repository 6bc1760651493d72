"""Who runs a statistic over a log."""

from offpolicy.engines.local import Local

__all__ = ["Local"]
