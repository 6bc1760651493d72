"""Pre-defined features of actions: logged with each round, in a catalog with one row per action, or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.schema import Dimension, Schema

Inputs = Literal["identity", "features", "both"]


@dataclass(frozen=True)
class Combinations:
    """The combinations of one-hot encoded categories, of dimensions with these widths. A row may have none of a dimension.

    >>> Combinations((1, 2)).table
    array([[0., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.],
           [1., 0., 0.],
           [1., 1., 0.],
           [1., 0., 1.]])
    """

    widths: tuple[int, ...]

    @cached_property
    def table(self) -> FloatArray:
        """φ of each combination."""
        levels = [width + 1 for width in self.widths]
        codes = np.indices(levels).reshape(len(levels), -1)
        return np.hstack([np.eye(n)[code][:, 1:] for n, code in zip(levels, codes, strict=True)])

    @cached_property
    def _places(self) -> FloatArray:
        """What each column adds to the number of a combination."""
        steps = [math.prod(width + 1 for width in self.widths[k + 1 :]) for k in range(len(self.widths))]
        return np.concatenate([step * np.arange(1.0, n + 1) for step, n in zip(steps, self.widths, strict=True)])

    def codes(self, phi: FloatArray) -> IntArray:
        """The number of each row's combination: its row in the table."""
        codes: IntArray = (phi @ self._places).astype(np.int64)
        return codes


@dataclass(frozen=True)
class Features:
    """φ = (features logged with the round, the action's row of the catalog), as columns that belong to named dimensions.

    `per_round` is the number of columns that are logged with each round; `n_actions` is that of the log if it is known, and
    `slots` that of its lists, if actions are lists.
    """

    dimensions: tuple[Dimension, ...] = ()
    per_round: int = 0
    catalog: FloatArray | None = field(default=None, compare=False)
    n_actions: int = field(default=0, compare=False)
    slots: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, schema: Schema) -> Features:
        shifted = tuple(d.moved(len(schema.features)) for d in schema.catalog_dimensions)
        both = {d.name for d in schema.feature_dimensions} & {d.name for d in shifted}
        if both:
            raise InputError(f"{min(both)} is both an action feature and a column of the catalog; rename one of them.")
        columns = len(schema.features)
        return cls(schema.feature_dimensions + shifted, columns, schema.catalog, schema.space.n_codes, schema.space.slots)

    @cached_property
    def size(self) -> int:
        return sum(d.width for d in self.dimensions)

    @property
    def varies(self) -> bool:
        """Whether φ can differ between two rounds with the same action."""
        return self.per_round > 0

    def rows(self, batch: Batch) -> FloatArray:
        """φ of the logged actions: rounds × columns."""
        if self.catalog is None:
            return batch.features
        if not self.varies:
            return self.catalog[batch.codes]
        return np.hstack([batch.features, self.catalog[batch.codes]])

    def combinations(self, most: int) -> Combinations | None:
        """The combinations of categories, if φ has only those, logged with each round, and not more than `most`."""
        one_hot = self.varies and self.catalog is None and all(d.categorical for d in self.dimensions)
        if not one_hot or math.prod(d.width + 1 for d in self.dimensions) > most:
            return None
        return Combinations(tuple(d.width for d in self.dimensions))

    def distinguishes(self, dimension: Dimension) -> bool:
        """Whether a dimension can tell actions apart: one with a single category cannot."""
        if dimension.width > 1 or not dimension.categorical:
            return True
        column = dimension.start - self.per_round
        return self.catalog is not None and column >= 0 and bool(np.ptp(self.catalog[:, column]))

    def only(self, names: Sequence[str]) -> IntArray:
        """The columns of some dimensions."""
        chosen = [d for d in self.dimensions if d.name in names]
        return np.concatenate([np.arange(d.start, d.stop) for d in chosen]) if chosen else np.empty(0, np.int64)

    def resolve(self, inputs: Inputs | None, estimator: str) -> Inputs:
        """`None` means both if there are features, else the identity."""
        if inputs not in (None, *get_args(Inputs)):
            raise InputError(f'{estimator}: inputs is {inputs!r}; give "identity", "features", "both", or None to choose.')
        if inputs is None:
            return "both" if self.size else "identity"
        if inputs != "identity" and not self.size:
            raise InputError(
                f'{estimator}: inputs="{inputs}" needs features of the actions, and the log has none. Name columns logged '
                "with each round as `action_features=` (--features), give one row per action with `catalog=`, or use "
                'inputs="identity".'
            )
        return inputs
