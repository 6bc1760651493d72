"""Mergeable statistics: `zero`, `fold`, `merge`, `finish`, with states of plain arrays."""

from offpolicy.statistics.base import Joint, State, Statistic
from offpolicy.statistics.calibration import Calibration
from offpolicy.statistics.fingerprint import Fingerprint
from offpolicy.statistics.gram import Gram, GramState
from offpolicy.statistics.histogram import LogHistogram
from offpolicy.statistics.moments import Moments
from offpolicy.statistics.reward_bins import RewardBins

__all__ = [
    "Calibration",
    "Fingerprint",
    "Gram",
    "GramState",
    "Joint",
    "LogHistogram",
    "Moments",
    "RewardBins",
    "State",
    "Statistic",
]
