"""`WholeBatches`: a policy that is evaluated for whole batches of rounds, from one thread."""

from __future__ import annotations

from typing import Any, final

import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.spaces import ActionSpace
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import Listed, in_one_block
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.nodes import Nodes


@final
class WholeBatches(Policy):
    """A policy whose functions are called with whole batches of rounds, from one thread.

    Without it, functions are called from several threads at once, each time with a small block of rounds: about 262,144
    probabilities, so 262 rounds for 1,000 actions. Use it for functions that are not thread-safe, that must always run in
    the same thread, or that take long per call, such as requests to a server. The evaluation then uses one thread, and
    holds the probabilities of a batch in memory; the memory budget limits the rounds per batch.

    Parameters
    ----------
    policy : policy
        Anything that `evaluate` accepts as a policy.

    Examples
    --------
    >>> import offpolicy as op
    >>> import numpy as np
    >>> log = op.Log([[0.0], [1.0]], action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> policy = op.WholeBatches(lambda x: np.column_stack([x, 1 - x]))
    >>> op.evaluate(log, policy, [op.IPS()])["IPS"].value
    0.0
    """

    def __init__(self, policy: Any) -> None:
        self._policy = as_policy(policy)

    def __repr__(self) -> str:
        return f"WholeBatches({self._policy!r})"

    @property
    def spaces(self) -> tuple[type[ActionSpace], ...]:
        return self._policy.spaces

    @property
    def columns(self) -> tuple[str, ...]:
        return self._policy.columns

    @property
    def whole(self) -> bool:
        return self._policy.whole

    @property
    def whole_batches(self) -> bool:
        return True

    @property
    def accuracy(self) -> float:
        return self._policy.accuracy

    @property
    def deterministic(self) -> bool:
        return self._policy.deterministic

    @property
    def lists(self) -> bool:
        return self._policy.lists

    def settled(self, log: Log) -> Policy:
        return WholeBatches(self._policy.settled(log))

    def check(self, log: Log) -> None:
        self._policy.check(log)

    def distribution(self, batch: Batch) -> FloatArray:
        with in_one_block():
            return self._policy.distribution(batch)

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        with in_one_block():
            return self._policy.proportional(batch)

    def actions(self, batch: Batch) -> npt.NDArray[Any]:
        with in_one_block():
            return self._policy.actions(batch)

    def listed(self, batch: Batch) -> Listed:
        with in_one_block():
            return self._policy.listed(batch)

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        with in_one_block():
            return self._policy.answers(batch, values, row, code)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        with in_one_block():
            return self._policy.entries(batch, row, code)

    def nodes(self, batch: Batch) -> Nodes:
        with in_one_block():
            return self._policy.nodes(batch)
