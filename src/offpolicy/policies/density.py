"""`Density`: a policy over numbers, from a function that returns its density."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.policies.base import Policy
from offpolicy.policies.functions import called, column_names, with_columns
from offpolicy.policies.nodes import Nodes, between

Pdf = Callable[[Any, FloatArray], npt.ArrayLike]
GRID_NODES = 12
"""Nodes per dimension where actions are vectors."""
GRID = {True: (4, 16), False: (GRID_NODES, 1)}
"""Nodes per panel and panels per dimension, for actions of one dimension, and of several."""
OFF = 0.02
"""How far the integral of a density may be from 1: a few panels cannot integrate every density exactly."""


def integrated(entries: Callable[[Batch, IntArray, IntArray], FloatArray], batch: Batch) -> tuple[FloatArray, FloatArray]:
    """A grid over the box, in each round, and the mass of a density around each of its nodes: rounds × nodes."""
    space, n = box(batch.space, "a density"), len(batch)
    low, high = (np.broadcast_to(bound, (n, space.dimensions)) for bound in (space.lows, space.highs))
    actions, volumes = between(low, high, *GRID[space.dimensions == 1])
    actions = actions if space.shape else actions[..., 0]
    row, at = Nodes(actions, volumes).flat(space)
    return actions, entries(batch, row, cast("IntArray", at)).reshape(volumes.shape) * volumes


class DensityPolicy(Policy):
    """The base of policies over numbers that have a density: a subclass gives it by `entries`, at any action."""

    spaces = (Box,)

    def distribution(self, batch: Batch) -> FloatArray:
        raise InputError(f"{type(self).__name__} is a density, and the actions here are {batch.space.nature}.")


@final
@dataclass(frozen=True)
class Density(DensityPolicy):
    """A policy over numbers, or vectors of numbers, with a density.

    Parameters
    ----------
    pdf : callable
        A function of contexts (rounds × columns, as in `log.schema.context`) and actions (one per round, or rounds ×
        dimensions) that returns the density of each action. With `columns`, it is called with a dict of arrays by name
        instead of the contexts. The density must integrate to 1 over the `op.Box` of the log.
    columns : sequence of str, default ()
        Columns of the log that the function reads by name, in the context or not.

    Examples
    --------
    >>> import offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, propensity=np.ones(10), actions=op.Box(0, 1))
    >>> round(op.evaluate(log, op.Density(lambda x, a: 2 * a), op.SNIPS())["SNIPS"].value, 3)
    0.665
    """

    pdf: Pdf
    columns: Sequence[str] = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if isinstance(self.pdf, type) or not callable(self.pdf):
            raise InputError(f"Density: {self.pdf!r} is not a function of (contexts, actions) that returns densities.")
        object.__setattr__(self, "columns", column_names(self.columns, "Density"))

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        action = np.asarray(code, dtype=np.float64)
        whole = len(row) == len(batch) and np.array_equal(row, np.arange(len(batch)))
        part = batch if whole else batch.take(row)
        values = called(with_columns(lambda known: self.pdf(known, action), self.columns, "Density"), part, "Density")
        if values.shape != (len(row),):
            raise InputError(
                f"Density: the function returned shape {values.shape} for {len(row)} actions; return one density per action."
            )
        bad = ~((values >= 0) & np.isfinite(values))
        if bad.any():
            rows = np.unique(batch.row[row[bad]])
            raise RowsError("Density", "have a negative, infinite or missing density", rows, "Correct the function.")
        return np.asarray(values, dtype=np.float64)

    def nodes(self, batch: Batch) -> Nodes:
        space = box(batch.space, "Density")
        actions, weights = integrated(self.entries, batch)
        mass = weights.sum(axis=1)
        off = ~(np.abs(mass - 1) <= OFF)
        if off.any():
            worst = mass[np.argmax(np.where(off, np.abs(mass - 1), 0))]
            raise RowsError(
                "Density", f"have a density that does not integrate to 1 over the {space.nature} (the worst: {worst:.4g})",
                batch.row[off], "Divide it by its integral over the box: what it has outside of the box is lost.",
            )  # fmt: skip
        return Nodes(actions, weights / mass[:, None])
