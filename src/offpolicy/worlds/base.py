"""The interface of worlds: they sample logs and compute the values of policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_rows
from offpolicy.data.batch import Batch, numbered
from offpolicy.data.log import Log
from offpolicy.data.spaces import ActionSpace, Discrete
from offpolicy.models.posteriors.base import Posterior
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.policies.conversion import as_policy

Seed = int | np.random.SeedSequence
MOST_LISTED = 100
"""Up to this many actions, all probabilities of both policies are also written to files, as list columns."""


class World(ABC):
    """An environment with fixed parameters, from which logs are sampled and in which policies have a known value."""

    n_actions: int

    @property
    def space(self) -> ActionSpace:
        """The action space: `n_actions` discrete actions, unless the class states otherwise."""
        return Discrete(self.n_actions)

    @property
    @abstractmethod
    def logging(self) -> Policy:
        """The policy that logs are sampled from."""

    @property
    @abstractmethod
    def target(self) -> Policy:
        """The policy to evaluate."""

    @abstractmethod
    def sample(self, n: int, seed: Seed) -> Log:
        """A log of n rounds under the logging policy.

        Logs with different seeds are independent.

        Parameters
        ----------
        n : int
            The number of rounds.
        seed : int or numpy.random.SeedSequence
            The seed of the log.

        Returns
        -------
        Log
            With propensities, unless the class states otherwise.
        """

    @abstractmethod
    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value of a policy and its standard error, which is 0 where the value is exact.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """

    def columns(self, batch: Batch) -> dict[str, Any]:
        """The actions of a simulated file, and what the new policy would do, as columns.

        Parameters
        ----------
        batch : Batch
            Some rounds of a log of this world.

        Returns
        -------
        dict
            Columns by name, besides those of contexts, rewards and propensities.
        """
        labels = np.array([f"item-{k:0{len(str(self.n_actions - 1))}d}" for k in range(self.n_actions)])
        columns = {"item": labels[batch.action], "p_new": self.target.probabilities(batch, batch.action)}
        if self.n_actions > MOST_LISTED:
            return columns
        n, flat = len(batch), pa.array(np.tile(np.arange(self.n_actions), len(batch)))
        return columns | {
            "items": _lists(pa.array(labels).take(flat), n),
            "p_items_new": _lists(pa.array(self.target.probabilities(batch).ravel()), n),
            "p_items_old": _lists(pa.array(self.logging.probabilities(batch).ravel()), n),
        }

    def value(self, policy: Any) -> float:
        """The value of a policy: its expected reward per round.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        float
            The value.
        """
        return self.value_with_error(policy)[0]

    @property
    def value_note(self) -> str:
        """How the value of the target differs from an exact one; empty where it does not."""
        return ""

    def of_log(self, seed: Seed) -> World:  # noqa: ARG002
        """The world that the log of a seed is sampled from: this one, except where a published flaw is reproduced.

        Parameters
        ----------
        seed : int or numpy.random.SeedSequence
            The seed of the log.

        Returns
        -------
        World
            A world whose policies are those of the log.
        """
        return self

    @property
    def exact(self) -> Posterior | None:
        """The true p(e|a) of the features in the log, if known; MIPS (true) weights by it."""
        return None


class Simulated(World):
    """A simulated world: a distribution of contexts, the mean reward of every action, and a distribution of rewards."""

    context: int

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw contexts: standard normal, with `context` columns.

        Parameters
        ----------
        n : int
            The number of rounds.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        ndarray of shape (n, context)
            One row per round.
        """
        return rng.normal(size=(n, self.context))

    @abstractmethod
    def mean_reward(self, contexts: FloatArray) -> FloatArray:
        """The mean reward q(x, a) of every action.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, context)
            One row per round.

        Returns
        -------
        ndarray of shape (rounds, actions)
            The mean rewards.
        """

    @abstractmethod
    def outcome(self, contexts: FloatArray, action: IntArray, rng: np.random.Generator) -> tuple[FloatArray, Any]:
        """Draw rewards, and the logged features of the actions.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, context)
            One row per round.
        action : ndarray of int
            The action of each round.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        tuple
            The rewards, and the features, or None if there are none.
        """

    value_rounds: ClassVar[int] = 400_000

    @property
    def features(self) -> FloatArray | None:
        """Fixed features of the actions, one row per action; None if there are none."""
        return None

    def sample(self, n: int, seed: Seed) -> Log:
        check_count(type(self).__name__, "n", n, 2, 10**9)
        rng = generator(seed)
        x = self.contexts(n, rng)
        action, propensity = choose(self.logging, x, self.n_actions, rng)
        reward, features = self.outcome(x, action, rng)
        return Log(
            x, action, reward, propensity=propensity, logging=self.logging, n_actions=self.n_actions,
            action_features=features, catalog=self.features,
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value by Monte Carlo over contexts, exact in actions and rewards; and its standard error.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        converted = as_policy(policy).over(self.space)
        x = self.contexts(self.value_rounds, np.random.default_rng(0xC0FFEE))
        values = np.empty(len(x))
        for rows in blocks(len(x), self.n_actions):
            p = converted.probabilities(as_batch(x[rows], self.n_actions, converted.columns))
            values[rows] = np.einsum("ij,ij->i", p, self.mean_reward(x[rows]))
        return average(values)


def _lists(values: pa.Array, rows: int) -> pa.Array:
    """Values as one list of equal length per row."""
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * (len(values) // rows), pa.int32()), values)


def as_batch(contexts: FloatArray, n_actions: int, columns: Sequence[str] = ()) -> Batch:
    """Contexts as a batch, which policies take, with the columns that a policy reads by name."""
    n = len(contexts)
    batch = Batch(
        row=np.arange(n),
        unit=hash_rows("", 0, n),
        action=np.zeros(n, np.int64),
        reward=np.zeros((n, 1)),
        context_parts=(contexts,),
        space=Discrete(n_actions),
    )
    return batch.with_columns(columns, numbered("x", contexts))


def choose(policy: Policy, contexts: FloatArray, n_actions: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """An action of the policy in each context, and its probability; computed in blocks of rounds to bound memory."""
    n = len(contexts)
    uniform, action, propensity = rng.random(n), np.empty(n, np.int64), np.empty(n)
    for rows in blocks(n, n_actions):
        p = policy.probabilities(as_batch(contexts[rows], n_actions))
        action[rows] = draw(p, uniform[rows])
        propensity[rows] = p[np.arange(len(p)), action[rows]]
    return action, propensity


def generator(seed: Seed) -> np.random.Generator:
    """The random stream of one log, distinct from the streams of a world's parameters."""
    if not isinstance(seed, np.random.SeedSequence):
        check_count("sample", "seed", seed, 0, 2**63)
        return np.random.default_rng([seed, 1])
    spawned = seed.spawn_key or (1,)  # a root sequence could coincide with that of a world's parameters
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=spawned))


def average(values: FloatArray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def draw(p: FloatArray, uniform: FloatArray) -> IntArray:
    """One column per row, by inverting the cumulative probabilities."""
    cumulative = p.cumsum(axis=1)
    drawn: IntArray = (cumulative > uniform[:, None] * cumulative[:, -1:]).argmax(axis=1)
    return drawn


def sigmoid(scores: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-scores))


def clicks(probabilities: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Rewards of 0 and 1."""
    return (rng.random(probabilities.shape) < probabilities).astype(np.float64)


MOST = 10_000_000


def check_count(world: str, name: str, value: Any, low: int, high: float = MOST) -> None:
    """Raise if a setting is not a whole number in its range."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{world}: {name} is {value!r}; give a whole number from {low:,} to {high:,.0f}.")


def check_number(world: str, name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raise if a setting is not a finite number in its range."""
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or not np.isfinite(value):
        raise InputError(f"{world}: {name} is {value!r}; give a number.")
    if not low <= value <= high:
        limit = f"from {low:g} to {high:g}" if high < np.inf else f"of at least {low:g}"
        raise InputError(f"{world}: {name} is {value!r}; give a number {limit}.")


def check_flag(world: str, name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{world}: {name} is {value!r}; give True or False.")
