"""What a world must do: sample a log, and know the value of its policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_rows
from offpolicy.data.batch import Batch, numbered
from offpolicy.data.log import Log
from offpolicy.data.spaces import Discrete
from offpolicy.models.posteriors.base import Posterior
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.policies.conversion import as_policy

Seed = int | np.random.SeedSequence


class World(ABC):
    """An environment whose parameters are drawn once, from its seed; logs and values are of that one environment."""

    n_actions: int

    @property
    def space(self) -> Discrete:
        """What policies must be over."""
        return Discrete(self.n_actions)

    @property
    @abstractmethod
    def logging(self) -> Policy: ...

    @property
    @abstractmethod
    def target(self) -> Policy: ...

    @abstractmethod
    def sample(self, n: int, seed: Seed) -> Log:
        """A log of n rounds under the logging policy. Logs of different seeds are independent."""

    @abstractmethod
    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value of a policy, and its standard error where it is an average of draws or of data (0 where exact)."""

    def value(self, policy: Any) -> float:
        """V(π): what a policy earns a round."""
        return self.value_with_error(policy)[0]

    def of_log(self, seed: Seed) -> World:  # noqa: ARG002
        """The world that the log of this seed comes from: this one, but where a published flaw is asked for."""
        return self

    @property
    def exact(self) -> Posterior | None:
        """p(e|a) of the features in the log, where it is known: what MIPS (true) weighs by."""
        return None


class Simulated(World):
    """A world of rules: contexts, the mean reward of every action in them, and what happens after an action."""

    context: int

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Standard normal, in `context` columns."""
        return rng.normal(size=(n, self.context))

    @abstractmethod
    def mean_reward(self, contexts: FloatArray) -> FloatArray:
        """q(x, a): rounds × actions."""

    @abstractmethod
    def outcome(self, contexts: FloatArray, action: IntArray, rng: np.random.Generator) -> tuple[FloatArray, Any]:
        """Draws of the reward, and of the features that are seen of the action (None: none are)."""

    value_rounds: ClassVar[int] = 400_000

    @property
    def features(self) -> FloatArray | None:
        """Features that every action always has, one row an action (None: it has none)."""
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
        """By Monte Carlo over contexts; the policy's choice and the reward are averaged exactly."""
        asked = as_policy(policy).over(self.space)
        x = self.contexts(self.value_rounds, np.random.default_rng(0xC0FFEE))
        values = np.empty(len(x))
        for rows in blocks(len(x), self.n_actions):
            p = asked.probabilities(as_batch(x[rows], self.n_actions, asked.columns))
            values[rows] = np.einsum("ij,ij->i", p, self.mean_reward(x[rows]))
        return average(values)


def as_batch(contexts: FloatArray, n_actions: int, columns: Sequence[str] = ()) -> Batch:
    """Contexts in the form that policies are asked in, with the columns that a policy reads by name."""
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
    """An action of the policy in each context, and its chance; rounds × actions is only ever held for a block of rounds."""
    n = len(contexts)
    uniform, action, propensity = rng.random(n), np.empty(n, np.int64), np.empty(n)
    for rows in blocks(n, n_actions):
        p = policy.probabilities(as_batch(contexts[rows], n_actions))
        action[rows] = draw(p, uniform[rows])
        propensity[rows] = p[np.arange(len(p)), action[rows]]
    return action, propensity


def generator(seed: Seed) -> np.random.Generator:
    """The stream of one log, apart from the streams of a world's own parameters."""
    if not isinstance(seed, np.random.SeedSequence):
        check_count("sample", "seed", seed, 0, 2**63)
        return np.random.default_rng([seed, 1])
    spawned = seed.spawn_key or (1,)  # a root sequence could be that of some world's parameters
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=spawned))


def average(values: FloatArray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def draw(p: FloatArray, uniform: FloatArray) -> IntArray:
    """One column a row, by inverting the cumulated probabilities."""
    cumulated = p.cumsum(axis=1)
    chosen: IntArray = (cumulated > uniform[:, None] * cumulated[:, -1:]).argmax(axis=1)
    return chosen


def sigmoid(scores: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-scores))


def clicks(chances: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Rewards of 0 and 1."""
    return (rng.random(chances.shape) < chances).astype(np.float64)


MOST = 10_000_000


def check_count(world: str, name: str, value: Any, low: int, high: float = MOST) -> None:
    """Raise if a whole number of a world is none, or out of its range."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{world}: {name} is {value!r}; give a whole number from {low:,} to {high:,.0f}.")


def check_number(world: str, name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raise if a number of a world is none, or out of its range."""
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or not np.isfinite(value):
        raise InputError(f"{world}: {name} is {value!r}; give a number.")
    if not low <= value <= high:
        limit = f"from {low:g} to {high:g}" if high < np.inf else f"of at least {low:g}"
        raise InputError(f"{world}: {name} is {value!r}; give a number {limit}.")


def check_flag(world: str, name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{world}: {name} is {value!r}; give True or False.")
