"""Both policies in the slots of some logged lists, from which every ratio of slots is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, ratios
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.slate import shown
from offpolicy.data.slots import SlotColumns
from offpolicy.policies.base import Policy
from offpolicy.policies.lists import ItemWeights, ListPolicy


@dataclass(frozen=True)
class LoggedSlots:
    """The logged lists and their propensities. Each array is computed when it is first used.

    Arrays are rounds × slots. Where a list has no item, the probabilities of all policies are 1.

    Attributes
    ----------
    by_items : bool
        Whether the weights of all items are needed anyway, so that they are computed once for everything.
    """

    batch: Batch
    logging: ListPolicy | None
    by_items: bool = False

    @classmethod
    def of(cls, batch: Batch, logging: Policy | None, by_items: bool = False) -> LoggedSlots:
        """The lists of a batch."""
        return cls(batch, None if logging is None else as_list_policy(logging), by_items)

    @cached_property
    def items(self) -> ItemWeights:
        """The logging policy's weights of all items."""
        assert self.logging is not None
        return self.logging.weights(self.batch)

    @property
    def gives_slots(self) -> bool:
        """Whether propensities given the items above are known."""
        return self.logging is not None or self._columns.propensity is not None

    @property
    def gives_lists(self) -> bool:
        """Whether the propensities of whole lists are known."""
        return self.gives_slots or self.batch.propensity is not None

    @property
    def _columns(self) -> SlotColumns:
        return self.batch.slots or SlotColumns()

    @cached_property
    def shown(self) -> npt.NDArray[np.bool_]:
        """Whether the list has an item there."""
        return shown(self.batch)

    @cached_property
    def propensity(self) -> FloatArray:
        """π0(a_k | x, a_<k)."""
        own = None
        if self.logging is not None:
            own = self.logging.slots_of(self.batch, self.items) if self.by_items else self.logging.slots(self.batch)
        return self._agreed(self._columns.propensity, own, "propensity")

    @cached_property
    def marginal(self) -> FloatArray:
        """π0(a_k in slot k | x), whatever stands above it."""
        logged = self._columns.position_propensity
        if logged is not None or self.logging is None:
            return self._agreed(logged, None, "position_propensity")
        return (
            self.propensity if self.logging.factored else self._agreed(None, self.logging.marginals(self.batch), "logging")
        )

    @property
    def without_replacement(self) -> bool:
        """Whether the logging policy is known to show each item at most once."""
        return self.logging is not None and not self.logging.factored

    @cached_property
    def placements(self) -> FloatArray:
        """π0(a_k in slot j | x), rounds × slots k × slots j; 0 where the list has no item in slot k or in slot j."""
        if self.logging is None:
            raise InputError("the log has no logging policy.")
        return placements(self.logging, self.batch)

    def _agreed(self, logged: FloatArray | None, own: FloatArray | None, name: str) -> FloatArray:
        """The logged propensities, or those of the logging policy; if there are both, they must agree."""
        if own is None:
            if logged is None:
                raise InputError("the log has no propensities of slots.")
            return logged
        assert self.logging is not None
        wrong = ~(own >= 1 / LARGEST_NUMBER)
        self._refuse(
            "logging", wrong, "have an item with zero probability under the logging policy",
            "`logging` is not the policy that collected this log.",
        )  # fmt: skip
        if logged is not None:
            wrong = np.abs(own - logged) > self.logging.accuracy * logged
            self._refuse(
                name, wrong, "differ from the probability under `logging`", "Pass only one of the two, or correct it."
            )
        return own

    def _refuse(self, name: str, bad: npt.NDArray[np.bool_], what: str, advice: str) -> None:
        rows = bad.any(axis=1)
        if rows.any():
            slot = int(np.argmax(bad[int(np.argmax(rows))])) + 1
            raise RowsError(name, f"{what} (the first: slot {slot})", self.batch.row[rows], advice)


@dataclass(frozen=True)
class SlotSides:
    """The probabilities of the logged items under a target policy, and their ratios to the propensities.

    Attributes
    ----------
    by_items : bool
        Whether the target's weights of all items are needed anyway, so that they are computed once for everything.
    smoothed : FloatArray | None
        The ratios of slots by embeddings, where these take the place of the ratios of items.
    """

    logged: LoggedSlots
    target: ListPolicy
    by_items: bool = False
    smoothed: FloatArray | None = None
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def batch(self) -> Batch:
        return self.logged.batch

    @cached_property
    def items(self) -> ItemWeights:
        """The target's weights of all items."""
        return self.target.weights(self.batch)

    @cached_property
    def conditional(self) -> FloatArray:
        """π(a_k | x, a_<k)."""
        return self.target.slots_of(self.batch, self.items) if self.by_items else self.target.slots(self.batch)

    @cached_property
    def ratio(self) -> FloatArray:
        """w_k = π(a_k | x, a_<k) / π0(a_k | x, a_<k)."""
        return ratios(self.conditional, self.logged.propensity) if self.smoothed is None else self.smoothed

    @cached_property
    def prefix(self) -> FloatArray:
        """Π_{j ≤ k} w_j."""
        return np.asarray(np.cumprod(self.ratio, axis=1), dtype=np.float64)

    @cached_property
    def whole(self) -> FloatArray:
        """Π_j w_j of each list: one number per round."""
        if self.logged.gives_slots:
            return self.prefix[:, -1]
        assert self.batch.propensity is not None
        return ratios(self.conditional.prod(axis=1), self.batch.propensity)

    @cached_property
    def marginal(self) -> FloatArray:
        """m_k = π(a_k in slot k | x) / π0(a_k in slot k | x)."""
        return ratios(self.target.marginals(self.batch), self.logged.marginal) if self.smoothed is None else self.smoothed

    @cached_property
    def placements(self) -> FloatArray:
        """π(a_k in slot j | x), rounds × slots k × slots j; 0 where the list has no item in slot k or in slot j."""
        return placements(self.target, self.batch)

    def once(self, key: Any, compute: Callable[[], FloatArray]) -> FloatArray:
        """An array that several ratios share, computed once."""
        if key not in self._shared:
            self._shared[key] = compute()
        shared: FloatArray = self._shared[key]
        return shared


def placements(policy: ListPolicy, batch: Batch) -> FloatArray:
    """The probability of each logged item in every slot that its list has: rounds × slots × slots."""
    there = shown(batch)
    inside: FloatArray = np.where(there[:, :, None] & there[:, None, :], policy.placements(batch), 0.0)
    return inside


def as_list_policy(policy: Policy) -> ListPolicy:
    """The policy, which the checks of an evaluation have found to be one of lists."""
    if not isinstance(policy, ListPolicy):
        raise InputError(
            f"{type(policy).__name__} gives no probabilities of slots; give an op.PlackettLuce, op.Factored or "
            "op.Deterministic."
        )
    return policy
