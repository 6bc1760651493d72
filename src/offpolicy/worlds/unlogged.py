"""`Unlogged`: a world whose log holds no propensities, so that they are estimated from contexts and actions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.worlds.base import Seed, check_count, choose, generator
from offpolicy.worlds.synthetic import SyntheticVariant


@dataclass(frozen=True)
class Unlogged(SyntheticVariant):
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
