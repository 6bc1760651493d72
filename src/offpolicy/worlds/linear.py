"""`Linear`: rewards linear in the context for each action, or clicks whose log-odds are."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.policies.base import Policy
from offpolicy.policies.scores import Softmax
from offpolicy.worlds.base import Simulated, check_count, check_flag, check_number, clicks, sigmoid

Catalog = Literal["none", "informative", "misleading"]


@dataclass(frozen=True)
class Linear(Simulated):
    """Rewards that are linear in the context for each action: q(x, a) = x·θ_a + μ_a with x ~ N(0, I).

    The target is a softmax of q. The logging policy prefers other actions, by a degree that `overlap` sets.

    Parameters
    ----------
    n_actions : int, default=50
        The number of actions.
    context : int, default=5
        The dimensions of the context.
    noise : float, default=1.0
        The scale of the noise in rewards that are not clicks.
    tails : float, optional
        Degrees of freedom of Student's t distribution of the noise; by default the noise is normal.
    clicks : bool, default=False
        Whether rewards are 0 or 1, with log-odds q(x, a) + `odds`.
    odds : float, default=-2.0
        The log-odds of a click where q is 0.
    overlap : float, default=0.5
        2: the logging policy is the target; 1: it is uniform; towards 0, it avoids what the target prefers.
    catalog : {"none", "informative", "misleading"}, default="none"
        Features of the actions: (θ_a, μ_a) plus noise of the same size, or noise alone.
    seed : int, default=0
        The seed of the parameters.

    Examples
    --------
    >>> from offpolicy.worlds import Linear
    >>> world = Linear(20, seed=1)
    >>> len(world.sample(100, seed=0))
    100
    """

    n_actions: int = 50
    _: KW_ONLY
    context: int = 5
    noise: float = 1.0
    tails: float | None = None
    clicks: bool = False
    odds: float = -2.0
    overlap: float = 0.5
    catalog: Catalog = "none"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Linear", "n_actions", self.n_actions, 2)
        check_count("Linear", "context", self.context, 1)
        check_count("Linear", "seed", self.seed, 0, 2**63)
        check_number("Linear", "overlap", self.overlap, 0, 2)
        check_number("Linear", "noise", self.noise, 0)
        check_number("Linear", "odds", self.odds)
        if self.tails is not None:
            check_number("Linear", "tails", self.tails, 1)
        if self.catalog not in get_args(Catalog):
            raise InputError(f"Linear: catalog is {self.catalog!r}; give one of {', '.join(get_args(Catalog))}.")
        check_flag("Linear", "clicks", self.clicks)

    @cached_property
    def _parameters(self) -> tuple[FloatArray, FloatArray]:
        rng = np.random.default_rng([self.seed, 0])
        theta = rng.normal(size=(self.context, self.n_actions)) * 0.5
        return theta, rng.normal(size=self.n_actions) * 0.5

    def _score(self, contexts: FloatArray) -> FloatArray:
        theta, mu = self._parameters
        return contexts @ theta + mu

    @property
    def target(self) -> Policy:
        return Softmax(self._score)

    @property
    def logging(self) -> Policy:
        return Softmax(lambda x: -(1 - self.overlap) * self._score(x))

    @cached_property
    def features(self) -> FloatArray | None:
        if self.catalog == "none":
            return None
        noise = np.random.default_rng([self.seed, 8]).normal(size=(self.n_actions, self.context + 1)) * 0.5
        theta, mu = self._parameters
        return noise if self.catalog == "misleading" else np.vstack([theta, mu]).T + noise

    def mean_reward(self, contexts: FloatArray) -> FloatArray:
        score = self._score(contexts)
        return sigmoid(score + self.odds) if self.clicks else score

    def outcome(self, contexts: FloatArray, action: IntArray, rng: np.random.Generator) -> tuple[FloatArray, None]:
        theta, mu = self._parameters
        score = np.einsum("ij,ji->i", contexts, theta[:, action]) + mu[action]
        if self.clicks:
            return clicks(sigmoid(score + self.odds), rng), None
        drawn = rng.normal(size=len(score)) if self.tails is None else rng.standard_t(self.tails, size=len(score))
        return score + drawn * self.noise, None
