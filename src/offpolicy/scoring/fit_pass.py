"""The fit pass: everything that is fitted, from one reading of the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.progress import PassProgress
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.models.rewards.base import Fits
from offpolicy.ratios.embedding_fits import PooledFits
from offpolicy.ratios.outcomes import OutcomeFits
from offpolicy.ratios.weights import Pooled
from offpolicy.scoring.plan import FitKey
from offpolicy.statistics.base import Joint, Statistic

LEAST_GROUPS = 20
MOST_GROUPS = 200


def fit_pass(
    log: Log, engine: Engine, needed: Mapping[Any, tuple[Statistic, ...]], progress: bool | None
) -> dict[Any, list[Any]]:
    """Everything that is fitted, from one pass: the results of each key's statistics, equal ones folded once."""
    distinct: dict[Statistic, Statistic] = {s: s for several in needed.values() for s in several}
    results = {}
    if distinct:
        with PassProgress("fitting", len(log), progress) as told:
            results = engine.reduce(log, Joint(distinct), told)
    return {key: [results[statistic] for statistic in several] for key, several in needed.items()}


def groups_for(folds: set[int]) -> int:
    """How many groups of units: a multiple of every number of folds, and of a few, among which penalties are chosen."""
    for few in (5, 4, 3, 2):
        groups = math.lcm(few, *folds)
        groups *= -(-LEAST_GROUPS // groups)
        if groups <= MOST_GROUPS:
            return groups
    raise InputError(f"the folds {sorted(folds)} share no small multiple; use the same cross_fit throughout.")


@dataclass(frozen=True)
class FitResults:
    """What the fit pass gave: reward models, embeddings with their posteriors, and outcome weights."""

    models: Mapping[FitKey, Fits]
    pooled: Mapping[Pooled, PooledFits]
    outcomes: Mapping[tuple[int, Any], OutcomeFits]
