"""The inner loop of the scoring pass: everything of shape rounds × actions is worked on here, on one device.

Probabilities, coefficients and embeddings go in; baselines, ratio sums and tables by action come out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.models.posteriors.base import Pooling
from offpolicy.ratios.pools import BlockRows, Both, PoolSums, Sides, near_sums, pool_sums
from offpolicy.scoring.baselines import Baselines, Probabilities


@dataclass(frozen=True)
class BlockInput:
    """A block of rounds, and what to sum over its actions."""

    rounds: BlockRows
    probabilities: Probabilities
    x: FloatArray
    """x̃ of each round, (features + 1) × rounds."""
    omega: FloatArray
    baselines: Baselines
    pools: Sequence[tuple[Pooling, FloatArray | None]] = ()
    """The pooling of each ratio, and what slopes of it are multiplied with."""
    mass: bool = False
    """Whether the target's mass on each action is summed."""
    tables: Sequence[IntArray | None] = ()
    """The sets of rounds (None: all) that tables of the share are summed over."""


@dataclass(frozen=True)
class Mass:
    """Where the target's mass lies."""

    rows: float
    by_action: FloatArray
    unsupported: float | None
    """On actions with zero probability under the logging policy; None where there are none, or it is not known."""


@dataclass(frozen=True)
class BlockSums:
    """What a kernel gives for a block."""

    target: FloatArray
    """π of the logged actions."""
    logging: FloatArray | None
    """π0 of the logged actions, where it was asked for."""
    baselines: Mapping[int, FloatArray]
    """By column."""
    pools: Sequence[PoolSums]
    mass: Mass | None
    tables: Mapping[int, Sequence[FloatArray]]
    """Σ share·x̃, actions × (features + 1), of each table and set of rounds."""


class Kernel(ABC):
    """The work of the scoring pass on rounds × actions: what another device must implement."""

    @abstractmethod
    def sums(self, block: BlockInput) -> BlockSums:
        """Over all actions of a block, or over those that are listed."""

    @abstractmethod
    def near(self, pooling: Pooling, block: BlockRows, sides: Sides, masses: Both) -> PoolSums:
        """Over the actions near the logged one; `masses`, where they have a column, are those of actions never logged."""

    @abstractmethod
    def mass(self, p: Probabilities, omega: FloatArray, counted: FloatArray) -> Mass:
        """The target's mass on each action; `counted` is the row weight times what a loose π is still to be scaled by."""


@final
@dataclass(frozen=True)
class NumpyKernel(Kernel):
    """On the processor, with NumPy. Blocks are small enough to stay in its cache."""

    def sums(self, block: BlockInput) -> BlockSums:
        p, rounds = block.probabilities, block.rounds
        scale, baselines = block.baselines.values(rounds.batch, block.x, p)
        sides = p.sides
        pools = [] if sides is None else [pool_sums(pooling, rounds, sides, m) for pooling, m in block.pools]
        counted = block.omega * scale
        return BlockSums(
            target=p.layout.own(p.pi) * scale,
            logging=None if p.pi0 is None else p.layout.own(p.pi0),
            baselines=baselines,
            pools=pools,
            mass=self.mass(p, block.omega, counted) if block.mass else None,
            tables=self._tables(block, counted) if block.tables else {},
        )

    def near(self, pooling: Pooling, block: BlockRows, sides: Sides, masses: Both) -> PoolSums:
        return near_sums(pooling, block, sides, masses)

    def mass(self, p: Probabilities, omega: FloatArray, counted: FloatArray) -> Mass:
        supported = None if p.sides is None else p.sides.supported
        unsupported = None if supported is None else float(counted @ p.layout.dot(p.pi, 1 - supported))
        return Mass(float(omega.sum()), p.layout.by_action(p.pi, counted[:, None])[:, 0], unsupported)

    def _tables(self, block: BlockInput, counted: FloatArray) -> dict[int, list[FloatArray]]:
        layout, weighted = block.probabilities.layout, block.x * counted
        found = {}
        for part in block.baselines.parts:
            if part.table is not None:
                share = block.probabilities.share(part.clip)
                found[part.table] = [layout.by_action(share, _only(weighted, rows).T) for rows in block.tables]
        return found


def _only(x: FloatArray, rows: IntArray | None) -> FloatArray:
    """The same with 0 for other rounds than these."""
    if rows is None:
        return x
    inside = np.zeros(x.shape[1])
    inside[rows] = 1.0
    return x * inside
