"""`Users` and `Unlogged`: the policies and values of `Synthetic`, with different logs."""

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
    """The policies and values of a `Synthetic` world with the same settings; only the logs differ."""

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
    """Returning users: all rounds of a user share one context, and an effect u ~ N(0, effect²) on the reward.

    Everything else is as in `Synthetic`. The effect has mean 0 over users, so policies have the same value as there.

    Parameters
    ----------
    n_actions : int, default=10
        The number of actions.
    rounds_each : int, default=10
        The rounds of each user.
    effect : float, default=5.0
        The standard deviation of the effect of a user.
    told : bool, default=True
        Whether the log identifies the rounds of a user, by its `cluster`.
    beta : float, default=-0.5
        The inverse temperature of the logging policy.
    epsilon : float, default=0.5
        The probability with which the target takes any action.
    seed : int, default=0
        The seed of the parameters.
    """

    n_actions: int = 10
    _: KW_ONLY
    rounds_each: int = 10
    effect: float = 5.0
    told: bool = True
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
    """The rounds of `Synthetic` without propensities, which are estimated with `EstimatedLogging(model)`.

    The logging policy is a softmax of scores that are linear in the context, so "logistic" is the correct model.

    Parameters
    ----------
    n_actions : int, default=10
        The number of actions.
    model : {"logistic", "boosting", "counts"}, default="logistic"
        The model of the propensities.
    beta : float, default=-0.5
        The inverse temperature of the logging policy.
    epsilon : float, default=0.2
        The probability with which the target takes any action.
    seed : int, default=0
        The seed of the parameters.
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
        """The log of `Synthetic` for this seed, without its propensities.

        Parameters
        ----------
        n : int
            The number of rounds.
        seed : int or numpy.random.SeedSequence
            The seed of the log.

        Returns
        -------
        Log
            With estimated propensities.
        """
        check_count("Unlogged", "n", n, 2, 10**9)
        rng = generator(seed)
        x = self.synthetic.contexts(n, rng)
        action, _ = choose(self.logging, x, self.n_actions, rng)
        reward, features = self.synthetic.outcome(x, action, rng)
        return Log(
            x, action, reward, logging=EstimatedLogging(self.model), n_actions=self.n_actions, action_features=features
        )
