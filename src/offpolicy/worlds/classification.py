"""`Classification`: a labelled data set as a bandit. Actions are classes, and the reward is 1 for the correct class."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.mixture import Mixture
from offpolicy.policies.scores import EpsilonGreedy
from offpolicy.policies.tables import Uniform
from offpolicy.worlds.base import Seed, World, as_batch, check_count, check_number, choose, generator

DATA_SETS = ("breast_cancer", "digits", "iris", "wine")
"""The data sets included in scikit-learn."""


@dataclass(frozen=True, eq=False)
class Classification(World):
    """A labelled data set as a bandit: actions are classes, and the reward is 1 for the correct class.

    The data are split into thirds. The target is learned from the first and the logging policy from the second, both by
    logistic regression. Rounds are drawn with replacement from the third, so that a policy's value is an exact mean over it.

    Parameters
    ----------
    data : str or pair of arrays, default="digits"
        A data set included in scikit-learn ("breast_cancer", "digits", "iris" or "wine"), or features (rows × columns) and
        labels.
    trust : float, default=0.5
        The probability with which the logging policy takes the most likely class; otherwise it takes any class.
    epsilon : float, default=0.05
        The probability with which the target takes any class instead of the most likely one.
    seed : int, default=0
        The seed of the split.
    """

    data: Any = "digits"
    _: KW_ONLY
    trust: float = 0.5
    epsilon: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.data, str) and self.data not in DATA_SETS:
            raise unknown_name("data set", self.data, DATA_SETS)
        if not isinstance(self.data, str) and not (isinstance(self.data, (tuple, list)) and len(self.data) == 2):
            raise InputError("Classification: data must be the name of a data set, or a pair of features and labels.")
        check_number("Classification", "trust", self.trust, 0, 1)
        check_number("Classification", "epsilon", self.epsilon, 0, 1)
        check_count("Classification", "seed", self.seed, 0, 2**63)

    @cached_property
    def _data(self) -> tuple[FloatArray, IntArray]:
        features, labels = _load(self.data) if isinstance(self.data, str) else self.data
        try:
            x, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
        except (TypeError, ValueError):
            raise InputError("Classification: features must be numbers, rows × columns.") from None
        if x.ndim != 2 or not len(x) or (y != y).any() or y.shape != (len(x),) or not np.isfinite(x).all():
            raise InputError(
                f"Classification: features of shape {x.shape} and labels of shape {y.shape}; give finite numbers, "
                "rows × columns, and one label per row, none of them missing."
            )
        codes: IntArray = np.unique(y, return_inverse=True)[1].astype(np.int64)
        least = np.bincount(codes).min()
        if codes.max() < 1 or least < 6:
            raise InputError(
                f"Classification: {codes.max() + 1} classes, the smallest with {least} rows; give at least 2 classes of at "
                "least 6 rows, so that each occurs in every third."
            )
        return (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0), codes

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        """The number of classes."""
        return int(self._data[1].max()) + 1

    @cached_property
    def _thirds(self) -> list[IntArray]:
        """Rows of three parts, each with a third of every class."""
        order = np.random.default_rng([self.seed, 7]).permutation(len(self._data[1]))
        by_class = order[np.argsort(self._data[1][order], kind="stable")]
        return [by_class[k::3] for k in range(3)]

    def _classifier(self, part: int) -> Any:
        from sklearn.linear_model import LogisticRegression

        x, y = self._data
        rows = self._thirds[part]
        return LogisticRegression(max_iter=1000).fit(x[rows], y[rows]).predict_proba

    @cached_property
    def target(self) -> Policy:
        return EpsilonGreedy(self._classifier(0), self.epsilon)

    @cached_property
    def logging(self) -> Policy:
        return Mixture([EpsilonGreedy(self._classifier(1), 0), Uniform()], [self.trust, 1 - self.trust])

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("Classification", "n", n, 2, 10**9)
        rng, (x, y) = generator(seed), self._data
        rows = rng.choice(self._thirds[2], n)
        action, propensity = choose(self.logging, x[rows], self.n_actions, rng)
        reward: npt.NDArray[Any] = (action == y[rows]).astype(np.float64)
        return Log(
            x[rows], action, reward, propensity=propensity, logging=self.logging, n_actions=self.n_actions,
            reward_range=(0.0, 1.0),
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The mean probability of the correct class, which is exact; and 0.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        x, y = self._data
        rows = self._thirds[2]
        converted = as_policy(policy).over(self.space)
        p = converted.probabilities(as_batch(x[rows], self.n_actions, converted.columns), y[rows])
        return float(p.mean()), 0.0


def _load(name: str) -> tuple[Any, Any]:
    from sklearn import datasets

    loaded: tuple[Any, Any] = getattr(datasets, f"load_{name}")(return_X_y=True)
    return loaded
