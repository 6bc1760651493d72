"""The inner loop of the scoring pass: every computation on rounds × actions happens here, on one device.

Probabilities, coefficients and embeddings go in; baselines, ratio sums and tables by action come out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray, wide
from offpolicy.data.batch import Batch
from offpolicy.models.posteriors.base import Pooling
from offpolicy.models.rewards.base import Predictor
from offpolicy.policies.base import Factors
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.ratios.pools import BlockRows, Both, PoolSums, Sides, near_sums, pool_sums

Scale = FloatArray | float
Columns = dict[int, FloatArray]


@dataclass(frozen=True)
class Probabilities:
    """π and, if needed, π0 of the actions of a block.

    Attributes
    ----------
    loose : bool
        Whether the rows of π have yet to be divided by their sums.
    """

    layout: Layout
    pi: FloatArray
    pi0: FloatArray | None
    loose: bool = False

    @cached_property
    def sides(self) -> Sides | None:
        return None if self.pi0 is None else Sides(self.pi, self.pi0, self.layout)

    def share(self, clip: float | None) -> FloatArray:
        """π, or the part of it above clip·π0."""
        if clip is None:
            return self.pi
        if np.isinf(clip):
            return np.zeros_like(self.pi)
        assert self.pi0 is not None
        return np.maximum(self.pi - clip * self.pi0, 0.0)  # π − min(π, Mπ0)


@dataclass(frozen=True)
class BaselinePart:
    """The baselines of one share of a policy in one fold. Linear models are one matrix product.

    Attributes
    ----------
    linear : list[tuple[FloatArray, float]]
        For each of the columns, the coefficients of its linear model and the origin that is subtracted.
    other : list[tuple[int, Predictor, float]]
        The columns, models and origins of the other models.
    """

    clip: float | None
    table: int | None
    columns: list[int]
    linear: list[tuple[FloatArray, float]]
    other: list[tuple[int, Predictor, float]]

    @cached_property
    def coef(self) -> FloatArray:
        """The stacked coefficients of the linear models, less the origin, and a row of ones, which yields the row sums."""
        return self._stacked(len(self.linear) * self.linear[0][0].shape[1] + 1) if self.linear else np.empty((0, 0))

    @cached_property
    def padded(self) -> FloatArray:
        """The same with further rows of zeros, for fast products with probabilities."""
        return self._stacked(wide(len(self.linear) * self.linear[0][0].shape[1] + 1))

    def _stacked(self, rows: int) -> FloatArray:
        size, actions = self.linear[0][0].shape[1], len(self.linear[0][0])
        out = np.zeros((rows, actions))
        for k, (coef, origin) in enumerate(self.linear):
            own = out[k * size : (k + 1) * size]
            own[:] = coef.T
            own[-1] -= origin
        out[len(self.linear) * size] = 1.0
        return out

    @cached_property
    def by_action(self) -> FloatArray:
        """`coef` transposed: for lists, and for policies that compute sums over actions themselves."""
        return np.ascontiguousarray(self.coef.T)

    def values(self, batch: Batch, x: FloatArray, p: Probabilities) -> tuple[Scale, Columns]:
        """Σ_a share(a|x)·(x̃·β_a) = x̃·(β @ share): the share is the only rounds × actions array."""
        share, layout = p.share(self.clip), p.layout
        scale: Scale = 1.0
        columns: Columns = {}
        if self.columns:
            product = layout.by_round(share, self.by_action).T if isinstance(layout, Lists) else self.padded @ share.T
            scale = 1 / product[len(self.columns) * len(x)] if p.loose else 1.0
            columns = self.from_product(x, product, scale)
        for column, predictor, origin in self.other:
            columns[column] = layout.dot(share, predictor.all(batch) - origin)
        return scale, columns

    def from_product(self, x: FloatArray, product: FloatArray, scale: Scale = 1.0) -> Columns:
        """The linear models' baselines from β @ share."""
        per_model = product[: len(self.columns) * len(x)].reshape(len(self.columns), len(x), x.shape[1])
        pairs = zip(self.columns, per_model, strict=True)
        return {column: np.einsum("ji,ji->i", x, part) * scale for column, part in pairs}


@dataclass(frozen=True)
class Baselines:
    """All baselines of one policy in one fold; `folds` has the fold that each was fitted without."""

    parts: list[BaselinePart]
    folds: tuple[int, ...] = ()

    @property
    def only_linear(self) -> bool:
        """Whether the product yields the row sums, so that a loose policy need not be normalised first."""
        return len(self.parts) == 1 and self.parts[0].clip is None and not self.parts[0].other

    def values(self, batch: Batch, x: FloatArray, p: Probabilities) -> tuple[Scale, Columns]:
        """The factor that normalises a loose π, and the baselines by column."""
        parts = [part.values(batch, x, p) for part in self.parts]
        columns = {column: values for _, some in parts for column, values in some.items()}
        return parts[0][0] if parts else 1.0, columns


@dataclass(frozen=True)
class BlockInput:
    """A block of rounds, and what to sum over its actions.

    Attributes
    ----------
    x : FloatArray
        x̃ of each round, (features + 1) × rounds.
    pools : Sequence[tuple[Pooling, FloatArray | None]]
        The pooling of each ratio, and the multipliers of its slopes.
    mass : bool
        Whether the target's mass on each action is summed.
    tables : Sequence[IntArray | None]
        The sets of rounds (None: all) that tables of the share are summed over.
    """

    rounds: BlockRows
    x: FloatArray
    omega: FloatArray
    baselines: Baselines
    pools: Sequence[tuple[Pooling, FloatArray | None]] = ()
    mass: bool = False
    tables: Sequence[IntArray | None] = ()


@dataclass
class TargetMass:
    """The probability mass of a target policy by action, summed over some rounds.

    Attributes
    ----------
    unsupported : float
        The mass where the logging policy has zero probability.
    """

    by_action: FloatArray
    rows: float = 0.0
    unsupported: float = 0.0

    def add(self, other: TargetMass) -> None:
        self.rows += other.rows
        self.by_action += other.by_action
        self.unsupported += other.unsupported


@dataclass(frozen=True)
class BlockSums:
    """What a kernel computes for a block.

    Attributes
    ----------
    target : FloatArray
        π of the logged actions.
    logging : FloatArray | None
        π0 of the logged actions, if it was computed.
    baselines : Mapping[int, FloatArray]
        By column.
    tables : Mapping[int, Sequence[FloatArray]]
        Σ share·x̃, actions × (features + 1), of each table and set of rounds.
    """

    target: FloatArray
    logging: FloatArray | None
    baselines: Mapping[int, FloatArray]
    pools: Sequence[PoolSums]
    mass: TargetMass | None
    tables: Mapping[int, Sequence[FloatArray]]


class Kernel(ABC):
    """The computations of the scoring pass on rounds × actions: what another device must implement."""

    @abstractmethod
    def sums(self, p: Probabilities, block: BlockInput) -> BlockSums:
        """Sum over all actions of a block, or over those that are listed."""

    @abstractmethod
    def near(self, pooling: Pooling, block: BlockRows, sides: Sides, masses: Both) -> PoolSums:
        """Sum over the actions near the logged one; `masses`, if they have a column, are those of actions never logged."""

    @abstractmethod
    def mass(self, p: Probabilities, omega: FloatArray, counted: FloatArray) -> TargetMass:
        """The target's mass on each action; `counted` is the row weight times the factor that normalises a loose π."""

    # The following applies to kernels that compute probabilities themselves, where these are exponentials of products.

    @property
    def fuses(self) -> bool:
        """Whether it computes bilinear policies, normal poolings and linear models itself."""
        return False

    def fused(self, target: Factors, logging: Factors | None, blocks: Sequence[BlockInput]) -> list[BlockSums]:
        """Sum over all actions of several blocks, which together are a batch."""
        raise NotImplementedError

    @property
    def batch_rows(self) -> int | None:
        """How many rounds suit it as a batch; None for the default."""
        return None

    @property
    def accuracy(self) -> float:
        """The relative error of the probabilities that it computes."""
        return 0.0

    def report(self) -> dict[str, Any] | None:
        """What the result reports about the device; None if there is nothing to report."""
        return None

    def release(self) -> None:  # noqa: B027
        """Free what is stored between batches."""


@final
@dataclass(frozen=True)
class NumpyKernel(Kernel):
    """On the CPU, with NumPy. Blocks are small enough to stay in its cache."""

    def sums(self, p: Probabilities, block: BlockInput) -> BlockSums:
        rounds = block.rounds
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
            tables=self._tables(p, block, counted) if block.tables else {},
        )

    def near(self, pooling: Pooling, block: BlockRows, sides: Sides, masses: Both) -> PoolSums:
        return near_sums(pooling, block, sides, masses)

    def mass(self, p: Probabilities, omega: FloatArray, counted: FloatArray) -> TargetMass:
        supported = None if p.sides is None else p.sides.supported
        unsupported = 0.0 if supported is None else float(counted @ p.layout.dot(p.pi, 1 - supported))
        return TargetMass(p.layout.by_action(p.pi, counted[:, None])[:, 0], float(omega.sum()), unsupported)

    def _tables(self, p: Probabilities, block: BlockInput, counted: FloatArray) -> dict[int, list[FloatArray]]:
        layout, weighted = p.layout, block.x * counted
        tables = {}
        for part in block.baselines.parts:
            if part.table is not None:
                share = p.share(part.clip)
                tables[part.table] = [layout.by_action(share, only(weighted, rows).T) for rows in block.tables]
        return tables


def only(x: FloatArray, rows: IntArray | None) -> FloatArray:
    """The same with 0 for all other rounds."""
    if rows is None:
        return x
    inside = np.zeros(x.shape[1])
    inside[rows] = 1.0
    return x * inside
