"""`Nodes`: a few actions per round whose weighted mean stands for an expectation under a continuous policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.box import Box
from offpolicy.data.spaces import ActionSpace


@dataclass(frozen=True)
class Nodes:
    """Actions and their weights, which sum to 1 in each round.

    Parameters
    ----------
    actions : array of float
        Rounds × nodes, and × dimensions if actions are vectors.
    weights : array of float
        Rounds × nodes.
    """

    actions: FloatArray
    weights: FloatArray

    @classmethod
    def single(cls, actions: FloatArray) -> Nodes:
        """One action per round."""
        return cls(actions[:, None], np.ones((len(actions), 1)))

    @classmethod
    def joined(cls, parts: Sequence[Nodes], shares: Sequence[float]) -> Nodes:
        """Those of a mixture of policies."""
        weights = [share * part.weights for part, share in zip(parts, shares, strict=True)]
        return cls(np.concatenate([part.actions for part in parts], axis=1), np.concatenate(weights, axis=1))

    def mean(self, values: FloatArray) -> FloatArray:
        """The weighted mean of values at the nodes, which have the same shape as the weights."""
        mean: FloatArray = np.einsum("ik,ik->i", values, self.weights)
        return mean

    def shares(self, space: ActionSpace) -> FloatArray:
        """The mean weight of each row of a table by action: rounds × rows of the table."""
        rounds, nodes = self.weights.shape
        out = np.zeros((rounds, space.table_rows))
        eye = np.eye(space.table_rows)
        for k in range(nodes):  # node by node, so that memory does not grow with their number
            out += self.weights[:, k, None] * space.expand(eye, self.actions[:, k])
        return out

    def flat(self, space: Box) -> tuple[np.ndarray, FloatArray]:
        """The round of each node and its action, with rounds in ascending order."""
        rounds, nodes = self.weights.shape
        return np.repeat(np.arange(rounds), nodes), self.actions.reshape(rounds * nodes, *space.shape)


@cache
def legendre(nodes: int, panels: int = 1) -> tuple[FloatArray, FloatArray]:
    """Gauss–Legendre nodes and weights on [0, 1], in panels of equal length; the weights sum to 1.

    >>> at, weights = legendre(2)
    >>> round(float(weights @ at**3), 12)
    0.25
    """
    at, weights = np.polynomial.legendre.leggauss(nodes)
    starts = np.arange(panels)[:, None] / panels
    return (starts + (at + 1) / 2 / panels).ravel(), np.tile(weights / 2 / panels, panels)


def between(low: FloatArray, high: FloatArray, nodes: int, panels: int = 1) -> tuple[FloatArray, FloatArray]:
    """Nodes between bounds per round and dimension, as a grid: actions (rounds × nodes × dimensions), and volumes.

    Each bound has shape (rounds, dimensions). The volumes of a round sum to that of its bounds.
    """
    at, weights = legendre(nodes, panels)
    dimensions = low.shape[1]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[at] * dimensions, indexing="ij")], axis=-1)
    shares = np.ones(1)
    for _ in range(dimensions):
        shares = np.outer(shares, weights).ravel()
    width = high - low
    actions: FloatArray = low[:, None] + grid * width[:, None]
    return actions, width.prod(axis=1)[:, None] * shares
