"""A batch on the device: from its sums by round to those of the scoring pass, and sums by action over its sampled rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.device import Device
from offpolicy.models.posteriors.base import Pooling
from offpolicy.ratios.pools import PoolSums, SlopeSums
from offpolicy.scoring.fused.forms import Form, Forms, FusedSums, Run, Tensor
from offpolicy.scoring.fused.plain import BlockProbabilities, rows_at_once
from offpolicy.scoring.kernel import BlockInput, BlockSums, TargetMass, only


@dataclass(frozen=True)
class HostSums:
    """Sums by round in memory, and sums by action over the rounds of some blocks.

    Attributes
    ----------
    target, logging : FloatArray
        The probability of each logged action.
    above, below, baselines : FloatArray
        As in `FusedSums`.
    masses : Mapping[int, tuple[FloatArray, bool]]
        For blocks by their first round: the target's mass by action, and whether the logging policy has every action.
    finite : bool
        Whether every sum was finite.
    """

    target: FloatArray
    logging: FloatArray | None
    above: FloatArray
    below: FloatArray
    baselines: FloatArray
    masses: Mapping[int, tuple[FloatArray, bool]]
    finite: bool


def _places(blocks: Sequence[BlockInput]) -> Iterator[tuple[slice, BlockInput]]:
    """The rounds of each block in the batch."""
    edges = accumulate((len(block.rounds.batch) for block in blocks), initial=0)
    return ((slice(a, b), block) for (a, b), block in zip(pairwise(edges), blocks, strict=True))


def _table(block: BlockInput) -> int | None:
    """The table of shares of a block of the sample."""
    part = block.baselines.parts[0] if block.baselines.parts else None
    return None if part is None or not block.tables else part.table


def _sloped(block: BlockInput) -> list[int]:
    """The poolings whose slopes are summed."""
    return [j for j, (_, multipliers) in enumerate(block.pools) if multipliers is not None]


@dataclass(frozen=True)
class DeviceBatch:
    """What a batch is computed from.

    Attributes
    ----------
    columns : Sequence[int]
        The column of the baseline of each model.
    lock : AbstractContextManager[Any]
        Held while blocks of rounds × actions take memory.
    """

    device: Device
    forms: Forms
    columns: Sequence[int]
    lock: AbstractContextManager[Any]

    def read(self, sums: FusedSums, blocks: Sequence[BlockInput]) -> HostSums:
        """The sums in memory, by one transfer, since each waits for all work that other batches have queued before it."""
        torch, n = self.device.torch, self.forms.rounds
        policies = [(self.forms.target, sums.target)]
        policies += [] if self.forms.logging is None else [(self.forms.logging, sums.logging)]
        rows = [self._logged(*each) for each in policies] + [*sums.above, *sums.below, *sums.baselines]
        masses = {
            own.start: self._mass(block, own, sums)
            for own, block in _places(blocks)
            if block.mass and _table(block) is None and not _sloped(block)
        }
        parts = [*rows, *(part for both in masses.values() for part in both), sums.finite[None]]
        flat = torch.cat([part.double() for part in parts]).cpu().numpy()
        values, of_masses = np.split(flat[:-1], [len(rows) * n])
        values, of_masses = values.reshape(-1, n), of_masses.reshape(-1, self.forms.n_actions + 1)
        pools, of_pools = len(self.forms.pools), values[len(policies) :]
        return HostSums(
            target=values[0],
            logging=values[1] if len(policies) > 1 else None,
            above=of_pools[:pools],
            below=of_pools[pools : 2 * pools],
            baselines=of_pools[2 * pools :],
            masses={start: (each[:-1], bool(each[-1] > 0)) for start, each in zip(masses, of_masses, strict=True)},
            finite=bool(flat[-1] > 0),
        )

    def block_sums(self, rows: HostSums, blocks: Sequence[BlockInput]) -> list[BlockSums]:
        """What the scoring pass stores for each block."""
        out = []
        for own, block in _places(blocks):
            pi, pi0 = rows.target[own], None if rows.logging is None else rows.logging[own]
            pools = []
            if pi0 is not None:
                with np.errstate(divide="ignore", invalid="ignore"):
                    action = pi / pi0
                for (pooling, _), over, under in zip(block.pools, rows.above[:, own], rows.below[:, own], strict=True):
                    pools.append(_pooled(pooling, block, over, under, (pi, action)))
            columns = dict(zip(self.columns, rows.baselines[:, own], strict=True))
            out.append(self._sampled(block, own, BlockSums(pi, pi0, columns, pools, None, {}), rows))
        return out

    def _logged(self, form: Form, norm: Tensor) -> Tensor:
        """The probability of each logged action, from a score in double precision."""
        score = (form.left.double() * form.right[0][self.forms.action].double()).sum(dim=1)
        return (score - norm.double()).exp().clamp(max=1.0)  # more than 1 is rounding

    def _sampled(self, block: BlockInput, own: slice, sums: BlockSums, rows: HostSums) -> BlockSums:
        """With the sums by action that are needed for a block of the sample."""
        table, sloped = _table(block), _sloped(block)
        if not (block.mass or table is not None or sloped):
            return sums
        by_action, supported = rows.masses.get(own.start, (None, False))
        if by_action is not None and supported:
            return replace(sums, mass=TargetMass(by_action, float(block.omega.sum()), 0.0))
        with self.lock:
            total = ActionSums(self, block, own, sums)
            for piece in self._pieces(own):
                total.add(BlockProbabilities.of(self.forms, piece, pooled=bool(sloped)))
        pools = [replace(p, slopes=total.slopes(j)) if j in sloped else p for j, p in enumerate(sums.pools)]
        return replace(
            sums,
            pools=pools,
            mass=total.mass if block.mass else None,
            tables={} if table is None else {table: [each.double().cpu().numpy() for each in total.tables]},
        )

    def _pieces(self, own: slice) -> Iterator[Run]:
        slots = next(run.slots for run in self.forms.runs if run.start <= own.start < run.stop)
        return Run(own.start, own.stop, slots).cut(rows_at_once(self.forms))

    def _mass(self, block: BlockInput, own: slice, rows: FusedSums) -> tuple[Tensor, Tensor]:
        """The mass by action from the sums by round, and 1 if no probability of the logging policy can be 0.

        They cannot if |left|·|right|, which bounds every score, is small enough.
        """
        torch, logging = self.device.torch, self.forms.logging
        omega = self.device.tensor(block.omega, self.device.kind)
        by_action = torch.zeros(self.forms.n_actions, dtype=torch.float64, device=omega.device)
        with self.lock:
            for piece in self._pieces(own):
                some = slice(piece.start, piece.stop)
                shares = self.forms.target.scores(some, 0).sub_(rows.target[some, None]).exp_()
                by_action += omega[piece.start - own.start : piece.stop - own.start] @ shares
        if logging is None or rows.logging is None:
            return by_action, torch.ones_like(by_action[:1])
        lowest = -logging.left[own].norm(dim=1) * logging.right[0].norm(dim=1).amax() - rows.logging[own]
        return by_action, (lowest.amin() >= math.log(torch.finfo(self.device.kind).tiny))[None]


def _pooled(
    pooling: Pooling, block: BlockInput, above: FloatArray, below: FloatArray, logged: tuple[FloatArray, FloatArray]
) -> PoolSums:
    """The share of the logged action is 1: it is at its own embedding, where the density is largest."""
    pi, action = logged
    new = ~pooling.seen[block.rounds.batch.codes]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(below > 0, above / below, action)
        own = np.where(above > 0, pi / above, 1.0)
    return PoolSums(np.where(new, action, ratio), np.where(new, 1.0, own), new)


class ActionSums:
    """Sums by action over the rounds of one block: the target's mass, tables of the share, and slopes of the ratios.

    With Q the shares, w = Σ π·Q / Σ π0·Q, and ∂w/∂s_a = Q_a (π_a − w·π0_a) / Σ_b Q_b π0_b.
    """

    def __init__(self, batch: DeviceBatch, block: BlockInput, own: slice, sums: BlockSums) -> None:
        self._batch, self._block, self._start = batch, block, own.start
        self._omega, self._ratios = self._sent(block.omega), [self._sent(pool.ratio) for pool in sums.pools]
        self._new = [self._sent(pool.new.astype(np.float64)) for pool in sums.pools]
        weighted = block.x * block.omega
        self._sets = [self._sent(only(weighted, rows).T) for rows in block.tables]
        self._by_action: Any = 0.0
        self._unsupported = 0.0
        self.tables: list[Any] = [0.0] * len(block.tables)
        self._scores: list[Any] = [0.0] * len(block.pools)
        self._rounds: list[list[Tensor]] = [[] for _ in block.pools]

    def _sent(self, values: FloatArray) -> Tensor:
        return self._batch.device.tensor(values, self._batch.device.kind)

    @property
    def mass(self) -> TargetMass:
        return TargetMass(self._by_action.cpu().numpy(), float(self._block.omega.sum()), self._unsupported)

    def slopes(self, j: int) -> SlopeSums:
        """Of one pooling."""
        _, multipliers = self._block.pools[j]
        assert multipliers is not None
        scores, rounds = self._scores[j].cpu().numpy(), self._batch.device.torch.cat(self._rounds[j]).double().cpu().numpy()
        return SlopeSums(scores.reshape(len(scores), multipliers.shape[1], -1), rounds)

    def add(self, cells: BlockProbabilities) -> None:
        """Add some rounds."""
        rows = slice(cells.run.start - self._start, cells.run.stop - self._start)
        if self._block.mass:
            self._by_action = self._by_action + (self._omega[rows] @ cells.target).double()
            if cells.logging is not None and bool((cells.logging == 0).any()):
                self._unsupported += float((self._omega[rows] @ (cells.target * (cells.logging == 0))).sum())
        for k, weighted in enumerate(self._sets):
            self.tables[k] = self.tables[k] + (cells.target.T @ weighted[rows]).double()
        for j, (_, multipliers) in enumerate(self._block.pools):
            if multipliers is not None:
                self._add_slopes(j, cells, rows, self._sent(multipliers[rows]))

    def _add_slopes(self, j: int, cells: BlockProbabilities, rows: slice, multipliers: Tensor) -> None:
        torch, form, slot = self._batch.device.torch, self._batch.forms.pools[j], cells.run.slots[j]
        share, pi, pi0 = cells.shares[j], cells.target, cells.logging
        below = (share * pi0).sum(dim=1)
        slope = share * (pi - self._ratios[j][rows, None] * pi0)
        known = (self._new[j][rows] == 0) & (below > 0)
        scale = torch.where(known, 1 / below.clamp_min(1e-300 if below.dtype == torch.float64 else 1e-37), 0.0)
        z = form.left[cells.run.start : cells.run.stop]
        padded = torch.cat([z, torch.ones_like(z[:, :1])], dim=1)
        products = ((multipliers * scale[:, None])[:, :, None] * padded[:, None, :]).flatten(1)
        self._scores[j] = self._scores[j] + (slope.T @ products).double()
        self._rounds[j].append((slope @ form.right[slot]) * scale[:, None])
