"""`Toy`: the world of the paper's table, with context-free policies and a sigmoid of one linear score per action."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.tables import Fixed, Uniform
from offpolicy.worlds.base import Simulated, as_batch, check_count, check_number, sigmoid

NODES = 64


@dataclass(frozen=True)
class Toy(Simulated):
    """The world of the paper's table: r = sigmoid(x·θ_a + μ_a) + noise, with x, θ and μ standard normal.

    The logging policy is proportional to Exp(1) draws, and the target is uniform.

    Parameters
    ----------
    n_actions : int, default=50
        The number of actions.
    context : int, default=5
        The dimensions of the context.
    noise : float, default=0.1
        The standard deviation of the noise.
    logging_seed : int, optional
        Worlds with the same `logging_seed` share a logging policy; by default each seed draws its own.
    seed : int, default=0
        The seed of the parameters.

    References
    ----------
    M. Cief, J. Golebiowski, P. Schmidt, Z. Abedjan, A. Bekasov. Learning Action Embeddings for Off-Policy Evaluation. 2023.
    """

    n_actions: int = 50
    _: KW_ONLY
    context: int = 5
    noise: float = 0.1
    logging_seed: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Toy", "n_actions", self.n_actions, 2)
        check_count("Toy", "context", self.context, 1)
        check_number("Toy", "noise", self.noise, 0)
        for name in ("seed", "logging_seed"):
            if getattr(self, name) is not None:
                check_count("Toy", name, getattr(self, name), 0, 2**63)

    @cached_property
    def _parameters(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        rng = np.random.default_rng([self.seed, self.n_actions, 2])
        probabilities = rng.exponential(size=self.n_actions)
        if self.logging_seed is not None:
            probabilities = np.random.default_rng([self.logging_seed, self.n_actions, 3]).exponential(size=self.n_actions)
        return (
            rng.normal(size=(self.context, self.n_actions)),
            rng.normal(size=self.n_actions),
            probabilities / probabilities.sum(),
        )

    @property
    def logging(self) -> Policy:
        return Fixed(self._parameters[2])

    @property
    def target(self) -> Policy:
        return Uniform()

    def mean_reward(self, contexts: FloatArray) -> FloatArray:
        theta, mu, _ = self._parameters
        return sigmoid(contexts @ theta + mu)

    def outcome(self, contexts: FloatArray, action: IntArray, rng: np.random.Generator) -> tuple[FloatArray, None]:
        theta, mu, _ = self._parameters
        mean = sigmoid(np.einsum("ij,ji->i", contexts, theta[:, action]) + mu[action])
        return mean + rng.normal(size=len(mean)) * self.noise, None

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The value by Gauss–Hermite quadrature for context-free policies, else by Monte Carlo; and its standard error.

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
        if not isinstance(converted, (Fixed, Uniform)):
            return super().value_with_error(policy)
        theta, mu, _ = self._parameters
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        score = mu[:, None] + np.linalg.norm(theta, axis=0)[:, None] * nodes
        means = sigmoid(score) @ (weights / weights.sum())
        probabilities = converted.probabilities(as_batch(np.zeros((1, self.context)), self.n_actions))[0]
        return float(probabilities @ means), 0.0
