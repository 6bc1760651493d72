"""What a world must do: sample a log, and know the value of any policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from offpolicy.actions import Actions
from offpolicy.batch import Batch, FloatArray
from offpolicy.log import Log
from offpolicy.policies import as_policy
from offpolicy.policy import Policy, blocks
from offpolicy.units import IntArray, hash_rows

VALUE_ROUNDS = 400_000


class World(ABC):
    """An environment whose parameters are drawn once, from its seed; logs and values are of that one environment."""

    n_actions: int

    @property
    @abstractmethod
    def logging(self) -> Policy: ...

    @property
    @abstractmethod
    def target(self) -> Policy: ...

    @abstractmethod
    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def mean_reward(self, contexts: FloatArray) -> FloatArray:
        """q(x, a): rounds × actions."""

    @abstractmethod
    def rewards(self, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draws of the reward around its means."""

    def sample(self, n: int, seed: int) -> Log:
        """A log of n rounds under the logging policy."""
        rng = np.random.default_rng([seed, 1])
        x, uniform = self.contexts(n, rng), rng.random(n)
        action, propensity, means = np.empty(n, np.int64), np.empty(n), np.empty(n)
        for rows in blocks(n, self.n_actions):
            p = self.logging.probabilities(self.batch(x[rows]))
            action[rows] = _draw(p, uniform[rows])
            at = np.arange(len(p)), action[rows]
            propensity[rows] = p[at]
            means[rows] = self.mean_reward(x[rows])[at]
        reward = self.rewards(means, rng)
        return Log(x, action, reward, propensity=propensity, logging=self.logging, n_actions=self.n_actions)

    def value(self, policy: Any) -> float:
        """V(π), by Monte Carlo over contexts with the reward and the policy's choice averaged exactly."""
        return self.value_with_error(policy)[0]

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value and the standard error of its Monte Carlo average."""
        rng = np.random.default_rng(0xC0FFEE)
        x, asked = self.contexts(VALUE_ROUNDS, rng), as_policy(policy)
        values = np.concatenate(
            [
                np.einsum("ij,ij->i", asked.probabilities(self.batch(x[rows])), self.mean_reward(x[rows]))
                for rows in blocks(VALUE_ROUNDS, self.n_actions)
            ]
        )
        return float(values.mean()), float(values.std() / np.sqrt(len(values)))

    def batch(self, contexts: FloatArray) -> Batch:
        """Contexts in the form that policies are asked in."""
        n = len(contexts)
        return Batch(
            row=np.arange(n),
            unit=hash_rows("", 0, n),
            action=np.zeros(n, np.int64),
            reward=np.zeros((n, 1)),
            context_parts=(contexts,),
            actions=Actions(self.n_actions),
        )


def _draw(p: FloatArray, uniform: FloatArray) -> IntArray:
    """One action a row, by inverting the cumulated probabilities."""
    cumulated = p.cumsum(axis=1)
    chosen: IntArray = (cumulated > uniform[:, None] * cumulated[:, -1:]).argmax(axis=1)
    return chosen
