"""`Classification`: a labelled data set as a bandit. Actions are classes, and the correct class is rewarded."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.mixture import Mixture
from offpolicy.policies.scores import EpsilonGreedy
from offpolicy.policies.tables import Uniform
from offpolicy.worlds.base import Seed, World, as_batch, check_count, check_flag, check_number, choose, clicks, generator
from offpolicy.worlds.labelled import LabelledData


@dataclass(frozen=True, eq=False)
class Classification(World):
    """A labelled data set as a bandit: actions are classes, and the correct class is rewarded.

    The data are split into thirds. The target is learned from the first and the logging policy from the second, both by
    logistic regression. Rounds are drawn with replacement from the third, so that a policy's value is an exact mean over it.

    Parameters
    ----------
    data : str, Path or pair of arrays, default="digits"
        A data set included in scikit-learn ("breast_cancer", "digits", "iris" or "wine"), a CSV file with the class in its
        last column, or features (rows × columns) and labels.
    trust : float, default=0.5
        The probability with which the logging policy takes the most likely class; otherwise it takes any class.
    epsilon : float, default=0.05
        The probability with which the target takes any class instead of the most likely one.
    faulty : bool, default=False
        Whether the logging policy prefers the class after the most likely one, so that the target is far from it.
    rate : float, default=1.0
        The probability with which the correct class is rewarded.
    seed : int, default=0
        The seed of the split.
    """

    data: Any = "digits"
    _: KW_ONLY
    trust: float = 0.5
    epsilon: float = 0.05
    faulty: bool = False
    rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self._labelled
        check_number("Classification", "trust", self.trust, 0, 1)
        check_number("Classification", "epsilon", self.epsilon, 0, 1)
        check_flag("Classification", "faulty", self.faulty)
        check_number("Classification", "rate", self.rate, 0, 1)
        check_count("Classification", "seed", self.seed, 0, 2**63)

    @cached_property
    def _labelled(self) -> LabelledData:
        return LabelledData("Classification", self.data, self.seed)

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        """The number of classes."""
        return self._labelled.classes

    @cached_property
    def target(self) -> Policy:
        return EpsilonGreedy(self._labelled.classifier(0), self.epsilon)

    @cached_property
    def logging(self) -> Policy:
        learned = self._labelled.classifier(1)

        def next_class(contexts: FloatArray) -> FloatArray:
            return np.roll(learned(contexts), 1, axis=1)

        preferred = EpsilonGreedy(next_class if self.faulty else learned, 0)
        return Mixture([preferred, Uniform()], [self.trust, 1 - self.trust])

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("Classification", "n", n, 2, 10**9)
        rng, (x, y) = generator(seed), self._labelled.rows
        rows = rng.choice(self._labelled.thirds[2], n)
        action, propensity = choose(self.logging, x[rows], self.n_actions, rng)
        correct: FloatArray = (action == y[rows]).astype(np.float64)
        return Log(
            x[rows], action, correct if self.rate == 1 else clicks(self.rate * correct, rng), propensity=propensity,
            logging=self.logging, n_actions=self.n_actions, reward_range=(0.0, 1.0),
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The mean probability of the correct class, times the rate, which is exact; and 0.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        x, y = self._labelled.rows
        rows = self._labelled.thirds[2]
        converted = as_policy(policy).over(self.space)
        p = converted.probabilities(as_batch(x[rows], self.n_actions, converted.columns), y[rows])
        return self.rate * float(p.mean()), 0.0
