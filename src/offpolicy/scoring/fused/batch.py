"""A batch on the device: from its sums by round to those of the scoring pass, and sums by action over its sampled rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.device import Device
from offpolicy.models.posteriors.base import Pooling
from offpolicy.ratios.pools import PoolSums, SlopeSums
from offpolicy.scoring.fused.forms import Form, Forms, FusedSums, Run, Tensor
from offpolicy.scoring.fused.plain import Cells, rows_at_once
from offpolicy.scoring.kernel import BlockInput, BlockSums, TargetMass, only


@dataclass(frozen=True)
class DeviceBatch:
    """What a batch is computed from.

    Attributes
    ----------
    action : Tensor
        The logged actions.
    columns : Sequence[int]
        The column of the baseline of each model.
    lock : AbstractContextManager[Any]
        Held while blocks of rounds × actions take memory.
    """

    device: Device
    forms: Forms
    action: Tensor
    columns: Sequence[int]
    lock: AbstractContextManager[Any]

    def block_sums(self, rows: FusedSums, blocks: Sequence[BlockInput]) -> list[BlockSums]:
        """What the scoring pass stores for each block."""
        target = self._logged(self.forms.target, rows.target)
        logging = None if self.forms.logging is None else self._logged(self.forms.logging, rows.logging)
        above, below, baselines = (part.double().cpu().numpy() for part in (rows.above, rows.below, rows.baselines))
        out, start = [], 0
        for block in blocks:
            own = slice(start, start := start + len(block.rounds.batch))
            pi, pi0 = target[own], None if logging is None else logging[own]
            pools = []
            if pi0 is not None:
                with np.errstate(divide="ignore", invalid="ignore"):
                    action = pi / pi0
                for (pooling, _), over, under in zip(block.pools, above[:, own], below[:, own], strict=True):
                    pools.append(_pooled(pooling, block, over, under, (pi, action)))
            columns = dict(zip(self.columns, baselines[:, own], strict=True))
            out.append(self._sampled(block, own, BlockSums(pi, pi0, columns, pools, None, {}), rows))
        return out

    def _logged(self, form: Form, norm: Tensor) -> FloatArray:
        """The probability of each logged action, from a score in double precision."""
        score = (form.left.double() * form.right[0][self.action].double()).sum(dim=1)
        p: FloatArray = (score - norm.double()).exp().clamp(max=1.0).cpu().numpy()  # more than 1 is rounding
        return p

    def _sampled(self, block: BlockInput, own: slice, sums: BlockSums, rows: FusedSums) -> BlockSums:
        """With the sums by action that are needed for a block of the sample."""
        part = block.baselines.parts[0] if block.baselines.parts else None
        table = None if part is None or not block.tables else part.table
        sloped = [j for j, (_, multipliers) in enumerate(block.pools) if multipliers is not None]
        if not (block.mass or table is not None or sloped):
            return sums
        slots = next(run.slots for run in self.forms.runs if run.start <= own.start < run.stop)
        pieces = [*Run(own.start, own.stop, slots).cut(rows_at_once(self.forms))]
        with self.lock:
            mass = None if table is not None or sloped else self._mass(block, own, rows, pieces)
            if mass is not None:
                return replace(sums, mass=mass)
            by_action = ActionSums(self, block, own, sums)
            for piece in pieces:
                by_action.add(Cells.of(self.forms, piece, pooled=bool(sloped)))
        pools = [replace(p, slopes=by_action.slopes(j)) if j in sloped else p for j, p in enumerate(sums.pools)]
        return replace(
            sums,
            pools=pools,
            mass=by_action.mass if block.mass else None,
            tables={} if table is None else {table: [each.double().cpu().numpy() for each in by_action.tables]},
        )

    def _mass(self, block: BlockInput, own: slice, rows: FusedSums, pieces: Sequence[Run]) -> TargetMass | None:
        """The mass alone, from the sums by round; None if a probability of the logging policy may be 0."""
        torch, omega, kind = self.device.torch, self.device.tensor(block.omega, self.device.kind), self.device.kind
        by_action, lowest = torch.zeros(self.forms.n_actions, dtype=torch.float64, device=omega.device), []
        for piece in pieces:
            some, logging = slice(piece.start, piece.stop), self.forms.logging
            if logging is not None and rows.logging is not None:
                lowest.append((logging.scores(some, 0).amin(dim=1) - rows.logging[some]).amin())
            shares = self.forms.target.scores(some, 0).sub_(rows.target[some, None]).exp_()
            by_action += omega[piece.start - own.start : piece.stop - own.start] @ shares
        if lowest and float(torch.stack(lowest).amin()) < math.log(torch.finfo(kind).tiny):
            return None
        return TargetMass(by_action.cpu().numpy(), float(block.omega.sum()), 0.0)


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

    def add(self, cells: Cells) -> None:
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

    def _add_slopes(self, j: int, cells: Cells, rows: slice, multipliers: Tensor) -> None:
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
