"""`ListWorld`: the interface of worlds whose actions are lists."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_rows
from offpolicy.data.batch import Batch, numbered
from offpolicy.data.log import Log
from offpolicy.data.slate import Slate
from offpolicy.data.slots import SlotColumns
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.lists import ListPolicy
from offpolicy.worlds.base import Seed, World, average, check_count, generator

BLOCK = 50_000
"""Rounds of the Monte Carlo value that are drawn at a time."""


class ListWorld(World):
    """A simulated world of lists of `slots` of `n_actions` items, with a reward for each slot."""

    slots: int
    value_rounds: ClassVar[int] = 1_000_000

    @property
    def space(self) -> Slate:
        """Lists of up to `slots` items."""
        return Slate(self.slots, self.n_actions)

    @abstractmethod
    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw contexts.

        Parameters
        ----------
        n : int
            The number of rounds.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        ndarray of shape (n, columns)
            One row per round.
        """

    @abstractmethod
    def mean_reward(self, contexts: FloatArray, lists: IntArray) -> FloatArray:
        """The mean reward of each slot of one list per context.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, columns)
            One row per round.
        lists : ndarray of shape (rounds, slots)
            One list per round.

        Returns
        -------
        ndarray of shape (rounds, slots)
            The mean rewards.
        """

    @abstractmethod
    def outcome(self, contexts: FloatArray, lists: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw the reward of each slot of one list per context.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, columns)
            One row per round.
        lists : ndarray of shape (rounds, slots)
            One list per round.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        ndarray of shape (rounds, slots)
            The rewards.
        """

    def sample(self, n: int, seed: Seed) -> Log:
        check_count(type(self).__name__, "n", n, 2, 10**9)
        rng = generator(seed)
        x = self.contexts(n, rng)
        lists, propensity = list_policy(self.logging).draw(list_batch(x, self.space), rng)
        reward = self.outcome(x, lists, rng)
        return Log(x, lists, reward, propensity=propensity, logging=self.logging, actions=self.space)

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value by Monte Carlo over contexts and lists, exact in rewards; and its standard error.

        Parameters
        ----------
        policy : Policy
            A policy of lists.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        converted, rng = list_policy(policy), np.random.default_rng(0xC0FFEE)
        values = np.empty(self.value_rounds)
        for start in range(0, len(values), BLOCK):
            rows = slice(start, min(start + BLOCK, len(values)))
            x = self.contexts(rows.stop - start, rng)
            lists, _ = converted.draw(list_batch(x, self.space, converted), rng)
            values[rows] = self.mean_reward(x, lists).sum(axis=1)
        return average(values)

    def columns(self, batch: Batch) -> dict[str, Any]:
        """The logged lists, their rewards and propensities, and the probabilities of the target, as list columns.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of this world.

        Returns
        -------
        dict
            Columns by name.
        """
        assert batch.slots is not None
        assert batch.slots.reward is not None
        labels = np.array([f"item-{k:0{len(str(self.n_actions - 1))}d}" for k in range(self.n_actions)])
        return {
            "items": _listed(labels[batch.action]),
            "rewards": _listed(batch.slots.reward[:, 0]),
            "p_slots": _listed(list_policy(self.logging).slots(batch)),
            "p_slots_new": _listed(list_policy(self.target).slots(batch)),
        }


def list_policy(policy: Any) -> ListPolicy:
    """The policy as one of lists, which can draw them."""
    converted: Policy = as_policy(policy)
    if not isinstance(converted, ListPolicy) or not converted.gives_items:
        raise InputError(f"{converted!r} is no policy of whole lists; give an op.PlackettLuce or op.Factored.")
    return converted


def list_batch(contexts: FloatArray, space: Slate, policy: Policy | None = None) -> Batch:
    """Contexts as a batch, which policies take, with the columns that the policy reads by name."""
    n = len(contexts)
    batch = Batch(
        row=np.arange(n),
        unit=hash_rows("", 0, n),
        action=np.zeros((n, space.slots), np.int64),
        reward=np.zeros((n, 1)),
        context_parts=(contexts,),
        space=space,
        slots=SlotColumns(),
    )
    return batch.with_columns(() if policy is None else policy.columns, numbered("x", contexts))


def _listed(values: Any) -> pa.Array:
    """An array of rounds × slots as a column of lists."""
    rows, slots = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * slots, pa.int32()), pa.array(values.ravel()))
