"""The estimators that run when none is named."""

from __future__ import annotations

from offpolicy.estimators import DR, SNIPS, Auto, Estimator, LearnedMIPS, LoggedMean


def default_estimators() -> list[Estimator]:
    """What is run when nothing is named."""
    return [Auto(), LoggedMean(), SNIPS(), DR(), LearnedMIPS()]


LARGEST_FIRST = ("Auto", "LearnedMIPS", "DR")
"""Of the defaults, those that hold something of each action, the largest first."""
