"""`SplineBasis`: smooth functions of continuous actions that sum to 1, so that models are tables over a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from offpolicy.core.arrays import FloatArray

FUNCTIONS = {1: 10, 2: 6, 3: 4}
"""Functions per dimension, for actions of up to three dimensions; their products are the basis."""
FUNCTIONS_EACH = 6
"""Functions per dimension where there are more; the basis is all of them, and a model adds up over dimensions."""


@dataclass(frozen=True)
class SplineBasis:
    """Cubic B-splines with equally spaced knots on each dimension of a box.

    Parameters
    ----------
    lows, highs : tuple of float
        The bounds of each dimension.

    Examples
    --------
    >>> basis = SplineBasis((0.0,), (1.0,))
    >>> basis.size, round(float(basis.values(np.array([[0.3]])).sum()), 12)
    (10, 1.0)
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    @property
    def additive(self) -> bool:
        """Whether the functions of different dimensions are not multiplied."""
        return len(self.lows) not in FUNCTIONS

    @property
    def each(self) -> int:
        """The number of functions per dimension."""
        return FUNCTIONS.get(len(self.lows), FUNCTIONS_EACH)

    @property
    def size(self) -> int:
        """The number of functions."""
        return self.each * len(self.lows) if self.additive else self.each ** len(self.lows)

    def values(self, vectors: FloatArray) -> FloatArray:
        """The functions of some actions.

        Parameters
        ----------
        vectors : array of float
            Actions × dimensions.

        Returns
        -------
        array of float
            Actions × functions; each row sums to 1.
        """
        parts = [
            self._cubic(vectors[:, j], low, high) for j, (low, high) in enumerate(zip(self.lows, self.highs, strict=True))
        ]
        if self.additive:
            return np.hstack(parts) / len(parts)
        product: FloatArray = parts[0]
        for part in parts[1:]:
            product = (product[:, :, None] * part[:, None]).reshape(len(product), -1)
        return product

    def _cubic(self, values: FloatArray, low: float, high: float) -> FloatArray:
        intervals = self.each - 3
        at = (values - low) * (intervals / (high - low))
        first = np.clip(np.floor(at), 0, intervals - 1).astype(np.int64)
        t = at - first
        s = 1 - t
        out = np.zeros((len(values), self.each))
        rows = np.arange(len(values))
        for k, part in enumerate((s**3, 3 * t**3 - 6 * t**2 + 4, 3 * s**3 - 6 * s**2 + 4, t**3)):
            out[rows, first + k] = part / 6
        return out

    def roughness(self, order: int) -> FloatArray:
        """The matrix of the sum of squared differences of neighbouring coefficients, of an order, over all dimensions."""
        steps = np.diff(np.eye(self.each), order, axis=0)
        own, eye, d = steps.T @ steps, np.eye(self.each), len(self.lows)
        if self.additive:
            blocks: FloatArray = np.kron(np.eye(d), own).astype(np.float64)
            return blocks
        total: FloatArray = np.zeros((self.size, self.size))
        for j in range(d):
            total += reduce(lambda a, b: np.kron(a, b).astype(np.float64), [own if k == j else eye for k in range(d)])
        return total
