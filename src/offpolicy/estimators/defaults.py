"""The estimators that run when none is named."""

from __future__ import annotations

from offpolicy.estimators import DR, SNIPS, Auto, Estimator, LearnedMIPS, LoggedMean


def default_estimators() -> list[Estimator]:
    """Return the default estimators."""
    return [Auto(), LoggedMean(), SNIPS(), DR(), LearnedMIPS()]


LARGEST_FIRST = ("Auto", "LearnedMIPS", "DR")
"""The defaults whose memory grows with the number of actions, the largest first."""
