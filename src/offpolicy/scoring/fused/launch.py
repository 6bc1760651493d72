"""From forms to the Triton kernel: factors of the right size and precision, tiles of rounds, and a few launches."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offpolicy.core.device import Device
from offpolicy.scoring.fused.forms import Form, Forms, FusedSums, Run, Tensor

LOG2E = math.log2(math.e)
AT_ONCE = 2
"""How many poolings, and how many models, one launch sums."""
TINY = 1e-30
ROUNDS_AT_ONCE = 1 << 16
"""How many rounds' logged actions are computed apart at a time: 16 MB per table with 64 columns."""
LEAST = 16
"""The smallest side of a product in Triton."""


@dataclass(frozen=True)
class Tiling:
    """The sides of a tile (rounds, actions), its warps, and the stages of the software pipeline."""

    rounds: int
    actions: int
    warps: int
    stages: int


TILINGS = {
    "half": (Tiling(128, 32, 8, 3), Tiling(128, 64, 8, 3)),
    "tf32": (Tiling(128, 32, 8, 3), Tiling(64, 32, 4, 1)),
    "high": (Tiling(64, 64, 4, 2), Tiling(64, 32, 4, 2)),
    "float64": (Tiling(128, 64, 4, 1), Tiling(128, 64, 4, 1)),
}
"""With one pooling and with two, the fastest of those that were tried on an H200; float64 is for the interpreter."""


@dataclass(frozen=True)
class Factor:
    """One side of a product: columns for the matrix units, a power of 2 in number, and a last one that is added to it."""

    columns: Tensor
    last: Tensor


@dataclass(frozen=True)
class ActionTable:
    """The actions' side of a form: each column is divided by a power of 2, `scale`, so that its largest entry is about 1.

    `source` is the table it was made from, which is kept so that its identity stays taken.
    """

    source: Tensor
    factor: Factor
    bias: Tensor
    scale: Tensor


@dataclass(frozen=True)
class Product:
    """A form as the kernel reads it, in this unit."""

    left: Factor
    table: ActionTable
    unit: Tensor | float = 1.0

    @property
    def size(self) -> tuple[int, bool]:
        """The number of columns, and whether there is a last one."""
        return int(self.left.columns.shape[1]), bool(self.left.last.numel())

    def at(self, rows: slice, at: tuple[Any, Tensor]) -> Tensor:
        """The number of one slot and action for each of some rounds, from the rounded factors."""
        table, last = self.table.factor, self.left.last
        out = (self.left.columns[rows] * table.columns[at].to(last.dtype)).sum(dim=1)
        if last.numel():
            out += (last[rows] * table.last[at]).sum(dim=1)
        return out + self.table.bias[at] if self.table.bias.numel() else out

    @property
    def pointers(self) -> tuple[Tensor, ...]:
        return self.left.columns, self.left.last, self.table.factor.columns, self.table.factor.last


@dataclass
class Launcher:
    """Runs the kernel, and keeps the tables of actions that it has converted."""

    device: Device
    tiling: Tiling | None = None
    _tables: dict[tuple[int, bool], ActionTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def row_sums(self, forms: Forms, half: bool) -> FusedSums:
        """The sums over the actions of each round; with `half`, the factors of products are in half precision."""
        parts = [
            self._launch(forms, slice(k, k + AT_ONCE), half)
            for k in range(0, max(len(forms.pools), len(forms.models), 1), AT_ONCE)
        ]
        joined = (self.device.torch.cat([getattr(p, name) for p in parts]) for name in ("above", "below", "baselines"))
        return FusedSums(parts[0].target, parts[0].logging, *joined)

    def _launch(self, forms: Forms, some: slice, half: bool) -> FusedSums:
        from offpolicy.scoring.fused.tiles import sweep

        torch, device = self.device.torch, forms.target.left.device
        pools, models = forms.pools[some], forms.models[some]
        policies = [forms.target] if forms.logging is None else [forms.target, forms.logging]
        scored = [self._score(form, half) for form in policies]
        pooled = [self._score(form, half) for form in pools]
        predicted = [self._prediction(form, half) for form in models]
        slots = [(*run.slots[: len(forms.pools)][some], *run.slots[len(forms.pools) :][some]) for run in forms.runs]
        tiling = self.tiling or TILINGS["half" if half else self.device.precision][len(pools) > 1]
        tiles = _tiles(forms.runs, slots, tiling.rounds, self.device)
        shape = (2 + 2 * len(pools) + len(models), forms.rounds)
        out = torch.empty(shape, dtype=forms.target.left.dtype, device=device)

        def filled(parts: list[tuple[Tensor, ...]], size: int) -> list[Tensor]:
            return [tensor for part in [*parts, *[(out,) * size] * (2 - len(parts))] for tensor in part]

        sizes = [_size(each) for each in (scored[:1], scored[1:], pooled, predicted)]
        with self._lock:
            sweep[(len(tiles[0]),)](
                *tiles, out, forms.rounds, forms.n_actions,
                *filled([p.pointers for p in scored], 4),
                *filled([(*p.pointers, p.table.bias, f.shift * LOG2E) for p, f in zip(pooled, pools, strict=True)], 6),
                *filled([p.pointers for p in predicted], 4),
                LOGGING=forms.logging is not None, POOLS=len(pools), MODELS=len(models),
                **dict(zip(("K1", "K0", "KZ", "KX"), (k for k, _ in sizes), strict=True)),
                **dict(zip(("E1", "E0", "EZ", "EX"), (last for _, last in sizes), strict=True)),
                M=tiling.rounds, N=tiling.actions, DIGITS=self._digits(half), KIND=self._kind,
                num_warps=tiling.warps, num_stages=tiling.stages,
            )  # fmt: skip
        n = len(pools)
        if half:
            pairs = zip([*policies, *pools], [*scored, *pooled], strict=True)
            self._correct(out, forms, [*pairs], tiles, tiling.rounds)
        out[:2] /= LOG2E
        baselines = out[2 + 2 * n :]
        for r, each in enumerate(predicted):
            baselines[r] *= each.unit
        return FusedSums(
            out[0], None if forms.logging is None else out[1], out[2 : 2 + n], out[2 + n : 2 + 2 * n], baselines
        )

    def _correct(
        self, out: Tensor, forms: Forms, pairs: Sequence[tuple[Form, Product]], tiles: Sequence[Tensor], size: int
    ) -> None:
        """Take the terms of the logged actions from factors that are not rounded.

        Where one term dominates a sum, it is that of the logged action; the rounding errors of the others average out.
        """
        starts, stops, slots = tiles
        lengths = (stops - starts).clamp(max=size)
        slots = slots.repeat_interleave(lengths, dim=0, output_size=forms.rounds).long()
        policies = 1 if forms.logging is None else 2
        for start in range(0, forms.rounds, ROUNDS_AT_ONCE):
            rows = slice(start, start + ROUNDS_AT_ONCE)
            action, sums = forms.action[rows], out[:, rows]
            terms = []
            for k, (form, product) in enumerate(pairs):
                at = (0 if k < policies else slots[rows, k - policies], action)
                shift = LOG2E * form.shift[rows] if form.shift.numel() else 0.0
                terms.append((LOG2E * form.at(rows, at) - shift, product.at(rows, at) - shift))
            shares = [(true.exp2(), found.exp2()) for true, found in terms[policies:]]
            for k, (true, found) in enumerate(terms[:policies]):
                p, seen = (true - sums[k]).exp2(), (found - sums[k]).exp2()
                total = 1 + p - seen
                for j, (share, share_seen) in enumerate(shares):
                    sums[2 + k * len(shares) + j].add_(p * share - seen * share_seen).div_(total)
                sums[k] += total.log2()

    @property
    def _kind(self) -> Any:
        from triton import language as tl

        return tl.float64 if self.device.precision == "float64" else tl.float32

    def _digits(self, half: bool) -> str:
        if not self.device.cuda or self.device.precision == "float64" or half:
            return "ieee"
        return "tf32x3" if self.device.precision == "high" else "tf32"

    def _table(self, form: Form, half: bool, linear: bool) -> ActionTable:
        """The converted table of actions. The intercept of a linear form is its last column."""
        key = (id(form.right), half)
        with self._lock:
            if key not in self._tables:
                torch, (main, padded) = self.device.torch, _split(form.right.shape[2], linear)
                largest = form.right.abs().amax(dim=(0, 1)).clamp_min(TINY)
                scale = torch.exp2(torch.round(torch.log2(largest)))
                columns = self._padded(form.right[..., :main] / scale[:main], padded, half)
                last = form.bias if linear else form.right[..., main:].contiguous()
                self._tables[key] = ActionTable(form.right, Factor(columns, last), form.bias * LOG2E, scale)
            return self._tables[key]

    def _padded(self, columns: Tensor, size: int, half: bool) -> Tensor:
        torch = self.device.torch
        out = torch.zeros((*columns.shape[:-1], size), dtype=torch.float16 if half else columns.dtype, device=columns.device)
        out[..., : columns.shape[-1]] = columns
        return out

    def _score(self, form: Form, half: bool) -> Product:
        """In units of log 2."""
        table, (main, padded) = self._table(form, half, linear=False), _split(form.left.shape[1])
        columns = self._padded(form.left[:, :main] * (table.scale[:main] * LOG2E), padded, half)
        return Product(Factor(columns, (form.left[:, main:] * LOG2E).contiguous()), table)

    def _prediction(self, form: Form, half: bool) -> Product:
        """In a unit in which the largest term is about 1, whatever that of the rewards is."""
        torch, table = self.device.torch, self._table(form, half, linear=True)
        terms = form.left * table.scale
        unit = torch.exp2(torch.ceil(torch.log2(terms.abs().amax().clamp_min(TINY))))
        columns = self._padded(terms / unit, table.factor.columns.shape[-1], half)
        return Product(Factor(columns, (1 / unit).expand(len(terms)).contiguous()), table, unit)

    def release(self) -> None:
        """Forget the tables."""
        self._tables.clear()


def _split(size: int, linear: bool = False) -> tuple[int, int]:
    """How many columns a product has, without and with padding; a single one beyond a power of 2 is added to it."""
    power = 1 << (max(size, LEAST).bit_length() - 1)
    if size == power + 1 and not linear:
        return power, power
    return size, power if power >= size else 2 * power


def _size(products: Sequence[Product]) -> tuple[int, bool]:
    return products[0].size if products else (LEAST, False)


def _tiles(runs: Sequence[Run], slots: Sequence[tuple[int, ...]], rounds: int, device: Device) -> list[Tensor]:
    """The first round of each tile, the last one of its run, and the slots."""
    tiles = [(part.start, part.stop, own) for run, own in zip(runs, slots, strict=True) for part in run.cut(rounds)]
    columns = [[t[0] for t in tiles], [t[1] for t in tiles], [t[2] for t in tiles]]
    return [device.tensor(np.array(column, dtype=np.int32)) for column in columns]
