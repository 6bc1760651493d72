"""`Unlogged`: a world whose log holds no propensities, so that they are estimated from contexts and actions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.models.posteriors import Posterior
from offpolicy.policies.base import Policy
from offpolicy.worlds.base import Seed, World, check_count, choose, generator
from offpolicy.worlds.synthetic import Synthetic


@dataclass(frozen=True)
class Unlogged(World):
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
        _ = self._logged, EstimatedLogging(self.model)  # which check their settings

    @cached_property
    def _logged(self) -> Synthetic:
        return Synthetic(self.n_actions, beta=self.beta, epsilon=self.epsilon, seed=self.seed)

    @property
    def logging(self) -> Policy:
        return self._logged.logging

    @property
    def target(self) -> Policy:
        return self._logged.target

    @property
    def exact(self) -> Posterior:
        return self._logged.exact

    def sample(self, n: int, seed: Seed) -> Log:
        """The log that `Synthetic` gives for this seed, less its propensities."""
        check_count("Unlogged", "n", n, 2, 10**9)
        rng = generator(seed)
        x = self._logged.contexts(n, rng)
        action, _ = choose(self.logging, x, self.n_actions, rng)
        reward, features = self._logged.outcome(x, action, rng)
        return Log(
            x, action, reward, logging=EstimatedLogging(self.model), n_actions=self.n_actions, action_features=features
        )

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        return self._logged.value_with_error(policy)
