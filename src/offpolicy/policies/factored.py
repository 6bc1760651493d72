"""`Factored`: lists whose slots are filled independently of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.slate import items_of, shown
from offpolicy.data.spaces import Discrete
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.lists import ItemWeights, ListPolicy


@final
class Factored(ListPolicy):
    """Lists whose slots are filled independently of each other, so that an item may stand in several of them.

    Parameters
    ----------
    policy : policy or sequence of policies
        A policy over the items for all slots, or one for each slot; anything that `evaluate` accepts as a policy, except
        matrices and columns.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], logging=op.Factored(op.Uniform()),
    ...     actions=op.Slate(2),
    ... )
    >>> op.evaluate(log, op.Factored(op.Fixed({"a": 0.9, "b": 0.1})), [op.IIPS()])["IIPS"].value
    1.0
    """

    factored = True

    def __init__(self, policy: Any) -> None:
        several = isinstance(policy, Sequence) and not isinstance(policy, (str, tuple))
        self._shared = not several
        self._policies: tuple[Policy, ...] = tuple(map(as_policy, policy if several else [policy]))

    def __repr__(self) -> str:
        return f"Factored({repr(self._policies[0]) if self._shared else list(self._policies)})"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for policy in self._policies for name in policy.columns))

    @property
    def accuracy(self) -> float:
        return max(policy.accuracy for policy in self._policies)

    def check(self, log: Log) -> None:
        slots = log.space.slots or 0
        if not self._shared and len(self._policies) != slots:
            raise InputError(
                f"Factored: {len(self._policies)} policies for {slots} slots; give one for each, or one for all."
            )
        for policy in self._policies:
            policy.over(log.space.items or Discrete(1))
            if not policy.whole:
                raise InputError(f"Factored needs the probability of every item, which {policy!r} does not give.")

    def _of_slots(self, batch: Batch) -> list[FloatArray]:
        """Rounds × items for each policy."""
        over_items = items_of(batch)
        return [policy.distribution(over_items) for policy in self._policies]

    def weights(self, batch: Batch) -> ItemWeights:
        each = self._of_slots(batch)
        return ItemWeights(each[0] if self._shared else np.stack(each, axis=1), without_replacement=False)

    def slots(self, batch: Batch) -> FloatArray:
        codes, over_items, there = np.maximum(batch.action, 0), items_of(batch), shown(batch)
        if self._shared:
            p = self._policies[0].probabilities(over_items, codes)
        else:
            each = [policy.probabilities(over_items, codes[:, k]) for k, policy in enumerate(self._policies)]
            p = np.stack(each, axis=1)
        return np.where(there, p, 1.0)
