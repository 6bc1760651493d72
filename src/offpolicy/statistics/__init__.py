"""Mergeable statistics: `zero`, `fold`, `merge`, `finish`, with states of plain arrays."""

from offpolicy.statistics.base import Joint, State, Statistic
from offpolicy.statistics.gram import Gram, GramState
from offpolicy.statistics.histogram import LogHistogram
from offpolicy.statistics.moments import Moments

__all__ = ["Gram", "GramState", "Joint", "LogHistogram", "Moments", "State", "Statistic"]
