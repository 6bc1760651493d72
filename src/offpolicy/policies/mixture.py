"""`Mixture`: several policies, each followed with a fixed probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import floats
from offpolicy.data.log import Log
from offpolicy.data.spaces import ActionSpace
from offpolicy.policies.base import SUM_TOLERANCE, Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.nodes import Nodes


@final
class Mixture(Policy):
    """A policy that follows each of several policies with a fixed probability.

    Parameters
    ----------
    policies : sequence of policies
        Anything that `evaluate` accepts as a policy.
    weights : sequence of float
        The probability of each policy; they sum to 1.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> op.evaluate(log, op.Mixture([op.Fixed([1, 0]), op.Uniform()], [0.5, 0.5]), [op.IPS()])["IPS"].value
    0.75
    """

    def __init__(self, policies: Sequence[Any], weights: npt.ArrayLike) -> None:
        self._policies = [as_policy(policy) for policy in policies]
        self._weights = floats(weights, "Mixture")
        if self._weights.shape != (len(self._policies),) or not (self._weights >= 0).all():
            raise InputError("Mixture: give each policy one weight of 0 or more.")
        if abs(self._weights.sum() - 1) > SUM_TOLERANCE:
            raise InputError(f"Mixture: the weights sum to {self._weights.sum():.6g}, not 1.")
        if not self.spaces:
            raise InputError("Mixture: the policies are over different kinds of actions; mix policies over the same kind.")

    def __repr__(self) -> str:
        return f"Mixture({self._policies!r}, {self._weights.tolist()})"

    @property
    def spaces(self) -> tuple[type[ActionSpace], ...]:
        return tuple(s for s in self._policies[0].spaces if all(s in policy.spaces for policy in self._policies))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for policy in self._policies for name in policy.columns))

    @property
    def whole(self) -> bool:
        return all(policy.whole for policy in self._policies)

    @property
    def whole_batches(self) -> bool:
        return any(policy.whole_batches for policy in self._policies)

    def settled(self, log: Log) -> Policy:
        return Mixture([policy.settled(log) for policy in self._policies], self._weights)

    def check(self, log: Log) -> None:
        for policy in self._policies:
            policy.check(log)

    def nodes(self, batch: Batch) -> Nodes:
        return Nodes.joined([policy.nodes(batch) for policy in self._policies], self._weights.tolist())

    def distribution(self, batch: Batch) -> FloatArray:
        return self._mix(policy.probabilities(batch) for policy in self._policies)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        return self._mix(policy.entries(batch, row, code) for policy in self._policies)

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        parts = [policy.answers(batch, values, row, code) for policy in self._policies]
        return self._mix(iter(p for p, _ in parts)), self._mix(iter(p for _, p in parts))

    def _mix(self, parts: Iterator[FloatArray]) -> FloatArray:
        mixed = [weight * part for weight, part in zip(self._weights, parts, strict=True)]
        total: FloatArray = np.sum(mixed, axis=0)
        return total
