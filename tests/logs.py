"""What the tests share: a log of five rows that can be worked out by hand, and a small random one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import offpolicy as op
from offpolicy.engines.base import Engine
from offpolicy.scoring.requirements import serving

ACTION = np.array([0, 1, 0, 1, 1])
REWARD = np.array([1.0, 0.0, 2.0, 1.0, 3.0])
TARGET = np.array([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9], [0.4, 0.6]])
Q = np.array([[1.0, 2.0], [1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 2.0]])
RATIO = np.array([0.4, 0.8, 1.0, 1.8, 1.2])
LABELS = np.array(["ash", "birch", "cedar", "fir"])
DISCRETE = serving(op.Discrete(2))
"""The registered estimators for discrete actions, by name."""


@dataclass(frozen=True)
class Ragged(Engine):
    """An engine that folds batches of any size, as that of a cluster may. (`Local` folds blocks of a fixed size.)"""

    rows: int
    threads: int | None = 1

    def check(self, log: op.Log) -> None:
        pass

    def reduce(self, log: op.Log, statistic: Any, progress: Any = None) -> Any:
        state = statistic.zero()
        for partition in log.partitions(statistic.columns):
            part = statistic.zero()
            for batch in partition.batches(self.rows):
                part = statistic.fold(part, batch)
            state = statistic.merge(state, part)
        return statistic.finish(state)


@dataclass(frozen=True)
class Small:
    """A random log with its ingredients."""

    context: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    logging: np.ndarray
    target: np.ndarray

    @property
    def propensity(self) -> np.ndarray:
        return self.logging[np.arange(len(self.action)), self.action]

    @property
    def features(self) -> np.ndarray:
        """Two categories seen in each round, which say something of the action."""
        noise = np.random.default_rng(7).integers(0, 2, (len(self.action), 2))
        return np.column_stack([(self.action + noise[:, 0]) % 3, (self.action // 2 + noise[:, 1]) % 3])

    def log(self, **more: object) -> op.Log:
        settings = {"propensity": self.propensity, "logging": self.logging, "n_actions": self.logging.shape[1], **more}
        return op.Log(self.context, self.action, self.reward, **settings)


def make_small(n: int = 400, actions: int = 4, features: int = 2, seed: int = 0) -> Small:
    rng = np.random.default_rng(seed)
    context = rng.normal(size=(n, features))
    scores = context @ rng.normal(size=(features, actions))
    logging = np.exp(0.5 * scores)
    logging /= logging.sum(axis=1, keepdims=True)
    target = np.exp(-scores)
    target /= target.sum(axis=1, keepdims=True)
    action = (logging.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    reward = scores[np.arange(n), action] + rng.normal(size=n) + action
    return Small(context, action, reward, logging, target)


def labelled(w: Small, **more: Any) -> op.Log:
    settings = {"propensity": w.propensity, "actions": LABELS.tolist(), **more}
    return op.Log(w.context, LABELS[w.action], w.reward, **settings)
