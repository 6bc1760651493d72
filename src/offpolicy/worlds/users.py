"""`Users`: people who come back, each with a context and a taste of their own, so that their rounds are not independent."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from offpolicy.data.log import Log
from offpolicy.worlds.base import Seed, check_count, check_flag, check_number, choose, generator
from offpolicy.worlds.synthetic import SyntheticVariant


@dataclass(frozen=True)
class Users(SyntheticVariant):
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
        _ = self.synthetic  # checks the rest

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("Users", "n", n, 2, 10**9)
        rng = generator(seed)
        user = np.arange(n) // self.rounds_each
        x = self.synthetic.contexts(int(user[-1]) + 1, rng)[user]
        action, propensity = choose(self.logging, x, self.n_actions, rng)
        reward, features = self.synthetic.outcome(x, action, rng)
        effects = rng.normal(size=int(user[-1]) + 1) * self.effect
        return Log(
            x, action, reward + effects[user], propensity=propensity, logging=self.logging, n_actions=self.n_actions,
            action_features=features, cluster=user if self.told else None,
        )  # fmt: skip
