"""`TwoDoses`: vectors of two numbers, each with an ideal value in each context, logged uniformly."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.box import Box
from offpolicy.policies.base import Policy
from offpolicy.policies.deterministic import Deterministic
from offpolicy.worlds.base import check_count, check_number
from offpolicy.worlds.continuous import DoseResponse

CONTEXT = 5


@dataclass(frozen=True)
class TwoDoses(DoseResponse):
    """Two doses from −1 to 1 per round, chosen uniformly; the reward is minus the sum of their distances from ideal doses.

    The ideal doses are tanh(x·o1) and tanh(x·o2), with x ~ N(0, I) in five dimensions. The target takes the doses
    tanh(x·o1′) and tanh(x·o2′), where o′ is o plus noise. With `distance=0` it takes the ideal doses, and its value is 0.

    Parameters
    ----------
    distance : float, default=0.0
        The length of the noise in the directions of the target.
    steepness : float, default=0.5
        The length of the directions o. With larger ones, more doses are close to −1 or 1.
    noise : float, default=0.0
        The standard deviation of the noise in rewards.
    seed : int, default=0
        The seed of the directions.

    Examples
    --------
    >>> from offpolicy.worlds import TwoDoses
    >>> world = TwoDoses()
    >>> world.sample(100, seed=0)
    Log(100 rounds, actions: vectors of 2 numbers from (-1, -1) to (1, 1), context 5, rewards ['reward'])
    >>> world.value(world.target)
    0.0
    """

    distance: float = 0.0
    _: KW_ONLY
    steepness: float = 0.5
    noise: float = 0.0
    seed: int = 0
    space = Box([-1, -1], [1, 1])

    def __post_init__(self) -> None:
        for name in ("distance", "steepness", "noise"):
            check_number("TwoDoses", name, getattr(self, name), 0)
        check_count("TwoDoses", "seed", self.seed, 0, 2**63)

    @cached_property
    def _directions(self) -> tuple[FloatArray, FloatArray]:
        """Of the ideal doses and of the target: context × dimensions each."""
        rng = np.random.default_rng([self.seed, 23])
        o, noise = (each / np.linalg.norm(each, axis=0) for each in rng.normal(size=(2, CONTEXT, 2)))
        return self.steepness * o, self.steepness * (o + self.distance * noise)

    @property
    def target(self) -> Policy:
        return Deterministic(lambda x: np.tanh(x @ self._directions[1]))

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(size=(n, CONTEXT))

    def choose(self, contexts: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return rng.uniform(-1, 1, (len(contexts), 2)), np.full(len(contexts), 0.25)

    def mean_reward(self, contexts: FloatArray, action: FloatArray) -> FloatArray:
        away: FloatArray = np.abs(action - np.tanh(contexts @ self._directions[0])).sum(axis=1)
        return -away

    def outcome(self, contexts: FloatArray, action: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.mean_reward(contexts, action) + rng.normal(size=len(action)) * self.noise
