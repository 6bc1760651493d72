"""`BatchWork`: a batch on its way through the scorer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.plan import ModelKey
from offpolicy.scoring.tallies import Tallies


@dataclass(frozen=True)
class BatchWork:
    """The rounds of a batch, sorted by bucket where folds matter, and what is known of them so far."""

    batch: Batch
    bucket: IntArray
    x: FloatArray
    """x̃ of each round, (features + 1) × rounds."""
    out: FloatArray
    """The columns, which are filled in."""
    kept: Tallies
    """What is summed besides."""
    controls: dict[ModelKey, FloatArray] = field(default_factory=dict)
    weights: dict[tuple[int, Weight], FloatArray] = field(default_factory=dict)
    """By policy."""

    @cached_property
    def omega(self) -> FloatArray:
        """The row weights."""
        return np.ones(len(self.batch)) if self.batch.weight is None else self.batch.weight

    def runs(self, groups: int) -> Iterator[tuple[int, slice]]:
        """Each of `groups` groups with its run of rows."""
        group = group_of_bucket(groups)[self.bucket]
        edges = np.searchsorted(group, np.arange(groups + 1))
        return ((g, slice(int(a), int(b))) for g, (a, b) in enumerate(itertools.pairwise(edges)) if b > a)
