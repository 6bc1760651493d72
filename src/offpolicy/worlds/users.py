"""`Users`: people who come back, each with a context and a taste of their own, so that their rounds are not independent."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.data.log import Log
from offpolicy.models.posteriors import Posterior
from offpolicy.policies.base import Policy
from offpolicy.worlds.base import Seed, World, check_count, check_flag, check_number, choose, generator
from offpolicy.worlds.synthetic import Synthetic


@dataclass(frozen=True)
class Users(World):
    """The rounds of `Synthetic`, but a user has one context for all `rounds_each`, and adds u ~ N(0, effect²) to rewards.

    The effect has the mean 0 over users, so a policy is worth what it is in the world without users.
    """

    n_actions: int = 10
    _: KW_ONLY
    rounds_each: int = 10
    effect: float = 5.0
    told: bool = True
    """Whether the log says which rounds are of one user."""
    beta: float = -0.5
    epsilon: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Users", "rounds_each", self.rounds_each, 1)
        check_number("Users", "effect", self.effect, 0)
        check_flag("Users", "told", self.told)
        _ = self._alone  # checks the rest

    @cached_property
    def _alone(self) -> Synthetic:
        return Synthetic(self.n_actions, beta=self.beta, epsilon=self.epsilon, seed=self.seed)

    @property
    def logging(self) -> Policy:
        return self._alone.logging

    @property
    def target(self) -> Policy:
        return self._alone.target

    @property
    def exact(self) -> Posterior:
        return self._alone.exact

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("Users", "n", n, 2, 10**9)
        rng = generator(seed)
        user = np.arange(n) // self.rounds_each
        x = self._alone.contexts(int(user[-1]) + 1, rng)[user]
        action, propensity = choose(self.logging, x, self.n_actions, rng)
        reward, features = self._alone.outcome(x, action, rng)
        effects = rng.normal(size=int(user[-1]) + 1) * self.effect
        return Log(
            x, action, reward + effects[user], propensity=propensity, logging=self.logging, n_actions=self.n_actions,
            action_features=features, cluster=user if self.told else None,
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        return self._alone.value_with_error(policy)
