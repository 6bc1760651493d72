"""Logs in the form of Open Bandit Pipeline's `bandit_feedback` dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.log import Log

NEEDED = ("context", "action", "reward")


def from_obp(feedback: Mapping[str, Any]) -> Log:
    """A log from obp's dict. `pi_b` (rounds × actions × 1) becomes the logging policy, `pscore` the propensity."""
    missing = [key for key in NEEDED if key not in feedback]
    if missing:
        raise InputError(f"the dict has no {', '.join(map(repr, missing))}; a bandit_feedback dict is expected.")
    position = feedback.get("position")
    if position is not None and len(np.unique(position)) > 1:
        raise InputError(
            "the dict holds several positions; keep one (rows where position == k), or number each (action, position) "
            "pair as an action of its own."
        )
    logging = feedback.get("pi_b")
    catalog = feedback.get("action_context")
    per_round = catalog is not None and np.ndim(catalog) == 2 and len(catalog) != feedback.get("n_actions", len(catalog))
    return Log(
        context=feedback["context"],
        action=feedback["action"],
        reward=feedback["reward"],
        propensity=feedback.get("pscore"),
        logging=None if logging is None else np.asarray(logging)[:, :, 0],
        n_actions=feedback.get("n_actions"),
        catalog=None if per_round else catalog,
    )
