"""Logs in the form of Open Bandit Pipeline's `bandit_feedback` dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.log import Log

NEEDED = ("context", "action", "reward")


def from_obp(feedback: Mapping[str, Any]) -> Log:
    """A log from the `bandit_feedback` dict of Open Bandit Pipeline.

    Parameters
    ----------
    feedback : dict
        The dict. `pi_b` (rounds × actions × 1) becomes the logging policy, `pscore` the propensity, and `action_context` the
        catalog if it has one row per action.

    Returns
    -------
    Log
        The log in memory.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.from_obp({"context": [[0.1], [0.2]], "action": [0, 1], "reward": [1, 0], "pscore": [0.5, 0.5]})
    Log(2 rounds, 2 actions, context 1, rewards ['reward'])
    """
    missing = [key for key in NEEDED if key not in feedback]
    if missing:
        raise InputError(f"the dict has no {', '.join(map(repr, missing))}; a bandit_feedback dict is expected.")
    position = feedback.get("position")
    if position is not None and len(np.unique(position)) > 1:
        raise InputError(
            "the dict contains several positions; keep one (rows where position == k), or treat each (action, position) "
            "pair as an action."
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
