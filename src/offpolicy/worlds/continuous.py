"""`Continuous` and `DoseResponse`: the interfaces of worlds whose actions are numbers, such as doses or prices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_rows
from offpolicy.data.batch import Batch, numbered
from offpolicy.data.box import Box
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.worlds.base import Seed, World, average, check_count, generator


class Continuous(World):
    """A world whose actions are numbers, or several numbers, within the bounds of its space."""

    @property
    @abstractmethod
    def space(self) -> Box:
        """The bounds of the actions."""

    @property
    def logging(self) -> Policy:
        """Not available as a policy: logs state the density of each logged action."""
        raise InputError(f"{type(self).__name__}: the density of the logging policy is known at logged actions only.")

    def columns(self, batch: Batch) -> dict[str, Any]:
        """The logged actions, and those of the target.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of this world.

        Returns
        -------
        dict
            Columns by name.
        """
        return {"action": batch.action, "action_new": self.target.actions(batch)}


class DoseResponse(Continuous):
    """A simulated world: a distribution of contexts, a logging density, and the mean reward of every action."""

    value_rounds: ClassVar[int] = 1_000_000

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
    def choose(self, contexts: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw one action of the logging policy in each context.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, columns)
            One row per round.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        tuple of ndarray
            The actions and their densities.
        """

    @abstractmethod
    def mean_reward(self, contexts: FloatArray, action: FloatArray) -> FloatArray:
        """The mean reward q(x, a) of one action per context.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, columns)
            One row per round.
        action : ndarray
            One action per round.

        Returns
        -------
        ndarray of shape (rounds,)
            The mean rewards.
        """

    @abstractmethod
    def outcome(self, contexts: FloatArray, action: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw the reward of one action per context.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, columns)
            One row per round.
        action : ndarray
            One action per round.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        ndarray of shape (rounds,)
            The rewards.
        """

    def sample(self, n: int, seed: Seed) -> Log:
        check_count(type(self).__name__, "n", n, 2, 10**9)
        rng = generator(seed)
        x = self.contexts(n, rng)
        action, density = self.choose(x, rng)
        return Log(x, action, self.outcome(x, action, rng), propensity=density, actions=self.space)

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value by Monte Carlo over contexts, exact in rewards; and its standard error.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        converted, rng = as_policy(policy).on(self.sample(2, seed=0)), np.random.default_rng(0xC0FFEE)
        rounds = self.value_rounds if converted.deterministic else self.value_rounds // 10  # others have many nodes
        x = self.contexts(rounds, rng)
        return average(expected(converted, x, self.space, lambda action: self.mean_reward(x, action)))


def expected(policy: Policy, contexts: FloatArray, space: Box, rewards: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """The expectation under a policy of `rewards`, which gives the mean reward of one action in each of these contexts."""
    nodes = policy.nodes(number_batch(contexts, space, policy))
    total = np.zeros(len(contexts))
    for k in range(nodes.weights.shape[1]):
        total += nodes.weights[:, k] * rewards(nodes.actions[:, k])
    return total


def number_batch(contexts: FloatArray, space: Box, policy: Policy) -> Batch:
    """Contexts as a batch, which policies take, with the columns that the policy reads by name."""
    n = len(contexts)
    batch = Batch(
        row=np.arange(n),
        unit=hash_rows("", 0, n),
        action=np.broadcast_to(np.asarray(space.low, dtype=np.float64), (n, *space.shape)),
        reward=np.zeros((n, 1)),
        context_parts=(contexts,),
        space=space,
    )
    return batch.with_columns(policy.columns, numbered("x", contexts))


def truncated_normal(
    mean: FloatArray, sd: float, bounds: tuple[float, float], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """One draw per mean from a normal distribution truncated to the bounds, and its density."""
    low, high = (ndtr((bound - mean) / sd) for bound in bounds)
    z = ndtri(low + (high - low) * rng.random(len(mean)))
    action = np.clip(mean + sd * z, *bounds)  # which rounding may leave
    return action, np.exp(-(((action - mean) / sd) ** 2) / 2) / (np.sqrt(2 * np.pi) * sd * (high - low))
