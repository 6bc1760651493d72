"""`Items`: a labelled data set as a recommender. Actions are rows of the data, and those of the same class are rewarded."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.mixture import Mixture
from offpolicy.policies.scores import EpsilonGreedy, Softmax
from offpolicy.policies.tables import Uniform
from offpolicy.worlds.base import Seed, World, as_batch, check_count, check_flag, check_number, choose, clicks, generator
from offpolicy.worlds.labelled import LabelledData

FLOOR = 1e-3
"""The least probability of a class in a score, so that scores are finite."""


@dataclass(frozen=True, eq=False)
class Items(World):
    """A labelled data set as a recommender: actions are rows of the data, and those of the round's class are rewarded.

    The data are split into thirds. Items are rows of the first, each with an appeal between ½ and 1; rounds are drawn with
    replacement from the third. Both policies score an item by the probability of its class, learned by logistic regression
    from the first third (target) or the second (logging), and by its distance from the context.

    Parameters
    ----------
    data : str, Path or pair of arrays, default="digits"
        A data set included in scikit-learn ("breast_cancer", "digits", "iris" or "wine"), a CSV file with the class in its
        last column, or features (rows × columns) and labels.
    n_actions : int, default=100
        The number of items.
    trust : float, default=0.5
        The probability with which the logging policy follows its scores; otherwise it takes any item.
    epsilon : float, default=0.05
        The probability with which the target takes any item instead of following its scores.
    greedy : bool, default=False
        Whether the target takes the item with the largest score; otherwise it draws in proportion to exp(score).
    faulty : bool, default=False
        Whether the logging policy prefers items of the class after the most likely one.
    rate : float, default=1.0
        The probability with which an item of the right class and full appeal is rewarded.
    seed : int, default=0
        The seed of the split, the items and their appeal.
    """

    data: Any = "digits"
    n_actions: int = 100
    _: KW_ONLY
    trust: float = 0.5
    epsilon: float = 0.05
    greedy: bool = False
    faulty: bool = False
    rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self._labelled
        check_count("Items", "n_actions", self.n_actions, 2)
        for name in ("trust", "epsilon", "rate"):
            check_number("Items", name, getattr(self, name), 0, 1)
        for name in ("greedy", "faulty"):
            check_flag("Items", name, getattr(self, name))
        check_count("Items", "seed", self.seed, 0, 2**63)

    @cached_property
    def _labelled(self) -> LabelledData:
        return LabelledData("Items", self.data, self.seed)

    @cached_property
    def _items(self) -> tuple[FloatArray, IntArray, FloatArray]:
        """The features, the class and the appeal of each item."""
        (x, y), rng = self._labelled.rows, np.random.default_rng([self.seed, 11])
        available = self._labelled.thirds[0]
        if self.n_actions > len(available):
            raise InputError(
                f"Items: n_actions is {self.n_actions:,}, but a third of the data has {len(available):,} rows; give at most "
                "that many."
            )
        rows = rng.permutation(available)[: self.n_actions]
        return x[rows], y[rows], rng.uniform(0.5, 1.0, self.n_actions)

    def _scored(self, part: int, shift: int = 0) -> Any:
        """From contexts to a score of each item: log p(class|x) − mean squared distance / 2."""
        classes, (x, y, _) = self._labelled.classifier(part), self._items

        def scores(contexts: FloatArray) -> FloatArray:
            likely = np.log(np.roll(classes(contexts), shift, axis=1)[:, y] + FLOOR)
            squared = (contexts**2).mean(axis=1)[:, None] - 2 * contexts @ x.T / x.shape[1] + (x**2).mean(axis=1)
            out: FloatArray = likely - squared / 2
            return out

        return scores

    @cached_property
    def target(self) -> Policy:
        scores = self._scored(0)
        if self.greedy:
            return EpsilonGreedy(scores, self.epsilon)
        return Mixture([Softmax(scores), Uniform()], [1 - self.epsilon, self.epsilon])

    @cached_property
    def logging(self) -> Policy:
        return Mixture([Softmax(self._scored(1, int(self.faulty))), Uniform()], [self.trust, 1 - self.trust])

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("Items", "n", n, 2, 10**9)
        rng, (x, y), (_, classes, appeal) = generator(seed), self._labelled.rows, self._items
        rows = rng.choice(self._labelled.thirds[2], n)
        action, propensity = choose(self.logging, x[rows], self.n_actions, rng)
        chance = self.rate * appeal[action] * (classes[action] == y[rows])
        return Log(
            x[rows], action, clicks(chance, rng), propensity=propensity, logging=self.logging, n_actions=self.n_actions,
            reward_range=(0.0, 1.0),
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The mean probability of a reward, which is exact; and 0.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        (x, y), (_, classes, appeal), rows = self._labelled.rows, self._items, self._labelled.thirds[2]
        converted, total = as_policy(policy).over(self.space), 0.0
        for some in blocks(len(rows), self.n_actions):
            p = converted.probabilities(as_batch(x[rows[some]], self.n_actions, converted.columns))
            total += float((p * appeal * (classes == y[rows[some], None])).sum())
        return self.rate * total / len(rows), 0.0
