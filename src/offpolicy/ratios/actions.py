"""The ratio of actions, π(a|x)/π0(a|x): for every estimator that weights rounds by the action taken, or by a whole list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, ratios
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.data.slate import Slate
from offpolicy.data.spaces import Discrete
from offpolicy.policies.base import Policy
from offpolicy.ratios.base import Available, UnfittedRatio
from offpolicy.ratios.pools import Rounds

LIKELIHOODS = {"propensity": "probability", "density": "density"}


@final
@dataclass(frozen=True)
class ActionRatio(UnfittedRatio):
    """π(a|x)/π0(a|x), of probabilities or of densities."""

    spaces = (Discrete, Box, Slate)
    exact = True
    of_actions = True
    shown = True

    def lacks(self, available: Available) -> str | None:
        if any(policy.deterministic for policy in available.policies.values()):
            return (
                "it needs the new policy's density, and a policy that takes one action per round has none; use "
                "op.KernelDR, op.KernelSNIPS or op.KernelIPS"
            )
        return available.lacks_propensities

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.action is not None
        return rounds.action


@dataclass(frozen=True)
class LoggedRatio:
    """w of each round, or a power of it: MRDR is fitted with row weights w²."""

    policy: Policy
    logging: Policy | None
    power: int = 1

    def __call__(self, batch: Batch) -> FloatArray:
        ratio: FloatArray = ratio_of(batch, self.policy, self.logging) ** self.power
        return ratio


def propensity_of(batch: Batch, logging: Policy | None) -> FloatArray | None:
    """π0 of each logged action, from the column or the logging policy; if there are both, they must agree."""
    if logging is None:
        return batch.propensity
    return checked_propensity(batch, logging.likelihood(batch), logging.accuracy)


def checked_propensity(batch: Batch, own: FloatArray, accuracy: float) -> FloatArray:
    """The logging policy's probabilities of the logged actions, if they can be those of this log."""
    invalid = ~(own >= 1 / LARGEST_NUMBER)
    if invalid.any():
        what = f"have an action with zero {LIKELIHOODS[batch.space.likelihood]} under the logging policy"
        raise RowsError("logging", what, batch.row[invalid], "`logging` is not the policy that collected this log.")
    if batch.propensity is not None and (differs := np.abs(own - batch.propensity) > accuracy * batch.propensity).any():
        what = f"differ from the {LIKELIHOODS[batch.space.likelihood]} under `logging`"
        raise RowsError("propensity", what, batch.row[differs], "Pass only one of the two, or correct it.")
    return own


def ratio_of(batch: Batch, policy: Policy, logging: Policy | None) -> FloatArray:
    """w = π(a|x) / π0(a|x) of each logged action."""
    propensity = propensity_of(batch, logging)
    if propensity is None:
        raise InputError("the log has no propensities.")
    return ratios(policy.likelihood(batch), propensity)
