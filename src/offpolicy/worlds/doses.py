"""`Doses`: numbers from 0 to 1 with an ideal value in each context, from which rewards fall at a given rate."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.box import Box
from offpolicy.policies.base import Policy
from offpolicy.policies.deterministic import Deterministic
from offpolicy.worlds.base import check_count, check_number, sigmoid
from offpolicy.worlds.continuous import DoseResponse

CONTEXT = 5
BINS = 10


@dataclass(frozen=True)
class Doses(DoseResponse):
    """Doses from 0 to 1, whose rewards fall with the distance from an ideal dose: 1 − min(rate · distance, 1).

    The ideal dose is sigmoid(x·o), with x ~ N(0, I) in five dimensions. The target takes the dose sigmoid(x·o′), and the
    logging policy has a dose sigmoid(x·o″) in mind; o′ and o″ are o plus noise. The interval is divided into ten bins. The
    logging policy picks the bin of its dose with probability `trust` + `spread`·u, otherwise one of the other nine, and then
    any dose in that bin. u is uniform from −½ to ½; it is logged as the last column of the context and has no effect on the
    reward.

    Parameters
    ----------
    rate : float, default=3.0
        How fast rewards fall with the distance from the ideal dose.
    trust : float, default=0.7
        The mean probability of the logging policy's own bin.
    spread : float, default=0.2
        How much that probability varies over rounds.
    distance : float, default=0.5
        The length of the noise in the directions of both policies; 0: the target takes the ideal dose.
    steepness : float, default=1.0
        The length of the direction o. With larger ones, more doses are close to 0 or 1.
    noise : float, default=0.0
        The standard deviation of the noise in rewards.
    seed : int, default=0
        The seed of the directions.

    References
    ----------
    Y. Su, P. Srinath, A. Krishnamurthy. Adaptive Estimator Selection for Off-Policy Evaluation. ICML 2020.

    Examples
    --------
    >>> from offpolicy.worlds import Doses
    >>> world = Doses(rate=10)
    >>> world.sample(100, seed=0)
    Log(100 rounds, actions: numbers from 0 to 1, context 6, rewards ['reward'])
    >>> round(world.value(world.target), 2)
    0.37
    """

    rate: float = 3.0
    _: KW_ONLY
    trust: float = 0.7
    spread: float = 0.2
    distance: float = 0.5
    steepness: float = 1.0
    noise: float = 0.0
    seed: int = 0
    space = Box(0, 1)

    def __post_init__(self) -> None:
        for name, most in (("rate", np.inf), ("trust", 1), ("distance", np.inf), ("steepness", np.inf), ("noise", np.inf)):
            check_number("Doses", name, getattr(self, name), 0, most)
        check_number("Doses", "spread", self.spread, 0, 2 * min(self.trust, 1 - self.trust))
        check_count("Doses", "seed", self.seed, 0, 2**63)

    @cached_property
    def _directions(self) -> FloatArray:
        """o, and those of the target and of the logging policy."""
        rng = np.random.default_rng([self.seed, 20])
        o, *noise = (each / np.linalg.norm(each) for each in rng.normal(size=(3, CONTEXT)))
        return self.steepness * np.array([o, *(o + self.distance * each for each in noise)])

    def _dose(self, which: int, contexts: FloatArray) -> FloatArray:
        return sigmoid(contexts[:, :CONTEXT] @ self._directions[which])

    @property
    def target(self) -> Policy:
        return Deterministic(lambda x: self._dose(1, x))

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        return np.column_stack([rng.normal(size=(n, CONTEXT)), rng.uniform(-0.5, 0.5, n)])

    def choose(self, contexts: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        n, own = len(contexts), self._own_bin(contexts)
        takes_own = rng.random(n) < self.trust + self.spread * contexts[:, -1]
        bin_ = np.where(takes_own, own, (own + rng.integers(1, BINS, n)) % BINS)
        action = (bin_ + rng.random(n)) / BINS
        return action, self.density(contexts, action)

    def density(self, contexts: FloatArray, action: FloatArray) -> FloatArray:
        """The density of one action per context under the logging policy.

        Parameters
        ----------
        contexts : ndarray of shape (rounds, 6)
            One row per round.
        action : ndarray of shape (rounds,)
            One action per round.

        Returns
        -------
        ndarray of shape (rounds,)
            The densities.
        """
        own = self.trust + self.spread * contexts[:, -1]
        return BINS * np.where(_bin(action) == self._own_bin(contexts), own, (1 - own) / (BINS - 1))

    def _own_bin(self, contexts: FloatArray) -> FloatArray:
        return _bin(self._dose(2, contexts))

    def mean_reward(self, contexts: FloatArray, action: FloatArray) -> FloatArray:
        return 1 - np.minimum(self.rate * np.abs(action - self._dose(0, contexts)), 1.0)

    def outcome(self, contexts: FloatArray, action: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.mean_reward(contexts, action) + rng.normal(size=len(action)) * self.noise


def _bin(dose: FloatArray) -> FloatArray:
    return np.minimum(np.floor(dose * BINS), BINS - 1)
