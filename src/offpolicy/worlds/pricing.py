"""`Pricing`: visitors who buy at a price or not, with a demand curve for each visitor."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.box import Box
from offpolicy.policies.base import Policy
from offpolicy.policies.deterministic import Deterministic
from offpolicy.worlds.base import check_count, check_number, clicks, sigmoid
from offpolicy.worlds.continuous import DoseResponse, truncated_normal

LOW, HIGH = 10.0, 60.0
CONTEXT = 3


@dataclass(frozen=True)
class Pricing(DoseResponse):
    """Prices from 10 to 60, with a demand curve for each visitor.

    A visitor buys with probability sigmoid((worth(x) − price) / tolerance), and the reward is the price of what is sold.
    worth(x) = 30 + 8·x0 + 4·x1 with x ~ N(0, I) in three dimensions, of which the third does not matter. The logging policy
    varies prices normally around 24 + 3·x0, within the bounds. The target charges a fixed share of worth(x).

    Parameters
    ----------
    share : float, default=0.85
        The share of worth(x) that the target charges.
    spread : float, default=5.0
        The standard deviation of logged prices around their mean.
    tolerance : float, default=4.0
        How gradually demand falls with the price.
    seed : int, default=0
        Has no effect on this world, which has no random parameters.

    Examples
    --------
    >>> from offpolicy.worlds import Pricing
    >>> world = Pricing()
    >>> round(world.value(world.target), 1)
    19.6
    """

    share: float = 0.85
    _: KW_ONLY
    spread: float = 5.0
    tolerance: float = 4.0
    seed: int = 0
    space = Box(LOW, HIGH)

    def __post_init__(self) -> None:
        check_number("Pricing", "share", self.share, 0)
        for name in ("spread", "tolerance"):
            check_number("Pricing", name, getattr(self, name), 1e-3)
        check_count("Pricing", "seed", self.seed, 0, 2**63)

    @property
    def target(self) -> Policy:
        return Deterministic(lambda x: np.clip(self.share * _worth(x), LOW, HIGH))

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(size=(n, CONTEXT))

    def choose(self, contexts: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return truncated_normal(_usual(contexts), self.spread, (LOW, HIGH), rng)

    def mean_reward(self, contexts: FloatArray, action: FloatArray) -> FloatArray:
        return action * self._demand(contexts, action)

    def outcome(self, contexts: FloatArray, action: FloatArray, rng: np.random.Generator) -> FloatArray:
        return action * clicks(self._demand(contexts, action), rng)

    def _demand(self, contexts: FloatArray, action: FloatArray) -> FloatArray:
        return sigmoid((_worth(contexts) - action) / self.tolerance)


def _worth(contexts: FloatArray) -> FloatArray:
    return 30 + 8 * contexts[:, 0] + 4 * contexts[:, 1]


def _usual(contexts: FloatArray) -> FloatArray:
    """The mean price of the logging policy."""
    return 24 + 3 * contexts[:, 0]
