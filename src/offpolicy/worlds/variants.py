"""`Users` and `Unlogged`: the policies and values of `Synthetic`, with other logs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.models.posteriors.base import Posterior
from offpolicy.policies.base import Policy
from offpolicy.worlds.base import Seed, World, check_count, check_flag, check_number, choose, generator
from offpolicy.worlds.synthetic import Synthetic


class _Variant(World):
    """The policies, and the value of a policy, of the `Synthetic` world with the same settings: logs alone differ."""

    beta: float
    epsilon: float
    seed: int

    @cached_property
    def synthetic(self) -> Synthetic:
        return Synthetic(self.n_actions, beta=self.beta, epsilon=self.epsilon, seed=self.seed)

    @property
    def logging(self) -> Policy:
        return self.synthetic.logging

    @property
    def target(self) -> Policy:
        return self.synthetic.target

    @property
    def exact(self) -> Posterior:
        return self.synthetic.exact

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        return self.synthetic.value_with_error(policy)


@dataclass(frozen=True)
class Users(_Variant):
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


@dataclass(frozen=True)
class Unlogged(_Variant):
    """The rounds of `Synthetic` with `logging=EstimatedLogging(model)` in place of its propensities.

    Its logging policy is a softmax of scores that are linear in the context: for "logistic" that is the right model.
    """

    n_actions: int = 10
    _: KW_ONLY
    model: Literal["logistic", "boosting", "counts"] = "logistic"
    beta: float = -0.5
    epsilon: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self.synthetic, EstimatedLogging(self.model)  # which check their settings

    def sample(self, n: int, seed: Seed) -> Log:
        """The log that `Synthetic` gives for this seed, less its propensities."""
        check_count("Unlogged", "n", n, 2, 10**9)
        rng = generator(seed)
        x = self.synthetic.contexts(n, rng)
        action, _ = choose(self.logging, x, self.n_actions, rng)
        reward, features = self.synthetic.outcome(x, action, rng)
        return Log(
            x, action, reward, logging=EstimatedLogging(self.model), n_actions=self.n_actions, action_features=features
        )
