"""`Request`: what is asked of a log, all but the estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offpolicy.core.memory import Budget
from offpolicy.data.log import Log
from offpolicy.diagnostics.base import Diagnostic
from offpolicy.engines.base import Engine
from offpolicy.policies.base import Policy


@dataclass(frozen=True)
class Request:
    """Checked, and settled as far as the log alone allows."""

    log: Log
    policies: Mapping[str, Policy]
    engine: Engine
    budget: Budget
    level: float
    cross_fit: int | None
    seed: int
    progress: bool | None
    errors: bool
    """Whether errors and checks are wanted, or values alone."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """The user's own."""
