"""`Cells`: the groups of actions that propensities are tested in. Discrete actions are cells themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.data.spaces import ActionSpace, Discrete
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.policies.nodes import legendre

MOST_CELLS = 1_024  # more actions than this share cells
RANGES, NODES = {1: 20, 2: 6}, {1: 8, 2: 3}  # per dimension; with more dimensions, only the first one is divided
NARROW = 0.5  # a density with more of its mass than this near one node is too narrow for these nodes

Entries = tuple[slice, IntArray, IntArray, FloatArray, IntArray]
"""Rows, and for each entry in them its round and its cell, and its probability; and the entries that were taken."""


class Cells(ABC):
    """A partition of the actions.

    Attributes
    ----------
    count : int
        The number of cells.
    elements : int
        The numbers per round that a test of the whole logging policy computes; 0: there is none.
    tolerance : float
        How far the probabilities of a round may be from a sum of 1.
    likelihood : {"probability", "density"}
        What propensities are.
    """

    count: int
    elements: int
    tolerance: float
    likelihood: str

    @property
    @abstractmethod
    def sizes(self) -> FloatArray:
        """The mean of 1/p over the rounds of each cell (0 in others), if all of its actions are possible in every round."""

    @abstractmethod
    def of(self, action: npt.NDArray[Any]) -> IntArray:
        """The cell of each of some actions, encoded as in `Batch.action`."""

    @abstractmethod
    def entries(self, logging: Policy, batch: Batch) -> Iterator[Entries]:
        """Block by block, the probability of each cell in each round."""

    @abstractmethod
    def named(self, cell: int) -> str:
        """For messages, at the beginning of a sentence."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """A label for each cell."""

    @property
    @abstractmethod
    def all(self) -> str:
        """For messages: the largest possible mean of 1/p, in words."""


@dataclass(frozen=True)
class ActionCells(Cells):
    """Discrete actions, each its own cell; if there are very many, several share one."""

    space: Discrete
    tolerance = 1e-3
    likelihood = "probability"

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.space.n_actions

    @property
    def count(self) -> int:  # type: ignore[override]
        return min(self.n_actions, MOST_CELLS)

    @property
    def elements(self) -> int:  # type: ignore[override]
        return self.n_actions

    @cached_property
    def sizes(self) -> FloatArray:
        return np.bincount(np.arange(self.n_actions) % self.count).astype(np.float64)

    def of(self, action: npt.NDArray[Any]) -> IntArray:
        codes: IntArray = action % self.count if self.n_actions > self.count else action
        return codes

    def entries(self, logging: Policy, batch: Batch) -> Iterator[Entries]:
        if logging.lists and len(batch):
            listed = logging.listed(batch)
            taken = np.flatnonzero(listed.codes == batch.codes[listed.row])
            yield slice(0, len(batch)), listed.row, listed.codes % self.count, listed.probabilities, taken
            return
        for rows in blocks(len(batch), self.n_actions):
            p = logging.probabilities(batch.take(rows))
            row, code = np.divmod(np.arange(p.size), self.n_actions)
            yield rows, row, code % self.count, p.ravel(), np.arange(len(p)) * self.n_actions + batch.codes[rows]

    def named(self, cell: int) -> str:
        if self.n_actions > MOST_CELLS:
            return f"A group of {self.n_actions // MOST_CELLS:,} or so actions"
        return f"Action {self.space.to_numpy()[cell]!s}"

    @property
    def names(self) -> list[str]:
        labels = self.space.to_numpy()
        return [
            str(labels[k]) + (f" and {size - 1:,.0f} others" if size > 1 else "")
            for k, size in enumerate(self.sizes[: self.count])
        ]

    @property
    def all(self) -> str:
        return f"the {self.n_actions:,} actions"


@dataclass(frozen=True)
class BoxCells(Cells):
    """Numbers, in ranges of equal length, and each value that has a probability of its own."""

    space: Box
    tolerance = 0.02
    likelihood = "density"

    @property
    def _each(self) -> int:
        """Ranges per divided dimension."""
        return RANGES.get(self.space.dimensions, RANGES[1])

    @property
    def _divided(self) -> int:
        """How many dimensions are divided."""
        return self.space.dimensions if self.space.dimensions in RANGES else 1

    @property
    def _ranges(self) -> int:
        return int(self._each**self._divided)

    @property
    def count(self) -> int:  # type: ignore[override]
        return self._ranges + len(self.space.points)

    @property
    def elements(self) -> int:  # type: ignore[override]
        if self.space.dimensions not in RANGES:
            return 0
        return int(self._ranges * NODES[self.space.dimensions] ** self.space.dimensions)

    @cached_property
    def sizes(self) -> FloatArray:
        volume = float(np.prod(self.space.ranges)) / self._ranges
        return np.append(np.full(self._ranges, volume), np.ones(len(self.space.points)))

    def of(self, action: npt.NDArray[Any]) -> IntArray:
        cell = self._range(action)
        for k, point in enumerate(self.space.points):
            cell[action == point] = self._ranges + k
        return cell

    def _range(self, action: FloatArray) -> IntArray:
        at = (self.space.vectors(action) - self.space.lows) / self.space.ranges * self._each
        index = np.clip(at.astype(np.int64), 0, self._each - 1)
        cell = np.zeros(len(action), np.int64)
        for j in range(self._divided):
            cell = cell * self._each + index[:, j]
        return cell

    @cached_property
    def _grid(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Nodes in the box, their volumes, and their cells."""
        at, shares = legendre(NODES[self.space.dimensions], self._each)
        axes = [low + width * at for low, width in zip(self.space.lows, self.space.ranges, strict=True)]
        nodes = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
        volumes = np.ones(1)
        for width in self.space.ranges:
            volumes = np.outer(volumes, shares * width).ravel()
        flat = nodes if self.space.shape else nodes[:, 0]
        return flat, volumes, self._range(flat)

    def entries(self, logging: Policy, batch: Batch) -> Iterator[Entries]:
        nodes, volumes, cell = self._grid
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.arange(self._ranges))
        for rows in blocks(len(batch), len(volumes)):
            part = batch.take(rows)
            n = len(part)
            row, at = np.repeat(np.arange(n), len(volumes)), np.tile(nodes, (n, *[1] * (nodes.ndim - 1)))
            masses = logging.entries(part, row, at).reshape(n, -1) * volumes  # type: ignore[arg-type]
            narrow = np.maximum(masses.max(axis=1), logging.likelihood(part) * volumes.max()) > NARROW
            p = np.add.reduceat(masses[:, order], starts, axis=1)
            for point in self.space.points:
                known = logging.entries(part, np.arange(n), np.full(n, point))
                p = np.column_stack([p, known])
            row, code = np.divmod(np.arange(p.size), self.count)
            taken = np.arange(n) * self.count + self.of(part.action)
            if narrow.any():  # what was taken is what was expected, so that these rounds show nothing
                narrow |= np.abs(p.sum(axis=1) - 1) > self.tolerance
                p[narrow] = np.eye(self.count)[self.of(part.action)[narrow]]
            yield rows, row, code, p.ravel(), taken

    def named(self, cell: int) -> str:
        return f"Actions {self.names[cell]}" if cell < self._ranges else f"The action {self.names[cell]}"

    @property
    def names(self) -> list[str]:
        steps = self.space.ranges / self._each
        names = []
        for cell in range(self._ranges):
            parts, rest = [], cell
            for j in reversed(range(self._divided)):
                rest, k = divmod(rest, self._each)
                low = self.space.lows[j] + k * steps[j]
                parts.append(f"from {low:.4g} to {low + steps[j]:.4g}")
            names.append(" and ".join(reversed(parts)))
        return [*names, *(f"{point:g}" for point in self.space.points)]

    @property
    def all(self) -> str:
        what = {1: "length", 2: "area"}.get(self.space.dimensions, "volume")
        points = f", and 1 for each of the {len(self.space.points)} points" if self.space.points else ""
        return f"the {what} of the box, {float(np.prod(self.space.ranges)):.6g}{points}"


def cells_of(space: ActionSpace) -> Cells | None:
    """The cells of a space; None if propensities of its actions are not tested."""
    if isinstance(space, Discrete):
        return ActionCells(space)
    return BoxCells(space) if isinstance(space, Box) else None
