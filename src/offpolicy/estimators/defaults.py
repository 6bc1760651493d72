"""The estimators that run when none is named."""

from __future__ import annotations

from offpolicy.data.box import Box
from offpolicy.data.spaces import ActionSpace
from offpolicy.estimators import (
    DR,
    IIPS,
    RIPS,
    SIPS,
    SNIPS,
    Auto,
    Estimator,
    KernelDR,
    KernelSNIPS,
    LearnedMIPS,
    LoggedMean,
)


def default_estimators(space: ActionSpace | None = None) -> list[Estimator]:
    """Return the default estimators for a kind of actions; discrete ones by default."""
    if space is not None and space.slots is not None:
        return [Auto(), LoggedMean(), SIPS(normalised=True), RIPS(normalised=True), IIPS(normalised=True)]
    if isinstance(space, Box):
        return [Auto(), LoggedMean(), SNIPS(), DR(), KernelDR(), KernelSNIPS()]
    return [Auto(), LoggedMean(), SNIPS(), DR(), LearnedMIPS()]


LARGEST_FIRST = ("Auto", "LearnedMIPS", "DR")
"""The defaults whose memory grows with the number of actions, the largest first."""
