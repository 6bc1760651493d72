"""Propensities as text: a column, or `monte-carlo:WINS,DRAWS` with the columns of the draws that estimate them."""

from __future__ import annotations

from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.data.monte_carlo import MonteCarlo

MONTE_CARLO = "monte-carlo"


def propensity(text: str) -> str | MonteCarlo:
    """A propensity from text; the name of a column stays as it is.

    >>> propensity("p"), propensity("monte-carlo:won,drawn").columns, propensity("monte-carlo:won,drawn,inverse").sampling
    ('p', ('won', 'drawn'), 'inverse')
    """
    kind, colon, rest = text.partition(":")
    if kind != MONTE_CARLO:
        return text
    parts = [part.strip() for part in rest.split(",")]
    if not colon or not 2 <= len(parts) <= 3 or not all(parts):
        raise InputError(
            f"propensity: {text!r}; give {MONTE_CARLO}:WINS,DRAWS, such as {MONTE_CARLO}:won,draws, and how the action was "
            f"chosen if not apart from the draws: {MONTE_CARLO}:won,draws,inverse."
        )
    counts: Any = parts  # the third is checked by MonteCarlo
    return MonteCarlo(*counts)
